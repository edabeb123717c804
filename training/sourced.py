"""Dialogues in which a wish names something by what it is (`Anna's boss`): one call finds it, the next uses it."""

import re
from functools import cache

from training.chains import chain
from training.families import Family, Role
from training.making import Dialogue, Maker, lines, result
from training.naming import make
from training.requests import Ask, revalued
from training.values import Draw, draw
from training.wording import chosen

OPENINGS = (
    "find out {x}, then {y}",
    "look up {x} and {y}",
    "get {x} and then {y}",
    "first find {x}. Then {y}",
    "find {x} and {y}",
)
AGAIN = ("it", "that", "it")
TRIES = 80


@cache
def sources() -> dict[str, list[tuple[Family, str, list[str], list[str]]]]:
    """By the kind of what is found: the family of the tool, its input, the names of its result, and phrases."""
    found: dict[str, list[tuple[Family, str, list[str], list[str]]]] = {}
    for number, line in enumerate(lines("sources")):
        kind, names, purpose, given, fields, phrases = line.split(" | ")
        role, _, own = given.partition(" ")
        family = Family(f"source{number}", names.split("; "), [purpose], {role: Role((role,), own, True)})
        family.group = family.name
        found.setdefault(kind, []).append((family, role, fields.split("; "), phrases.split("; ")))
    return found


def sourced(maker: Maker) -> Dialogue:
    """A wish for something that must be found first."""
    for _ in range(TRIES):
        asked = maker.ask(maker.family())
        roles = [role for role in asked.said if _kind(asked, role) in sources() and _is_bare(asked, role)]
        if roles and asked.family.name not in ("echo", "calculator" if maker.rng.random() < 0.5 else ""):
            break
    else:
        return chain(maker)
    role = maker.rng.choice(roles)
    rng = maker.rng
    family, own, fields, phrases = rng.choice(sources()[_kind(asked, role)])
    said, value = draw(family.roles[own].kind, rng)
    found = str(draw(_full_kind(asked, role), rng)[1])
    phrase = rng.choice(phrases).replace(f"{{{own}}}", said)
    final = revalued(asked, role, found, _typed(found, asked, role))
    first = make(family, rng)
    second = maker.made(final, seeds := maker.seeds())
    without = frozenset({"contact", "employee", "bookfind", "inventory", "stock"} - {asked.family.group})
    if first.tool.name.lower() == second.tool.name.lower():
        return sourced(maker)
    talk = Dialogue("sourced", maker.offer([first, second], seeds, without))
    talk.user(_request(asked, role, phrase, rng))
    talk.calls((first, first.arguments({own: value})))
    shown = rng.choice(
        [{rng.choice(fields): _typed(found, asked, role)}, {rng.choice(fields): _typed(found, asked, role)}, found]
    )
    talk.gets(result(first, shown))
    maker.served(talk, final, second)
    return talk


def _request(asked: Ask, role: str, phrase: str, rng: Draw) -> str:
    whole = revalued(asked, role, phrase, phrase)
    if rng.random() < 0.75 or asked.frame.text.endswith("?"):
        return whole.request(rng)
    text = revalued(asked, role, rng.choice(AGAIN), "").request(rng, alone=False)
    opening = chosen(rng.choice(OPENINGS), rng).replace("{x}", phrase).replace("{y}", text[:1].lower() + text[1:])
    return opening[:1].upper() + opening[1:] if rng.random() < 0.7 else opening


def _full_kind(asked: Ask, role: str) -> str:
    family = asked.family
    return family.slots[role] if role in family.slots else family.roles[role].kind


def _kind(asked: Ask, role: str) -> str:
    kind = _full_kind(asked, role)
    return " ".join(kind.split()[:2]) if kind.startswith("id ") else kind.split()[0]


def _typed(found: str, asked: Ask, role: str) -> str | int:
    return int(found) if _kind(asked, role) == "int" else found


def _is_bare(asked: Ask, role: str) -> bool:
    """Whether the wish names the thing once, and not as a quotation."""
    text = asked.frame.text
    return text.count(f"{{{role}}}") == 1 and not re.search(rf"[\"'`/-]\{{{role}\}}|\{{{role}\}}[\"'`/-]", text)
