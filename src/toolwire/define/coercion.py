"""Reading a value as the type its schema asks for, where nothing can be lost and nothing is guessed."""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from jsonschema_rs import ValidationError, ValidationErrorKind

from toolwire.define.branches import closest, types_here
from toolwire.define.quoting import path_text, quote_value
from toolwire.lazy import lazy_pattern

# The number grammar of JSON, no longer than a sound integer may be.
_NUMBER = lazy_pattern(r"-?(?:0|[1-9][0-9]{0,399})(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False, "True": True, "False": False}
_NOTHING: Any = object()
# The kinds of error that can be about a type.
_OF_TYPES = frozenset((ValidationErrorKind.Type, ValidationErrorKind.AnyOf, ValidationErrorKind.OneOfNotValid))

Path = list[str | int]


def clone(value: Any) -> Any:
    """A copy of a JSON value that shares no container with it."""
    if isinstance(value, dict):
        return {key: clone(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [clone(inner) for inner in value]
    return value


def coerced(arguments: dict[str, Any], errors: Iterable[ValidationError]) -> tuple[dict[str, Any], list[str]]:
    """A copy of the arguments with every value read as the wanted type where possible, and notes on those."""
    result: dict[str, Any] = arguments
    notes: dict[str, None] = {}
    for path, types in _wanted(errors):
        value = _at(arguments, path)
        read = lossless(value, types)
        if read is not _NOTHING:
            result = clone(arguments) if result is arguments else result
            _put(result, path, read)
            notes[f"{path_text(path)}: {quote_value(value)} read as {quote_value(read)}"] = None
    return result, list(notes)


def lossless(value: Any, types: Iterable[str]) -> Any:
    """The value as one of the wanted JSON types, or `_NOTHING` if that would lose or invent anything.

    An integer becomes text only where nothing but text is wanted: its digits are its one spelling, which is not so for
    other numbers. Booleans are never numbers, nor numbers booleans.
    """
    wanted = frozenset(types)
    if type(value) is int and wanted == {"string"}:
        return str(value)
    if type(value) is not str or "string" in wanted:
        return _NOTHING
    if wanted & {"integer", "number"} and (number := _NUMBER.fullmatch(value)):
        return _number(number, "number" in wanted)
    if "boolean" in wanted and value in _WORDS:
        return _WORDS[value]
    if "null" in wanted and value == "null":
        return None
    return _container(value, wanted)


def whole_floats(value: Any, path: Path) -> Iterator[Path]:
    """The places of floats like 5.0, which JSON counts among the integers and Python does not."""
    match value:
        case float():
            if value.is_integer():
                yield path
        case dict():
            for key, inner in value.items():
                yield from whole_floats(inner, [*path, key])
        case list():
            for index, inner in enumerate(value):
                yield from whole_floats(inner, [*path, index])


def with_integers(arguments: dict[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """A copy with the floats at these places as integers."""
    result: dict[str, Any] = clone(arguments)
    for path in paths:
        _put(result, path, int(_at(result, path)))
    return result


def with_fractions(arguments: dict[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """A copy with a fraction at these places, to ask a schema which of them must be integers."""
    result: dict[str, Any] = clone(arguments)
    for path in paths:
        _put(result, path, 0.5)
    return result


def integer_places(errors: Iterable[ValidationError]) -> Iterator[tuple[str | int, ...]]:
    """The places where a schema wanted an integer and no other number."""
    for path, types in _wanted(errors):
        if "integer" in types and "number" not in types:
            yield tuple(path)


def _wanted(errors: Iterable[ValidationError]) -> Iterator[tuple[Path, list[str]]]:
    """Where a value is of the wrong type, and which types are right there."""
    for error in errors:
        if type(error.kind) not in _OF_TYPES:
            continue
        match error.kind:
            case ValidationErrorKind.Type(types):
                yield error.instance_path, types
            case ValidationErrorKind.AnyOf(context) | ValidationErrorKind.OneOfNotValid(context):
                if types := types_here(context, error.instance_path):
                    yield error.instance_path, types
                else:
                    yield from _wanted(closest(context, error.instance_path))


def _number(number: re.Match[str], fractions: bool) -> Any:
    fraction, exponent = number.groups()
    if fraction is None and exponent is None:
        return int(number[0])
    value = float(number[0])
    if not math.isfinite(value):
        return _NOTHING
    if fractions:
        return value
    return int(value) if value.is_integer() and abs(value) < 2**53 else _NOTHING


def _container(text: str, wanted: frozenset[str]) -> Any:
    kind = {"[": "array", "{": "object"}.get(text.lstrip()[:1])
    if kind not in wanted:
        return _NOTHING
    try:
        return orjson.loads(text)
    except ValueError:
        return _NOTHING


def _at(value: Any, path: Iterable[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def _put(value: Any, path: Path, new: Any) -> None:
    _at(value, path[:-1])[path[-1]] = new
