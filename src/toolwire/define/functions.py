"""A Python function becomes a tool."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from msgspec.structs import replace

from toolwire.define.binding import converter_to_floats, in_process
from toolwire.define.outputs import output_check
from toolwire.define.plain_types import mentions_serializer, plain_arguments, plain_result, promises_nothing
from toolwire.define.schemas import compile_schema, object_schema, plain_copy
from toolwire.define.signatures import Signature, enclosing_names, innermost, read_signature
from toolwire.errors import DefinitionError
from toolwire.lazy import lazy_module
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.checked import describe_value
from toolwire.protocol.tools import Delivery, Effect, InProcess, JsonObject, Tier, Tool

if TYPE_CHECKING:
    from toolwire.define import conversion
else:
    # Loaded for types that are not plain: it needs pydantic.
    conversion = lazy_module("toolwire.define.conversion")

Validator = Callable[[dict[str, Any]], dict[str, Any] | None]

# Default and maximum seconds for each category of tools.
TIMEOUTS: Mapping[str, tuple[float, float]] = {
    "file": (5.0, 30.0),
    "web": (30.0, 120.0),
    "exec": (30.0, 300.0),
    "git": (60.0, 300.0),
    "": (30.0, 300.0),
}
_OTHER_CATEGORY = (10.0, 60.0)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")


class Options(TypedDict, total=False):
    """What can be said about a tool beside its function; see `Tool` for what each means."""

    name: str
    description: str
    tier: Tier
    needs: str | Iterable[str]
    effect: Effect
    journaled: bool
    reads: str | Iterable[str]
    writes: str | Iterable[str]
    requires_confirmation: bool
    category: str
    timeout_s: float
    max_timeout_s: float
    polling: bool
    in_flight: int
    delivery: Delivery
    after_execution: AfterExecution | str
    controls_turn: bool
    shows_output: bool
    untrusted: bool
    sandbox: str
    version: str
    skill: str
    platforms: str | Iterable[str]
    examples: Iterable[JsonObject]
    validator: Validator
    input_schema: JsonObject
    output_schema: JsonObject


@overload
def tool(function: Callable[..., Any], /, **options: Unpack[Options]) -> Tool: ...


@overload
def tool(**options: Unpack[Options]) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[Options]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function callable by models: `@tool`, `@tool(tier=Tier.RUN, …)` or `tool(function, …)`.

    Its parameters become the input schema, its docstring the descriptions, its return type the output schema. A
    parameter of type `Context` is filled by the runtime. With `input_schema` given, the function receives the JSON
    arguments as they are. Raises `DefinitionError`, which says what to change.
    """
    if function is not None:
        return _build(function, options)
    return lambda decorated: _build(decorated, options)


def from_schema(
    name: str,
    description: str,
    input_schema: JsonObject,
    function: Callable[..., Any],
    **options: Any,
) -> Tool:
    """A tool whose schema is known already; the function receives the JSON arguments by keyword."""
    return tool(function, name=name, description=description, input_schema=input_schema, **options)


def tool_name(name: object) -> str:
    """The name if it may be a tool's. Raises `DefinitionError` otherwise."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise DefinitionError(
        f"{str(name)[:80]!r} cannot be a tool's name; give name= with letters, digits, '_', '.' or '-', "
        "starting with a letter or '_', at most 128 characters"
    )


def timeouts(category: str, timeout_s: float | None = None, max_timeout_s: float | None = None) -> tuple[float, float]:
    """How long a tool gets, and how long it may get at most. Raises `DefinitionError` unless both are above zero."""
    for seconds in (timeout_s, max_timeout_s):
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float))):
            raise DefinitionError(f"timeouts are seconds above zero, not {describe_value(seconds)}")
    usual, most = TIMEOUTS.get(category, _OTHER_CATEGORY)
    if max_timeout_s is None:
        max_timeout_s = max(most, timeout_s or 0.0)
    chosen = min(usual if timeout_s is None else timeout_s, max_timeout_s)
    if not 0 < chosen <= max_timeout_s < float("inf"):
        raise DefinitionError(
            f"timeouts are seconds above zero, not timeout_s={timeout_s}, max_timeout_s={max_timeout_s}"
        )
    return chosen, max_timeout_s


def _build(function: Any, options: Options) -> Tool:
    if not callable(function) or isinstance(function, type):
        raise DefinitionError(f"a tool is made from a function, not from {function!r:.80}; wrap it in one")
    given: dict[str, Any] = dict(options)
    _refuse_unknown(given)
    signature = read_signature(function)
    name = tool_name(given.pop("name", None) or signature.name)
    description = (given.pop("description", None) or signature.docs.summary).strip()
    if not description:
        raise DefinitionError(f"tool {name!r} has no description; add a docstring or give description=")
    category = given.get("category", "")
    timeout_s, max_timeout_s = timeouts(category, given.pop("timeout_s", None), given.pop("max_timeout_s", None))
    input_schema, target = _inputs(function, signature, given.pop("input_schema", None), name)
    output_schema = _outputs(function, signature, given.pop("output_schema", None), name)
    target = replace(
        target,
        check=output_check(output_schema, f"output_schema of tool {name!r}"),
        dump=_dump(function, signature),
    )
    try:
        return Tool(
            name=name,
            description=description,
            input_schema=input_schema,
            output_schema=output_schema,
            timeout_s=timeout_s,
            max_timeout_s=max_timeout_s,
            target=target,
            **given,
        )
    except (TypeError, ValueError) as wrong:
        raise DefinitionError(f"tool {name!r}: {wrong}") from None


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    unknown = sorted(given.keys() - Options.__annotations__.keys())
    if unknown:
        raise DefinitionError(f"tool() takes no {unknown[0]}=; it takes {', '.join(Options.__annotations__)}")


def _inputs(
    function: Callable[..., Any], signature: Signature, explicit: JsonObject | None, name: str
) -> tuple[dict[str, Any], InProcess]:
    owner = f"input_schema of tool {name!r}"
    if explicit is not None:
        schema = object_schema(explicit, owner)
        _refuse_untakeable(schema, signature, name)
        return schema, in_process(function, signature, None)
    plain = plain_arguments(signature)
    if plain is not None:
        # It is sound by its making, so it is compiled when arguments are first checked with it.
        return plain_copy(plain, owner), in_process(function, signature, converter_to_floats(signature))
    adapter = conversion.arguments_adapter(signature, lambda: enclosing_names(innermost(function)))
    schema = object_schema(conversion.arguments_schema(signature, adapter), owner)
    return schema, in_process(function, signature, conversion.converter(signature, adapter))


def _outputs(
    function: Callable[..., Any], signature: Signature, explicit: JsonObject | None, name: str
) -> dict[str, Any] | None:
    owner = f"output_schema of tool {name!r}"
    if explicit is not None:
        compile_schema(explicit, owner)
        return plain_copy(explicit, owner)
    if promises_nothing(signature.returns):
        return None
    schema = plain_result(signature.returns)
    if schema is None:
        schema = conversion.result_schema(signature, lambda: enclosing_names(innermost(function)))
    if schema is not None and signature.docs.returns:
        schema.setdefault("description", signature.docs.returns)
    return schema


def _dump(function: Callable[..., Any], signature: Signature) -> Callable[[Any], Any] | None:
    """How a result becomes JSON where its annotation says so itself; None for all that need no such care."""
    if not mentions_serializer(signature.returns):
        return None
    return conversion.result_dump(signature, lambda: enclosing_names(innermost(function)))


def _refuse_untakeable(schema: Mapping[str, Any], signature: Signature, name: str) -> None:
    """An explicit schema must not promise arguments that the function would not accept."""
    if signature.takes_rest:
        return
    extra = [each for each in schema["properties"] if each not in {known.name for known in signature.parameters}]
    if extra:
        raise DefinitionError(
            f"input_schema of tool {name!r} has {extra[0]!r}, which its function does not take; add it or **rest"
        )
