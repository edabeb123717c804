"""Families put together for one dialogue: an act, and some of the conditions that suit it.

The same act comes under other names, with other inputs, in other units; what is not said is left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from training.families import Family, Frame, Role, frame_of
from training.quantities import UNITS, WHOLE
from training.values import DATA, Draw

HELD_ACTS = 12
NESTS = ("options", "settings", "details", "params", "config")
STEMS = {
    "duration": ("duration", "time", "length", "run_time"),
    "weight": ("weight", "mass", "amount"),
    "volume": ("volume", "amount", "quantity"),
    "length": ("distance", "length", "range"),
}
# Conditions that the same words could mean.
ALIKE = tuple(
    frozenset(line.split())
    for line in (
        "private public notify",
        "repeat every",
        "urgent priority shipping speed",
        "day loose_day weekday",
        "duration short days",
        "note reason",
        "price budget tip",
        "size height",
        "many people",
        "portion weight volume",
        "room place",
        "degrees cold",
        "quality level",
        "eco share",
        "every weekday period",
        "severity priority level",
        "visibility private public",
        "travel class",
        "address place room",
        "label subject",
        "for_whom company crew people",
        "limit many",
        "extras volume crew",
        "attachment link",
        "color ink theme_color",
        "code ref",
        "tongue place room color format",
        "share degrees cold price clock address",
        "period duration day days loose_day",
    )
)
# Conditions that suit almost any act.
GENERAL = (
    "note ref priority notify urgent dry confirm attachment link subject code limit visibility severity private"
    " backup_first email phone reason label tags for_whom company day clock channel quality force"
).split()
UNIT_NAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "seconds": (("seconds", "s", "sec", "secs"), ("in seconds", "seconds", "how many seconds")),
    "minutes": (("minutes", "min", "mins"), ("in minutes", "minutes", "how many minutes")),
    "hours": (("hours", "h", "hrs"), ("in hours", "hours", "number of hours")),
    "days": (("days", "d"), ("in days", "days", "number of days")),
    "grams": (("grams", "g"), ("in grams", "grams")),
    "kilograms": (("kg", "kilos", "kilograms"), ("in kg", "kilograms", "in kilograms")),
    "centimetres": (("cm", "centimeters"), ("in cm", "centimetres", "in centimeters")),
    "metres": (("m", "meters", "metres"), ("in metres", "meters", "in meters")),
    "kilometres": (("km", "kilometers"), ("in km", "kilometres")),
    "millilitres": (("ml", "milliliters"), ("in ml", "millilitres")),
    "litres": (("l", "liters", "litres"), ("in litres", "liters")),
    "euros": (("eur", "usd", "euros", "dollars", ""), ("in euros", "EUR", "in dollars", "")),
    "cents": (("cents", "ct"), ("in cents", "cents")),
    "percent": (("percent", "pct"), ("in percent", "0 to 100 percent", "percent")),
    "fraction": (("fraction", "ratio"), ("0 to 1", "a fraction from 0 to 1", "0-1")),
    "items": (("",), ("",)),
    "celsius": (("c", "celsius", ""), ("in celsius", "degrees", "")),
    "HH:MM": (("hhmm", "24h"), ("HH:MM", "as HH:MM", "24-hour time, HH:MM")),
    "hour": (("hour",), ("hour of the day, 0-23 hours", "in hours, 0 to 23 hours")),
    "said": (("",), ("",)),
    "iso": (("iso",), ("YYYY-MM-DD", "as YYYY-MM-DD", "ISO date, YYYY-MM-DD")),
}


@dataclass(slots=True)
class Clause:
    """A condition of a wish: what an input for it may be called, and the ways to say it."""

    name: str
    stems: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    choices: list[list[str]] = field(default_factory=list)
    ways: list[tuple[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class Act:
    """Something that people want done."""

    name: str
    names: list[str]
    purposes: list[str]
    domain: str
    held: bool
    roles: list[Role] = field(default_factory=list)
    slots: dict[str, str] = field(default_factory=dict)
    clauses: list[str] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)


@cache
def clauses() -> dict[str, Clause]:
    found: dict[str, Clause] = {}
    clause = Clause("")
    for line in (DATA / "clauses.txt").read_text(encoding="utf-8").splitlines():
        word, _, rest = line.partition(" ")
        match word:
            case "#":
                clause = found[rest] = Clause(rest)
            case "measure":
                quantity, _, listed = rest.partition(" ")
                clause.kinds = [f"measure {quantity} {unit}" for unit in listed.split(" | ")]
            case "kind":
                clause.kinds = [rest]
            case "bool":
                clause.kinds = ["bool"]
            case "enum":
                clause.choices = [choice.split("/") for choice in rest.split("; ")]
            case "stems":
                clause.stems = rest.split("; ")
            case "say":
                clause.ways += [(way, None) for way in rest.split("; ")]
            case "true" | "false":
                clause.ways += [(way, word == "true") for way in rest.split("; ")]
            case _:
                clause.ways += [(way, int(word) - 1) for way in rest.split("; ")]
    return found


@cache
def acts() -> tuple[Act, ...]:
    found = [act for path in sorted((DATA / "acts").glob("*.txt")) for act in _acts(path.stem, path.read_text("utf-8"))]
    return tuple(found)


def _acts(domain: str, text: str) -> Iterator[Act]:
    act: Act | None = None
    for line in filter(None, text.splitlines()):
        if line.startswith("# "):
            if act:
                yield act
            name, names, purposes = line[2:].split(" | ")
            held = sum(name.encode()) % HELD_ACTS == 0
            act = Act(name, names.split("; "), purposes.split("; "), domain, held)
        elif act:
            _add(act, line)
    if act:
        yield act


def _add(act: Act, line: str) -> None:
    mark, _, rest = line.partition(" ")
    match mark:
        case "-":
            names, _, kind = rest.partition(" ")
            act.roles.append(Role(tuple(names.rstrip("*").split("/")), kind, names.endswith("*")))
        case ".":
            name, _, kind = rest.partition(" ")
            act.slots[name] = kind
        case "+":
            act.clauses += rest.split()
        case "~":
            act.idle.append(rest)
        case _:
            act.frames.append(frame_of(line, act.name))


def compose(act: Act, rng: Draw, *, held: bool | None = False) -> Family:
    """The family of one tool for that act, with one way to ask for it."""
    family = Family(act.name, names=act.names, purposes=act.purposes, group=act.name)
    family.tags = frozenset({"outside", "held"} if act.held else {"outside"})
    family.roles = {role.name: _varied(role, rng) for role in act.roles}
    family.slots = dict(act.slots)
    frame = rng.choice([frame for frame in act.frames if held is None or frame.held == held] or act.frames)
    text, fixed = frame.text, dict(frame.fixed)
    able = rng.sample(act.clauses, min(len(act.clauses), rng.choices([0, 1, 2, 3, 4], [8, 25, 32, 25, 10])[0]))
    able += [name for name in rng.sample(GENERAL, rng.choices([0, 1, 2], [60, 28, 12])[0]) if name not in able]
    taken = {name for role in act.roles for name in role.names}
    nest = rng.choice(NESTS) if rng.random() < 0.07 and len(able) > 1 else ""
    nest = "" if nest in taken else nest
    said: list[str] = []
    for name in able:
        must = rng.random() < 0.15
        role, ways = _condition(clauses()[name], name, nest, must, rng)
        if _is_taken(role, family):
            continue
        family.roles[role.name] = role
        if must or rng.random() < 0.6:
            way, value = rng.choice(ways)
            said.append(way)
            if value is not None:
                fixed[role.name] = value
    family.frames = [Frame(_put_together(text, said, rng), fixed, frame.held)]
    return family


def _varied(role: Role, rng: Draw) -> Role:
    """The role as it stands, or with its amount in another unit; then its name or description tells which."""
    if not role.kind.startswith("measure "):
        return role
    _, quantity, unit, *bounds = role.kind.split()
    if unit == "HH:MM" and rng.random() < 0.6:
        return replace(role, about=_sentence(role.name, rng.choice(UNIT_NAMES[unit][1]), rng))
    if unit == "HH:MM":
        return replace(role, kind=" ".join(["measure", quantity, "said", *bounds]))
    if quantity not in UNITS or rng.random() < 0.4:
        return role
    sizes = UNITS[quantity]
    low, high = (float(bound) * sizes[unit] for bound in bounds)
    able = [other for other, size in sizes.items() if high / size >= 1 and low / size < 20_000]
    other = rng.choice(able)
    least, most = max(low / sizes[other], 0.25), high / sizes[other]
    kind = f"measure {quantity} {other} {least:g} {most:g}"
    label, about = _labelled(rng.choice(STEMS[quantity]), kind, rng)
    return replace(role, kind=kind, about=about, label=label)


def _is_taken(role: Role, family: Family) -> bool:
    """Whether an input would have the name of another, or the same words could mean both."""
    close = frozenset().union(*(group for group in ALIKE if role.name in group))
    taken = {name for known in family.roles.values() for name in (*known.names, known.label)}
    return bool((close | {role.name, role.label}) & taken)


def _condition(clause: Clause, name: str, nest: str, must: bool, rng: Draw) -> tuple[Role, list[tuple[str, Any]]]:
    stem = rng.choice(clause.stems)
    if clause.choices:
        picked = [rng.choice(choice) for choice in clause.choices]
        kind = "; ".join(f"{choice}={choice}" for choice in picked)
        ways: list[tuple[str, Any]] = [(way, picked[place]) for way, place in clause.ways]
        label, about = stem, ""
    else:
        kind = rng.choice(clause.kinds)
        label, about = _labelled(stem, kind, rng)
        ways = [] if kind == "bool" else [(way.replace("{x}", f"{{{name}}}"), None) for way, _ in clause.ways]
        ways = ways or list(clause.ways)
    full = f"{nest}.{label}" if nest and not must else label
    return Role((name,), kind, must, about, full), ways


def _labelled(stem: str, kind: str, rng: Draw) -> tuple[str, str]:
    """The name of an input and what is said about it: one of them tells the unit."""
    if not kind.startswith("measure "):
        return stem, ""
    unit = kind.split()[2]
    suffixes, abouts = UNIT_NAMES[unit]
    suffix, about = rng.choice(suffixes), rng.choice(abouts)
    if not suffix or not about:
        return stem, ""
    match rng.randint(0, 4):
        case 0 | 1:
            return f"{stem}_{suffix}", ""
        case 2:
            return f"{stem}_{suffix}", _sentence(stem, about, rng)
        case 3 if len(suffix) > 2 and unit in WHOLE | {"hours", "hour", "percent"}:
            return suffix, ""
    return stem, _sentence(stem, about, rng)


def _sentence(stem: str, about: str, rng: Draw) -> str:
    what = stem.replace("_", " ")
    return rng.choice([about, f"{what} {about}", f"The {what} ({about})", f"{what.capitalize()}, {about}"])


def _put_together(text: str, said: list[str], rng: Draw) -> str:
    """The wish and its conditions in some order, in one sentence or in several."""
    end = text[-1] if text[-1:] in ".?!" else ""
    body = text.removesuffix(end) if end else text
    rng.shuffle(said)
    said.sort(key=lambda way: '"' in way)
    front = said.pop(0) if said and '"' not in said[0] and rng.random() < 0.12 else ""
    for way in said:
        joint = rng.choice([" ", " ", " ", ", ", ", "]) if _is_short(way) else rng.choice([", ", ". ", " - ", ", "])
        if end == "?" and not _is_short(way):
            body, end, joint = f"{body}?", "", " "
        body += joint + (way[:1].upper() + way[1:] if joint == ". " else way)
    body = f"{front}{rng.choice([', ', ': ', ', '])}{body}" if front else body
    return re.sub(r" +", " ", body + end)


_HEADS = set("for at in on to with within by until till as of from over under around near up because".split())
_HEADS |= set("quietly silently without slowly quickly again lasting weighing called named tagged every each".split())


def _is_short(way: str) -> bool:
    """Whether it goes on with the sentence, or is one of its own."""
    return way.split(" ", 1)[0].strip("{}") in _HEADS or way.endswith(("long", "high", "tall"))


def pick(rng: Draw, *, held: bool | None) -> Act:
    """An act that may be asked for."""
    return rng.choice([act for act in acts() if held is None or act.held == held])


def neighbours(name: str, rng: Draw, count: int) -> list[Act]:
    """Acts of the same domain."""
    own = next((act for act in acts() if act.name == name), None)
    others = [act for act in acts() if own and act.domain == own.domain and act is not own]
    return rng.sample(others, min(count, len(others)))
