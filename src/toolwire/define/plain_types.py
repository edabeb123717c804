"""JSON Schemas of plain types, word for word as pydantic would write them.

Most tools take and give text, numbers, switches, lists and dicts. Pydantic takes longer to load than most calls take,
so it is asked only about types that are not plain. What is uncertain is not plain: then it decides.
"""

import math
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any

from toolwire.define.fields import Field, is_serializer, only_constrains
from toolwire.define.signatures import MISSING, Parameter, Signature
from toolwire.protocol.calls import ErrorText, Image, Resource, Text, ToolOutput, ToolResult

PLAIN = (str, int, bool, None, type(None), Any, object, list, dict)

OWN_RESULTS = (ToolOutput, ToolResult, Text, Image, Resource, ErrorText)
"""What a function returns when it says itself what models see."""

_SIMPLE: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    list: {"items": {}, "type": "array"},
    dict: {"additionalProperties": True, "type": "object"},
}
_NUMBER_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_BOUNDS: Mapping[str, Mapping[str, str]] = {
    "integer": _NUMBER_BOUNDS,
    "number": _NUMBER_BOUNDS,
    "string": {"min_length": "minLength", "max_length": "maxLength"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"min_length": "minProperties", "max_length": "maxProperties"},
}
_LITERALS = {str: "string", int: "integer", bool: "boolean"}
_TYPED_DICT_EXTRAS = ("__pydantic_config__", "__closed__", "__extra_items__", "__parameters__", "__readonly_keys__")


class _NotPlain(Exception):
    """Pydantic has to describe this type."""


def plain_arguments(signature: Signature) -> dict[str, Any] | None:
    """The JSON Schema of a signature's arguments; None where they have to be converted, or pydantic has to say."""
    if signature.star or signature.rest is not MISSING:
        return None
    try:
        properties = {each.name: _argument(each) for each in signature.parameters}
    except _NotPlain:
        return None
    required = [each.name for each in signature.parameters if each.required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def plain_result(annotation: Any) -> dict[str, Any] | None:
    """The JSON Schema of what a function returns; None where pydantic has to say."""
    definitions: dict[str, _Definition] = {}
    try:
        kind = _bare_type(annotation)
        schema = _typed_dict(kind, definitions) if typing.is_typeddict(kind) else _schema(annotation, definitions)
        if typing.is_typeddict(kind) and (kind is not annotation or kind in _classes(definitions)):
            return None
    except _NotPlain:
        return None
    if not definitions:
        return schema
    return {"$defs": {name: definitions[name].schema for name in sorted(definitions)}, **schema}


class _Definition(typing.NamedTuple):
    kind: Any
    schema: dict[str, Any]


def _classes(definitions: Mapping[str, _Definition]) -> set[Any]:
    return {each.kind for each in definitions.values()}


def _bare_type(annotation: Any) -> Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation


def _argument(parameter: Parameter) -> dict[str, Any]:
    annotation = parameter.annotation
    if bare(annotation) is not float and not is_plain(annotation):
        raise _NotPlain
    schema = _schema(annotation, None)
    return schema if parameter.required else {**schema, "default": _plain_default(parameter.default)}


def _plain_default(value: Any) -> Any:
    if value is None or type(value) in (str, bool):
        return value
    if type(value) is int and abs(value) < 1 << 63:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) in (list, dict) and not value:
        return type(value)()
    raise _NotPlain


def _schema(annotation: Any, definitions: dict[str, _Definition] | None) -> dict[str, Any]:
    """The schema of a type; `definitions` takes the typed dicts in it, and where it is None there may be none."""
    if annotation in PLAIN or annotation is float:
        return dict(_SIMPLE[annotation])
    arguments = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case typing.Annotated:
            return _annotated(_schema(arguments[0], definitions), arguments[1:])
        case typing.Literal:
            return _literal(arguments)
        case typing.Union | types.UnionType:
            return _union([_schema(each, definitions) for each in arguments])
        case origin if origin is list:
            return {"items": _schema(arguments[0], definitions), "type": "array"}
        case origin if origin is dict and arguments[0] is str:
            return {"additionalProperties": _schema(arguments[1], definitions) or True, "type": "object"}
    if definitions is not None and typing.is_typeddict(annotation):
        return _reference(annotation, definitions)
    raise _NotPlain


def _annotated(schema: dict[str, Any], metadata: tuple[Any, ...]) -> dict[str, Any]:
    for item in metadata:
        if isinstance(item, Field):
            schema = _described(schema, item)
        elif not isinstance(item, str):
            raise _NotPlain
    return schema


def _described(schema: dict[str, Any], field: Field) -> dict[str, Any]:
    bounds = field.bounds
    if bounds and "anyOf" in schema and not schema.keys() - {"anyOf", "description"}:
        first, *rest = schema["anyOf"]
        if rest != [{"type": "null"}]:
            raise _NotPlain
        schema = {**schema, "anyOf": [_bounded(first, bounds), *rest]}
    elif bounds:
        schema = _bounded(schema, bounds)
    return _sorted({**schema, "description": field.description} if field.description else schema)


def _bounded(schema: dict[str, Any], bounds: Mapping[str, Any]) -> dict[str, Any]:
    kind = schema.get("type", "")
    words = _BOUNDS.get(kind, {})
    if schema.keys() & {"enum", "const"} or not bounds.keys() <= words.keys():
        raise _NotPlain
    numbers = (int, float) if kind == "number" else (int,)
    if any(type(value) not in numbers or not math.isfinite(value) for value in bounds.values()):
        raise _NotPlain
    if words is not _NUMBER_BOUNDS and any(value < 0 for value in bounds.values()):
        raise _NotPlain
    return _sorted({**schema, **{words[name]: value for name, value in bounds.items()}})


def _literal(values: tuple[Any, ...]) -> dict[str, Any]:
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or (kind := _LITERALS.get(kinds.pop())) is None:
        raise _NotPlain
    return {"const": values[0], "type": kind} if len(values) == 1 else {"enum": list(values), "type": kind}


def _union(members: list[dict[str, Any]]) -> dict[str, Any]:
    null = {"type": "null"}
    others = [each for each in members if each != null]
    if any("anyOf" in each for each in members) or any(each in others[:at] for at, each in enumerate(others)):
        raise _NotPlain
    if not others:
        raise _NotPlain
    return {"anyOf": [*others, null] if len(others) < len(members) else others}


def _reference(kind: Any, definitions: dict[str, _Definition]) -> dict[str, Any]:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = _Definition(kind, {})
        definitions[name] = _Definition(kind, _typed_dict(kind, definitions))
    elif definitions[name].kind is not kind or not definitions[name].schema:  # another of this name, or itself
        raise _NotPlain
    return {"$ref": f"#/$defs/{name}"}


def _typed_dict(kind: Any, definitions: dict[str, _Definition]) -> dict[str, Any]:
    if kind.__doc__ or not kind.__total__ or any(getattr(kind, name, None) for name in _TYPED_DICT_EXTRAS):
        raise _NotPlain
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except (NameError, TypeError):
        raise _NotPlain from None
    properties = {name: _schema(hint, definitions) for name, hint in hints.items()}
    if not properties or kind.__optional_keys__:
        raise _NotPlain
    return {"properties": properties, "required": list(properties), "type": "object"}


def _sorted(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: schema[key] for key in sorted(schema)}


def bare(annotation: Any) -> Any:
    """The type inside Annotated if nothing there changes values; otherwise the annotation itself."""
    if typing.get_origin(annotation) is not Annotated:
        return annotation
    inner, *metadata = typing.get_args(annotation)
    return bare(inner) if all(map(only_constrains, metadata)) else annotation


def is_plain(annotation: Any) -> bool:
    """Whether values of this type are JSON as it came, so that a function can be given them as they are."""
    annotation = bare(annotation)
    if annotation in PLAIN:
        return True
    arguments = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case typing.Literal:
            return all(type(value) in (str, int, bool, type(None)) for value in arguments)
        case typing.Union | types.UnionType:
            return all(map(is_plain, arguments))
        case origin if origin is list:
            return is_plain(arguments[0])
        case origin if origin is dict:
            return arguments[0] is str and is_plain(arguments[1])
    return False


def promises_nothing(returns: Any) -> bool:
    """Whether the annotation of a result says nothing that JSON can say."""
    return returns in (MISSING, Any, object) or _mentions(returns, OWN_RESULTS)


def _mentions(annotation: Any, wanted: tuple[type, ...]) -> bool:
    return annotation in wanted or any(_mentions(inner, wanted) for inner in typing.get_args(annotation))


def mentions_serializer(annotation: Any) -> bool:
    """Whether pydantic has to write a result, since its annotation says how."""
    metadata = annotation.__metadata__ if typing.get_origin(annotation) is Annotated else ()
    return any(map(is_serializer, metadata)) or any(map(mentions_serializer, typing.get_args(annotation)))
