"""What a function promises to give, looked at each time it has given something, at the least cost."""

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

from jsonschema_rs import ValidationError, Validator

from toolwire.define.faults import sentences
from toolwire.define.schemas import compile_schema

Check = Callable[[Any, Any], str]
"""Given what a function returned and its JSON value, says what is wrong with it; nothing is an empty text."""

_SAYS_NOTHING = frozenset({"type", "title", "description", "default", "examples", "$schema", "$comment"})
_OF_TYPE: Mapping[str, frozenset[type]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({float, int}),
    "boolean": frozenset({bool}),
    "null": frozenset({NoneType}),
}


def output_check(schema: Mapping[str, Any] | None, owner: str) -> Check | None:
    """What looks at the output of a tool; None for a tool that promises nothing.

    A value whose Python type alone keeps the promise is not looked at. The schema is compiled when it is first needed.
    """
    if not schema:
        return None
    enough = _types_that_are_enough(schema)
    compiled: list[Validator] = []

    def check(value: Any, plain: Any) -> str:
        if type(value) in enough:
            return ""
        if not compiled:
            compiled.append(compile_schema(schema, owner))
        return "" if compiled[0].is_valid(plain) else _fault(compiled[0], plain, schema)

    return check


def _types_that_are_enough(schema: Mapping[str, Any]) -> frozenset[type]:
    kind = schema.get("type")
    return _OF_TYPE.get(kind, frozenset()) if isinstance(kind, str) and schema.keys() <= _SAYS_NOTHING else frozenset()


def _of_output(sentence: str, *, whole: bool) -> str:
    """A sentence made for arguments, said of an output: what is wrong with the whole of it names no place."""
    return sentence.removeprefix("arguments: ") if whole else sentence


def _fault(compiled: Validator, plain: Any, schema: Mapping[str, Any]) -> str:
    try:
        compiled.validate(plain)
    except ValidationError as first:  # all of them could be as many as a hostile output has items
        return _of_output(sentences([first], schema)[0], whole=not first.instance_path)
    return ""
