"""From a signature to schemas, and from plain JSON arguments to the Python values that a function wants."""

import copy
import dataclasses
import functools
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

import orjson
import typing_extensions
from msgspec import Struct
from pydantic import AliasChoices, AliasPath, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, SchemaError, to_jsonable_python

from toolwire.define.binding import Convert, converter_to_floats
from toolwire.define.plain_types import OWN_RESULTS, PLAIN, bare, is_plain
from toolwire.define.schemas import without_titles
from toolwire.define.signatures import MISSING, Parameter, Signature
from toolwire.errors import DefinitionError, ToolFailure
from toolwire.protocol.outcomes import Code

_ADVICE = "use a type that JSON can express, or give input_schema="
# Type checkers want the names in a TypedDict to be literal; here they come from a signature.
_typed_dict: Any = typing_extensions.TypedDict


class _Schemas(GenerateJsonSchema):
    """JSON Schema whose patterns can all be checked in linear time."""

    def model_schema(self, schema: Any) -> dict[str, Any]:
        return self._closed(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        return self._closed(super().dataclass_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
        return self._closed(super().typed_dict_schema(schema), schema.get("cls"))

    def _closed(self, described: dict[str, Any], kind: Any) -> dict[str, Any]:
        """An argument with fields takes no others, unless its class may take them under names that no schema shows."""
        if self.mode == "validation" and "properties" in described and not _takes_others(kind):
            described.setdefault("additionalProperties", False)
        return described

    def get_decimal_pattern(self, schema: Any) -> str | None:  # noqa: ARG002
        return r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def _takes_others(kind: Any) -> bool:
    config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", {})
    if config.get("extra") in ("allow", "ignore") or config.get("populate_by_name") or config.get("validate_by_name"):
        return True
    validators = getattr(getattr(kind, "__pydantic_decorators__", None), "model_validators", {})
    fields = getattr(kind, "model_fields", None) or getattr(kind, "__pydantic_fields__", {})
    return any(each.info.mode != "after" for each in validators.values()) or any(
        isinstance(each.validation_alias, (AliasChoices, AliasPath)) for each in fields.values()
    )


def arguments_adapter(signature: Signature, names: Callable[[], dict[str, Any]]) -> TypeAdapter[Any]:
    """What pydantic knows about a signature's arguments. `names` gives the names that local types may refer to."""
    if signature.star:
        raise DefinitionError(
            f"tool {signature.name!r} takes *{signature.star}; a model passes arguments by name, "
            "so use a list parameter instead"
        )
    parameters = [(each.name, each.required, each.annotation) for each in signature.parameters]
    return _adapter(
        lambda: _holder(signature), f"tool {signature.name!r}", names, same=("arguments", signature.rest, parameters)
    )


def arguments_schema(signature: Signature, adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The JSON Schema of a signature's arguments, with defaults and without titles."""
    generated = _generated(adapter, "validation", f"tool {signature.name!r}")
    properties = generated.get("properties", {})
    for key, parameter in zip(properties, signature.parameters, strict=True):
        if not parameter.required and "default" not in properties[key]:
            properties[key] |= _shown_default(parameter)
    schema = {"type": "object", "properties": properties, "required": generated.get("required", [])}
    return schema | {
        keyword: generated[keyword] for keyword in ("additionalProperties", "$defs") if keyword in generated
    }


def result_schema(signature: Signature, names: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """The JSON Schema of what a function returns, or None where its annotation says nothing that JSON can say."""
    returns = signature.returns
    label = f"tool {signature.name!r}"
    try:
        schema = _generated(
            _adapter(lambda: _modern(returns), label, names, same=("result", returns)), "serialization", label
        )
    except DefinitionError:  # what has no schema can be shown all the same if it is like a list, a dict or an array
        _refuse_without_json(returns, label)
        return None
    if schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("required", [])
    return schema


def result_dump(signature: Signature, names: Callable[[], dict[str, Any]]) -> Callable[[Any], Any]:
    """How a result becomes JSON as its annotation says."""
    returns = signature.returns
    adapter = _adapter(lambda: _modern(returns), f"tool {signature.name!r}", names, same=("result", returns))
    return lambda value: adapter.dump_python(value, mode="json", by_alias=True, warnings=False)


def _refuse_without_json(annotation: Any, label: str) -> None:
    """A class of which nothing says how it becomes JSON would fail each call after the function has run."""
    for inner in typing.get_args(annotation):
        _refuse_without_json(inner, label)
    is_class = isinstance(annotation, type) and not typing.get_args(annotation)
    if typing.get_origin(annotation) is Callable or (is_class and not _may_have_json(annotation)):
        raise DefinitionError(
            f"{label} returns {getattr(annotation, '__name__', annotation)}, which has no JSON form; "
            "return text, numbers, lists, dicts, dataclasses or pydantic models"
        )


def _may_have_json(kind: type) -> bool:
    return (
        issubclass(kind, (Mapping, Sequence, Set, Struct, *OWN_RESULTS))
        or dataclasses.is_dataclass(kind)
        or any(hasattr(kind, name) for name in ("model_dump", "__get_pydantic_core_schema__", "__array_interface__"))
        or kind.__module__.partition(".")[0] == "numpy"
        or _is_describable(kind)
    )


def _is_describable(kind: type) -> bool:
    try:
        TypeAdapter(kind).json_schema(mode="serialization")
    except (PydanticUserError, TypeError):
        return False
    return True


def converter(signature: Signature, adapter: TypeAdapter[Any]) -> Convert | None:
    """Makes of checked arguments what the function wants; None where it wants JSON as it is."""
    others = [each.annotation for each in signature.parameters if bare(each.annotation) is not float]
    if not all(map(is_plain, others)) or signature.rest not in (MISSING, *PLAIN):
        return _by_pydantic(adapter)
    return converter_to_floats(signature)


def _by_pydantic(adapter: TypeAdapter[Any]) -> Convert:
    def convert(values: dict[str, Any]) -> dict[str, Any]:
        try:
            converted: dict[str, Any] = adapter.validate_python(values)
        except ValidationError as wrong:
            raise ToolFailure(_sentences(wrong), code=Code.INVALID_PARAMS) from None
        return converted

    return convert


def _sentences(wrong: ValidationError) -> str:
    found = wrong.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:20])


def _holder(signature: Signature) -> Any:
    """A TypedDict with a key for every parameter: any name may be one, and what is absent stays absent."""
    fields = {each.name: _presence(each)[_modern(each.annotation)] for each in signature.parameters}
    if signature.rest is not MISSING:
        return _typed_dict("Arguments", fields, extra_items=signature.rest)
    holder = _typed_dict("Arguments", fields)
    holder.__pydantic_config__ = ConfigDict(extra="forbid")
    return holder


def _presence(parameter: Parameter) -> Any:
    return typing_extensions.Required if parameter.required else typing_extensions.NotRequired


def _adapter(
    annotation: Callable[[], Any], label: str, names: Callable[[], dict[str, Any]], *, same: Any
) -> TypeAdapter[Any]:
    """What pydantic makes of an annotation; made once for all that are the `same`, since it takes milliseconds."""
    key = _key(same)
    if key is not None and (known := _adapters.get(key)):
        return known[0]
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation())
        alone = adapter.pydantic_complete
        if not alone:
            adapter.rebuild(_types_namespace=names())
    except PydanticUndefinedAnnotation as unknown:
        raise DefinitionError(f"{label} uses a type that cannot be resolved: {unknown.message}") from None
    except SchemaError as wrong:
        raise DefinitionError(f"{label} has a constraint that cannot be used: {str(wrong).splitlines()[-1]}") from None
    except (PydanticUserError, TypeError) as wrong:
        raise DefinitionError(f"{label} has a type that JSON cannot carry: {_reason(wrong)}; {_ADVICE}") from None
    if alone and key is not None:  # a name may mean something else where another function stands
        while len(_adapters) >= _KEPT_ADAPTERS:
            _adapters.pop(next(iter(_adapters)), None)
        _adapters[key] = adapter, same
    return adapter


_KEPT_ADAPTERS = 256
# With each adapter is kept what its key was made of: a text in the key may name an object by its address.
_adapters: dict[Any, tuple[TypeAdapter[Any], Any]] = {}
_generated_before: "WeakKeyDictionary[TypeAdapter[Any], dict[str, dict[str, Any]]]" = WeakKeyDictionary()


def _key(part: Any) -> Any:
    """Equal for what pydantic cannot tell apart. None for what has no such key.

    Values go with their types, since 1, 1.0 and True are equal and their schemas are not.
    """
    try:
        found = _parts(part)
        hash(found)
    except TypeError:
        return None
    return found


def _parts(part: Any) -> Any:
    if isinstance(part, FieldInfo):
        return FieldInfo, repr(part)
    if isinstance(part, (tuple, list)):
        return type(part), *map(_parts, part)
    if arguments := typing.get_args(part):
        return type(part), typing.get_origin(part), *map(_parts, arguments)
    return type(part), part


def _generated(adapter: TypeAdapter[Any], mode: Literal["validation", "serialization"], label: str) -> dict[str, Any]:
    """The schema of what an adapter takes or gives, which its caller may change."""
    before = _generated_before.setdefault(adapter, {})
    if mode not in before:
        try:
            before[mode] = without_titles(adapter.json_schema(mode=mode, schema_generator=_Schemas))
        except PydanticUserError as wrong:
            raise DefinitionError(f"{label} has a type that JSON cannot carry: {_reason(wrong)}; {_ADVICE}") from None
    return copy.deepcopy(before[mode])


def _reason(wrong: Exception) -> str:
    return str(wrong).partition("\n")[0].partition(". ")[0].rstrip(".")


def _shown_default(parameter: Parameter) -> dict[str, Any]:
    """The default as JSON, if JSON can say it."""
    try:
        shown = to_jsonable_python(parameter.default)
        return {"default": shown} if orjson.loads(orjson.dumps(shown)) == shown else {}
    except (PydanticSerializationError, TypeError):
        return {}


def _modern(annotation: Any) -> Any:
    """The annotation with typing.TypedDict replaced by its backport, which pydantic needs before Python 3.12."""
    if sys.version_info >= (3, 12):
        return annotation
    if typing.is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _modern_typed_dict(annotation)
    arguments = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case typing.Annotated:
            return Annotated[_modern(arguments[0]), *arguments[1:]]
        case typing.Union | types.UnionType:
            return functools.reduce(operator.or_, map(_modern, arguments))
        case origin if origin in (list, dict, set, frozenset, tuple):
            return origin[tuple(map(_modern, arguments))]
    return annotation


def _modern_typed_dict(annotation: Any) -> Any:
    hints = typing.get_type_hints(annotation, include_extras=True)
    fields = {name: _qualified(hint, name in annotation.__required_keys__) for name, hint in hints.items()}
    return _typed_dict(annotation.__name__, fields)


def _qualified(hint: Any, required: bool) -> Any:
    # With string annotations the class itself does not know about Required and NotRequired; the resolved hint does.
    match typing.get_origin(hint):
        case typing.Required:
            return typing_extensions.Required[_modern(typing.get_args(hint)[0])]
        case typing.NotRequired:
            return typing_extensions.NotRequired[_modern(typing.get_args(hint)[0])]
    return (typing_extensions.Required if required else typing_extensions.NotRequired)[_modern(hint)]
