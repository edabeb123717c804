"""References in a workflow: `${step.field[0].name}` stands for a value that an earlier step gave.

They are resolved on the tree, never on JSON text: a text that is nothing but one reference becomes the value itself,
with its type. Inside other text a value is written out. `$${` is a plain `${`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

MOST_REFERENCES = 10_000
DEEPEST = 64
LONGEST_TEXT = 1_000_000
"""How long a text may get by the values that are written into it."""
LONGEST_INPUT = 4_000_000
"""How much one call may be given, by all the values that its input refers to."""

NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_STEP = re.compile(rf"\[(\d{{1,9}})\]|\.({NAME}|\d{{1,9}})|\[\"([^\"\\\]]*)\"\]|\['([^'\\\]]*)'\]")
_HEAD = re.compile(NAME)
_TOKEN = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")


class BadReference(ValueError):
    """A reference that cannot be read or resolved. The text says which, and why."""


class Reference(Struct, frozen=True):
    """What a reference names: a step or another name, and the way to a value in what that gave."""

    name: str
    path: tuple[str | int, ...]
    text: str

    def __str__(self) -> str:
        return f"${{{self.text}}}"


def read_reference(text: str) -> Reference:
    """The reference between `${` and `}`. Raises BadReference."""
    written = text.strip()
    head = _HEAD.match(written)
    if head is None:
        raise BadReference(f"${{{_short(text)}}} does not begin with the id of a step")
    path: list[str | int] = []
    at = head.end()
    while at < len(written):
        part = _STEP.match(written, at)
        if part is None:
            raise BadReference(f"${{{_short(text)}}} cannot be read from {_short(written[at:])!r} on")
        index, field, double, single = part.groups()
        if index is not None:
            path.append(int(index))
        elif field is not None:
            path.append(field)
        else:
            path.append(double if double is not None else single)
        at = part.end()
    if len(path) > DEEPEST:
        raise BadReference(f"${{{_short(text)}}} is more than {DEEPEST} parts long")
    return Reference(head.group(), tuple(path), written)


def find_references(value: Any) -> tuple[Reference, ...]:
    """All references in a tree of JSON values, in order. Raises BadReference."""
    found: list[Reference] = []
    for text in _texts(value, 0):
        for token in _TOKEN.finditer(text):
            if token.group() == "$${":
                continue
            if token[1] is None:
                raise BadReference(
                    f"{_short(text[token.start() :])!r} has no closing brace; write $${{ for a plain ${{"
                )
            found.append(read_reference(token[1]))
            if len(found) > MOST_REFERENCES:
                raise BadReference(f"there are more than {MOST_REFERENCES} references")
    return tuple(found)


class Room:
    """How many characters there is room for, so that a few references do not become more than a machine can hold."""

    __slots__ = ("left",)

    def __init__(self, left: int = LONGEST_INPUT) -> None:
        self.left = left

    def take(self, value: Any) -> None:
        """Raises BadReference where there is no room for a value."""
        waiting = [value]
        while waiting and self.left >= 0:
            match waiting.pop():
                case str() as text:
                    self.left -= len(text)
                case Mapping() as items:
                    waiting.extend(items.values())
                    self.left -= sum(map(len, map(str, items)))
                case list() | tuple() as items:
                    waiting.extend(items)
            self.left -= 1
        if self.left < 0:
            raise BadReference(f"it gets longer than {LONGEST_INPUT} characters by the values that it refers to")


def resolve(value: Any, known: Mapping[str, Any], room: Room | None = None) -> Any:
    """The tree with every reference replaced by what is `known` under its name. Raises BadReference."""
    room = room or Room()
    match value:
        case str():
            found = _resolve_text(value, known)
            room.take(found)
            return found
        case Mapping():
            return {name: resolve(item, known, room) for name, item in value.items()}
        case list() | tuple():
            return [resolve(item, known, room) for item in value]
        case _:
            return value


def lookup(reference: Reference, known: Mapping[str, Any]) -> Any:
    """The value that a reference stands for. Raises BadReference."""
    if reference.name not in known:
        raise BadReference(f"{reference}: nothing is called {reference.name!r} here")
    value = known[reference.name]
    for depth, part in enumerate(reference.path):
        value = _child(value, part, reference, depth)
    return value


def _child(value: Any, part: str | int, reference: Reference, depth: int) -> Any:
    match value:
        case Mapping():
            key = str(part)
            if key in value:
                return value[key]
            there = ", ".join(map(str, list(value)[:10])) or "nothing"
            raise BadReference(f"{reference}: {_where(reference, depth)} has no {key!r}, only {there}")
        case Sequence() if not isinstance(value, str):
            if not (isinstance(part, int) or part.isdecimal()):
                raise BadReference(f"{reference}: {_where(reference, depth)} is a list, which has no {part!r}")
            index = int(part)
            if index >= len(value):
                raise BadReference(f"{reference}: {_where(reference, depth)} has {len(value)} items, and no [{index}]")
            return value[index]
        case _:
            kind = "null" if value is None else type(value).__name__
            raise BadReference(f"{reference}: {_where(reference, depth)} is {kind}, which has no {part!r}")


def _where(reference: Reference, depth: int) -> str:
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in reference.path[:depth])
    return f"{reference.name}{parts}"


def _resolve_text(text: str, known: Mapping[str, Any]) -> Any:
    if "${" not in text:
        return text
    whole = _TOKEN.fullmatch(text)
    if whole is not None and whole[1] is not None:
        return lookup(read_reference(whole[1]), known)
    pieces: list[str] = []
    at = size = 0
    for token in _TOKEN.finditer(text):
        pieces.append(text[at : token.start()])
        at = token.end()
        if token.group() == "$${":
            pieces.append("${")
        elif token[1] is None:
            raise BadReference(f"{_short(text[token.start() :])!r} has no closing brace; write $${{ for a plain ${{")
        else:
            pieces.append(_in_text(lookup(read_reference(token[1]), known)))
        size += len(pieces[-1]) + len(pieces[-2])
        if size > LONGEST_TEXT:
            raise BadReference(f"a text gets longer than {LONGEST_TEXT} characters by the values in it")
    pieces.append(text[at:])
    return "".join(pieces)


def _in_text(value: Any) -> str:
    """A value as it is written into a text: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _texts(value: Any, depth: int) -> Iterator[str]:
    if depth > DEEPEST:
        raise BadReference(f"the input of a step is nested more than {DEEPEST} deep")
    match value:
        case str():
            yield value
        case Mapping():
            for item in value.values():
                yield from _texts(item, depth + 1)
        case list() | tuple():
            for item in value:
                yield from _texts(item, depth + 1)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"
