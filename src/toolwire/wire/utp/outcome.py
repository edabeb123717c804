"""The content of a `tool.result` card: status, what to do next, result and error, as services write them and as meant.

A service may be written in any language by anybody, so reading is forgiving about how a call ended and never about
whose call it was. The rules, each from the protocol or its published implementation:

* the error stands twice, as `error.{code, message, detail}` and as `result.{error_code, error_message}`; the first
  is believed where they differ, and both are written;
* an error makes a success a failure; a failure without an error gets `unknown_error`;
* an unknown status is a failure with `invalid_status`, an unknown `after_execution` one with `invalid_after_execution`
  which goes back to the model;
* a result that is not JSON is a failure with `result_not_serializable`.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from toolwire.protocol.bus import AfterExecution, control_of, effective_action
from toolwire.protocol.calls import ErrorText, Text, ToolCall, ToolError, ToolResult
from toolwire.protocol.outcomes import OUTCOMES, Code, Status
from toolwire.wire.codecs.stored import write_result
from toolwire.wire.utp.fields import AFTER, STATUS, Json
from toolwire.wire.utp.writing import json_bytes

LONGEST_MESSAGE = 16_000
_MIRRORED = ("error_code", "error_message")
_BY_PROTOCOL_CODE = {
    "bad_request": Code.INVALID_PARAMS,
    "auth_failed": Code.PERMISSION_DENIED,
    "not_found": Code.NOT_FOUND,
    "tool_timeout": Code.TIMEOUT,
    "canceled": Code.CANCELED,
    "upstream_unavailable": Code.UNAVAILABLE,
    "downstream_unavailable": Code.UNAVAILABLE,
    "internal_error": Code.EXECUTION_FAILED,
    "result_not_serializable": Code.INVALID_OUTPUT,
    "invalid_status": Code.INVALID_OUTPUT,
    "invalid_after_execution": Code.INVALID_OUTPUT,
}
_BY_STATUS = {Status.TIMEOUT: Code.TIMEOUT, Status.CANCELED: Code.CANCELED}


class CardError(Struct, frozen=True):
    """Why a call did not succeed. `code` is one of the protocol's, or a service's own; `kind` is ours, where known."""

    code: str
    message: str
    detail: Any = None
    retryable: bool = False
    kind: Code | None = None


class CardOutcome(Struct, frozen=True):
    """How a call ended, as a card says it. Without `after_execution`, what was agreed for the call holds."""

    status: Status
    result: Any = None
    error: CardError | None = None
    after_execution: AfterExecution | None = None


def read_outcome(content: Mapping[str, Any]) -> tuple[CardOutcome, Json]:
    """What the content of a card means, and what else is in it. Never fails."""
    rest = {name: item for name, item in content.items() if name not in _CONTENT}
    result, mirrored = _without_mirror(content.get("result"))
    error = _read_error(content.get("error")) or mirrored
    status, wrong_status = _choice(STATUS.read, content.get("status"), Status.FAILED, "invalid_status", needed=True)
    after, wrong_after = _choice(
        AFTER.read, content.get("after_execution"), AfterExecution.SUSPEND, "invalid_after_execution", needed=False
    )
    error = error or wrong_status or wrong_after
    if error is not None and status is Status.SUCCESS:
        status = Status.FAILED
    if error is None and status not in (Status.SUCCESS, Status.PARTIAL):
        error = CardError("unknown_error", f"The call ended as {status.value} and its service did not say why.")
    return CardOutcome(status, result, error, after), rest


def write_outcome(outcome: CardOutcome) -> Json:
    """The content of a card, with the error in both of its places."""
    status, result, error = outcome.status, outcome.result, outcome.error
    if problem := _not_json(result):
        result = None
        error = error or CardError("result_not_serializable", problem, kind=Code.INVALID_OUTPUT)
        status = Status.FAILED if status is Status.SUCCESS else status
    out: Json = {"status": status.value, "result": result}
    if outcome.after_execution is not None:
        out["after_execution"] = outcome.after_execution.value
    if error is not None:
        out |= {"error": _write_error(error), "result": _with_mirror(result, error)}
    return out


def effective_after_execution(
    outcome: CardOutcome,
    *,
    reported: AfterExecution | None,
    registered: AfterExecution,
    controls_turn: bool,
) -> AfterExecution:
    """What the turn does: as the result says, where its tool may say so; else as reported; else as registered.

    A result is data, and a page or a file that a tool has read can be in it. So what it says counts for no other tool.
    """
    override = control_of(outcome.result) if controls_turn else None
    return effective_action(override, reported or outcome.after_execution, registered)


def outcome_of(result: ToolResult, after_execution: AfterExecution | None = None) -> CardOutcome:
    """A result of ours as a card says it: its value, its text, or its blocks where they are more than text."""
    value = result.structured
    if value is None and result.content:
        blocks = result.content
        plain = all(isinstance(block, (Text, ErrorText)) for block in blocks)
        value = result.text if plain else {"blocks": write_result(result)["content"]}
    if result.error is not None:
        value = None if value == result.error.message else value
    return CardOutcome(result.status, value, error_of(result.error), after_execution or result.after_execution)


def error_of(error: ToolError | None) -> CardError | None:
    if error is None:
        return None
    code = OUTCOMES[error.code].commonground
    return CardError(code, error.message, error.detail, error.retryable, error.code)


def result_of(outcome: CardOutcome, call: ToolCall) -> ToolResult:
    """What a card says as a result of ours, for the model and for the record."""
    text = _as_text(outcome.result)
    content = (Text(text),) if text else ()
    if outcome.error is None:
        return ToolResult(
            call.id, call.name, outcome.status, content, structured=outcome.result,
            after_execution=outcome.after_execution,
        )  # fmt: skip
    told = outcome.error
    code = told.kind or _BY_STATUS.get(outcome.status) or _BY_PROTOCOL_CODE.get(told.code, Code.EXECUTION_FAILED)
    error = ToolError(code, told.message, told.retryable, told.detail)
    blocks = (ErrorText(told.message, code), *content)
    return ToolResult(call.id, call.name, outcome.status, blocks, structured=outcome.result, error=error)


_CONTENT = ("status", "after_execution", "result", "error")


def _choice(read: Any, value: Any, otherwise: Any, code: str, *, needed: bool) -> tuple[Any, CardError | None]:
    if value is None and not needed:
        return None, None
    try:
        return read(value), None
    except ValueError as wrong:
        return otherwise, CardError(code, f"{code.removeprefix('invalid_')} {wrong}")


def _without_mirror(result: Any) -> tuple[Any, CardError | None]:
    if not isinstance(result, Mapping) or not isinstance(result.get("error_code"), str):
        return result, None
    rest = {name: item for name, item in result.items() if name not in _MIRRORED}
    told = result.get("error_message")
    message = told if isinstance(told, str) and told else "The service gave no message."
    return rest or None, CardError(result["error_code"][:200], message[:LONGEST_MESSAGE])


def _with_mirror(result: Any, error: CardError) -> Json:
    mirror = {"error_code": error.code, "error_message": error.message}
    if result is None:
        return mirror
    return {**result, **mirror} if isinstance(result, Mapping) else {"output": result, **mirror}


def _read_error(error: Any) -> CardError | None:
    if isinstance(error, str) and error:
        return CardError("unknown_error", error[:LONGEST_MESSAGE])
    if not isinstance(error, Mapping) or not error:
        return None
    code, message = error.get("code"), error.get("message")
    code = code[:200] if isinstance(code, str) and code else "unknown_error"
    message = message[:LONGEST_MESSAGE] if isinstance(message, str) and message else "The service gave no message."
    return CardError(code, message, error.get("detail"), error.get("retryable") is True, _kind(error.get("kind"), code))


def _kind(value: Any, code: str) -> Code | None:
    """Our own code, where it says more than the protocol's and not something else."""
    kind = Code(value) if isinstance(value, str) and value in list(Code) else None
    if kind is None or OUTCOMES[kind].commonground == code:
        return kind
    return kind if _BY_PROTOCOL_CODE.get(code) is kind else None


def _write_error(error: CardError) -> Json:
    out: Json = {"code": error.code, "message": error.message}
    if error.detail is not None:
        out["detail"] = None if _not_json(error.detail) else error.detail
    if error.retryable:
        out["retryable"] = True
    if error.kind is not None:
        out["kind"] = error.kind.value
    return out


def _not_json(value: Any) -> str:
    try:
        json_bytes(value)
    except TypeError as wrong:
        return f"The result cannot be written as JSON ({wrong})."
    return ""


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json_bytes(value).decode()
