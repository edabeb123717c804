"""The result as older agents know it: one flat object with text, as EvoClaw reports it."""

from typing import Any

from toolwire.protocol.calls import ToolResult
from toolwire.protocol.outcomes import OUTCOMES, Code


def old_form(result: ToolResult) -> dict[str, Any]:
    """The flat object: `result` with the words of all blocks on success, `error` and `error_type` otherwise."""
    if result.ok:
        return {
            "status": "success",
            "tool": result.name,
            "result": result.text,
            "stderr": result.stderr,
            "exit_code": result.exit_code or 0,
            "elapsed_ms": round(result.elapsed_ms),
        }
    code = result.error.code if result.error else Code.EXECUTION_FAILED
    body = {
        "status": "error",
        "tool": result.name,
        "error": result.error.message if result.error else result.text,
        "error_type": OUTCOMES[code].evoclaw,
    }
    return body if result.exit_code is None else {**body, "exit_code": result.exit_code, "stderr": result.stderr}
