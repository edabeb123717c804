"""Each kind of target has its executor: a call goes to the one of the place where its tool lives."""

from collections.abc import Coroutine, Iterable
from typing import Any

from toolwire.execute.contract import Executor, LeavesWork
from toolwire.execute.threads import Left
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Target


class Router:
    """An executor made of several: `Router((InProcess, InProcessExecutor()), (Service, ServiceExecutor()))`."""

    notes_begin = True

    def __init__(self, *routes: tuple[type[Target], Executor]) -> None:
        self._routes: dict[type, Executor] = dict(routes)

    def execute(self, allowed: Allowed, context: Context) -> Coroutine[Any, Any, ToolResult]:
        executor = self._routes.get(type(allowed.tool.target))
        if executor is None:
            return _unavailable(allowed)
        if not getattr(executor, "notes_begin", False):
            context.begins(context.turn_id, context.call_id)
        return executor.execute(allowed, context)

    def leftover(self, key: str) -> Left | None:
        """What of a given-up call is still at work, wherever it runs."""
        found = (one.leftover(key) for one in self._executors() if isinstance(one, LeavesWork))
        return next((left for left in found if left is not None), None)

    async def close(self) -> None:
        for executor in self._executors():
            await executor.close()

    def _executors(self) -> Iterable[Executor]:
        return dict.fromkeys(self._routes.values())


async def _unavailable(allowed: Allowed) -> ToolResult:
    where = type(allowed.tool.target).__name__
    message = f"{allowed.call.name!r} was not started: this process has no way to tools of the kind {where}."
    return ToolResult.failed(allowed.call, Code.UNAVAILABLE, message)
