"""Values that are not sound JSON, whatever a schema says: too deep, too large, not finite, half a character."""

import math
from collections.abc import Iterator
from typing import Any

import orjson

from toolwire.define.quoting import quoted, spelled

MAX_DEPTH = 64
MAX_DIGITS = 400
# 400 decimal digits and no more fit below this many bits.
_MAX_BITS = 1_329
_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS

Path = tuple[str | int, ...]


def glance(value: dict[str, Any]) -> bytes | None:
    """The value as JSON bytes if they show that it is sound; None proves nothing and asks for `is_sound`.

    orjson refuses half a surrogate pair, a key that is not text and an integer beyond 64 bits. It writes NaN as null,
    and depth cannot exceed the number of brackets.
    """
    try:
        data = orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        return None
    if b"null" in data or b"\\u0000" in data or data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        return None
    return data


def is_sound(value: dict[str, Any]) -> bool:
    """Whether `unsound` would find nothing. Visits every part once, level by level."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                if any(map(_is_unsound_key, item)):
                    return False
                below.extend(item.values())
            elif kind is list:
                below.extend(item)
            elif _unsound_scalar(item):
                return False
        if not below:
            return True
        level = below
    return not any(isinstance(item, (dict, list)) or _unsound_scalar(item) for item in level)


def unsound(value: Any, path: Path = ()) -> Iterator[str]:
    """One sentence for everything that is not sound; nothing below the greatest depth is looked at."""
    kind = type(value)
    if kind is not dict and kind is not list:
        if fault := _unsound_scalar(value):
            yield f"{spelled(path)}: {fault}"
    elif len(path) >= MAX_DEPTH:
        yield f"{spelled(path[:1])}: nested deeper than {MAX_DEPTH} levels"
    elif kind is list:
        for index, inner in enumerate(value):
            yield from unsound(inner, (*path, index))
    else:
        for key, inner in value.items():
            if _is_unsound_key(key):
                yield f"{spelled(path)}: the name {quoted(key)} is not text that can be a name"
            yield from unsound(inner, (*path, str(key)))


def _is_unsound_key(key: Any) -> bool:
    return not isinstance(key, str) or "\0" in key or _is_broken(key)


def _unsound_scalar(item: Any) -> str:
    match item:
        case None | bool():
            return ""
        case str():
            return "contains half a surrogate pair, which is not valid text" if _is_broken(item) else ""
        case int():
            return f"integers have at most {MAX_DIGITS} digits" if item.bit_length() > _MAX_BITS else ""
        case float():
            return "" if math.isfinite(item) else "must be a finite number"
    return f"{type(item).__name__} is not a JSON value"


def _is_broken(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
