"""Tools that are functions of this process: async ones on the loop, sync ones in threads.

A call runs in a task of its own, so that one which ignores its cancellation can be left behind. An async function
without a single `await` needs no such care: it cannot wait, so it is run at once.
"""

import asyncio
import dis
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from msgspec.structs import replace

from toolwire.errors import Suspended, ToolFailure
from toolwire.execute.loop_watch import BLOCKED_S, WATCH, LoopTime, measure_steps
from toolwire.execute.threads import Left, Threads
from toolwire.execute.values import LARGE_CHARS, OWN_RESULTS, NotPresentable, clean, is_large, present, present_large
from toolwire.protocol.calls import Allowed, Block, ErrorText, Text, ToolOutput, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import InProcess

_SUCCESS = Status.SUCCESS
_watched_here = WATCH.here
GRACE_S = 2.0
TASK_NAME = "toolwire-call"
DEADLINE_NOTE = "shortened by the deadline of the turn"
_LONGEST_MESSAGE = 2_000
_OF_TASKS = frozenset({"current_task", "cancel", "uncancel", "cancelling"})
_WAITS = frozenset(("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "SEND", "YIELD_VALUE"))


class _OutOfTime(Exception):
    """The call's time is over. Private, so that a tool's own TimeoutError is not mistaken for it."""


class _Raised(Exception):
    """What a tool raised, wrapped: a future does not carry every exception, and cancellation must stay the caller's."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class InProcessExecutor:
    """Runs functions. A function that raises, hangs, or returns something odd gives a result like any other."""

    notes_begin = True

    def __init__(self, threads: Threads | None = None, *, grace_s: float = GRACE_S) -> None:
        self._threads = threads
        self._grace_s = grace_s
        self._left: dict[str, Left] = {}
        self._at_once: dict[int, tuple[InProcess, bool]] = {}  # the target is kept, so its id stays its own

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        call, target = allowed.call, allowed.tool.target
        if not isinstance(target, InProcess):
            return ToolResult.failed(call, Code.UNAVAILABLE, f"{call.name!r} has no function in this process.")
        if context.reveal is not None:
            allowed = context.reveal(allowed)
        started = perf_counter()
        stretches: LoopTime | None = None
        content: tuple[Block, ...]
        try:
            if (self._at_once.get(id(target)) or self._look_at(target))[1]:
                # A function that cannot wait: no task to schedule, no timer, no round of the loop.
                stack = _watched_here()
                stack.append((call.name, started))
                try:
                    work = target.invoke(allowed.arguments, context)  # converts arguments, and begins nothing yet
                    context.begins(context.turn_id, context.call_id)
                    value = await work
                except BaseException as error:  # whatever a tool raises is its own affair, and a result
                    raise _Raised(error) from None
                finally:
                    stack.pop()
            else:
                stretches = LoopTime(call.name)
                value = await self._bounded(target, allowed, context, stretches)
            took_s = perf_counter() - started
            if type(value) is str and target.dump is None and len(value) < LARGE_CHARS:  # as most tools return
                content, structured = (Text(value if value.isascii() else clean(value)),), None
                fault = target.check(value, value) if target.check is not None else ""
            elif is_large(value):
                content, structured, fault = await asyncio.to_thread(_shown, target, value, present_large)
            else:
                content, structured, fault = _shown(target, value, present)
        except _OutOfTime:
            result, took_s = _timed_out(allowed, _ms(started), is_async=target.is_async), perf_counter() - started
        except _Raised as raised:
            if isinstance(raised.error, Suspended):  # it has set another agent to work, whose turn waits
                raise raised.error from None
            result, took_s = _raised(allowed, raised.error, _ms(started)), perf_counter() - started
        except NotPresentable as odd:
            return ToolResult.failed(call, Code.EXECUTION_FAILED, str(odd), elapsed_ms=_ms(started))
        else:
            if fault:
                result = _not_as_promised(allowed, fault, content, _ms(started))
            else:
                result = ToolResult(
                    call.id, call.name, _SUCCESS, content, structured=structured, elapsed_ms=took_s * 1000
                )
                if isinstance(value, ToolOutput):
                    result = _ended(result, value)
        if took_s < BLOCKED_S and took_s < allowed.timeout_s:
            return result
        return _marked(result, allowed, took_s, took_s if stretches is None else stretches.longest_s)

    def leftover(self, key: str) -> Left | None:
        """What of a given-up call with this idempotency key is still at work."""
        return self._left.get(key)

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.close()

    def _leave_behind(self, key: str, work: Left) -> None:
        self._left[key] = work
        work.add_done_callback(lambda _: self._left.pop(key, None))

    async def _in_thread(self, target: InProcess, arguments: Mapping[str, Any], context: Context) -> Any:
        given_up: list[bool] = []
        watched = replace(context, canceled=lambda: bool(given_up))
        on_left = partial(self._leave_behind, context.idempotency_key)
        try:
            if self._threads is None:
                self._threads = Threads()
            return await self._threads.run(_begin, target, arguments, watched, on_left=on_left)
        except asyncio.CancelledError:
            given_up.append(True)
            raise

    def _look_at(self, target: InProcess) -> tuple[InProcess, bool]:
        """Remember whether a function can be run at once."""
        known = self._at_once[id(target)] = (target, target.is_async and _cannot_wait(target.function))
        return known

    async def _bounded(self, target: InProcess, allowed: Allowed, context: Context, stretches: LoopTime) -> Any:
        """Run the function in a task of its own, so that one which ignores its cancellation can be left behind."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[Any] = loop.create_future()
        task = loop.create_task(self._carry(target, allowed, context, over, stretches), name=TASK_NAME)
        timer = loop.call_later(allowed.timeout_s, _expire, over)
        try:
            return await over
        finally:
            timer.cancel()
            if not over.done() or over.cancelled() or not task.done():
                await self._settle(task, over, context)

    async def _carry(
        self, target: InProcess, allowed: Allowed, context: Context, over: "asyncio.Future[Any]", stretches: LoopTime
    ) -> None:
        """Hand the outcome over from inside the task: the caller wakes one round of the loop earlier."""
        try:
            if target.is_async:
                value = await measure_steps(partial(_begin, target, allowed.arguments, context), stretches)
            else:
                value = await self._in_thread(target, allowed.arguments, context)
            if (own := asyncio.current_task()) is not None and own.cancelling():
                raise asyncio.CancelledError
        except BaseException as error:  # whatever a tool raises is its own affair, and a result
            if not over.done():
                over.set_exception(_Raised(error))
        else:
            if not over.done():
                over.set_result(value)

    async def _settle(self, task: "asyncio.Task[None]", over: "asyncio.Future[Any]", context: Context) -> None:
        """Stop work that was given up; one that has just handed over its outcome ends by itself."""
        if over.cancelled() or isinstance(over.exception(), _OutOfTime):
            task.cancel()
            try:
                await asyncio.wait((task,), timeout=self._grace_s)
            finally:
                if not task.done():
                    _disown(task)
                    self._leave_behind(context.idempotency_key, _end_of(task))


def _begin(target: InProcess, arguments: Mapping[str, Any], context: Context) -> Any:
    """Call the function, and note that just before: until then it has not begun, however long its arguments take."""
    if target.is_async:  # the call converts arguments and makes a coroutine, which begins later
        work = target.invoke(arguments, context)
        context.begins(context.turn_id, context.call_id)
        return work
    if target.bind is None:
        context.begins(context.turn_id, context.call_id)
        return target.invoke(arguments, context)
    call = target.bind(arguments, context)
    context.begins(context.turn_id, context.call_id)
    return call()


def _dumped(dump: Callable[[Any], Any], value: Any) -> Any:
    """The value as its type says; one of another type is shown as it is, and its promise is checked later."""
    if isinstance(value, OWN_RESULTS):
        return value
    try:
        return dump(value)
    except (TypeError, ValueError, AttributeError):
        return value


def _cannot_wait(function: Callable[..., Any]) -> bool:
    """Whether an async function has no `await`, `async for` or `async with`, so that it runs from end to end.

    One that looks for its task or cancels something gets a task of its own to do that to.
    """
    code = getattr(function, "__code__", None)
    if code is None or not code.co_flags & inspect.CO_COROUTINE or not _OF_TASKS.isdisjoint(code.co_names):
        return False
    return all(instruction.opname not in _WAITS for instruction in dis.get_instructions(code))


def _shown(
    target: InProcess, value: Any, shown_by: Callable[[Any], tuple[tuple[Block, ...], Any]]
) -> tuple[tuple[Block, ...], Any, str]:
    """A value as blocks and as plain JSON, and what is wrong with it. For a large one, this is done in a thread."""
    content, structured = shown_by(value if target.dump is None else _dumped(target.dump, value))
    return content, structured, _fault(target.check, value, structured) if target.check is not None else ""


def _marked(result: ToolResult, allowed: Allowed, took_s: float, blocked_s: float) -> ToolResult:
    """A result that took long, with how long its call held up the loop.

    A call that could not be stopped in time, since it blocked the loop, is a timeout. What it gave is not lost.
    """
    if result.ok and took_s >= allowed.timeout_s and blocked_s >= min(BLOCKED_S, allowed.timeout_s):
        message = (
            f"{allowed.call.name!r} blocked the event loop for {blocked_s:.1f} s, so that it could not be stopped "
            f"after {allowed.timeout_s:g} s. It has finished all the same, and what it gave follows."
        )
        late = ToolResult.failed(allowed.call, Code.TIMEOUT, message, elapsed_ms=result.elapsed_ms)
        result = replace(late, content=(*late.content, *result.content))
    return replace(result, blocked_ms=blocked_s * 1000) if blocked_s >= BLOCKED_S else result


def _disown(task: "asyncio.Task[None]") -> None:
    """Let the loop end without a task that ignores its cancellation; closing it would wait for that for ever."""
    asyncio._unregister_task(task)
    # That it is still at work when the loop is gone is then no news to tell on standard error.
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def _end_of(task: "asyncio.Task[None]") -> Left:
    """Done when a task is that ignores its cancellation."""
    end = Left()
    task.add_done_callback(lambda _: end.set_result(None))
    return end


def _expire(over: "asyncio.Future[Any]") -> None:
    if not over.done():
        over.set_exception(_OutOfTime())


def _timed_out(allowed: Allowed, elapsed_ms: float, *, is_async: bool) -> ToolResult:
    longest = allowed.tool.max_timeout_s
    advice = f"It may be given up to {longest:g} s." if allowed.timeout_s < longest else "Ask for less work at once."
    if DEADLINE_NOTE in allowed.notes:
        advice = "The deadline of the turn left it no more time."
    still = "" if is_async else " Its thread may still be at work."
    message = f"{allowed.call.name!r} did not finish within {allowed.timeout_s:g} s.{still} {advice}"
    return ToolResult.failed(allowed.call, Code.TIMEOUT, message, elapsed_ms=elapsed_ms)


def _raised(allowed: Allowed, error: BaseException, elapsed_ms: float) -> ToolResult:
    call = allowed.call
    if isinstance(error, ToolFailure):
        result = ToolResult.failed(call, error.code, _sentence(error), detail=error.detail, elapsed_ms=elapsed_ms)
        if error.given:
            result = replace(result, content=(*result.content, Text(clean(error.given))))
        return _ended(result, error)
    if isinstance(error, asyncio.CancelledError):
        message = f"{call.name!r} canceled itself before it had a result."
    elif isinstance(error, SystemExit):
        message = f"{call.name!r} tried to end the process (exit code {error.code})."
    else:
        message = f"{call.name!r} failed: {type(error).__name__}: {_sentence(error)}"
    return ToolResult.failed(call, Code.EXECUTION_FAILED, message, elapsed_ms=elapsed_ms)


def _fault(check: Callable[[Any, Any], str], value: Any, structured: Any) -> str:
    """What is wrong with an output. Blocks alone hold no value that could be wrong."""
    if structured is not None or type(value) is str:
        return check(value, value if structured is None else structured)
    if isinstance(value, OWN_RESULTS) or (type(value) in (list, tuple) and value and isinstance(value[0], OWN_RESULTS)):
        return ""
    return check(value, value)


def _not_as_promised(allowed: Allowed, fault: str, content: tuple[Block, ...], elapsed_ms: float) -> ToolResult:
    """A failure that carries what the tool gave behind its reason, so that it can be kept."""
    message = f"{allowed.call.name!r} has run, but its output is not what it promises: {fault}."
    result = ToolResult.failed(allowed.call, Code.INVALID_OUTPUT, message, elapsed_ms=elapsed_ms)
    return replace(result, content=(*result.content, *content))


def _ended(result: ToolResult, said: ToolOutput | ToolFailure) -> ToolResult:
    """The result with what its tool says about the program it ran, and about what is missing."""
    if isinstance(said, ToolOutput) and said.missing:
        missing = ErrorText(clean(str(said.missing)))
        result = replace(result, status=Status.PARTIAL, content=(*result.content, missing))
    if said.exit_code is None and not said.stderr:
        return result
    return replace(result, exit_code=said.exit_code, stderr=clean(str(said.stderr)))


def _sentence(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # an exception class of the tool's own may fail even at this
        text = "(its message could not be read)"
    return clean(text[:_LONGEST_MESSAGE]) or "no message"


def _ms(started: float) -> float:
    return (perf_counter() - started) * 1000
