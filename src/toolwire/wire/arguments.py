"""From written arguments to an object: strict JSON first, then the lenient reading.

A key that stands twice in one object is refused: whoever looks at such a text must not see another call than we run.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from toolwire.wire.strings import CutShort, Unreadable
from toolwire.wire.values import ValueReader

MAX_LAYERS = 4
_FENCE = "```"
_OPENERS = ("{", "[", '"', "'", "/", "“")


@dataclass(frozen=True, slots=True)
class Read:
    """One or more argument objects that stood in one place, and how they had to be read."""

    objects: tuple[dict[str, Any], ...]
    repaired: str = ""


@dataclass(frozen=True, slots=True)
class NotRead:
    """Why no object could be read. `cut` says that the text ended before the value did."""

    why: str
    cut: bool = False


_MAY_LOSE = frozenset((float, dict, list))
_KEY_END = re.compile(r'"\s*+:')


def read_json(text: str) -> Any:
    """Strict JSON as a value; integers stay exact. Raises ValueError."""
    value = orjson.loads(text)
    return json.loads(text) if _lost_digits(value) else value


def _lost_digits(value: Any) -> bool:
    """Whether an integer too long for 64 bits was rounded to a float."""
    kind = type(value)
    if kind is float:
        return bool(abs(value) >= 2**63 and value.is_integer())
    if kind is dict or kind is list:
        for item in value.values() if kind is dict else value:
            if type(item) in _MAY_LOSE and _lost_digits(item):
                return True
    return False


def repeated_key(text: str, value: Any) -> str:
    """What is wrong with a JSON text in which a key stands twice in one object; empty when none does.

    `value` is what was read. Where as many keys can end in the text as there are in the value, none was lost.
    """
    if len(_KEY_END.findall(text)) == _count_keys(value):
        return ""
    repeated: list[str] = []

    def pair_up(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated.extend(key for key in found if keys.count(key) > 1)
        return found

    json.loads(text, object_pairs_hook=pair_up, strict=False)
    return twice(repeated[0]) if repeated else ""


def twice(key: str) -> str:
    """The sentence about a key that stands twice, from which the model can make the call again."""
    return f"the key {key[:80]!r} stands twice in one object; make the call again with every key once"


def _count_keys(value: Any) -> int:
    kind = type(value)
    count = len(value) if kind is dict else 0
    if kind is dict or kind is list:
        for item in value.values() if kind is dict else value:
            if type(item) is dict or type(item) is list:
                count += _count_keys(item)
    return count


def is_complete(text: str) -> bool:
    """Whether the text is one whole JSON value."""
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def read_arguments(written: Any, *, finished: bool) -> Read | NotRead:
    """Read arguments given as an object, as text, as text in text, or not at all.

    `finished` says that the writer is known to have ended by itself, so closing brackets may be supplied.
    """
    layers = 0
    while isinstance(written, str) and layers < MAX_LAYERS:
        stripped = written.strip()
        if not stripped:
            return Read(({},))
        try:
            written = read_json(stripped)
            wrong = repeated_key(stripped, written) if type(written) is dict or type(written) is list else ""
        except (ValueError, RecursionError):
            return _read_loosely(stripped, finished=finished)
        if wrong:
            return NotRead(wrong)
        layers += 1
    match written:
        case None:
            return Read(({},))
        case dict():
            return Read((written,), "unwrapped text in text" if layers > 1 else "")
        case []:
            return Read(({},), "took an empty list for no arguments")
        case [dict() as only]:
            return Read((only,), "took the only object of a list")
        case [dict(), *_] if all(isinstance(item, dict) for item in written):
            return Read(tuple(written), "took every object of a list")
        case Mapping():
            return Read((dict(written),))
        case _:
            return NotRead("the arguments are not an object")


def _read_loosely(text: str, *, finished: bool) -> Read | NotRead:
    body = unfenced(text.lstrip("\ufeff"))
    if body[:1] not in _OPENERS:
        return NotRead("the arguments are not an object")
    reader = ValueReader(body, close_at_end=finished)
    objects: list[dict[str, Any]] = []
    try:
        while reader.peek():
            value = reader.value()
            if isinstance(value, str) and not objects:
                return read_arguments(value, finished=finished)
            if not isinstance(value, dict):
                return NotRead("the arguments are not an object")
            if reader.repeated is not None:
                return NotRead(twice(reader.repeated))
            objects.append(value)
            _skip_between(reader)
    except CutShort as short:
        return NotRead(str(short), cut=True)
    except Unreadable as wrong:
        return NotRead(str(wrong))
    return Read(tuple(objects), "read arguments that were not strict JSON") if objects else NotRead("nothing to read")


def _skip_between(reader: ValueReader) -> None:
    """Separators between glued objects, and closing brackets too many."""
    while reader.peek() in ("}", "]", ",", ";"):
        reader.pos += 1


def unfenced(text: str) -> str:
    """The body of a text that is one code fence; any other text unchanged."""
    if not text.startswith(_FENCE):
        return text
    body = text[text.find("\n") + 1 :] if "\n" in text else text[3:]
    return body.rstrip().removesuffix(_FENCE).strip()
