"""How a call can end: the closed lists of statuses and error codes, and what other systems call them."""

from enum import StrEnum

from msgspec import Struct


class Status(StrEnum):
    """The five ways in which an accepted call ends. All of them are final.

    A tool that did a part of what it was asked for ends as `partial`: see `ToolOutput.missing`.
    """

    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMEOUT = "timeout"
    PARTIAL = "partial"


class Code(StrEnum):
    """Why a call did not succeed."""

    NOT_FOUND = "not_found"
    INVALID_PARAMS = "invalid_params"
    PERMISSION_DENIED = "permission_denied"
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    UNAVAILABLE = "unavailable"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    EXECUTION_FAILED = "execution_failed"
    INVALID_OUTPUT = "invalid_output"
    OUTCOME_UNKNOWN = "outcome_unknown"
    INTERNAL_ERROR = "internal_error"


class Outcome(Struct, frozen=True):
    """One row of the table: a code, the status it gives, its names elsewhere, and whether trying again can help."""

    code: Code
    status: Status
    commonground: str
    evoclaw: str
    retryable: bool
    rcrt: str = "error"
    mcp: str = "isError"


OUTCOMES: dict[Code, Outcome] = {
    row.code: row
    for row in (
        Outcome(Code.NOT_FOUND, Status.FAILED, "bad_request", "not_found", retryable=False),
        Outcome(Code.INVALID_PARAMS, Status.FAILED, "bad_request", "invalid_params", retryable=True),
        Outcome(Code.PERMISSION_DENIED, Status.FAILED, "auth_failed", "permission_denied", retryable=False),
        Outcome(Code.TIMEOUT, Status.TIMEOUT, "tool_timeout", "timeout", retryable=True),
        Outcome(Code.CANCELED, Status.CANCELED, "canceled", "canceled", retryable=False),
        Outcome(Code.UNAVAILABLE, Status.FAILED, "upstream_unavailable", "execution_failed", retryable=True),
        Outcome(Code.SANDBOX_UNAVAILABLE, Status.FAILED, "upstream_unavailable", "execution_failed", retryable=False),
        Outcome(Code.EXECUTION_FAILED, Status.FAILED, "internal_error", "execution_failed", retryable=False),
        Outcome(Code.INVALID_OUTPUT, Status.FAILED, "internal_error", "execution_failed", retryable=False),
        Outcome(Code.OUTCOME_UNKNOWN, Status.FAILED, "internal_error", "execution_failed", retryable=False),
        Outcome(Code.INTERNAL_ERROR, Status.FAILED, "internal_error", "execution_failed", retryable=False),
    )
}
