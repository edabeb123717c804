"""From written arguments to an object: strict JSON first, then the lenient reading.

A key that stands twice in one object is refused: another reader of such a text, such as a check or a
person, must not see another call than we run.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import jiter
import orjson
from msgspec import Struct

from toolwire.wire.lenient.strings import CutShort, Unreadable
from toolwire.wire.lenient.values import ValueReader

MAX_LAYERS = 4
_FENCE = "```"
_OPENERS = ("{", "[", '"', "'", "/", "“")


class Read(Struct, frozen=True):
    """One or more argument objects that stood in one place, and how they had to be read."""

    objects: tuple[dict[str, Any], ...]
    repaired: str = ""


class NotRead(Struct, frozen=True):
    """Why no object could be read. `cut` says that the text ended before the value did."""

    why: str
    cut: bool = False


_MAY_BE_TOO_LARGE = frozenset((float, dict, list))
_REPEATED = 'Detected duplicate key "'


def twice(key: str) -> str:
    """The sentence about a key that stands twice, from which the model can make the call again."""
    return f"the key {key[:80]!r} stands twice in one object; make the call again with every key once"


class RepeatedKey(ValueError):
    """A key stands twice in one object."""

    def __init__(self, key: str) -> None:
        super().__init__(twice(key))


def read_json(text: str) -> Any:
    """Strict JSON as a value; integers stay exact. Raises ValueError, and of its kind RepeatedKey."""
    try:
        value = jiter.from_json(text.encode(), allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True)
    except ValueError as wrong:
        why = str(wrong)
        if why.startswith(_REPEATED):
            raise RepeatedKey(why[len(_REPEATED) : why.rfind('" at line ')]) from None
        raise
    if _too_large(value):
        raise ValueError("a number that is not finite")
    return value


def _too_large(value: Any) -> bool:
    """Whether a number was too large for a float."""
    kind = type(value)
    if kind is float:
        return bool(value - value != 0)
    if kind is dict or kind is list:
        for item in value.values() if kind is dict else value:
            if type(item) in _MAY_BE_TOO_LARGE and _too_large(item):
                return True
    return False


def repeated_key(text: str) -> str:
    """What is wrong with a text, JSON or nearly so, in which a key stands twice in one object; empty when none does."""
    try:
        read_json(text)
    except RepeatedKey as repeated:
        return str(repeated)
    except ValueError:
        return _repeated_loosely(text)
    return ""


def _repeated_loosely(text: str) -> str:
    def pair_up(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise RepeatedKey(key)
            found[key] = value
        return found

    try:
        json.loads(text, object_pairs_hook=pair_up, strict=False)
    except RepeatedKey as repeated:
        return str(repeated)
    except (ValueError, RecursionError):
        return ""
    return ""


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
        except RepeatedKey as repeated:
            return NotRead(str(repeated))
        except (ValueError, RecursionError):
            return _read_loosely(stripped, finished=finished)
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


_TOKEN = r"</[\w:.-]{1,40}>|<\|[^<>|]{1,40}\|>|<｜[^<>｜]{1,40}｜>|<(?:end_of_turn|eos)>|\[/?[A-Z_]{2,20}\]|`{3,}"
_TOKENS = re.compile(rf"(?>\s*+(?:{_TOKEN}))++\Z")
_LONGEST_TOKENS = 400
_GOES_ON = frozenset(",:\"'[")
_PREFIX = json.JSONDecoder(strict=False)
_QUOTED = 40


def _read_loosely(text: str, *, finished: bool) -> Read | NotRead:
    found = _read_all(text, finished=finished)
    return (_read_before_tail(text) or found) if isinstance(found, NotRead) else found


def _read_before_tail(text: str) -> Read | None:
    """Complete arguments in front of something else: end tokens, closing tags, a fence, words.

    What may be the rest of the arguments is no tail: a value that ended too early must not run.
    """
    body = strip_fence(text.lstrip("\ufeff"))
    ending = _last_tokens(body)
    if ending is not None:
        read = _read_all(body[: ending.start()].rstrip(), finished=False)
        if isinstance(read, Read):
            return _without(read, ending.group())
    try:
        value, end = _PREFIX.raw_decode(body)
    except (ValueError, RecursionError):
        return None
    tail = body[end:].lstrip(" \t\r\n}]")
    is_object = isinstance(value, dict) or (isinstance(value, str) and value.lstrip()[:1] == "{")
    if not is_object or not tail or tail[0] in _GOES_ON or tail.count("}") > tail.count("{"):
        return None
    read = _read_all(body[:end], finished=False)
    return _without(read, tail) if isinstance(read, Read) else None


def _last_tokens(text: str) -> re.Match[str] | None:
    """End tokens, closing tags and fences that end a text."""
    begin = max(0, len(text) - _LONGEST_TOKENS)
    at = next((at for at in range(begin, len(text)) if text[at] in "<[`"), -1)
    while at >= 0:
        found = _TOKENS.match(text, at)
        if found is not None:
            return found
        at = next((later for later in range(at + 1, len(text)) if text[later] in "<[`"), -1)
    return None


def _without(read: Read, tail: str) -> Read:
    tail = tail.strip()
    shown = tail if len(tail) <= _QUOTED else f"{tail[:_QUOTED]}…"
    return Read(read.objects, f"left out {shown!r} behind the arguments")


def _read_all(text: str, *, finished: bool) -> Read | NotRead:
    body = strip_fence(text.lstrip("\ufeff"))
    if body[:1] not in _OPENERS:
        return NotRead("the arguments are not an object")
    reader = ValueReader(body, close_at_end=finished)
    objects: list[dict[str, Any]] = []
    try:
        while reader.peek():
            value = reader.value()
            if isinstance(value, str) and not objects:
                read = read_arguments(value, finished=finished)
                return _without(read, body[reader.pos :]) if isinstance(read, Read) and reader.peek() else read
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


def strip_fence(text: str) -> str:
    """The body of a text that is one code fence; any other text unchanged."""
    if not text.startswith(_FENCE):
        return text
    body = text[text.find("\n") + 1 :] if "\n" in text else text[3:]
    return body.rstrip().removesuffix(_FENCE).strip()
