"""Words of the command line that are taken as they are.

Typer checks every value with pydantic, and loading that takes as long as typer itself. Text and switches need no such
check, so a command whose options are nothing else is parsed without it.
"""

from collections.abc import Iterable
from typing import Any

from typer._coercion import RuntimeParam, build_runtime_param

_TAKEN_AS_GIVEN = (str, list[str], bool)


class _AsGiven(RuntimeParam):
    """Text as it was typed. What is no text at all (bytes that are not UTF-8) is for typer to refuse."""

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        words = value if isinstance(value, (list, tuple)) else (value,)
        try:
            for word in words:
                str(word).encode()
        except UnicodeEncodeError:
            return build_runtime_param(param.type_descriptor).coerce(value, param, ctx)
        return value


def as_given(params: Iterable[Any]) -> list[Any]:
    """The same parameters, of which those that are text or switches check nothing."""
    found = list(params)
    for param in found:
        told = param.type_descriptor
        if param._runtime_param is None and told.annotation in _TAKEN_AS_GIVEN and told.parameter_info.parser is None:
            param._runtime_param = _AsGiven(told.parameter_info, told.annotation)
    return found
