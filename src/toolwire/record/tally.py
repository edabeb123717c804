"""What results and endings add to the metrics. Pure arithmetic, the same for every store."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from toolwire.protocol.budgets import Spending
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Note, Reply
from toolwire.protocol.outcomes import Status
from toolwire.protocol.records import CallCard
from toolwire.protocol.turns import EndReason, Turn
from toolwire.record.contract import LoopMetrics, ToolMetrics, TurnStats

NEWEST_RESULTS = 1000
ERROR_CHARS = 500
UNKNOWN_TOOL = "(unknown)"
DAY_S = 86_400

_SUCCESS = Status.SUCCESS
_ANSWERS = {EndReason.ANSWERED, EndReason.DELIVERED}


class ToolTally(Struct):
    """Running sums for one tool. `errors` counts failed calls only: a partial result is neither success nor error."""

    calls: int = 0
    success: int = 0
    errors: int = 0
    timeouts: int = 0
    canceled: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0
    last_error: str = ""
    last_error_at: float | None = None

    def add(self, result: ToolResult, at: float) -> float:
        """Count one ended call; gives back how long it took, as far as its report can be believed."""
        took = result.elapsed_ms
        if not 0.0 < took < math.inf:
            took = 0.0
        self.calls += 1
        self.total_ms += took
        if took > self.max_ms:
            self.max_ms = took
        if result.status is _SUCCESS:  # as most are
            self.success += 1
            return took
        match result.status:
            case Status.FAILED:
                self.errors += 1
            case Status.TIMEOUT:
                self.timeouts += 1
            case Status.CANCELED:
                self.canceled += 1
        if result.status in (Status.FAILED, Status.TIMEOUT):
            self.last_error, self.last_error_at = _complaint(result)[:ERROR_CHARS], at
        return took


def counted_as(card: CallCard) -> str:
    """The name that a call counts under: models can invent any number of names, so unknown ones share a line."""
    return card.call.name if card.tool_version else UNKNOWN_TOOL


def _complaint(result: ToolResult) -> str:
    return f"{result.error.code}: {result.error.message}" if result.error else str(result.status)


def tool_metrics(
    tool: str, tally: ToolTally, newest_ms: Sequence[float], newest_errors: Iterable[str] = ()
) -> ToolMetrics:
    """The sums of a tool with the percentiles of its newest results, and how often each code is among its errors."""
    ordered = sorted(newest_ms)
    return ToolMetrics(
        tool=tool,
        calls=tally.calls,
        success=tally.success,
        errors=tally.errors,
        timeouts=tally.timeouts,
        canceled=tally.canceled,
        total_ms=tally.total_ms,
        max_ms=tally.max_ms,
        p50_ms=_nearest_rank(ordered, 0.50),
        p95_ms=_nearest_rank(ordered, 0.95),
        last_error=tally.last_error,
        last_error_at=tally.last_error_at,
        errors_by_type=dict(sorted(Counter(newest_errors).items())),
    )


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else 0.0


def loop_metrics(so_far: LoopMetrics, stats: TurnStats, reason: EndReason) -> LoopMetrics:
    """The loop's sums after one more turn ended. A result delivered straight to the user counts as an answer."""
    answered = reason in _ANSWERS
    failed = stats.failed_calls > 0
    return LoopMetrics(
        turns=so_far.turns + 1,
        answered=so_far.answered + answered,
        iterations=so_far.iterations + stats.iterations,
        total_ms=so_far.total_ms + stats.duration_ms,
        batches=so_far.batches + stats.batches,
        max_concurrency=max(so_far.max_concurrency, stats.max_concurrency),
        saved_ms=so_far.saved_ms + stats.saved_ms,
        with_failures=so_far.with_failures + failed,
        recovered=so_far.recovered + (failed and answered),
        input_tokens=so_far.input_tokens + stats.input_tokens,
        output_tokens=so_far.output_tokens + stats.output_tokens,
        cost_usd=_sum_known(so_far.cost_usd, stats.cost_usd),
    )


def day_of(at: float) -> int:
    """The day (UTC) of a time, counted from 1970."""
    return int(at // DAY_S)


def spending(so_far: Spending, stats: TurnStats, calls: int) -> Spending:
    """What a day's turns have used after one more ended that made so many calls."""
    return Spending(
        so_far.calls + calls,
        so_far.tokens + stats.input_tokens + stats.output_tokens,
        so_far.cost_usd + (stats.cost_usd or 0.0),
        so_far.wall_s + stats.wall_s,
    )


def sums_with(turn: Turn, said: Reply | Note) -> tuple[int, float]:
    """The tokens and money of a turn with one more word; as plain numbers, since every reply comes through."""
    usage = turn.usage
    tokens, cost_usd = usage.input_tokens + usage.output_tokens, usage.cost_usd or 0.0
    if isinstance(said, Note):
        return tokens, cost_usd
    more = said.usage
    return tokens + more.input_tokens + more.output_tokens, cost_usd + (more.cost_usd or 0.0)


def said_spending(said: Reply | Note) -> Spending:
    """The tokens and money that one more word costs a turn."""
    return Spending() if isinstance(said, Note) else Spending(0, said.usage.total_tokens, said.usage.cost_usd or 0.0)


def _sum_known(*costs: float | None) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
