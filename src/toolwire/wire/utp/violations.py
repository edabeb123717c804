"""What can be wrong with a message or a card, as values from which a result can be written."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from toolwire.protocol.calls import ToolError
from toolwire.protocol.outcomes import Code


class ViolationCode(StrEnum):
    """Which rule of the protocol is broken."""

    BAD_SUBJECT = "bad_subject"
    WRONG_VERSION = "wrong_version"
    TOO_LARGE = "too_large"
    NOT_JSON = "not_json"
    MISSING_FIELD = "missing_field"
    INVALID_FIELD = "invalid_field"
    INLINE_CONTENT = "inline_content"
    CONFLICTING_FIELDS = "conflicting_fields"
    CHANGED_FIELD = "changed_field"


class Violation(Struct, frozen=True):
    """One broken rule, the field that it is about, and a sentence that says what would be right."""

    code: ViolationCode
    message: str
    field: str = ""


class Refusal(Struct, frozen=True):
    """Why a message or card is not accepted, and those of its fields that could be read without doubt.

    Only the store knows whether the call that it names was ever made: a refused message proves nothing about who
    sent it.
    """

    violations: tuple[Violation, ...]
    known: Mapping[str, Any] = field(default_factory=dict)

    @property
    def error(self) -> ToolError:
        """What a result says about it. A model cannot mend a message, so trying again does not help."""
        sentence = "; ".join(one.message for one in self.violations)
        rows = [{"code": one.code.value, "field": one.field, "message": one.message} for one in self.violations]
        return ToolError(Code.INVALID_PARAMS, f"The call was not started: {sentence}.", detail={"violations": rows})


def missing(name: str, where: str) -> Violation:
    return Violation(ViolationCode.MISSING_FIELD, f"{name} is missing; {where} must have it", name)


def invalid(name: str, why: str) -> Violation:
    return Violation(ViolationCode.INVALID_FIELD, f"{name} {why}", name)


def conflicting(name: str, one: str, other: str) -> Violation:
    message = f"{name} differs between {one} and {other}; send the same value in both"
    return Violation(ViolationCode.CONFLICTING_FIELDS, message, name)


def changed_field(name: str, since: str) -> Violation:
    return Violation(ViolationCode.CHANGED_FIELD, f"{name} must be the same as in {since}", name)
