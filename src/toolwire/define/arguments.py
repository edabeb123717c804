"""Arguments against a tool's schema: checked at full speed, read losslessly where possible, refused in plain words."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import orjson
from jsonschema_rs import ValidationError
from msgspec import Struct

from toolwire.define.coercion import clone, coerced, integer_places, whole_floats, with_fractions, with_integers
from toolwire.define.effort import effort, expansion
from toolwire.define.faults import sentences
from toolwire.define.parameters import CompiledParameters
from toolwire.define.references import is_recursive
from toolwire.define.schemas import compile_schema, plain_copy
from toolwire.define.soundness import admits_only_sound, as_bytes, is_sound, unsound
from toolwire.define.wording import MAX_FAULTS, first_sentences, ranked_sentences
from toolwire.protocol.tools import Tool

# A schema that refers to itself is checked only as far as this many steps go: a fraction of a second.
_MAX_STEPS = 50_000
# Every error is an object of its own; where there could be more than this many, only the first is asked for.
_MAX_ERRORS = 20_000
# JSON text inside JSON text may hide further values to read; this many layers are opened.
_ROUNDS = 4
_SCALARS = frozenset((str, int, bool, float))
_LONGEST_REFUSAL = 1_000
_TOO_MUCH = "the arguments are nested too deeply, or are too many, to be checked; send less at once"


class Checked(Struct, frozen=True):
    """Arguments after the check. With faults they must not be used; notes say what was read as another type."""

    arguments: dict[str, Any]
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.faults


class Checker:
    """A tool's schema, compiled once, and its validator. Raises `DefinitionError` if the schema cannot be used."""

    __slots__ = (
        *("_compiled", "_expansion", "_has_branches", "_has_integers", "_is_quick"),
        *("_is_closed", "_is_recursive", "_is_valid", "_parameters", "_schema", "tool"),
    )

    def __init__(self, tool: Tool) -> None:
        owner = f"input_schema of tool {tool.name!r}"
        self.tool = tool
        self._schema = {"properties": {}} | plain_copy(tool.input_schema, owner)
        self._compiled = compile_schema(self._schema, owner)
        self._is_valid = self._compiled.is_valid
        text = orjson.dumps(self._schema)
        self._has_integers = b'"integer"' in text
        self._has_branches = any(keyword in text for keyword in (b'"anyOf"', b'"oneOf"'))
        self._is_recursive = is_recursive(self._schema)
        self._parameters = CompiledParameters(self._schema)
        self._expansion = expansion(self._schema, _MAX_ERRORS)
        # An inner $id changes what references mean, so nothing is concluded from such a schema.
        self._is_closed = b'"$id"' not in text and admits_only_sound(self._schema, self._schema)
        self._is_quick = self._is_closed and tool.validator is None

    def fits(self, arguments: Mapping[str, Any], data: bytes | None) -> bool:
        """Whether `check` would give back these very arguments, without a fault or a note.

        A quick look, which nearly every call passes: where it says no, only `check` knows. `data` are the arguments as
        JSON; None where orjson cannot write them.
        """
        if data is None or not self._is_quick or type(arguments) is not dict:
            return False
        return not (self._has_integers and data.find(b".0") >= 0) and self._is_valid(arguments)

    def check(self, arguments: Mapping[str, Any]) -> Checked:
        """Say whether a tool may be called with these arguments, and with which. Never raises."""
        if type(arguments) is not dict:
            return self._check_foreign(arguments)
        data = as_bytes(arguments)
        try:
            checked = self._fit(arguments, data)
        except ValueError as foreign:  # a Python value that JSON has no word for
            return Checked(arguments, (f"arguments must be plain JSON: {foreign}",))
        if self._has_integers and not checked.faults and (data is None or data.find(b".0") >= 0):
            checked = Checked(self._with_integers(checked.arguments), notes=checked.notes)
        if self.tool.validator is None or checked.faults:
            return checked
        return self._ask_validator(checked)

    def _fit(self, arguments: dict[str, Any], data: bytes | None) -> Checked:
        """The arguments, if they are sound and fit; otherwise what can be read of them, or what is wrong."""
        at_a_glance = self._is_closed and data is not None
        if not at_a_glance and (refusal := self._refusal(arguments, data)):
            return Checked(arguments, refusal)
        if self._is_valid(arguments):
            return Checked(arguments)
        if data is not None and (faults := self._parameters.faults(arguments)):
            return Checked(arguments, ranked_sentences(faults, self._schema))
        return self._coerce(arguments, data)

    def _check_foreign(self, arguments: object) -> Checked:
        if isinstance(arguments, Mapping):
            return self.check(dict(arguments))
        return Checked({}, (f"arguments must be an object, got {type(arguments).__name__}",))

    def _coerce(self, arguments: dict[str, Any], data: bytes | None) -> Checked:
        notes: tuple[str, ...] = ()
        for _ in range(_ROUNDS):
            errors = self._errors(arguments, data)
            if self._is_closed and not _are_of_scalars(errors) and not is_sound(arguments, data):
                return Checked(arguments, _unsound(arguments), notes)
            if errors is None:
                return Checked(arguments, self._first_fault(arguments), notes)
            arguments, read = coerced(arguments, errors)
            if not read:
                return Checked(arguments, sentences(errors, self._schema), notes)
            data = as_bytes(arguments)
            if refusal := self._refusal(arguments, data):
                return Checked(arguments, refusal, notes)
            notes += tuple(read)
            if self._is_valid(arguments):
                return Checked(arguments, (), first_sentences(list(notes)))
        return Checked(arguments, self._first_fault(arguments), notes)

    def _refusal(self, arguments: dict[str, Any], data: bytes | None) -> tuple[str, ...]:
        """Why the arguments are not even compared with the schema, if so."""
        if not is_sound(arguments, data):
            return _unsound(arguments)
        too_much = self._is_recursive and effort(self._schema, arguments, _MAX_STEPS) >= _MAX_STEPS
        return (_TOO_MUCH,) if too_much else ()

    def _errors(self, arguments: dict[str, Any], data: bytes | None) -> list[ValidationError] | None:
        """All errors, or None where there could be too many to hold."""
        # Two bytes of JSON hold one value at most, and each comma begins another.
        few = data is not None and (
            len(data) // 2 * self._expansion < _MAX_ERRORS or (data.count(b",") + 1) * self._expansion < _MAX_ERRORS
        )
        if few or effort(self._schema, arguments, _MAX_ERRORS) < _MAX_ERRORS:
            return list(self._compiled.iter_errors(arguments))
        return None

    def _first_fault(self, arguments: dict[str, Any]) -> tuple[str, ...]:
        """The first fault, unless a branch could make even that one hold too many errors."""
        if not self._has_branches:
            try:
                self._compiled.validate(arguments)
            except ValidationError as first:
                return sentences([first], self._schema)
        return (_TOO_MUCH,)

    def _with_integers(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """5.0 where the schema wants an integer becomes 5: to JSON they are the same number."""
        places = list(whole_floats(arguments, []))
        if not places:
            return arguments
        fractional = with_fractions(arguments, places)
        wanted = set(integer_places(self._errors(fractional, as_bytes(fractional)) or ()))
        if not wanted:
            return arguments
        return with_integers(arguments, [place for place in places if tuple(place) in wanted])

    def _ask_validator(self, checked: Checked) -> Checked:
        assert self.tool.validator is not None
        try:
            answer = self.tool.validator(clone(checked.arguments))
        except ValueError as refused:
            fault = str(refused)[:_LONGEST_REFUSAL] or "refused by the tool's validator"
            return Checked(checked.arguments, (fault,), checked.notes)
        except Exception as broken:  # the tool's own code: its fault, not a reason to crash
            fault = f"the tool's validator failed: {type(broken).__name__}: {broken}"[:_LONGEST_REFUSAL]
            return Checked(checked.arguments, (fault,), checked.notes)
        return checked if answer is None else Checked(dict(answer), (), checked.notes)


def _are_of_scalars(errors: list[ValidationError] | None) -> bool:
    """Whether all errors are about values that cannot be unsound.

    In a schema that admits only what is sound, whatever is not is the value of some error, or inside of one. A number
    that is not finite is given as None.
    """
    return errors is not None and _SCALARS.issuperset([type(error.instance) for error in errors])


def _unsound(arguments: dict[str, Any]) -> tuple[str, ...]:
    told = list(islice(unsound(arguments), MAX_FAULTS + 1))
    return tuple(told[:MAX_FAULTS]) + (("… and more",) if len(told) > MAX_FAULTS else ())
