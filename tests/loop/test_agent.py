"""A question goes in, tools run, an answer comes out: the loop through its front door, over every store."""

import asyncio
import threading
from typing import Any

import pytest

from toolwire import (
    Agent,
    Answer,
    Approval,
    Code,
    Context,
    Effect,
    Grant,
    Limits,
    MemoryStore,
    Problem,
    Status,
    Tier,
    ToolFailure,
    Usage,
    parse_reply,
    tool,
)  # fmt: skip
from toolwire.define.toolbox import Toolbox
from toolwire.errors import ModelUnavailable, NotFound
from toolwire.protocol.calls import NeedsApproval, ToolCall, ToolResult
from toolwire.protocol.chat import Note, Reply, Request, ResultsMessage, TextDelta, UserMessage
from toolwire.protocol.events import (
    ApprovalAsked,
    CallFinished,
    CallProgress,
    CallStarted,
    Event,
    ModelReplied,
    Noted,
    TurnEnded,
    TurnStarted,
)  # fmt: skip
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record.contract import Store
from toolwire.testing import FrozenClock, ScriptedModel, call, says

BOUND_S = 5


@tool(effect=Effect.PURE)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect=Effect.PURE)
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@tool
async def breaks(how: str = "badly") -> None:
    """Break."""
    raise ValueError(how)


def results_of(turn: Turn) -> list[ToolResult]:
    return [result for message in turn.messages if isinstance(message, ResultsMessage) for result in message.results]


@pytest.mark.feature("F031", "F037", "F038", "F140", "F264")
async def test_a_question_is_answered_with_tools(store: Store) -> None:
    model = ScriptedModel([call("add", a=40, b=2), call("shout", text="hi")], "It is 42.")
    agent = Agent(model, [add, shout], store=store, system="Be brief.")

    answer = await agent.ask("What is 40 + 2?")

    assert (answer.text, answer.reason) == ("It is 42.", EndReason.ANSWERED)
    assert [result.text for result in results_of(answer.turn)] == ["42", "HI"]
    assert model.requests[1].messages[-1] == ResultsMessage(tuple(results_of(answer.turn)))
    assert [tool.name for tool in model.requests[0].tools] == ["add", "shout"]
    assert model.requests[0].system == "Be brief."


@pytest.mark.requirement("record.before")
@pytest.mark.feature("F223", "F196")
async def test_what_happened_is_on_record(store: Store) -> None:
    agent = Agent(ScriptedModel([call("add", "id7", a=1, b=2), call("nope")], "3"), [add], store=store)

    answer = await agent.ask("1 + 2?")

    cards = await store.calls(turn_id=answer.turn_id)
    assert [(card.call.name, card.call.alias, card.result and card.result.status) for card in cards] == [
        ("add", "id7", Status.SUCCESS), ("nope", None, Status.FAILED),
    ]  # fmt: skip
    events = [(row.event, row.tool) for row in await store.audit_log(turn_id=answer.turn_id)]
    assert ("allowed", "add") in events
    assert ("denied", "nope") in events
    assert ("finished", "add") in events
    kept = await store.turn(answer.turn_id)
    assert kept.state == "ended"
    assert isinstance(kept.events[0], Reply)


@pytest.mark.requirement("record.before")
async def test_a_call_is_on_record_before_its_tool_runs(store: Store) -> None:
    seen: list[Any] = []

    @tool
    async def peek(context: Context) -> str:
        """Look into the record from inside the call."""
        seen.extend(await store.calls(turn_id=context.turn_id))
        return "seen"

    await Agent(ScriptedModel(call("peek"), "done"), [peek], store=store).ask("peek")
    assert [(card.call.name, card.result) for card in seen] == [("peek", None)]


@pytest.mark.requirement("record.idempotent")
async def test_a_repeated_call_id_returns_its_first_result_and_runs_the_tool_once(store: Store) -> None:
    """The protocol demands it: the same turn and call id re-entering stays idempotent."""
    runs: list[int] = []

    @tool
    async def count() -> int:
        """Count the runs."""
        runs.append(1)
        await asyncio.sleep(0)
        return len(runs)

    agent = Agent(ScriptedModel(), [count], store=store)
    turn = await agent._begin(await agent._make_turn("count", ""))
    one = call("count")
    named = type(one)("count", {}, id="c1")

    first, twin = await asyncio.gather(agent.runtime.execute(named, turn), agent.runtime.execute(named, turn))
    again = await agent.runtime.execute(named, turn)

    assert first.text == twin.text == again.text == "1"
    assert runs == [1]


@pytest.mark.requirement("call.minted-id")
async def test_providers_that_repeat_ids_lose_no_call(store: Store) -> None:
    script = ScriptedModel(
        [call("add", "call_0", a=1, b=1), call("add", "call_0", a=2, b=2)], call("add", "call_0", a=3, b=3), "ok"
    )
    answer = await Agent(script, [add], store=store).ask("add")
    assert [result.text for result in results_of(answer.turn)] == ["2", "4", "6"]
    assert len({result.call_id for result in results_of(answer.turn)}) == 3


async def test_a_call_that_a_provider_sends_twice_under_one_id_takes_effect_once(store: Store) -> None:
    """We chose it: same id, same name and same arguments in one reply are one call with two answers."""
    runs: list[str] = []

    @tool
    async def send(to: str) -> str:
        """Send."""
        runs.append(to)
        return f"sent to {to}"

    twice = [call("send", "call_1", to="ada"), call("send", "call_1", to="ada"), call("send", "call_1", to="bob")]
    answer = await Agent(ScriptedModel([*twice, call("send", None, to="ada")], "ok"), [send], store=store).ask("go")

    assert sorted(runs) == ["ada", "ada", "bob"]
    assert [result.text for result in results_of(answer.turn)] == [
        "sent to ada",
        "sent to ada",
        "sent to bob",
        "sent to ada",
    ]
    assert len({result.call_id for result in results_of(answer.turn)}) == 4


@pytest.mark.requirement("execute.siblings")
@pytest.mark.feature("F265", "F143", "F222")
async def test_a_failing_call_is_a_result_beside_its_siblings_and_the_model_can_try_again(store: Store) -> None:
    model = ScriptedModel([call("breaks"), call("add", a=1, b=1), call("missing")], call("add", a=2, b=2), "done")

    answer = await Agent(model, [add, breaks], store=store).ask("go")

    codes = [result.error.code if result.error else None for result in results_of(answer.turn)]
    assert codes == [Code.EXECUTION_FAILED, None, Code.NOT_FOUND, None]
    _, loop = await store.metrics()
    assert (loop.with_failures, loop.recovered) == (1, 1)


@pytest.mark.requirement("execute.order")
@pytest.mark.feature("F129", "F131", "F134")
async def test_calls_run_together_and_results_keep_the_order_of_the_calls(store: Store) -> None:
    gates = [asyncio.Event() for _ in range(3)]

    @tool(effect=Effect.PURE)
    async def wait(n: int) -> int:
        """The last one frees the others, so they only finish when all run at the same time."""
        if n == 2:
            gates[1].set()
        elif n == 1:
            await gates[1].wait()
            gates[0].set()
        else:
            await gates[0].wait()
        return n

    async with asyncio.timeout(BOUND_S):
        answer = await Agent(ScriptedModel([call("wait", n=n) for n in range(3)], "ok"), [wait], store=store).ask("go")
    assert [result.structured for result in results_of(answer.turn)] == [0, 1, 2]


@pytest.mark.feature("F130", "F220")
async def test_at_most_five_calls_run_at_once_and_waiting_is_told_apart_from_running(store: Store) -> None:
    running, peak = 0, 0
    full = asyncio.Event()

    @tool(effect=Effect.PURE)
    async def busy(n: int) -> int:
        """Hold a place until five are taken."""
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        if running == 5:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        running -= 1
        return n

    async with asyncio.timeout(BOUND_S):
        answer = await Agent(ScriptedModel([call("busy", n=n) for n in range(12)], "ok"), [busy], store=store).ask("go")
    assert peak == 5
    assert all(result.queued_ms >= 0 and result.elapsed_ms >= 0 for result in results_of(answer.turn))
    assert results_of(answer.turn)[11].queued_ms > 0
    _, loop = await store.metrics()
    assert (loop.batches, loop.max_concurrency) == (1, 5)


@pytest.mark.feature("F132", "F220")
async def test_a_single_call_is_no_batch(store: Store) -> None:
    await Agent(ScriptedModel(call("add", a=1, b=1), "2"), [add], store=store).ask("go")
    _, loop = await store.metrics()
    assert loop.batches == 0


@pytest.mark.requirement("execute.resources")
async def test_calls_that_write_one_file_wait_for_each_other_and_others_do_not(store: Store) -> None:
    order: list[str] = []
    both = asyncio.Event()

    @tool(writes=("file:{path}",))
    async def write(path: str, text: str) -> str:
        """Write text."""
        order.append(f"+{text}")
        if path == "b":
            both.set()
        await both.wait()
        await asyncio.sleep(0)
        order.append(f"-{text}")
        return text

    calls = [call("write", path="a", text="1"), call("write", path="./a", text="2"), call("write", path="b", text="3")]
    async with asyncio.timeout(BOUND_S):
        await Agent(ScriptedModel(calls, "ok"), [write], store=store).ask("go")
    assert order.index("-1") < order.index("+2")
    assert order.index("+3") < order.index("-1")


@pytest.mark.feature("F133", "F035")
@pytest.mark.requirement("call.one-result")
async def test_a_canceled_turn_leaves_a_result_for_every_call_and_can_be_resumed(store: Store) -> None:
    began = asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        began.set()
        await asyncio.Event().wait()

    calls = [call("hang"), *(call("add", a=n, b=n) for n in range(2)), *(call("hang") for _ in range(6))]
    agent = Agent(ScriptedModel(calls, "resumed"), [hang, add], store=store)
    task = asyncio.create_task(agent.ask("go"))
    await asyncio.wait_for(began.wait(), BOUND_S)
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    [summary] = await store.turns()
    assert summary.state == "interrupted"
    cards = await store.calls(turn_id=summary.id)
    assert all(card.result is not None for card in cards)
    assert {card.result.status for card in cards if card.result and card.call.name == "hang"} == {Status.CANCELED}

    answer = await agent.resume(summary.id)
    assert answer.text == "resumed"
    assert results_of(answer.turn)[0].status is Status.CANCELED


@pytest.mark.requirement("record.resume")
async def test_a_turn_whose_model_did_not_answer_goes_on_later_without_running_anything_again(store: Store) -> None:
    runs: list[str] = []

    @tool
    async def effect(name: str) -> str:
        """Leave a mark."""
        runs.append(name)
        return name

    model = ScriptedModel(call("effect", name="once"), ModelUnavailable("connection refused"), "done")
    agent = Agent(model, [effect], store=store)
    with pytest.raises(ModelUnavailable):
        await agent.ask("go")
    [summary] = await store.turns(state="interrupted")

    answer = await agent.resume(summary.id)

    assert answer.text == "done"
    assert runs == ["once"]
    assert answer.turn.iterations == 2
    assert answer.turn.epoch == 2


async def test_an_unknown_turn_cannot_be_resumed(store: Store) -> None:
    with pytest.raises(NotFound):
        await Agent(ScriptedModel(), store=store).resume("no-such-turn")


@pytest.mark.requirement("loop.limits")
@pytest.mark.feature("F033", "F221")
async def test_the_last_step_is_asked_with_tools_off(store: Store) -> None:
    script = [call("add", a=n, b=0) for n in range(9)]
    model = ScriptedModel(*script, "I stopped here.")

    answer = await Agent(model, [add], store=store).ask("go")

    assert (answer.reason, answer.text) == (EndReason.ITERATION_LIMIT, "I stopped here.")
    assert [request.tools_off for request in model.requests] == [False] * 9 + [True]
    assert isinstance(model.requests[-1].messages[-1], Note)
    _, loop = await store.metrics()
    assert (loop.turns, loop.iterations) == (1, 10)


@pytest.mark.feature("F064", "F040")
async def test_an_approval_is_requested_and_its_answer_recorded(store: Store) -> None:
    asked: list[NeedsApproval] = []

    async def approve(request: NeedsApproval) -> Approval:
        asked.append(request)
        return Approval(request.allowed.arguments["n"] == 1, by="dana", reason="only one")

    @tool(requires_confirmation=True)
    async def launch(n: int) -> str:
        """Launch."""
        return f"launched {n}"

    agent = Agent(
        ScriptedModel([call("launch", n=1), call("launch", n=2)], "ok"), [launch], store=store, approve=approve
    )
    answer = await agent.ask("go")

    yes, no = results_of(answer.turn)
    assert yes.text == "launched 1"
    assert no.error is not None
    assert (no.error.code, "only one" in no.text) == (Code.PERMISSION_DENIED, True)
    assert len(asked) == 2
    rows = [(row.event, row.detail.get("by")) for row in await store.audit_log(turn_id=answer.turn_id)]
    assert ("approved", "dana") in rows
    assert ("rejected", "dana") in rows


async def test_without_an_approver_the_call_is_refused_with_advice(store: Store) -> None:
    @tool(requires_confirmation=True)
    async def launch() -> str:
        """Launch."""
        raise AssertionError("must not run")

    answer = await Agent(ScriptedModel(call("launch"), "ok"), [launch], store=store).ask("go")
    [result] = results_of(answer.turn)
    assert "No approver is present" in result.text


@pytest.mark.feature("F040")
async def test_the_user_can_add_a_message_or_stop_the_turn_before_each_step(store: Store) -> None:
    async def steer(turn: Turn) -> str | Ending | None:
        if turn.iterations == 1:
            return "Hurry up."
        return Ending(EndReason.STOPPED, "Stopped by Dana.") if turn.iterations == 2 else None

    model = ScriptedModel(call("add", a=1, b=1), call("add", a=2, b=2))
    answer = await Agent(model, [add], store=store, intervene=steer).ask("go")

    assert (answer.reason, answer.text) == (EndReason.STOPPED, "Stopped by Dana.")
    assert model.requests[1].messages[-1] == Note("Hurry up.")


async def test_a_thread_remembers_what_was_said(store: Store) -> None:
    model = ScriptedModel(call("add", a=1, b=1), "2", "You asked for 1 + 1.")
    agent = Agent(model, [add], store=store)
    await agent.ask("1 + 1?", thread="t")
    await agent.ask("What did I ask?", thread="t")
    kinds = [type(message) for message in model.requests[-1].messages]
    assert kinds == [UserMessage, Reply, ResultsMessage, Reply, UserMessage]


async def test_a_long_result_is_cut_visibly_and_kept_whole(store: Store) -> None:
    @tool
    async def flood() -> str:
        """A lot."""
        return "begin" + "x" * 5_000_000 + "end"

    answer = await Agent(ScriptedModel(call("flood"), "ok"), [flood], store=store).ask("go")
    [result] = results_of(answer.turn)
    assert result.truncated
    assert result.handle is not None
    assert 65_536 < len(result.text) < 66_500
    assert result.text.startswith("begin")
    assert result.text.endswith("end")
    assert "bytes left out" in result.text
    assert len(await store.fetch(result.handle)) == 5_000_008
    assert await store.fetch(result.handle, offset=5_000_005) == b"end"


@pytest.mark.threat("T14")
@pytest.mark.feature("F144")
async def test_a_model_that_repeats_itself_is_warned_and_then_made_to_answer(store: Store) -> None:
    model = ScriptedModel(*[call("add", a=1, b=1)] * 3, "I give up: 2.")
    answer = await Agent(model, [add], store=store).ask("go")
    assert (answer.reason, answer.text) == (EndReason.STUCK, "I give up: 2.")


@pytest.mark.contrast("T14")
async def test_polling_tools_may_repeat(store: Store) -> None:
    @tool(polling=True)
    async def poll() -> str:
        """Not yet."""
        return "not yet"

    answer = await Agent(ScriptedModel(*[call("poll")] * 6, "ok"), [poll], store=store).ask("go")
    assert answer.reason is EndReason.ANSWERED


@pytest.mark.threat("T14")
@pytest.mark.feature("F041")
async def test_a_token_budget_stops_the_turn(store: Store) -> None:
    model = ScriptedModel(says("thinking", call("add", a=1, b=1), usage=Usage(900, 200, cost_usd=0.25)))
    answer = await Agent(model, [add], store=store, limits=Limits(tokens=1000)).ask("go")
    assert (answer.reason, answer.text) == (EndReason.TOKEN_BUDGET, "thinking")
    assert answer.usage.cost_usd == 0.25
    cards = await store.calls(turn_id=answer.turn_id)
    assert [card.result and card.result.status for card in cards] == [Status.CANCELED]


async def test_garbage_from_the_model_is_sent_back_and_the_turn_still_ends(store: Store) -> None:
    broken = says("<tool_call>{", problems=[Problem("malformed", "The call could not be read.")])
    answer = await Agent(ScriptedModel(broken, broken, broken, "sorry"), [add], store=store).ask("go")
    assert (answer.reason, answer.text) == (EndReason.FAILURE_LIMIT, "sorry")


@pytest.mark.feature("F092")
async def test_a_call_that_is_only_announced_is_asked_for_in_format(store: Store) -> None:
    """The parser reports it, nothing runs, and the model is asked to say it properly."""
    announced = parse_reply("I'll use the add tool to compute this.", tools=[add])
    model = ScriptedModel(announced, call("add", a=1, b=1), "2")
    answer = await Agent(model, [add], store=store).ask("1 + 1?")
    assert "proper format" in str(model.requests[1].messages[-1])
    assert answer.text == "2"


@pytest.mark.requirement("loop.errors-return")
@pytest.mark.feature("F155", "F265")
async def test_every_kind_of_error_reaches_the_model_as_a_sentence(store: Store) -> None:
    @tool(tier=Tier.RUN)
    async def locked() -> None:
        """Locked."""

    @tool(needs={"shell"})
    async def shell() -> None:
        """Needs the shell."""

    @tool(timeout_s=0.01)
    async def slow() -> None:
        """Slow."""
        await asyncio.Event().wait()

    @tool
    def fails() -> None:
        """Fails on purpose."""
        raise ToolFailure("The printer is out of paper. Load some.", code=Code.UNAVAILABLE)

    calls = [call("locked"), call("shell"), call("slow"), call("fails"), call("add", a="x"), call("ad")]
    tools = [locked, shell, slow, fails, add]
    answer = await Agent(ScriptedModel(calls, "ok"), tools, store=store).ask("go")
    texts = [(result.error.code if result.error else None, result.text) for result in results_of(answer.turn)]
    assert [code and code.value for code, _ in texts] == [
        "permission_denied", "permission_denied", "timeout", "unavailable", "invalid_params", "not_found",
    ]  # fmt: skip
    for word, (_, text) in zip(("WALK", "shell", "0.01 s", "paper", "Required", "'add'"), texts, strict=True):
        assert word in text


async def test_a_watcher_sees_everything_as_it_happens(store: Store) -> None:
    @tool
    def work(context: Context) -> str:
        """Report from a thread."""
        context.progress("half", 0.5)
        return threading.current_thread().name

    agent = Agent(ScriptedModel(says("Looking.", call("work")), "done"), [work], store=store)
    seen: list[Event] = [event async for event in agent.stream("go")]

    kinds = [type(event).__name__ for event in seen]
    assert kinds[0] == "TurnStarted"
    assert kinds[-1] == "TurnEnded"
    for kind in (TurnStarted, TextDelta, ModelReplied, CallStarted, CallProgress, CallFinished, TurnEnded):
        assert any(isinstance(event, kind) for event in seen), kind
    assert kinds.index("CallStarted") < kinds.index("CallProgress") < kinds.index("CallFinished")


async def test_leaving_a_stream_early_stops_the_work(store: Store) -> None:
    stopped = asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    stream = Agent(ScriptedModel(call("hang"), "never"), [hang], store=store).stream("go")
    async with asyncio.timeout(BOUND_S):
        async for event in stream:
            if isinstance(event, CallStarted):
                break
        await stream.aclose()
        await stopped.wait()
    assert (await store.turns())[0].state == "interrupted"


async def test_a_tool_that_cancels_its_own_task_leaves_the_turn_alone(store: Store) -> None:
    @tool
    async def give_up() -> str:
        """Give up."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "lost"

    model = ScriptedModel(call("give_up"), "It gave up.")
    async with asyncio.timeout(BOUND_S):
        answer = await Agent(model, [give_up], store=store).ask("go")
    assert (answer.text, answer.turn.failed_calls) == ("It gave up.", 1)


async def test_what_a_hanging_thread_touches_stays_its_own_until_it_ends(store: Store) -> None:
    """A result says that the call is over; its thread may still write. Nobody else may, until it has ended."""
    release, ended, saved = threading.Event(), threading.Event(), list[str]()

    @tool(writes=("file:{path}",))
    def save(path: str, text: str) -> str:
        """Save a text."""
        saved.append(text)
        return "saved"

    @tool(writes=("file:{path}",), timeout_s=0.01)
    def save_slowly(path: str) -> None:
        """Save after a while."""
        release.wait(BOUND_S)
        saved.append("slowly")
        ended.set()

    @tool(writes=("file:{path}",), timeout_s=0.01)
    def save_now(path: str) -> None:
        """Save now or never."""
        saved.append("now")

    async def let_it_end(_: Turn) -> None:
        if len(model.requests) == 2:
            release.set()
            assert await asyncio.to_thread(ended.wait, BOUND_S)

    model = ScriptedModel(
        call("save_slowly", path="a"),
        [call("save_now", path="a"), call("save", path="b", text="elsewhere")],
        call("save", path="./a", text="at last"),
        "SavedFile.",
    )
    agent = Agent(model, [save, save_slowly, save_now], store=store, intervene=let_it_end)
    async with asyncio.timeout(BOUND_S):
        answer = await agent.ask("Save")
        await agent.close()

    first, (vain, elsewhere), last = (message.results for message in results_in(answer))
    assert first[0].status is Status.TIMEOUT
    assert (vain.status, vain.error and vain.error.code) == (Status.FAILED, Code.UNAVAILABLE)
    assert "file:a is busy" in vain.text
    assert first[0].call_id in vain.text
    assert elsewhere.ok
    assert last[0].ok
    assert saved == ["elsewhere", "slowly", "at last"]


def results_in(answer: Answer) -> list[ResultsMessage]:
    return [message for message in answer.turn.messages if isinstance(message, ResultsMessage)]


async def test_an_agent_can_be_closed_while_a_thread_hangs(store: Store) -> None:
    release = threading.Event()

    @tool(writes=("door",), timeout_s=0.01)
    def hang() -> None:
        """Hang."""
        release.wait(BOUND_S)

    agent = Agent(ScriptedModel(call("hang"), call("hang"), "It hangs."), [hang], store=store)
    async with asyncio.timeout(BOUND_S):
        assert (await agent.ask("go")).text == "It hangs."
        await agent.close()
    release.set()


async def test_a_tool_is_called_without_a_model(store: Store) -> None:
    agent = Agent(ScriptedModel(), [add], store=store)
    assert (await agent.call("add", {"a": "2", "b": 3})).structured == 5
    assert (await agent.call("add", {"a": "two"})).error is not None
    assert [turn.state for turn in await store.turns()] == ["ended", "ended"]


async def test_a_single_call_that_was_never_written_down_did_not_run_and_its_turn_ends(store: Store) -> None:
    """Its process died after the turn began and before the call was on record."""
    turn = Turn("t1", "default", "agent", model="none", messages=(UserMessage("call add"),))
    await store.begin(turn)
    await store.release(turn)
    agent = Agent(ScriptedModel(), [add], store=store)
    with pytest.raises(NotFound, match="did not run; make it again"):
        await agent.resume_call("t1")
    assert [(turn.state, turn.reason) for turn in await store.turns()] == [("ended", "canceled")]


@pytest.mark.feature("F112")
async def test_a_turn_gets_the_tier_its_question_asks_for_at_most_the_grants() -> None:
    @tool(tier=Tier.RUN)
    async def wipe() -> None:
        """Wipe."""

    @tool(tier=Tier.WALK)
    async def plan() -> None:
        """Plan. A call by hand is nobody's question, so no words need to ask for it."""

    model = ScriptedModel("hello", "deleted")
    agent = Agent(model, [wipe, add], grant=Grant(tier=Tier.RUN), tier_by_intent=True, store=MemoryStore())
    await agent.ask("hello, how are you?")
    await agent.ask("delete the old logs")
    assert [[tool.name for tool in request.tools] for request in model.requests] == [["add"], ["wipe", "add"]]
    assert (await Agent(model, [plan], grant=Grant(tier=Tier.WALK), tier_by_intent=True).call("plan", {})).ok


@pytest.mark.requirement("execute.approval-free")
@pytest.mark.parametrize("calls", [1, 3])
async def test_approvals_cost_no_deadline(calls: int) -> None:
    """Three people asked at once for an hour cost no more than one, and the tool still has its time."""
    clock = FrozenClock()
    given: list[float] = []

    async def approve(request: NeedsApproval) -> Approval:
        clock.advance(3600 / calls)
        return Approval(True)

    async def steer(turn: Turn) -> None:
        clock.advance(3600)

    @tool(requires_confirmation=True, timeout_s=30)
    async def launch(n: int, context: Context) -> str:
        """Launch."""
        given.append(context.timeout_s)
        return "launched"

    asked = [call("launch", n=n) for n in range(calls)]
    model, store = ScriptedModel(asked, "ok"), MemoryStore(clock=clock, monotonic=clock)
    agent = Agent(model, [launch], store=store, approve=approve, intervene=steer, limits=Limits(deadline_s=60))
    agent.runtime.clock = agent.runtime.monotonic = clock
    answer = await agent.ask("go")
    assert (answer.reason, answer.text) == (EndReason.ANSWERED, "ok")
    assert {result.text for result in results_of(answer.turn)} == {"launched"}
    assert given == [30.0] * calls


async def test_time_in_which_no_process_ran_a_turn_is_not_counted(store: Store) -> None:
    clock = FrozenClock()
    model = ScriptedModel(ModelUnavailable("gone"), "back")
    agent = Agent(model, [add], store=store, limits=Limits(deadline_s=60))
    agent.runtime.clock = agent.runtime.monotonic = clock
    with pytest.raises(ModelUnavailable):
        await agent.ask("go")
    clock.advance(86_400)
    [summary] = await store.turns()
    assert (await agent.resume(summary.id)).text == "back"


async def test_an_approver_that_fails_is_a_no_and_leaves_the_siblings_alone(store: Store) -> None:
    async def approve(request: NeedsApproval) -> Approval:
        raise ConnectionError("the console is gone")

    @tool(requires_confirmation=True)
    async def launch() -> str:
        """Launch."""
        raise AssertionError("must not run")

    agent = Agent(
        ScriptedModel([call("launch"), call("add", a=1, b=1)], "ok"), [launch, add], store=store, approve=approve
    )
    answer = await agent.ask("go")
    no, two = results_of(answer.turn)
    assert "the console is gone" in no.text
    assert two.text == "2"


async def test_a_turn_that_a_watcher_or_a_model_breaks_can_be_resumed(store: Store) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError("watcher")

    def buggy(request: Any) -> str:
        raise ZeroDivisionError

    agent = Agent(ScriptedModel(buggy, "fine"), [add], store=store)
    with pytest.raises(RuntimeError):
        await agent.ask("one", on_event=broken)
    with pytest.raises(ZeroDivisionError):
        await agent.ask("two")
    assert {turn.state for turn in await store.turns()} == {"interrupted"}
    assert (await agent.resume((await store.turns())[0].id)).text == "fine"


async def test_a_budget_holds_for_a_model_that_does_not_count(store: Store) -> None:
    model = ScriptedModel(says("x" * 4000, call("add", a=1, b=1)), "never")
    answer = await Agent(model, [add], store=store, limits=Limits(tokens=500)).ask("go")
    assert answer.reason is EndReason.TOKEN_BUDGET
    assert answer.usage.output_tokens >= 1000


async def test_a_second_waiter_gets_the_result_of_a_call_that_its_caller_gave_up(store: Store) -> None:
    began = asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        began.set()
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel(), [hang], store=store)
    turn = await agent._begin(await agent._make_turn("hang", ""))
    named = type(call("hang"))("hang", {}, id="c1")
    first = asyncio.create_task(agent.runtime.execute(named, turn))
    await asyncio.wait_for(began.wait(), BOUND_S)
    second = asyncio.create_task(agent.runtime.execute(named, turn))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(BOUND_S):
        assert (await second).status is Status.CANCELED


async def test_a_deadline_ends_a_turn_whose_model_is_slow() -> None:
    class Slow(ScriptedModel):
        async def ask(self, *args: Any, **kwargs: Any) -> Reply:
            await asyncio.Event().wait()
            return Reply()

    async with asyncio.timeout(BOUND_S):
        answer = await Agent(Slow(), limits=Limits(deadline_s=0.02)).ask("go")
    assert answer.reason is EndReason.DEADLINE


def test_events_are_frozen_and_known() -> None:
    assert {ApprovalAsked, Noted} <= set(Event.__args__)


async def test_a_tool_that_goes_away_during_a_turn_stays_listed_and_is_temporarily_unavailable() -> None:
    agent: Agent

    def gone(request: Request) -> ToolCall:
        agent.change_tools(Toolbox.of(add))
        return call("vanishing")

    @tool
    def vanishing() -> str:
        """Be there for a while."""
        return "here"

    model = ScriptedModel(call("vanishing"), gone, "done")
    agent = Agent(model, [add, vanishing])
    answer = await agent.ask("go")
    here, away = results_of(answer.turn)
    assert (here.text, away.ok) == ("here", False)
    assert "temporarily unavailable" in away.text
    assert [[one.name for one in request.tools] for request in model.requests] == [["add", "vanishing"]] * 3
