"""Spans and metrics of calls that a worker runs for other processes."""

from time import perf_counter

from msgspec.structs import replace

from toolwire.execute.contract import Executor
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.telemetry.metrics import Metrics
from toolwire.telemetry.traces import TurnTracer


class ObservedExecutor:
    """Runs calls as another executor does: each in a span below the one that came with it, and counted."""

    def __init__(self, executor: Executor, tracer: TurnTracer | None, metrics: Metrics | None) -> None:
        self._executor = executor
        self._tracer = tracer
        self._metrics = metrics
        self.notes_begin: bool = getattr(executor, "notes_begin", False)

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        if self._metrics is None:
            return await self._traced(allowed, context)
        began, tool = perf_counter(), self._metrics.tool(allowed.call.name)
        with self._metrics.of("worker_calls_in_flight").track_inprogress():
            result = await self._traced(allowed, context)
        self._metrics.of("worker_calls_total", tool, result.status.value).inc()
        self._metrics.of("worker_call_seconds", tool).observe(perf_counter() - began)
        return result

    async def _traced(self, allowed: Allowed, context: Context) -> ToolResult:
        if self._tracer is None:
            return await self._executor.execute(allowed, context)
        with self._tracer.execute_tool(allowed.call.name, context) as span:
            result = await self._executor.execute(allowed, replace(context, trace=span.trace))
            span.end(result)
            return result

    async def close(self) -> None:
        await self._executor.close()
