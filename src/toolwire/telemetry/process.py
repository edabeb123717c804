"""What one process tells: its traces, its metrics, or both."""

from msgspec import Struct

from toolwire.protocol.events import Event
from toolwire.protocol.tracing import NO_TRACE, TraceContext
from toolwire.protocol.turns import Turn
from toolwire.telemetry.metrics import Metrics
from toolwire.telemetry.traces import TurnTracer


class ProcessTelemetry(Struct, frozen=True):
    """Hands events of turns to whichever there is."""

    tracer: TurnTracer | None = None
    metrics: Metrics | None = None

    def observe(self, turn: Turn, event: Event, at: float) -> None:
        if self.tracer is not None:
            self.tracer.observe(turn, event, at)
        if self.metrics is not None:
            self.metrics.observe(turn, event, at)

    def interrupted(self, turn: Turn, error: BaseException) -> None:
        if self.tracer is not None:
            self.tracer.interrupted(turn, error)
        if self.metrics is not None:
            self.metrics.interrupted(turn, error)

    def current_trace(self) -> TraceContext:
        return NO_TRACE if self.tracer is None else self.tracer.current_trace()

    def trace_of(self, turn: Turn, call_id: str = "") -> TraceContext:
        return turn.trace if self.tracer is None else self.tracer.trace_of(turn, call_id)
