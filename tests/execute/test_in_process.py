"""Functions as tools: whatever they do is a result."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from toolwire import Context, Image, Status, Text, Tool, ToolCall, ToolFailure, ToolResult, tool
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.threads import Threads
from toolwire.protocol.calls import Allowed
from toolwire.protocol.outcomes import Code

BOUND_S = 5
LONG_S = 60  # looking for garbage takes long in a busy process that has imported everything


@pytest.fixture
async def executor() -> AsyncIterator[InProcessExecutor]:
    one = InProcessExecutor(grace_s=0.01)
    yield one
    await one.close()


def allowed(made: Tool, timeout_s: float = 5.0, **arguments: Any) -> Allowed:
    return Allowed(ToolCall(made.name, arguments, id="c1"), made, arguments, timeout_s)


async def run(executor: InProcessExecutor, made: Tool, timeout_s: float = 5.0, **arguments: Any) -> ToolResult:
    async with asyncio.timeout(BOUND_S):
        return await executor.execute(allowed(made, timeout_s, **arguments), Context(call_id="c1"))


def defined(function: Callable[..., Any]) -> Tool:
    return tool(description="test tool")(function)


@pytest.mark.feature("F140", "F159")
async def test_async_functions_run_on_the_loop_and_sync_ones_in_a_thread(executor: InProcessExecutor) -> None:
    async def where_async() -> str:
        return threading.current_thread().name

    def where_sync() -> str:
        return threading.current_thread().name

    on_loop = await run(executor, defined(where_async))
    in_thread = await run(executor, defined(where_sync))

    assert on_loop.text == threading.current_thread().name
    assert in_thread.text == "toolwire-tool"
    assert on_loop.elapsed_ms > 0


@dataclass
class Point:
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ("plain", "plain", None),
        (42, "42", 42),
        (None, "done", None),
        ({"a": [1, 2]}, '{"a":[1,2]}', {"a": [1, 2]}),
        (Point(1, 2), '{"x":1,"y":2}', {"x": 1, "y": 2}),
        ({3, 1, 2}, "[1,2,3]", [1, 2, 3]),
        (Text("block"), "block", None),
        ([Text("one"), Image("QQ==")], "one\n[image image/png]", None),
        ("half a surrogate \ud83d", "half a surrogate ?", None),
        (Text("half \ud83d"), "half ?", None),
        (2**70, str(2**70), 2**70),
        ({"n": 2**70, "s": "\ud83d"}, f'{{"n": {2**70}, "s": "?"}}', {"n": 2**70, "s": "?"}),
        (float("nan"), "null", None),
    ],
)
async def test_what_a_function_returns_becomes_content(
    executor: InProcessExecutor, value: Any, text: str, structured: Any
) -> None:
    def give() -> Any:
        return value

    result = await run(executor, defined(give))
    assert (result.status, result.text, result.structured) == (Status.SUCCESS, text, structured)


@pytest.mark.parametrize("value", [object(), {"deep": object()}, [threading.Lock()]])
async def test_what_has_no_json_form_is_a_failure_that_says_what_to_return(
    executor: InProcessExecutor, value: Any
) -> None:
    def give() -> Any:
        return value

    result = await run(executor, defined(give))
    assert result.error is not None
    assert result.error.code is Code.EXECUTION_FAILED
    assert "Return text, numbers, lists" in result.text


class Odd(BaseException):
    """Not even an Exception."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.feature("F265")
@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad luck"),
        SystemExit(3),
        StopIteration(1),
        TimeoutError("mine"),
        Unprintable(),
        KeyboardInterrupt(),
        Odd(),
    ],
)
@pytest.mark.parametrize("way", ["async at once", "async", "sync"])
async def test_a_function_that_raises_gives_a_result(
    executor: InProcessExecutor, error: BaseException, way: str
) -> None:
    async def fails_at_once() -> None:
        raise error

    async def fails_async() -> None:
        await asyncio.sleep(0)
        raise error

    def fails_sync() -> None:
        raise error

    ways: dict[str, Callable[[], Any]] = {"async at once": fails_at_once, "async": fails_async, "sync": fails_sync}
    result = await run(executor, defined(ways[way]))
    assert result.error is not None
    assert (result.status, result.error.code) == (Status.FAILED, Code.EXECUTION_FAILED)


async def test_a_tool_chooses_its_code_and_sentence(executor: InProcessExecutor) -> None:
    def missing() -> None:
        raise ToolFailure("No such file. Try 'a.txt'.", code=Code.NOT_FOUND, detail={"near": ["a.txt"]})

    result = await run(executor, defined(missing))
    assert result.error is not None
    assert (result.error.code, result.error.message, result.error.detail) == (
        Code.NOT_FOUND, "No such file. Try 'a.txt'.", {"near": ["a.txt"]},
    )  # fmt: skip


@pytest.mark.requirement("execute.timeout")
@pytest.mark.feature("F265")
async def test_a_call_that_takes_too_long_ends_as_timeout(executor: InProcessExecutor) -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    result = await run(executor, defined(hangs), timeout_s=0.01)
    assert (result.status, result.error and result.error.code) == (Status.TIMEOUT, Code.TIMEOUT)
    assert "0.01 s" in result.text


async def test_an_async_tool_that_ignores_its_cancellation_is_left_behind(executor: InProcessExecutor) -> None:
    free = asyncio.Event()

    async def stubborn() -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    result = await run(executor, defined(stubborn), timeout_s=0.01)
    free.set()
    assert result.status is Status.TIMEOUT


def test_an_async_tool_that_ignores_its_cancellation_does_not_keep_the_program_from_ending(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    results: list[ToolResult] = []
    ended = threading.Event()

    def program() -> None:
        results.append(asyncio.run(run(InProcessExecutor(grace_s=0.01), defined(stubborn), timeout_s=0.01)))
        gc.collect()
        ended.set()

    threading.Thread(target=program, daemon=True).start()

    assert ended.wait(LONG_S)
    assert results[0].status is Status.TIMEOUT
    assert capfd.readouterr().err == ""


async def test_a_hanging_thread_is_told_written_off_and_replaced() -> None:
    executor = InProcessExecutor(Threads(most=1), grace_s=0.01)
    release, noticed = threading.Event(), threading.Event()

    def hangs(context: Context) -> None:
        release.wait(BOUND_S)
        if context.canceled():
            noticed.set()

    def quick() -> str:
        return "next"

    late = await run(executor, defined(hangs), timeout_s=0.01)
    after = await run(executor, defined(quick))
    release.set()

    assert late.status is Status.TIMEOUT
    assert "thread may still be at work" in late.text
    assert after.text == "next"
    assert await asyncio.to_thread(noticed.wait, BOUND_S)


@pytest.mark.parametrize("way", ["in a thread", "in a task"])
async def test_work_that_goes_on_after_its_call_was_given_up_is_known_until_it_ends(
    executor: InProcessExecutor, way: str
) -> None:
    release, freed = threading.Event(), asyncio.Event()

    def in_thread() -> None:
        release.wait(BOUND_S)

    async def in_task() -> None:
        while not freed.is_set():
            try:
                await freed.wait()
            except asyncio.CancelledError:
                continue

    made = defined(in_thread if way == "in a thread" else in_task)
    context = Context(call_id="c1", turn_id="t1")
    async with asyncio.timeout(BOUND_S):
        await executor.execute(allowed(made, timeout_s=0.01), context)
        work = executor.leftover(context.idempotency_key)
        assert work is not None
        assert not work.done()
        release.set()
        freed.set()
        await asyncio.wrap_future(work)
    assert executor.leftover(context.idempotency_key) is None


async def test_more_calls_than_threads_all_get_their_turn() -> None:
    executor = InProcessExecutor(Threads(most=2))

    def double(n: int) -> int:
        return n * 2

    made = defined(double)
    results = await asyncio.gather(*(run(executor, made, n=n) for n in range(20)))
    assert [result.structured for result in results] == [n * 2 for n in range(20)]


@pytest.mark.feature("F035")
async def test_the_callers_cancellation_reaches_the_tool_and_passes_through(executor: InProcessExecutor) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def works() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(executor.execute(allowed(defined(works)), Context()))
    await asyncio.wait_for(began.wait(), BOUND_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_tool_that_cancels_itself_has_failed_not_been_canceled(executor: InProcessExecutor) -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    result = await run(executor, defined(gives_up))
    assert result.status is Status.FAILED


async def test_a_block_with_odd_fields_is_a_failure(executor: InProcessExecutor) -> None:
    def give() -> Any:
        return [Text("fine"), Text(123)]  # type: ignore[arg-type]

    result = await run(executor, defined(give))
    assert result.status is Status.FAILED
    assert "Text block" in result.text


async def test_a_tool_without_an_await_runs_at_once_and_one_with_is_bounded(executor: InProcessExecutor) -> None:
    """We chose to run what cannot wait without a task of its own; nothing else about it may differ."""
    rounds: list[str] = []
    names: list[str] = []

    async def computes() -> str:
        return "computed"

    async def waits() -> str:
        names.append(current().get_name())
        await asyncio.Event().wait()
        return "never"

    caller = current()
    asyncio.get_running_loop().call_soon(rounds.append, "a round of the loop")
    computed = await executor.execute(allowed(defined(computes)), Context())
    assert rounds == []
    assert current() is caller
    waited = await run(executor, defined(waits), timeout_s=0.01)

    assert (computed.text, waited.status) == ("computed", Status.TIMEOUT)
    assert names == ["toolwire-call"]


def current() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task


@pytest.mark.parametrize("ending", ["returns", "raises", "waits"])
async def test_a_tool_that_cancels_its_own_task_gives_a_result_and_the_caller_goes_on(
    executor: InProcessExecutor, ending: str
) -> None:
    async def returns() -> str:
        current().cancel()
        return "lost"

    async def raises() -> None:
        current().cancel()
        raise ValueError("and more")

    async def waits() -> None:
        current().cancel()
        await asyncio.sleep(0)

    ways: dict[str, Callable[[], Any]] = {"returns": returns, "raises": raises, "waits": waits}
    result = await run(executor, defined(ways[ending]))
    await asyncio.sleep(0)
    assert result.status is Status.FAILED
    assert current().cancelling() == 0
    assert ending == "raises" or "canceled itself" in result.text


async def test_a_tool_that_changes_its_mind_about_canceling_itself_has_succeeded(executor: InProcessExecutor) -> None:
    async def hesitates() -> int:
        current().cancel()
        return current().uncancel()

    assert (await run(executor, defined(hesitates))).structured == 0


async def test_the_callers_cancellation_while_a_tool_runs_at_once_is_not_taken_for_the_tools(
    executor: InProcessExecutor,
) -> None:
    """As Ctrl-C does it: a signal handler cancels the main task in the middle of the tool's code."""

    async def interrupted() -> str:
        outer.cancel()
        return "finished"

    async def work() -> list[str]:
        done = [(await executor.execute(allowed(defined(interrupted)), Context())).text]
        await asyncio.sleep(0)
        return done

    outer = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(outer, BOUND_S)


async def test_a_tool_without_a_function_here_is_unavailable(executor: InProcessExecutor) -> None:
    result = await run(executor, Tool("elsewhere", "runs elsewhere"))
    assert result.error is not None
    assert result.error.code is Code.UNAVAILABLE


async def test_context_variables_reach_a_thread(executor: InProcessExecutor) -> None:
    def quick() -> float:
        return time.get_clock_info("monotonic").resolution

    assert (await run(executor, defined(quick))).ok


@pytest.mark.parametrize("way", ["thread", "at once", "task"])
async def test_a_call_is_noted_as_begun_after_its_arguments_are_converted_and_right_before_the_tool(
    executor: InProcessExecutor, way: str
) -> None:
    seen: list[str] = []

    def convert(value: str) -> str:
        seen.append("converted")
        return value

    def in_thread(path: Annotated[str, AfterValidator(convert)]) -> str:
        seen.append("ran")
        return path

    async def at_once(path: Annotated[str, AfterValidator(convert)]) -> str:
        seen.append("ran")
        return path

    async def in_task(path: Annotated[str, AfterValidator(convert)]) -> str:
        seen.append("ran")
        await asyncio.sleep(0)
        return path

    made = defined({"thread": in_thread, "at once": at_once, "task": in_task}[way])
    noting = Context(
        call_id="c1", turn_id="t1", begins=lambda turn_id, call_id: seen.append(f"noted {turn_id} {call_id}")
    )

    result = await executor.execute(allowed(made, path="a"), noting)

    assert (result.text, seen) == ("a", ["converted", "noted t1 c1", "ran"])
