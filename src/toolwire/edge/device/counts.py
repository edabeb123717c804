"""What the calls of each tool have come to, in numbers, as `get_metrics` reports them."""

from typing import Any

from msgspec import Struct

from toolwire.protocol.calls import ToolResult
from toolwire.protocol.outcomes import OUTCOMES, Code

MOST_COUNTED = 512
"""So many tools are counted by name; an orchestrator may ask for any number that there are not."""

OTHERS = "(others)"
_LONGEST_ERROR = 200


class ToolCounts(Struct):
    """The numbers of one tool since the process began, in the words of the published format."""

    total_calls: int = 0
    success_count: int = 0
    error_count: int = 0
    timeout_count: int = 0
    total_ms: float = 0.0
    last_error: str = ""
    last_error_time: float = 0.0


class CallCounts:
    def __init__(self) -> None:
        self._tools: dict[str, ToolCounts] = {}
        self._errors: dict[str, int] = {}

    def add(self, result: ToolResult, at: float) -> None:
        name = result.name if result.name in self._tools or len(self._tools) < MOST_COUNTED else OTHERS
        counts = self._tools.setdefault(name, ToolCounts())
        counts.total_calls += 1
        counts.total_ms += result.elapsed_ms
        if not result.is_failure:
            counts.success_count += 1
            return
        counts.error_count += 1
        code = result.error.code if result.error else Code.EXECUTION_FAILED
        counts.timeout_count += code is Code.TIMEOUT
        counts.last_error, counts.last_error_time = result.text[:_LONGEST_ERROR], at
        kind = OUTCOMES[code].evoclaw
        self._errors[kind] = self._errors.get(kind, 0) + 1

    def report(self) -> dict[str, Any]:
        tools = {name: _described(counts) for name, counts in self._tools.items()}
        return {"tools": tools, "errors_by_type": dict(self._errors)}


def _described(counts: ToolCounts) -> dict[str, Any]:
    average = counts.total_ms / counts.total_calls
    out: dict[str, Any] = {
        "total_calls": counts.total_calls, "success_count": counts.success_count, "error_count": counts.error_count,
        "timeout_count": counts.timeout_count, "avg_latency_ms": round(average, 3),
    }  # fmt: skip
    if counts.last_error:
        out |= {"last_error": counts.last_error, "last_error_time": counts.last_error_time}
    return out
