"""Dialogues in which one call needs the result of another."""

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from training.catalogue import rivals, world
from training.families import Family, Frame
from training.making import Dialogue, Maker, lines, result
from training.naming import make
from training.outcomes import Outcome, outcome
from training.requests import Ask, ask, fill
from training.values import draw
from training.wording import worded


@dataclass(frozen=True, slots=True)
class Link:
    """How one family's result is used by another."""

    first: str
    second: str
    frame: Frame
    then: dict[str, Any]
    before: dict[str, Any]
    later: bool


@cache
def chains() -> tuple[Link, ...]:
    found: list[Link] = []
    first = second = word = ""
    for line in lines("chains"):
        if " > " in line and not line.startswith(" "):
            first, second = line.split(" > ")
        elif line.startswith("  "):
            text, _, fixed = line.strip().partition(" => ")
            before, arrow, then = fixed.partition(" >> ")
            found.append(Link(first, second, _frame(text), *_parted(before, then, bool(arrow)), word == "later"))
        elif line:
            word = line
    return tuple(found)


def _frame(text: str) -> Frame:
    held = sum(text.encode()) % 11 == 0
    return Frame(text, {}, held)


def _parted(before: str, then: str, both: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = (before, then) if both else ("", before)
    return _pairs(second), _pairs(first)


def _pairs(text: str) -> dict[str, Any]:
    pairs = [pair.partition("=") for pair in text.split("; ") if pair]
    return {key: {"true": True}.get(value, value) for key, _, value in pairs}


def _own(link: Link) -> Frame:
    """The first half of a chained request: only the first tool's slots."""
    slots = " ".join(
        f"{{{slot}}}" for slot in re.findall(r"\{([\w.]+)\}", link.frame.text) if not slot.startswith("2.")
    )
    return Frame(slots, link.before, False)


def _theirs(link: Link) -> list[str]:
    return [slot[2:] for slot in re.findall(r"\{([\w.]+)\}", link.frame.text) if slot.startswith("2.")]


def _kind(family: Family, role: str) -> str:
    return family.slots[role] if role in family.slots else family.roles[role].kind


def _members(came: Outcome) -> dict[str, Any]:
    return came.shown if isinstance(came.shown, dict) else {}


def _bound(template: Any, bound: dict[str, Any]) -> Any:
    if isinstance(template, str) and template.startswith("#"):
        return int(fill(template[1:], bound))
    return fill(template, bound)


def chain(maker: Maker) -> Dialogue:
    """A call whose arguments come from the result of another, in one request or in two."""
    link = maker.rng.choice(
        [link for link in chains() if maker.held_frames is None or link.frame.held == maker.held_frames]
    )
    first, second = world().by_name[link.first], world().by_name[link.second]
    alone = [frame for frame in first.asked(False) if "count" not in frame.roles and "field" not in frame.roles]
    start = ask(first, maker.rng, frames=alone if link.later else [_own(link)])
    known = {f"2.{role}": draw(_kind(second, role), maker.rng) for role in _theirs(link)}
    spare = Ask(second, link.frame, {}, dict.fromkeys(link.then))
    need = frozenset(link.then) | {role for role in _theirs(link) if role in second.roles}
    seeds = maker.seeds()
    mades = [maker.made(start, seeds), make(second, maker.rng, need, plain=bool(second.seed) and seeds)]
    if first is second:
        mades[1] = mades[0]
    elif mades[0].tool.name == mades[1].tool.name:
        return chain(maker)
    talk = Dialogue("chain", maker.offer(mades[: 1 if first is second else 2], seeds))
    text = {**start.said, **{role: value[0] for role, value in known.items()}}
    talk.user(start.request(maker.rng) if link.later else worded(link.frame.text, text, maker.rng))
    talk.calls((mades[0], start.arguments(mades[0])))
    came = _usable(maker, link, start)
    talk.gets(result(mades[0], came.shown))
    if link.later:
        talk.says(came.answer)
        talk.user(worded(link.frame.text, text, maker.rng))
    values = {role.removeprefix("2."): value[1] for role, value in known.items()}
    bound = {"r": came.main, **{role: value[1] for role, value in known.items()}, **_members(came)}
    values |= {key: _bound(template, bound) for key, template in link.then.items()}
    then = replace(spare, said={role.removeprefix("2."): value[0] for role, value in known.items()}, values=values)
    maker.served(talk, then, mades[1])
    return talk


def _usable(maker: Maker, link: Link, start: Ask) -> Outcome:
    """An outcome that the second tool can work with."""
    for _ in range(50):
        came = outcome(start, maker.rng)
        numeric = came.main.replace(".", "", 1).isdigit()
        if numeric if link.second in ("calculator", "timer") else link.second == "write" or "\n" not in came.main:
            return came
    number = str(draw("int 2 900", maker.rng)[1])
    return Outcome(number, number, f"It says: {number}")


def relay(maker: Maker) -> Dialogue:
    """Any wish, and what comes of it handed on to a second tool."""
    first = maker.ask(maker.family())
    line = maker.rng.choice(lines("relays"))
    name, rest = line.split(" > ")
    tail, into = rest.split(" => ")
    second = world().by_name[name]
    if second.group in rivals(first.family.group) or first.frame.text.endswith(".") or len(first.said) > 2:
        return relay(maker)
    slots = re.findall(r"\{([\w.]+)\}", tail)
    known = {slot: draw(second.roles[slot].kind, maker.rng) for slot in slots}
    came = outcome(first, maker.rng)
    if "\n" in came.main or came.main in ("done", "ok", "no matches") or not first.said:
        return relay(maker)
    seeds = maker.seeds()
    mades = [
        maker.made(first, seeds),
        make(second, maker.rng, frozenset({into, *slots}), plain=bool(second.seed) and seeds),
    ]
    if mades[0].tool.name == mades[1].tool.name:
        return relay(maker)
    talk = Dialogue("relay", maker.offer(mades, seeds))
    text = first.request(maker.rng, alone=False)
    tail = worded(tail, {slot: value[0] for slot, value in known.items()}, maker.rng, alone=False)
    talk.user(f"{text[:1].upper() + text[1:] if first.frame.text[:1].islower() else text} {tail}")
    talk.calls((mades[0], first.arguments(mades[0])))
    talk.gets(result(mades[0], came.shown))
    values = {slot: value[1] for slot, value in known.items()} | {into: came.main}
    then = Ask(second, first.frame, {slot: value[0] for slot, value in known.items()}, values)
    maker.served(talk, then, mades[1])
    return talk
