"""Each kind of target has its executor: a call goes to the one of the place where its tool lives."""

from collections.abc import Coroutine, Iterable
from typing import Any

from toolwire.execute.contract import AbandonsWork, Dispatched, Dispatcher, Executor, KnowsCalls
from toolwire.execute.threads import Left
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import BusService, Edge, InProcess, McpServer, Service, Target, Tool


class Router:
    """An executor made of several: `Router(InProcessExecutor(), service=ServiceExecutor())`.

    A kind of target without an executor gives an ordinary result, `unavailable`.
    """

    notes_begin = True

    def __init__(
        self,
        in_process: Executor,
        *,
        service: Executor | None = None,
        edge: Executor | None = None,
        mcp: Executor | None = None,
        bus: Executor | None = None,
    ) -> None:
        self._in_process = in_process
        self._service = service
        self._edge = edge
        self._mcp = mcp
        self._bus = bus
        self._dispatchers = [
            one for one in self._executors() if isinstance(one, Dispatcher)
        ]  # it takes long to find out

    def execute(self, allowed: Allowed, context: Context) -> Coroutine[Any, Any, ToolResult]:
        executor = self._executor_of(allowed.tool.target)
        if executor is None:
            return _unavailable(allowed)
        if not getattr(executor, "notes_begin", False):
            context.begins(context.turn_id, context.call_id)
        return executor.execute(allowed, context)

    def dispatches(self, tool: Tool) -> bool:
        """Whether calls of this tool are sent to a process that claims them itself."""
        executor = self._dispatcher_of(tool)
        return executor is not None and executor.dispatches(tool)

    async def dispatch(self, allowed: Allowed, context: Context) -> ToolResult | Dispatched:
        executor = self._dispatcher_of(allowed.tool)
        return await (_unavailable(allowed) if executor is None else executor.dispatch(allowed, context))

    def _dispatcher_of(self, tool: Tool) -> Dispatcher | None:
        executor = self._executor_of(tool.target)
        return next((one for one in self._dispatchers if one is executor), None)

    def knows_calls(self, tool: Tool) -> bool:
        """Whether a call of this tool is not run again where it is sent again."""
        executor = self._executor_of(tool.target)
        return isinstance(executor, KnowsCalls) and executor.knows_calls(tool)

    def leftover(self, key: str) -> Left | None:
        """What of a given-up call is still at work, wherever it runs."""
        found = (one.leftover(key) for one in self._executors() if isinstance(one, AbandonsWork))
        return next((left for left in found if left is not None), None)

    async def close(self) -> None:
        for executor in self._executors():
            await executor.close()

    def _executor_of(self, target: Target | None) -> Executor | None:
        match target:
            case InProcess():
                return self._in_process
            case Service():
                return self._service
            case Edge():
                return self._edge
            case McpServer():
                return self._mcp
            case BusService():
                return self._bus
            case None:
                return None

    def _executors(self) -> Iterable[Executor]:
        given = (self._in_process, self._service, self._edge, self._mcp, self._bus)
        return dict.fromkeys(executor for executor in given if executor is not None)


async def _unavailable(allowed: Allowed) -> ToolResult:
    call, target = allowed.call, allowed.tool.target
    kind = "without a target" if target is None else f"of the kind {type(target).__name__}"
    message = f"{call.name!r} was not started: this process cannot run tools {kind}."
    return ToolResult.failed(call, Code.UNAVAILABLE, message)
