"""Bringing values to the types that a schema asks for, only where nothing is lost."""

import re
from collections.abc import Mapping
from typing import Any

from toolwire.wire.lenient.arguments import RepeatedKey, read_json
from toolwire.wire.lenient.strings import Unreadable
from toolwire.wire.lenient.values import ValueReader

_INTEGER = re.compile(r"[-+]?\d{1,400}(?:\.0{1,400})?")
_NUMBER = re.compile(r"[-+]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][-+]?\d{1,3})?")
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_NULL = frozenset({"null", "None", "NULL", "nil"})
_DEPTH = 32
_REFERENCES = 8


def types_of(schema: Any, root: Mapping[str, Any], hops: int = _REFERENCES) -> frozenset[str]:
    """The JSON types that a schema allows; empty when it does not say."""
    schema = resolve_reference(schema, root)
    if not isinstance(schema, Mapping) or hops <= 0:
        return frozenset()
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list | tuple):
        return frozenset(str(kind) for kind in declared)
    for key in ("anyOf", "oneOf", "allOf"):
        options = schema.get(key)
        if isinstance(options, list | tuple):
            return frozenset[str]().union(*(types_of(option, root, hops - 1) for option in options))
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return frozenset(kind_of(value) for value in values) if isinstance(values, list | tuple) else frozenset()


def resolve_reference(schema: Any, root: Mapping[str, Any]) -> Any:
    """The schema that local references lead to; anything else unchanged."""
    for _ in range(_REFERENCES):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#"):
            return schema
        schema = root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            schema = schema.get(name) if isinstance(schema, Mapping) else None
    return schema


def kind_of(value: Any) -> str:
    """What JSON Schema calls the type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def coerced(value: Any, schema: Any, root: Any = None, depth: int = _DEPTH) -> Any:
    """The value, its parts brought to the schema's types where that loses nothing."""
    root = root if root is not None else schema
    schema = resolve_reference(schema, root)
    if not isinstance(schema, Mapping) or depth <= 0:
        return value
    allowed = types_of(schema, root)
    if isinstance(value, str):
        value = typed_value(value, allowed)
    if isinstance(value, float) and value.is_integer() and "integer" in allowed and "number" not in allowed:
        return int(value)
    if isinstance(value, dict):
        return _object(value, _option(schema, root, "properties"), root, depth)
    if isinstance(value, list):
        items = _option(schema, root, "items").get("items")
        return [coerced(item, items, root, depth - 1) for item in value]
    return value


def without_nulls(value: Any, schema: Any, root: Any = None, depth: int = _DEPTH) -> Any:
    """The value less every null that can only mean "not given": of a property that is optional and has no null."""
    root = root if root is not None else schema
    schema = resolve_reference(schema, root)
    if not isinstance(schema, Mapping) or depth <= 0:
        return value
    if isinstance(value, list):
        items = _option(schema, root, "items").get("items")
        return [without_nulls(item, items, root, depth - 1) for item in value]
    described = _option(schema, root, "properties")
    properties, required = described.get("properties"), described.get("required") or ()
    if not isinstance(value, dict) or not isinstance(properties, Mapping):
        return value
    return {
        name: without_nulls(item, properties.get(name), root, depth - 1)
        for name, item in value.items()
        if item is not None or name in required or _knows_null(properties.get(name), root)
    }


def _knows_null(schema: Any, root: Any) -> bool:
    allowed = types_of(schema, root)
    return not allowed or "null" in allowed


def _option(schema: Mapping[str, Any], root: Any, key: str) -> Mapping[str, Any]:
    """The schema itself, or the one alternative of it that describes this kind of container."""
    if key in schema:
        return schema
    for name in ("anyOf", "oneOf", "allOf"):
        for option in schema.get(name) or ():
            found = resolve_reference(option, root)
            if isinstance(found, Mapping) and key in found:
                return found
    return schema


def _object(value: dict[str, Any], schema: Mapping[str, Any], root: Any, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return value
    return {
        name: coerced(item, properties[name], root, depth - 1) if name in properties else item
        for name, item in value.items()
    }


def typed_value(text: str, allowed: frozenset[str]) -> Any:
    """The value that a raw text stands for among these types; text where text is wanted or allowed, or none is told."""
    if not allowed:
        return text
    bare = text.strip()
    if "null" in allowed and bare in _NULL:
        return None
    if "string" in allowed:
        return text
    if "boolean" in allowed and bare in _TRUE:
        return True
    if "boolean" in allowed and bare in _FALSE:
        return False
    if "integer" in allowed and _INTEGER.fullmatch(bare):
        return int(bare.partition(".")[0])
    if "number" in allowed and _NUMBER.fullmatch(bare):
        return _number(bare)
    if ("array" in allowed and bare[:1] in "[(") or ("object" in allowed and bare[:1] == "{"):
        return literal(bare, text)
    return text


def _number(text: str) -> Any:
    if text.lstrip("+-").isdigit():
        return int(text)
    number = float(text)
    return number if number - number == 0 else text


def literal(text: str, otherwise: Any) -> Any:
    """The list or object that a text writes in JSON or Python; something else if it is neither."""
    try:
        return read_json(text)
    except RepeatedKey:
        return otherwise
    except (ValueError, RecursionError):
        reader = ValueReader(text)
    try:
        value = reader.value()
        return otherwise if reader.peek() or reader.repeated is not None else value
    except Unreadable:
        return otherwise
