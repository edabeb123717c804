"""The result of a call as a report says it, in the words of the published format and in ours.

`status`, `tool`, `result`, `stderr`, `exit_code`, `elapsed_ms`, `error` and `error_type` are what any reader of that
format expects. What they cannot say (images, the exact code, where content was read) is in `outcome`, which is missing
from the report of a foreign agent. A device may be compromised, so each field is checked before it becomes a result.
"""

from collections.abc import Callable, Mapping
from typing import Any

from toolwire.protocol.calls import ErrorText, Text, ToolCall, ToolError, ToolResult
from toolwire.protocol.outcomes import OUTCOMES, Code, Status
from toolwire.wire.codecs.stored import read_result, write_result
from toolwire.wire.utp.writing import json_bytes

LONGEST_ERROR = 16_000
_SAID_OUTSIDE = ("call_id", "name", "stderr", "exit_code", "elapsed_ms")
_BY_ERROR_TYPE = {
    row.evoclaw: row.code for row in OUTCOMES.values() if row.code.value == row.evoclaw
} | {"unavailable": Code.UNAVAILABLE}  # fmt: skip


def write_tool_result(result: ToolResult) -> dict[str, Any]:
    """The fields of a report about a call that has ended."""
    error = result.error
    out: dict[str, Any] = {"status": _word(result.status), "tool": result.name, "result": _value(result)}
    out |= {"stderr": result.stderr, "exit_code": result.exit_code, "elapsed_ms": round(result.elapsed_ms, 3)}
    if error is not None:
        out |= {"error": error.message, "error_type": OUTCOMES[error.code].evoclaw}
    outcome = {name: item for name, item in write_result(result).items() if name not in _SAID_OUTSIDE}
    if _is_plain(result):  # it stands in `result`
        del outcome["content"]
    else:
        outcome.setdefault("content", [])
    return out | {"outcome": outcome}


def read_tool_result(report: Mapping[str, Any], call: ToolCall) -> ToolResult | str:
    """The result of a call, or what is wrong with the report about it. Never raises."""
    fault = _first_fault(report, _REPORT)
    outcome = report.get("outcome")
    if fault or outcome is None:
        return fault or _foreign_result(report, call)
    if not isinstance(outcome, dict):
        return "outcome must be a JSON object"
    if fault := _first_fault(outcome, _OUTCOME):
        return f"outcome.{fault}"
    said = {name: report[name] for name in ("stderr", "exit_code", "elapsed_ms") if report.get(name) is not None}
    content = outcome.get("content")
    if content is None:
        text = report.get("result")
        content = [{"text": text if isinstance(text, str) else json_bytes(text).decode()}] if text is not None else []
    try:
        return read_result({**outcome, **said, "content": content, "call_id": call.id, "name": call.name})
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        return f"outcome is not a result ({type(wrong).__name__})"


def _foreign_result(report: Mapping[str, Any], call: ToolCall) -> ToolResult:
    """What a report in the published format means. An object that stands for the result goes to the model as JSON."""
    value = report.get("result")
    text = value if isinstance(value, str) else "" if value is None else json_bytes(value).decode()
    content = (Text(text),) if text else ()
    structured = None if isinstance(value, str) else value
    ran: dict[str, Any] = {"exit_code": report.get("exit_code"), "stderr": report.get("stderr") or ""}
    ran["elapsed_ms"] = float(report.get("elapsed_ms") or 0.0)
    if report.get("status") == "success":
        return ToolResult(call.id, call.name, Status.SUCCESS, content, structured, untrusted=True, **ran)
    code = _BY_ERROR_TYPE.get(report.get("error_type") or "", Code.EXECUTION_FAILED)
    message = (report.get("error") or "The agent reported an error and did not say which.")[:LONGEST_ERROR]
    blocks = (ErrorText(message, code), *content)
    return ToolResult(
        call.id,
        call.name,
        OUTCOMES[code].status,
        blocks,
        structured,
        ToolError.of(code, message),
        untrusted=True,
        **ran,
    )


def _word(status: Status) -> str:
    return status.value if status in (Status.SUCCESS, Status.PARTIAL) else "error"


def _is_plain(result: ToolResult) -> bool:
    return result.structured is None and len(result.content) == 1 and isinstance(result.content[0], Text)


def _value(result: ToolResult) -> Any:
    return None if result.error is not None and not _is_plain(result) else result.text


Check = Callable[[Any], bool]


def _first_fault(data: Mapping[str, Any], checks: Mapping[str, tuple[Check, str]]) -> str:
    for name, (is_right, words) in checks.items():
        if (value := data.get(name)) is not None and not is_right(value):
            return f"{name} must be {words}"
    return ""


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**31


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 2**53


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _among(kind: type[Status] | type[Code]) -> Check:
    names = frozenset(one.value for one in kind)
    return lambda value: isinstance(value, str) and value in names


def _error(value: Any) -> bool:
    match value:
        case {"code": str(code), "message": str()}:
            return code in _CODES and _flag(value.get("retryable", False))
    return False


def _blocks(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and _block(one) for one in value)


def _block(block: Mapping[str, Any]) -> bool:
    texts = all(isinstance(item, str) for item in block.values())
    return texts and (block.get("code") is None or block["code"] in _CODES)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_CODES = frozenset(code.value for code in Code)
_A_TEXT, _A_NUMBER, _A_FLAG = (_text, "text"), (_number, "a number"), (_flag, "true or false")
_REPORT = {
    "status": _A_TEXT, "tool": _A_TEXT, "stderr": _A_TEXT, "error": _A_TEXT, "error_type": _A_TEXT,
    "exit_code": (_whole, "a whole number"), "elapsed_ms": _A_NUMBER,
}  # fmt: skip
_OUTCOME = {
    "status": (_among(Status), "a status"), "content": (_blocks, "a list of blocks"), "error": (_error, "an error"),
    "truncated": _A_FLAG, "untrusted": _A_FLAG, "handle": _A_TEXT, "delivery": _A_TEXT, "engine": _A_TEXT,
    "profile": _A_TEXT, "origins": (_texts, "a list of texts"), "queued_ms": _A_NUMBER, "blocked_ms": _A_NUMBER,
    "after_execution": _A_TEXT,
}  # fmt: skip
