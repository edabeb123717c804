"""JSON Schemas as they are allowed to be here: an object of arguments, local, bounded, and quick to check."""

import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs
import orjson

from toolwire.define.effort import expansion
from toolwire.define.references import is_recursive, subschemas, targets
from toolwire.errors import DefinitionError
from toolwire.lazy import lazy_pattern

MAX_SCHEMA_BYTES = 256 * 1024
MAX_EXPANSION = 20_000

# What a schema says about itself is believed; most say nothing and are read as the current draft.
_DRAFTS: dict[str, type[jsonschema_rs.Validator]] = {
    "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
}
# Properties are compiled one by one with all definitions, so those must be few.
_MAX_APART = 16 * 1024
_DEFINITIONS = ("$defs", "definitions")
_LINEAR = jsonschema_rs.RegexOptions(size_limit=1 << 20)
# Look-around and back-references cannot run in linear time; this many steps bound them to well below a millisecond.
_BOUNDED = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=1 << 20)

_DATE_TIME = lazy_pattern(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)
_TIME = lazy_pattern(r"\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)


def compile_schema(schema: Mapping[str, Any], owner: str) -> jsonschema_rs.Validator:
    """Make a schema ready to check values, once. Raises `DefinitionError` naming `owner` if it cannot be used."""
    document = plain_copy(schema, owner)
    _refuse_hostile(document, owner)
    try:
        return _compiled(_draft(document), document)
    except ValueError as wrong:
        reason = str(wrong).partition("\n")[0]
        raise DefinitionError(f"{owner} is not a valid JSON Schema: {reason}") from None


def compile_parameters(schema: Mapping[str, Any]) -> dict[str, Callable[[Any], bool]]:
    """For each property of a schema that compiles, whether a value fits it.

    Empty for a schema so large, or with references such, that a property had better not be taken out of it.
    """
    properties = schema["properties"].items()
    if len(orjson.dumps(schema)) > _MAX_APART or any(not _stands_apart(inner) for _, inner in subschemas(schema)):
        return {}
    shared = {key: schema[key] for key in ("$schema", *_DEFINITIONS) if key in schema}
    documents = {name: {**held, **shared} for name, held in properties}
    return {name: _compiled(_draft(schema), document).is_valid for name, document in documents.items()}


def plain_copy(schema: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """The same schema as plain JSON that no other code holds. Raises `DefinitionError` for anything else."""
    try:
        data = orjson.dumps(schema, default=_as_dict)
    except TypeError as wrong:
        raise DefinitionError(f"{owner} must be plain JSON: {wrong}") from None
    if len(data) > MAX_SCHEMA_BYTES:
        raise DefinitionError(f"{owner} has {len(data)} bytes; at most {MAX_SCHEMA_BYTES} are allowed")
    document = orjson.loads(data)
    if not isinstance(document, dict):
        raise DefinitionError(f"{owner} must be a JSON object, not {type(schema).__name__}")
    return document


def object_schema(schema: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """A checked copy of a schema for arguments. Raises `DefinitionError` unless it describes an object."""
    document = plain_copy(schema, owner)
    kind = document.setdefault("type", "object")
    if kind != "object":
        raise DefinitionError(f'{owner} must have "type": "object", since arguments are always an object; got {kind!r}')
    document.setdefault("properties", {})
    compile_schema(document, owner)
    return document


def without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Drop the generated titles, which cost tokens and say nothing; changes the schema in place."""
    for _, inner in subschemas(schema):
        if isinstance(inner.get("title"), str):
            del inner["title"]
    return schema


def _stands_apart(schema: Mapping[str, Any]) -> bool:
    """Whether a schema means the same in another document that has the same definitions."""
    return (
        "$id" not in schema
        and "id" not in schema
        and all(target.startswith(("#/$defs/", "#/definitions/")) for target in targets(schema))
    )


def _draft(document: Mapping[str, Any]) -> type[jsonschema_rs.Validator]:
    return _DRAFTS.get(str(document.get("$schema")).rstrip("#"), jsonschema_rs.Draft202012Validator)


def _compiled(draft: type[jsonschema_rs.Validator], document: dict[str, Any]) -> jsonschema_rs.Validator:
    """A document compiled; its patterns run in linear time, or in bounded time if they cannot. Raises `ValueError`."""
    # A format that is only registered already slows every check down.
    used = {inner["format"] for _, inner in subschemas(document) if isinstance(inner.get("format"), str)}
    formats = {name: check for name, check in _FORMATS.items() if name in used}
    try:
        return draft(document, formats=formats, validate_formats=True, offline=True, pattern_options=_LINEAR)
    except ValueError:
        return draft(document, formats=formats, validate_formats=True, offline=True, pattern_options=_BOUNDED)


def _refuse_hostile(document: dict[str, Any], owner: str) -> None:
    for path, inner in subschemas(document):
        for target in targets(inner):
            if not target.startswith("#"):
                raise DefinitionError(
                    f"{owner} refers to {target[:80]!r} at {path or '/'}; put that under $defs and use #/$defs/…"
                )
    if not is_recursive(document) and expansion(document, MAX_EXPANSION) >= MAX_EXPANSION:
        raise DefinitionError(f"{owner} unfolds into more than {MAX_EXPANSION} schemas; let its references branch less")


def _as_dict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        raise TypeError("a set is not JSON, use a list")
    raise TypeError(f"{type(value).__name__} is not JSON")


def _is_date_time(text: str) -> bool:
    # RFC 3339 wants an offset; a local time without one is what models write and what datetime accepts.
    return _DATE_TIME.fullmatch(text) is not None and _reads(datetime.datetime.fromisoformat, text)


def _is_time(text: str) -> bool:
    return _TIME.fullmatch(text) is not None and _reads(datetime.time.fromisoformat, text)


def _reads(parse: Any, text: str) -> bool:
    try:
        parse(text.upper())
    except ValueError:
        return False
    return True


_FORMATS = {"date-time": _is_date_time, "time": _is_time}
