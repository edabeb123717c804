"""One spelling for each JSON value, so that equal values have equal bytes and equal digests.

The spelling is RFC 8785 (JCS). Where that standard has no answer, this one is fixed: an integer beyond ±(2^53-1) keeps
all its digits (from 4,300 digits on, hexadecimal after `0x`), half a surrogate pair is written as its `\\udxxx` escape
and sorts by its code, NaN and the infinities are `null`.
"""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from toolwire.lazy import lazy_module

if TYPE_CHECKING:
    import rfc8785
else:
    rfc8785 = lazy_module("rfc8785")  # few values have fractions that it must write

_SAFE = 2**53 - 1
_ONLY_JSON = (
    orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)  # fmt: skip
# Digits as 0, what makes an exponent of them as e, a point as it is, everything else as a blank.
_SHAPE = bytes(48 if 48 <= code < 58 else 101 if code in b"eE" else 46 if code == 46 else 32 for code in range(256))
_EXPONENT, _MANY_DIGITS, _FRACTION = "0e", "0" * 16, ".0"
_WHOLE = (b".0,", b".0}", b".0]")
_MANY_BITS = 14_000
_EXACT = frozenset((str, int, bool, type(None)))


def sorted_json(value: Any) -> bytes | None:
    """The value as orjson writes it, its names in order: nearly always the canonical bytes. None where it cannot."""
    try:
        return orjson.dumps(value, option=_ONLY_JSON)
    except TypeError:  # half a surrogate pair, a large integer, nested too deeply for orjson, or not JSON
        return None


def canonical(value: Any, body: bytes | None = None) -> bytes:
    """The canonical bytes of a JSON value. Raises `TypeError` for a value that is not JSON.

    Who has its `sorted_json` already gives that as `body`.
    """
    if body is None and (body := sorted_json(value)) is None:
        return _written(value)
    # Most arguments are an object of texts and integers, which orjson writes so; a text may be long.
    if type(value) is dict and _EXACT.issuperset(map(type, value.values())) and body.isascii():
        return body
    # Where orjson writes the canonical form it shows in the bytes: a fraction is written alike, unless it is whole or
    # has an exponent. What looks otherwise is looked at again. (As text, since `in` is many times faster there: with
    # bytes it first tries its left side as a number, and raises and catches an error for it.)
    shape = body.translate(_SHAPE).decode("latin-1")
    is_short = _EXPONENT not in shape and _MANY_DIGITS not in shape and body.isascii()
    if is_short and (_FRACTION not in shape or not _has_a_whole(body)):
        return body
    return body if _is_simple(value) else _written(value)


def digest(value: Any, body: bytes | None = None) -> str:
    """The SHA-256 of the canonical bytes, in hexadecimal; `body` as for `canonical`."""
    return hashlib.sha256(canonical(value, body)).hexdigest()


def _has_a_whole(body: bytes) -> bool:
    return body.endswith(b".0") or any(whole in body for whole in _WHOLE)


def _is_simple(value: Any) -> bool:
    """Whether orjson writes the canonical form: no floats, small integers, keys that sort alike in any encoding."""
    waiting = [value]
    for item in waiting:
        kind = type(item)
        if kind is str or kind is bool or item is None:
            continue
        if kind is dict:
            for key in item:
                if type(key) is not str or not key.isascii():
                    return False
            waiting.extend(item.values())
        elif kind is list:
            waiting.extend(item)
        elif kind is not int or not -_SAFE <= item <= _SAFE:
            return False
    return True


def _written(value: Any) -> bytes:
    """Write any JSON value without recursion. Bytes on the stack are text that is ready."""
    parts: list[bytes] = []
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        kind = type(item)
        if kind is bytes:
            parts.append(item)
        elif kind is dict or isinstance(item, Mapping):
            stack.extend(reversed(_object_pieces(item)))
        elif kind is list or isinstance(item, (list, tuple)):
            stack.extend(reversed(_array_pieces(item)))
        else:
            parts.append(_scalar(item))
    return b"".join(parts)


def _object_pieces(mapping: Mapping[Any, Any]) -> list[Any]:
    pieces: list[Any] = []
    before = b"{"
    for key in sorted(mapping, key=_utf16):
        pieces += (before + _text(key) + b":", _ready(mapping[key]))
        before = b","
    return [*pieces, b"}"] if pieces else [b"{}"]


def _array_pieces(items: list[Any] | tuple[Any, ...]) -> list[Any]:
    pieces: list[Any] = []
    before = b"["
    for item in items:
        pieces += (before, _ready(item))
        before = b","
    return [*pieces, b"]"] if pieces else [b"[]"]


def _ready(value: Any) -> Any:
    """Text and floats at once; everything else when its turn comes."""
    kind = type(value)
    return _text(value) if kind is str else _scalar(value) if kind is float else value


def _utf16(key: Any) -> bytes:
    if not isinstance(key, str):
        raise TypeError(f"a JSON object has text keys, not {type(key).__name__}")
    return key.encode("utf-16-be", "surrogatepass")


def _scalar(value: Any) -> bytes:
    match value:
        case None:
            return b"null"
        case bool():
            return b"true" if value else b"false"
        case str():
            return _text(str(value))
        case int():
            return b"%d" % value if value.bit_length() < _MANY_BITS else hex(value).encode()
        case float():
            return rfc8785.dumps(value) if value - value == 0 else b"null"
    raise TypeError(f"{type(value).__name__} is not JSON")


def _text(text: str) -> bytes:
    try:
        return orjson.dumps(text)
    except TypeError:
        return b'"' + b"".join(_character(character) for character in text) + b'"'


def _character(character: str) -> bytes:
    if "\ud800" <= character <= "\udfff":
        return b"\\u%04x" % ord(character)
    return orjson.dumps(character)[1:-1]
