"""The shortest way from checked arguments to a call of a function."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from toolwire.define.plain_types import bare
from toolwire.define.signatures import Signature
from toolwire.errors import ToolFailure
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import InProcess

Bind = Callable[[Mapping[str, Any], Any], Callable[[], Any]]
Convert = Callable[[dict[str, Any]], dict[str, Any]]


def in_process(function: Callable[..., Any], signature: Signature, convert: Convert | None) -> InProcess:
    """A call of the function; without `convert` it is given JSON as it is."""
    called = _awaited(function) if signature.is_async else function
    if convert is None and not signature.contexts and not signature.ordered:
        return InProcess(function, lambda arguments, _: called(**arguments), signature.is_async)
    bind = _binder(called, signature, convert)
    return InProcess(function, lambda arguments, context: bind(arguments, context)(), signature.is_async, bind=bind)


def _binder(function: Callable[..., Any], signature: Signature, convert: Convert | None) -> Bind:
    contexts, ordered = signature.contexts, signature.ordered

    def bind(arguments: Mapping[str, Any], context: Any) -> Callable[[], Any]:
        values = dict(arguments)
        if convert is not None:
            values = convert(values)
        for name in contexts:
            values[name] = context
        leading = [values.pop(name, default) for name, default in ordered]
        return partial(function, *leading, **values)

    return bind


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself if calling it gives an awaitable; a wrapper around an async function need not give one."""
    if inspect.iscoroutinefunction(function):
        return function

    async def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return call


def converter_to_floats(signature: Signature) -> Convert | None:
    """Makes floats of whole numbers where the function wants floats; None where it wants none."""
    names = [each.name for each in signature.parameters if bare(each.annotation) is float]
    return _to_floats(names) if names else None


def _to_floats(names: list[str]) -> Convert:
    def convert(values: dict[str, Any]) -> dict[str, Any]:
        for name in names:
            if type(values.get(name)) is int:
                try:
                    values[name] = float(values[name])
                except OverflowError:
                    raise ToolFailure(f"{name}: the number is too large", code=Code.INVALID_PARAMS) from None
        return values

    return convert
