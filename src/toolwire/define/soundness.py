"""Values that are not sound JSON, whatever a schema says: too deep, too large, not finite, half a character."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from toolwire.define.quoting import path_text, quote_value
from toolwire.define.references import resolve_pointer

MAX_DEPTH = 64
MAX_DIGITS = 400
# 400 decimal digits and no more fit below this many bits.
_MAX_BITS = 1_329
_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_LEAVES = frozenset(("string", "integer", "number", "boolean", "null"))

Path = tuple[str | int, ...]


def as_bytes(value: dict[str, Any]) -> bytes | None:
    """The value as JSON, which shows that its text is whole, its names are text and its integers fit 64 bits."""
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        return None


def is_sound(value: dict[str, Any], data: bytes | None) -> bool:
    """Whether `unsound` would find nothing, given what `as_bytes` said. Mostly decided by a glance at the bytes."""
    # A name with NUL is written as \u0000, and depth cannot exceed the number of brackets.
    if data is None or b"\\u0000" in data or data.count(b"{") + data.count(b"[") > MAX_DEPTH:
        return next(unsound(value), None) is None
    # orjson writes what is not finite as null.
    return b"null" not in data or _is_finite(value)


def unsound(value: Any, path: Path = ()) -> Iterator[str]:
    """One sentence for everything that is not sound; nothing below the greatest depth is looked at."""
    kind = type(value)
    if kind is not dict and kind is not list:
        if fault := _unsound_scalar(value):
            yield f"{path_text(path)}: {fault}"
    elif len(path) >= MAX_DEPTH:
        yield f"{path_text(path[:1])}: nested deeper than {MAX_DEPTH} levels"
    elif kind is list:
        for index, inner in enumerate(value):
            yield from unsound(inner, (*path, index))
    else:
        for key, inner in value.items():
            if not isinstance(key, str) or "\0" in key or _is_broken(key):
                yield f"{path_text(path)}: the name {quote_value(key)} is not text that can be a name"
            yield from unsound(inner, (*path, str(key)))


def admits_only_sound(schema: Any, document: Mapping[str, Any], within: frozenset[str] = frozenset()) -> bool:
    """Whether every value that fits the schema is as shallow, finite and plainly named as it must be.

    So it is when each place has a type and no object takes names that are not listed. `within` are the references
    being followed; one that leads back into itself allows any depth.
    """
    if not isinstance(schema, Mapping):
        return schema is False
    if "enum" in schema or "const" in schema:
        return True
    if isinstance(target := schema.get("$ref"), str):
        inner = resolve_pointer(document, target)
        return target not in within and admits_only_sound(inner, document, within | {target})
    for keyword in ("anyOf", "oneOf"):
        if isinstance(branches := schema.get(keyword), list) and branches:
            return all(admits_only_sound(branch, document, within) for branch in branches)
    return _types_admit_only_sound(schema, document, within)


def _types_admit_only_sound(schema: Mapping[str, Any], document: Mapping[str, Any], within: frozenset[str]) -> bool:
    named = schema.get("type", ())
    types = {named} if isinstance(named, str) else set(named)
    if "object" in types and (schema.get("additionalProperties") is not False or "patternProperties" in schema):
        return False
    inner = [*schema.get("properties", {}).values()] if "object" in types else []
    inner += [schema.get("items"), *schema.get("prefixItems", ())] if "array" in types else []
    return (
        bool(types)
        and types <= _LEAVES | {"object", "array"}
        and len(within) < MAX_DEPTH
        and all(admits_only_sound(each, document, within) for each in inner)
    )


def _is_finite(value: dict[str, Any]) -> bool:
    waiting: list[Any] = [value]
    for item in waiting:
        kind = type(item)
        if kind is dict:
            waiting.extend(item.values())
        elif kind is list:
            waiting.extend(item)
        elif kind is float and not math.isfinite(item):
            return False
    return True


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
