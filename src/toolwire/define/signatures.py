"""What a callable takes: its parameters with resolved types, and where the call's context goes."""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Union

from msgspec import Struct

from toolwire.define.docstrings import Docs, read_docstring
from toolwire.define.fields import Field, is_pydantic_field
from toolwire.errors import DefinitionError
from toolwire.protocol.context import Context

MISSING: Any = inspect.Parameter.empty


class Parameter(Struct, frozen=True):
    """One argument that a model gives. `annotation` is complete: its type with constraints and description."""

    name: str
    annotation: Any
    default: Any = MISSING

    @property
    def required(self) -> bool:
        return self.default is MISSING


class Signature(Struct, frozen=True):
    """A callable as a tool sees it.

    `contexts` are filled by the runtime. `ordered` are positional-only parameters with their defaults. `rest` is the
    type of further keyword arguments if the function says it, `takes_rest` whether it takes any at all.
    """

    name: str
    docs: Docs
    parameters: tuple[Parameter, ...]
    contexts: tuple[str, ...]
    ordered: tuple[tuple[str, Any], ...]
    rest: Any
    takes_rest: bool
    star: str
    returns: Any
    is_async: bool


def read_signature(function: Callable[..., Any]) -> Signature:
    """Read a function, method, partial or callable object. Raises `DefinitionError` saying what to change."""
    inner = innermost(function)
    name = _name(function, inner)
    label = f"tool {name!r}"
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise DefinitionError(f"{label} is a generator; return a list, and report progress with Context.progress")
    hints = _type_hints(inner, label)
    docs = read_docstring(_docstring(function, inner))
    declared = _declared(function, label)
    named = [each for each in declared if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    contexts = tuple(each.name for each in named if _is_context(hints.get(each.name)))
    rest = next((each.name for each in declared if each.kind is each.VAR_KEYWORD), None)
    return Signature(
        name=name,
        docs=docs,
        parameters=tuple(
            _parameter(each, hints.get(each.name, Any), docs) for each in named if each.name not in contexts
        ),
        contexts=contexts,
        ordered=tuple((each.name, each.default) for each in named if each.kind is each.POSITIONAL_ONLY),
        rest=hints.get(rest, MISSING) if rest else MISSING,
        takes_rest=rest is not None,
        star=next((each.name for each in declared if each.kind is each.VAR_POSITIONAL), ""),
        returns=hints.get("return", MISSING),
        is_async=inspect.iscoroutinefunction(inner),
    )


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The plain function under partials, methods, callable objects and wrappers."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif not inspect.isroutine(function) and not inspect.isclass(function):
            function = type(function).__call__
        else:
            return function


def _name(function: Callable[..., Any], inner: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function):
        return str(getattr(inner, "__name__", "tool"))
    return type(function).__name__


def _declared(function: Callable[..., Any], label: str) -> list[inspect.Parameter]:
    try:
        declared = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise DefinitionError(
            f"{label} has no readable signature; wrap it in a function with typed parameters"
        ) from None
    if declared and declared[0].name in ("self", "cls") and declared[0].annotation is MISSING:
        raise DefinitionError(f"{label} is a method without its object; give tool() the bound method, tool(obj.method)")
    bound = _bound_keywords(function)
    return [each for each in declared if each.name not in bound]


def _parameter(parameter: inspect.Parameter, annotation: Any, docs: Docs) -> Parameter:
    default = parameter.default
    if is_pydantic_field(default):
        annotation, default = Annotated[annotation, default], MISSING
    words = _description(annotation) or docs.parameters.get(parameter.name, "")
    if default is None and not _takes_none(annotation):
        annotation = Annotated[annotation | None, Field(description=words)]
    elif words:
        annotation = Annotated[annotation, Field(description=words)]
    return Parameter(parameter.name, annotation, _default_in(annotation) if default is MISSING else default)


def _default_in(annotation: Any) -> Any:
    """The default that a pydantic Field inside the annotation gives, if one does."""
    for item in reversed(getattr(annotation, "__metadata__", ())):
        if is_pydantic_field(item) and not item.is_required():
            return item.get_default(call_default_factory=True, validated_data={})
    return MISSING


def _description(annotation: Any) -> str:
    """The description inside an annotation: a Field's own, else a plain string in Annotated."""
    metadata = getattr(annotation, "__metadata__", ())
    fields = [
        item.description
        for item in metadata
        if (isinstance(item, Field) or is_pydantic_field(item)) and item.description
    ]
    return next(iter(fields), next((item for item in metadata if isinstance(item, str)), ""))


def _takes_none(annotation: Any) -> bool:
    if annotation in (Any, object, None, type(None)):
        return True
    if typing.get_origin(annotation) in (Annotated, Union, types.UnionType):
        return any(_takes_none(inner) for inner in typing.get_args(annotation))
    return typing.get_origin(annotation) is typing.Literal and None in typing.get_args(annotation)


def _type_hints(inner: Callable[..., Any], label: str) -> dict[str, Any]:
    if not inspect.isfunction(inner):
        return {}
    try:
        return typing.get_type_hints(inner, include_extras=True)
    except NameError:
        pass
    except (SyntaxError, TypeError, AttributeError) as wrong:
        raise DefinitionError(f"{label} has an annotation that is not a type: {wrong}") from None
    try:
        return typing.get_type_hints(inner, enclosing_names(inner), include_extras=True)
    except (NameError, SyntaxError, TypeError, AttributeError) as unknown:
        raise DefinitionError(
            f"{label} has an annotation that cannot be resolved ({unknown}); import that type at module level"
        ) from None


def enclosing_names(inner: Callable[..., Any]) -> dict[str, Any]:
    """Names that annotations of a local function may use: those of its module and of the functions around it."""
    names: dict[str, Any] = {"Context": Context, **getattr(inner, "__globals__", {})}
    around = getattr(inner, "__qualname__", "").split(".<locals>.")[:-1]
    owners = {".<locals>.".join(around[: depth + 1]) for depth in range(len(around))}
    frame = sys._getframe(1) if owners else None
    found = []
    while frame is not None:
        if frame.f_code.co_qualname in owners:
            found.append(dict(frame.f_locals))
        frame = frame.f_back
    for local in reversed(found):
        names |= local
    return names


def _is_context(annotation: Any) -> bool:
    if annotation is Context:
        return True
    if typing.get_origin(annotation) in (Annotated, Union, types.UnionType):
        return any(_is_context(inner) for inner in typing.get_args(annotation))
    return False


def _bound_keywords(function: Callable[..., Any]) -> set[str]:
    """Keywords that a partial has already filled: the model neither sees nor sets them."""
    bound: set[str] = set()
    while isinstance(function, functools.partial):
        bound |= set(function.keywords)
        function = function.func
    return bound


def _docstring(function: Callable[..., Any], inner: Callable[..., Any]) -> str | None:
    while isinstance(function, functools.partial):
        function = function.func
    return inner.__doc__ if inspect.isroutine(function) else inner.__doc__ or type(function).__doc__
