"""Tools that are functions of this process: async ones on the loop, sync ones in threads."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from time import perf_counter
from typing import Any

from toolwire.errors import ToolFailure
from toolwire.execute.threads import Threads
from toolwire.execute.values import NotPresentable, clean, present
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import InProcess

GRACE_S = 2.0
_LONGEST_MESSAGE = 2_000


class _OutOfTime(Exception):
    """The call's time is over. Private, so that a tool's own TimeoutError is not mistaken for it."""


class InProcessExecutor:
    """Runs functions. A function that raises, hangs, or returns something odd gives a result like any other."""

    def __init__(self, threads: Threads | None = None, *, grace_s: float = GRACE_S) -> None:
        self._threads = threads or Threads()
        self._grace_s = grace_s

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        call, target = allowed.call, allowed.tool.target
        if not isinstance(target, InProcess):
            return ToolResult.failed(call, Code.UNAVAILABLE, f"{call.name!r} has no function in this process.")
        started = perf_counter()
        try:
            value = await self._bounded(self._work(target, allowed, context), allowed.timeout_s)
            content, structured = present(value)
        except _OutOfTime:
            return _timed_out(allowed, _ms(started), is_async=target.is_async)
        except ToolFailure as failure:
            message = _sentence(failure)
            return ToolResult.failed(call, failure.code, message, detail=failure.detail, elapsed_ms=_ms(started))
        except NotPresentable as odd:
            return ToolResult.failed(call, Code.EXECUTION_FAILED, str(odd), elapsed_ms=_ms(started))
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _canceled_by_caller():
                raise
            message = f"{call.name!r} failed: {type(error).__name__}: {_sentence(error)}"
            return ToolResult.failed(call, Code.EXECUTION_FAILED, message, elapsed_ms=_ms(started))
        return ToolResult(call.id, call.name, Status.SUCCESS, content, structured, elapsed_ms=_ms(started))

    async def close(self) -> None:
        self._threads.close()

    async def _work(self, target: InProcess, allowed: Allowed, context: Context) -> Any:
        try:
            if target.is_async:
                return await target.invoke(allowed.arguments, context)
            return await self._in_thread(target, allowed, context)
        except SystemExit as error:  # a task that lets it pass would end the whole process
            raise ToolFailure(f"{allowed.call.name!r} tried to end the process (exit code {error.code}).") from None

    async def _in_thread(self, target: InProcess, allowed: Allowed, context: Context) -> Any:
        given_up: list[bool] = []
        watched = replace(context, canceled=lambda: bool(given_up))
        try:
            return await self._threads.run(target.invoke, allowed.arguments, watched)
        except asyncio.CancelledError:
            given_up.append(True)
            raise

    async def _bounded(self, work: Coroutine[Any, Any, Any], timeout_s: float) -> Any:
        """Await the work in a task of its own, so that one which ignores its cancellation can be left behind."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, name="toolwire-call")
        over: asyncio.Future[None] = loop.create_future()
        task.add_done_callback(lambda _: _wake(over))
        timer = loop.call_later(timeout_s, _wake, over)
        try:
            await over
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        finally:
            timer.cancel()
        if not task.done():
            await self._stop(task)
            raise _OutOfTime
        return task.result()

    async def _stop(self, task: "asyncio.Task[Any]") -> None:
        task.cancel()
        task.add_done_callback(_swallow)
        await asyncio.wait((task,), timeout=self._grace_s)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _swallow(task: "asyncio.Task[Any]") -> None:
    """Look at the outcome of a task nobody waits for, so that it is not reported as forgotten."""
    if not task.cancelled():
        task.exception()


def _canceled_by_caller() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _timed_out(allowed: Allowed, elapsed_ms: float, *, is_async: bool) -> ToolResult:
    longest = allowed.tool.max_timeout_s
    advice = f"It may be given up to {longest:g} s." if allowed.timeout_s < longest else "Ask for less work at once."
    still = "" if is_async else " Its thread may still be at work."
    message = f"{allowed.call.name!r} did not finish within {allowed.timeout_s:g} s.{still} {advice}"
    return ToolResult.failed(allowed.call, Code.TIMEOUT, message, elapsed_ms=elapsed_ms)


def _sentence(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # an exception class of the tool's own may fail even at this
        text = "(its message could not be read)"
    return clean(text[:_LONGEST_MESSAGE]) or "no message"


def _ms(started: float) -> float:
    return (perf_counter() - started) * 1000
