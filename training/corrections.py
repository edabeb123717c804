"""Errors that tell what would be right: the call is made again, as they say."""

from collections.abc import Callable
from typing import Any

from training.making import Dialogue, Maker, failure
from training.quantities import measure
from training.requests import Ask, revalued
from training.values import Draw, draw
from training.wording import typo

Fix = tuple[Ask, str, Ask]
SUGGESTIONS = (
    "{what} {role} {bad}; did you mean {good}?",
    "{what} {role} {bad}. Did you mean {good}?",
    "{what} {role}: {bad}. Perhaps you meant {good}.",
    "{bad} is not known, the closest match is {good}",
    "{role} {bad} does not exist, but {good} does",
    "{bad} was renamed to {good}",
    "{role} must be one of {listed}",
    "{what} {role} {bad}; known are {listed}",
    "invalid {role} {bad}: use {good} instead",
    "{role} {bad} was not found. Try {good}",
    "{bad}: not found. Available: {listed}",
    "{what} {role} {bad} (available: {listed})",
    "{role} {bad} is not valid; valid values: {listed}",
    "{bad} does not exist here. Did you mean {good}?",
    "404: {bad} has moved to {good}",
    "{bad} is no longer used, use {good}",
    "{what} {role} {bad}, only {listed}",
    "could not find {bad}. Similar: {good}",
    "{role} should be {good}, not {bad}",
    "{bad} is misspelled, it should be {good}",
)
LIMITS = (
    "{role} must be at most {limit}",
    "{role} {bad} is too large, the maximum is {limit}",
    "{role} may not be more than {limit}",
    "invalid {role}: no more than {limit} allowed",
    "{role}: {bad} exceeds the limit of {limit}",
    "{role} must be between 1 and {limit}",
    "{role} must be in the range 1-{limit}, got {bad}",
    "{bad} is more than the {limit} that are allowed for {role}",
    "only {limit} are available",
    "{role} is limited to {limit}",
)
LEASTS = (
    "{role} must be at least {limit}",
    "{role} {bad} is too small, the minimum is {limit}",
    "{role} may not be less than {limit}",
    "{role} must be {limit} or more",
    "the smallest {role} is {limit}",
)
SHAPES = (
    "{role} must have the form {shape}",
    "{role}: expected {shape}, got {bad}",
    "invalid {role} {bad}: write it as {shape}",
    "cannot read {role} {bad}, use {shape}",
)
UNCASED = {"date", "time", "measure", "topic", "shell", "pattern", "code", "url", "phone", "task", "instruction"}
UNFIXABLE = {"text", "seconds", "object", "objects", "bool", "list"}


def fixed(maker: Maker, asked: Ask) -> Fix | None:
    """What was asked, the error that it meets, and what is asked then; None if nothing can be put right."""
    ways: list[Callable[[Ask, str, Draw], Fix | None]] = [_suggested, _suggested, _limited, _raised, _shaped, _cased]
    roles = [role for role in asked.said if role in asked.family.roles and role not in asked.frame.fixed]
    for _ in range(6):
        if not roles:
            return None
        fix = maker.rng.choice(ways)(asked, maker.rng.choice(roles), maker.rng)
        if fix:
            return fix
    return None


def retried(maker: Maker, asked: Ask, talk: Dialogue, made: Any) -> bool:
    """Whether the call was put right by what its error said."""
    fix = fixed(maker, asked)
    if fix is None:
        return False
    first, message, then = fix
    talk.user(first.request(maker.rng))
    talk.calls((made, first.arguments(made)))
    talk.gets(failure(made, message))
    maker.served(talk, then, made)
    return True


def _suggested(asked: Ask, role: str, rng: Draw) -> Fix | None:
    kind = asked.family.roles[role].kind
    value = asked.values[role]
    if not isinstance(value, str) or "=" in kind or kind.split()[0] in UNFIXABLE or "\n" in value:
        return None
    others = [str(draw(kind, rng)[1]) for _ in range(3)]
    good = others[0]
    first = asked
    if rng.random() < 0.5 and len(value) > 4 and value.isalpha():
        good, bad = value, typo(value, rng)
        first = revalued(asked, role, bad, bad)
    others = list(dict.fromkeys([good, *others[1:]]))
    bad = str(first.values[role])
    if good == bad or bad in others:
        return None
    rng.shuffle(others)
    template = rng.choice(SUGGESTIONS)
    if "{listed}" in template and good == others[0] and first is asked:
        others = [good]
    if "{listed}" in template and first is asked and len(others) > 1:
        return None
    what = rng.choice(["no such", "unknown", "there is no", "no"])
    quote = rng.choice(["'", '"', ""])
    message = template.format(
        what=what,
        role=role.replace("_", " "),
        bad=f"{quote}{bad}{quote}",
        good=f"{quote}{good}{quote}",
        listed=", ".join(others),
    )
    return first, message, revalued(asked, role, good, good)


def _limited(asked: Ask, role: str, rng: Draw) -> Fix | None:
    value = asked.values[role]
    if type(value) is not int or value < 3:
        return None
    limit = rng.choice([value // 2, value - 1, max(1, value // 10 * 5), 1 + value * 2 // 3])
    if not 0 < limit < value:
        return None
    message = rng.choice(LIMITS).format(role=role.replace("_", " "), bad=value, limit=limit)
    return asked, message, revalued(asked, role, str(limit), limit)


def _raised(asked: Ask, role: str, rng: Draw) -> Fix | None:
    value = asked.values[role]
    if type(value) is not int or value < 1:
        return None
    limit = rng.choice([value + 1, value + rng.randint(2, 20), 10 * (value // 10 + 1), value * 2])
    message = rng.choice(LEASTS).format(role=role.replace("_", " "), bad=value, limit=limit)
    return asked, message, revalued(asked, role, str(limit), limit)


def _shaped(asked: Ask, role: str, rng: Draw) -> Fix | None:
    kind = asked.family.roles[role].kind
    match kind.split()[0]:
        case "date" | "isodate":
            said, value = measure(rng, "day", "iso")
            shape = "YYYY-MM-DD"
        case "time":
            said, value = measure(rng, "clock", "HH:MM", "5", "23")
            shape = rng.choice(["HH:MM", "HH:MM (24-hour)"])
        case _:
            return None
    if said == value:
        return None
    message = rng.choice(SHAPES).format(role=role.replace("_", " "), bad=repr(said), shape=shape)
    return revalued(asked, role, said, said), message, revalued(asked, role, str(value), value)


def _cased(asked: Ask, role: str, rng: Draw) -> Fix | None:
    value = asked.values[role]
    kind = asked.family.roles[role].kind
    if not isinstance(value, str) or "=" in kind or kind.split()[0] in UNFIXABLE | UNCASED:
        return None
    label = role.replace("_", " ")
    changes = [
        (value.lower(), f"{label} must be in lower case"),
        (value.upper(), f"{label} must be in capital letters"),
        (value.replace(" ", "_"), f"{label} must not contain spaces, use underscores"),
        (value.replace(" ", "-"), f"{label} must not contain spaces, write a dash instead"),
        (f"/{value}", f"{label} must start with a slash"),
    ]
    if kind.split()[0] not in ("path", "dir"):
        changes.pop()
    able = [
        (good, message) for good, message in changes if good != value and not good.startswith(("/~", "//", "/.", "/ "))
    ]
    if not able:
        return None
    good, message = rng.choice(able)
    return asked, message, revalued(asked, role, good, good)
