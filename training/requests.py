"""A request for a family's tool: the frame, what is said in it, and what it means."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from training.families import Family, Frame
from training.naming import Made
from training.spoken import TAG
from training.values import Draw, Value, draw, schema_of
from training.wording import worded

TRIES = 20
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_SUM = re.compile(r"#\d+([-+*]\d+)+")
DIFFERENT = (("from", "to"), ("a", "b"), ("old_text", "new_text"), ("source", "dest"), ("origin", "destination"))
ORDERED = (("min", "max"), ("start", "end"))


@dataclass(frozen=True, slots=True)
class Ask:
    """What somebody wants of a tool, before it is put into words."""

    family: Family
    frame: Frame
    said: Mapping[str, str]
    values: Mapping[str, Any]

    @property
    def need(self) -> frozenset[str]:
        return frozenset(self.values) & self.family.roles.keys()

    def request(self, rng: Draw, *, alone: bool = True) -> str:
        return worded(self.frame.text, dict(self.said), rng, alone=alone and TAG not in self.family.tags)

    def arguments(self, made: Made) -> dict[str, Any]:
        return made.arguments({role: self.values[role] for role in self.need})


def ask(family: Family, rng: Draw, *, held: bool | None = False, frames: list[Frame] | None = None) -> Ask:
    """A request of this family, with values that make sense together."""
    frame = rng.choice(frames or family.asked(held) or family.frames)
    for _ in range(TRIES):
        values = {role: _value(family, role, rng) for role in sorted(_slots(frame))}
        if _sensible({role: value for role, (_, value) in values.items()} | frame.fixed):
            break
    said = {role: text for role, (text, _) in values.items()}
    known = {role: value for role, (_, value) in values.items()}
    return Ask(family, frame, said, known | _fixed(family, frame, known))


def revalued(asked: Ask, role: str, said: str, value: Any) -> Ask:
    """The same request with another value for one role, and for what the wording makes of it."""
    known = {**{key: asked.values[key] for key in asked.said}, role: value}
    values = known | _fixed(asked.family, asked.frame, known)
    return replace(asked, said={**asked.said, role: said}, values=values)


def _fixed(family: Family, frame: Frame, known: Mapping[str, Any]) -> dict[str, Any]:
    """What the wording itself means, with what was said put in; numbers stay numbers."""
    values = {key: fill(template, known) for key, template in frame.fixed.items()}
    return {key: _typed(value, family.roles[key].kind) for key, value in values.items()}


def _typed(value: Any, kind: str) -> Any:
    if not isinstance(value, str) or schema_of(kind).get("type") not in ("integer", "number"):
        return value
    if _SUM.fullmatch(value):
        return eval(value[1:])  # our own arithmetic: digits and signs
    return json.loads(value) if _NUMBER.fullmatch(value) else value


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """A fixed argument with what was said put in for its slots."""
    match template:
        case str():
            return re.sub(r"\{([\w.]+)\}", lambda slot: str(values.get(slot[1], slot[0])), template)
        case list():
            return [fill(item, values) for item in template]
        case dict():
            return {key: fill(item, values) for key, item in template.items()}
    return template


def _slots(frame: Frame) -> set[str]:
    return set(re.findall(r"\{([\w.]+)\}", frame.text))


def _value(family: Family, role: str, rng: Draw) -> Value:
    return draw(family.slots[role] if role in family.slots else family.roles[role].kind, rng)


def _sensible(values: Mapping[str, Any]) -> bool:
    for low, high in ORDERED:
        if low in values and high in values and type(values[low]) is type(values[high]) and values[low] >= values[high]:
            return False
    return all(values[one] != values[two] for one, two in DIFFERENT if one in values and two in values)
