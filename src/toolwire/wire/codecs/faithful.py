"""JSON for storage that gives back what was put in, also where plain JSON cannot.

Ordinary values are ordinary JSON. What JSON has no word for is written as an object with one `$` key, and objects
that could be mistaken for one are written as pairs, so nothing a model says can pose as one of ours:

    {"$float": "nan"}          nan, inf, -inf
    {"$int": "0x1f…"}          integers beyond 64 bits
    {"$text": "…"}             base64 of text with half a surrogate pair, as UTF-8 with the surrogates left in
    {"$object": [[k, v], …]}   objects with a key that is not text, or not valid text, or begins with `$`
    {"$type": "set"}           a value that is no JSON at all: only its type's name is kept
    {"$deep": true}            what lay deeper than 200 levels: left out

Tuples come back as lists; enumerations, dates and UUIDs as their text.
"""

import base64
import math
from collections.abc import Mapping
from typing import Any

import orjson

MAX_DEPTH = 200

_PLAIN_INT = range(-(2**63), 2**64)


def dump(value: Any) -> str:
    """Write any value as JSON text. Never fails on what a value contains."""
    try:
        data = orjson.dumps(value, default=_foreign)
    except TypeError:
        return orjson.dumps(_tagged(value, 0)).decode()
    # A null may have been a nan, and a `"$` may be a key of ours: only a closer look tells.
    if b"null" in data or b'"$' in data:
        data = orjson.dumps(_tagged(value, 0))
    return data.decode()


def load(data: str | bytes) -> Any:
    """Read what `dump` wrote. Raises ValueError for anything that is not JSON."""
    value = orjson.loads(data)
    marked = b'"$' in data if isinstance(data, bytes) else '"$' in data
    return _untagged(value) if marked else value


def _foreign(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError


def _tagged(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        return {"$deep": True}
    match value:
        case None | bool():
            return value
        case str():
            return _tagged_text(value)
        case int():
            return int(value) if int(value) in _PLAIN_INT else {"$int": hex(value)}
        case float():
            return value if math.isfinite(value) else {"$float": str(value)}
        case Mapping():
            return _tagged_object(value, depth)
        case list() | tuple():
            return [_tagged(item, depth + 1) for item in value]
        case _:
            return _tagged_foreign(value)


def _tagged_text(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"$text": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
    return str(value)


def _tagged_object(value: Mapping[Any, Any], depth: int) -> Any:
    if all(type(key) is str and not key.startswith("$") and _is_text(key) for key in value):
        return {key: _tagged(item, depth + 1) for key, item in value.items()}
    inner = depth + 3  # an object of pairs is three levels in JSON
    return {"$object": [[_tagged(key, inner), _tagged(item, inner)] for key, item in value.items()]}


def _is_text(key: str) -> bool:
    return key.isascii() or isinstance(_tagged_text(key), str)


def _tagged_foreign(value: Any) -> Any:
    """What orjson writes by itself (dates, UUIDs, enumerations) as it does, anything else by the name of its type."""
    try:
        plain = orjson.loads(orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS))
    except TypeError:
        return {"$type": type(value).__name__}
    return plain if isinstance(plain, str | int | float) else {"$type": type(value).__name__}


def _untagged(value: Any) -> Any:
    match value:
        case list():
            return [_untagged(item) for item in value]
        case dict() if len(value) == 1:
            ((key, inner),) = value.items()
            return _revived(key, inner) if key.startswith("$") else {key: _untagged(inner)}
        case dict():
            return {key: _untagged(item) for key, item in value.items()}
        case _:
            return value


def _revived(key: str, inner: Any) -> Any:
    match key, inner:
        case "$float", str():
            return float(inner)
        case "$int", str():
            return int(inner, 16)
        case "$text", str():
            return base64.b64decode(inner).decode("utf-8", "surrogatepass")
        case "$object", list():
            return {_hashable(_untagged(name)): _untagged(item) for name, item in inner}
        case _:
            return {key: _untagged(inner)}


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
