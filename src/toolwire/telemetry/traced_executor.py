"""The spans of calls that a worker runs for other processes."""

from toolwire.execute.contract import Executor
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.values import changed
from toolwire.telemetry.traces import TurnTracer


class TracedExecutor:
    """Runs calls as another executor does, each in a span below the one that came with it."""

    def __init__(self, executor: Executor, tracer: TurnTracer) -> None:
        self._executor = executor
        self._tracer = tracer
        self.notes_begin: bool = getattr(executor, "notes_begin", False)

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        with self._tracer.execute_tool(allowed.call.name, context) as span:
            result = await self._executor.execute(allowed, changed(context, trace=span.trace))
            span.end(result)
            return result

    async def close(self) -> None:
        await self._executor.close()
