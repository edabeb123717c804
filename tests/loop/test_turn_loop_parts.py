"""The runner of turns by itself: what a model is asked, what is counted, and how a turn is left."""

import asyncio
import time
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import pytest
from msgspec.structs import replace

from tests.loop.test_dispatched_calls import Fleet, far
from toolwire import Agent, Approval, Context, Grant, Limits, MemoryStore, Tier, ToolResult, tool
from toolwire.errors import StoreUnavailable, Suspended
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.hub.event_hub import EventHub
from toolwire.protocol.budgets import Budget
from toolwire.protocol.calls import Allowed, Text, ToolCall
from toolwire.protocol.chat import Note, Reply, Request, TextDelta, Usage
from toolwire.protocol.events import (
    Event,
    ModelAsked,
    ModelReplied,
    Noted,
    TurnEnded,
    TurnStarted,
    TurnWaiting,
)  # fmt: skip
from toolwire.protocol.outcomes import Status
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record.contract import TurnStats, UsageRequest
from toolwire.testing import FrozenClock, ScriptedModel, call, says


@tool
async def paint(colour: str = "red") -> str:
    """Paint."""
    return colour


class Noting(MemoryStore):
    """Notes how turns end, and how they are left."""

    def __init__(self) -> None:
        super().__init__()
        self.stats: list[TurnStats] = []
        self.left: list[Turn] = []

    async def end(self, turn: Turn, stats: TurnStats) -> None:
        self.stats.append(stats)
        await super().end(turn, stats)

    async def release(self, turn: Turn) -> None:
        self.left.append(turn)
        await super().release(turn)


def of(events: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


# What is counted


class Bench:
    """Says of every call that it took very long."""

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        await asyncio.sleep(0)  # the others begin
        return ToolResult(context.call_id, allowed.tool.name, Status.SUCCESS, (Text("done"),), elapsed_ms=100_000.0)

    async def close(self) -> None:
        """There is nothing to let go of."""


async def test_times_are_in_milliseconds_and_no_longer_than_it_took() -> None:
    """Calls that ran at once saved what they took together, apart from the time that the step took."""
    store, events, began = Noting(), list[Event](), perf_counter()
    model = ScriptedModel([call("paint"), call("paint"), call("paint")], call("paint"), [call("paint")] * 2, "Done.")
    agent = Agent(model, [paint], store=store, executor=Bench(), limits=Limits(repeats=9))
    await agent.ask("Paint", on_event=events.append)
    took_ms = (perf_counter() - began) * 1000
    [stats], [ended] = store.stats, of(events, TurnEnded)
    replied_ms = [event.elapsed_ms for event in of(events, ModelReplied)]
    assert (stats.batches, stats.max_concurrency, stats.calls, stats.iterations) == (2, 3, 6, 4)
    assert 500_000 - took_ms <= stats.saved_ms < 500_000
    assert 0 < stats.duration_ms == ended.elapsed_ms <= took_ms
    assert all(one > 0 for one in replied_ms)
    assert sum(replied_ms) <= ended.elapsed_ms


async def test_what_people_took_is_no_work_of_a_batch() -> None:
    store, clock, began = Noting(), FrozenClock(), perf_counter()

    async def yes(_: Any) -> Approval:
        clock.advance(50.0)
        return Approval(granted=True, by="ann")

    @tool(requires_confirmation=True, tier=Tier.WALK)
    async def launch() -> str:
        """Launch."""
        return "gone"

    model = ScriptedModel([call("launch"), call("paint")], "Done.")
    agent = Agent(model, [launch, paint], store=store, approve=yes, executor=Bench())
    agent.runtime.monotonic = clock
    answer = await agent.ask("Launch")
    [stats] = store.stats
    assert 250_000 - (perf_counter() - began) * 1000 <= stats.saved_ms < 250_000
    assert (answer.turn.waited_s, stats.wall_s) == (50.0, 0.0)


async def test_a_turn_says_what_it_used_and_where_it_failed() -> None:
    @tool
    def burn() -> str:
        """Burn."""
        raise ValueError("smoke")

    store = Noting()
    usage = Usage(10, 4, cost_usd=0.5)
    model = ScriptedModel(says("", call("burn"), usage=usage), says("Smoke.", usage=usage))
    await Agent(model, [burn], store=store).ask("Burn")
    [stats] = store.stats
    assert (stats.calls, stats.failed_calls, stats.input_tokens, stats.output_tokens) == (1, 1, 20, 8)
    assert (stats.cost_usd, stats.formats, stats.batches) == (1.0, (), 0)


# What the model is asked


async def test_a_model_is_asked_with_the_settings_of_its_agent_and_tells_its_words() -> None:
    events: list[Event] = []
    model = ScriptedModel("Hello.")
    model.losses = lambda tools: tuple(f"no examples of {one.name}" for one in tools)  # type: ignore[attr-defined]
    await Agent(model, [paint], system="Be kind.", max_tokens=77, temperature=0.3).ask("Hi", on_event=events.append)
    [request] = model.requests
    assert (request.max_tokens, request.temperature, request.system, request.tools_off) == (77, 0.3, "Be kind.", False)
    assert [one.name for one in request.tools] == ["paint"]
    [started] = of(events, TurnStarted)
    assert (started.question, started.tools, started.resumed) == ("Hi", ("paint",), False)
    assert started.lost == ("no examples of paint",)
    assert [event.iteration for event in of(events, ModelAsked)] == [1]
    assert [event.iteration for event in of(events, ModelReplied)] == [1]
    assert of(events, TextDelta)


async def test_without_a_watcher_of_its_own_a_model_streams_only_for_those_who_want_that() -> None:
    class Model(ScriptedModel):
        streamed: list[bool]

        async def ask(self, request: Request, on_delta: Any = None) -> Reply:
            self.streamed = [*getattr(self, "streamed", []), on_delta is not None]
            return await super().ask(request, on_delta)

    for deltas, streams in ((True, True), (False, False)):
        hub, seen = EventHub(), list[Any]()
        hub.watch(seen.append, deltas=deltas)
        model = Model("Hello.")
        await Agent(model, events=hub).ask("Hi")
        assert (model.streamed, bool(seen)) == ([streams], True)
    model = Model("Hello.")
    await Agent(model).ask("Hi")
    assert model.streamed == [False]


async def test_a_model_that_can_be_shown_few_tools_gets_the_likeliest() -> None:
    others = [replace(paint, name=f"other_{n}", description="Something else.") for n in range(9)]
    for most, shown in ((None, 10), (2, 2)):
        model = ScriptedModel("Hello.", most_tools=most)
        await Agent(model, [*others, paint]).ask("Paint the wall red")
        names = [one.name for one in model.requests[0].tools]
        assert (len(names), "paint" in names) == (shown, True)


async def test_a_turn_that_must_end_with_a_tool_it_is_not_offered_ends_at_once() -> None:
    store, events = Noting(), list[Event]()
    model = ScriptedModel()
    limits = Limits(must_end_with=("submit", "hand_in"))
    answer = await Agent(model, [paint], store=store, limits=limits).ask("Go", on_event=events.append)
    assert answer.text == "This turn must end with submit or hand_in, which it is not offered."
    assert (answer.reason, model.requests) == (EndReason.MUST_END_WITH, [])
    assert [type(event) for event in events] == [TurnStarted, TurnEnded]

    offered = ScriptedModel("Words.", call("paint"), "Words.", "Words.", "Words.", "Words.")
    limits = Limits(must_end_with=("paint",), iterations=2)
    await Agent(offered, [paint, replace(paint, name="other")], limits=limits).ask("Go")
    last = offered.requests[-1]
    assert ([one.name for one in last.tools], last.tools_off) == (["paint"], False)
    assert [one.name for one in offered.requests[0].tools] == ["paint", "other"]


async def test_on_its_last_step_a_turn_is_not_offered_tools_unless_it_must_end_with_one() -> None:
    events: list[Event] = []
    model = ScriptedModel(call("paint"), "Red.")
    answer = await Agent(model, [paint], limits=Limits(iterations=2)).ask("Paint", on_event=events.append)
    assert [request.tools_off for request in model.requests] == [False, True]
    assert [event.closing for event in of(events, ModelAsked)] == [None, EndReason.ITERATION_LIMIT]
    assert answer.turn.iterations == 2


async def test_a_conversation_is_told_as_it_was_when_its_turn_began() -> None:
    """The second turn of a thread sends what was said before, its own question, and what has happened since."""
    store = MemoryStore()
    await Agent(ScriptedModel("Hello."), store=store).ask("Hi", thread="shed")
    model = ScriptedModel(call("paint"), "Red.")
    answer = await Agent(model, [paint], store=store).ask("Paint", thread="shed")
    first, second = (request.messages for request in model.requests)
    assert [type(one).__name__ for one in first] == ["UserMessage", "Reply", "UserMessage"]
    assert second == answer.turn.messages[:-1]
    assert second[: len(first)] == first


async def test_calls_that_repeat_themselves_are_noticed_unless_their_tool_polls() -> None:
    for polling, warned in ((False, 1), (True, 0)):
        one, model = replace(paint, polling=polling), ScriptedModel(call("paint"), call("paint"), "Red.")
        events: list[Event] = []
        answer = await Agent(model, [one]).ask("Paint", on_event=events.append)
        notes = [said for said in answer.turn.messages if isinstance(said, Note)]
        assert len(notes) == len(of(events, Noted)) == warned
    model = ScriptedModel(call("gone"), call("gone"), "Nothing.")
    answer = await Agent(model, [paint]).ask("Paint")
    assert [said for said in answer.turn.messages if isinstance(said, Note)], "a tool that is not known does not poll"


async def test_a_reply_that_is_no_answer_is_told_so_and_watchers_hear_of_it() -> None:
    events: list[Event] = []
    answer = await Agent(ScriptedModel("", "Hello.")).ask("Hi", on_event=events.append)
    [noted] = of(events, Noted)
    assert (answer.text, "Your reply was empty" in noted.text) == ("Hello.", True)


async def test_calls_of_the_last_step_are_not_run_nor_kept() -> None:
    store = Noting()
    model = ScriptedModel(call("paint"), says("Red.", call("paint")))
    answer = await Agent(model, [paint], store=store, limits=Limits(iterations=2)).ask("Paint")
    assert (answer.text, answer.reason) == ("Red.", EndReason.ITERATION_LIMIT)
    assert len(await store.calls(turn_id=answer.turn_id)) == 1
    replies = [said for said in (await store.turn(answer.turn_id)).events if isinstance(said, Reply)]
    assert [len(reply.calls) for reply in replies] == [1, 0]


async def test_of_too_many_calls_the_first_run_and_the_others_are_left_out() -> None:
    for reply, ran, calls in (
        (says("", *[call("paint", colour=str(n)) for n in range(5)]), 2, 3),
        (says("", *[call("paint", colour=str(n)) for n in range(2)]), 2, 2),
        (replace(says("", call("paint")), left_out=7), 0, 1),
    ):
        store = Noting()
        await Agent(ScriptedModel(reply, "Done."), [paint], store=store, limits=Limits(calls_per_step=2)).ask("Go")
        cards = await store.calls()
        assert sum(card.result is not None and card.result.ok for card in cards) == ran
        assert len(cards) <= calls


async def test_a_model_that_does_not_count_is_counted_for_a_turn_with_a_limit_of_tokens() -> None:
    for limits, usage, counts in (
        (Limits(tokens=100_000), Usage(), True),
        (Limits(), Usage(), False),
        (Limits(tokens=100_000), Usage(7, 5), False),
    ):
        answer = await Agent(ScriptedModel(says("Hello.", usage=usage)), limits=limits).ask("Hi")
        assert (answer.usage != usage) is counts


async def test_how_a_model_speaks_is_tallied_where_its_formats_are_known_and_it_has_tools() -> None:
    class Formats:
        definition_format = "native"

    for tools, known, tallied in (([paint], True, [2]), ([], True, []), ([paint], False, [])):
        store, model = Noting(), ScriptedModel(*([call("paint")] if tools else []), "Red.")
        if known:
            model.formats = Formats()  # type: ignore[attr-defined]
        await Agent(model, tools, store=store).ask("Paint")
        assert [one.replies for one in store.stats[0].formats] == tallied
    store, model = Noting(), ScriptedModel(call("paint"), "Red.")
    model.formats = Formats()  # type: ignore[attr-defined]
    await Agent(model, [paint], store=store, limits=Limits(iterations=2)).ask("Paint")
    [one] = store.stats[0].formats
    assert (one.replies, one.model, one.offered) == (1, "scripted:test", "native"), "the last step offers no tools"


async def test_only_tools_that_the_model_was_offered_are_called() -> None:
    """It may be shown few of them, and on its last step only those that the turn must end with."""
    other = replace(paint, name="other", description="Something else.")
    few = ScriptedModel(call("other"), "Done.", most_tools=1)
    answer = await Agent(few, [other, paint], store=(store := Noting())).ask("Paint the wall")
    assert [one.name for one in few.requests[0].tools] == ["paint"]
    [card] = await store.calls(turn_id=answer.turn_id)
    assert card.result is not None
    assert not card.result.ok

    limits = Limits(must_end_with=("paint",), iterations=2)
    last = ScriptedModel(call("other"), call("other"), call("paint"))
    answer = await Agent(last, [other, paint], store=(store := Noting()), limits=limits).ask("Go")
    cards = sorted(await store.calls(turn_id=answer.turn_id), key=lambda card: card.step)
    assert [card.result and card.result.ok for card in cards] == [True, False, True]
    assert (answer.reason, answer.text) == (EndReason.DELIVERED, "red")


# What a turn may use


async def test_a_deadline_ends_a_turn_whose_model_speaks_too_long_and_no_other() -> None:
    class Thinks(ScriptedModel):
        async def ask(self, request: Request, on_delta: Any = None) -> Reply:
            if self.requests:
                await asyncio.Event().wait()
            return await super().ask(request, on_delta)

    class Gives(ScriptedModel):
        async def ask(self, request: Request, on_delta: Any = None) -> Reply:
            raise TimeoutError("of the model's own")

    for script, said in ((says("So far.", call("paint")), "So far."), (call("paint"), "The time was up")):
        clock = FrozenClock()
        agent = Agent(Thinks(script), [paint], limits=Limits(deadline_s=0.02))
        async with asyncio.timeout(5):
            answer = await agent.ask("Think")
        assert answer.reason is EndReason.DEADLINE
        assert answer.text.startswith(said) or said == "The time was up"
    with pytest.raises(TimeoutError, match="of the model's own"):
        await Agent(Gives(), limits=Limits(deadline_s=60)).ask("Think")

    clock = FrozenClock()

    @tool
    def late() -> str:
        """Take long."""
        clock.advance(100)
        return "late"

    for limits, reason in ((Limits(deadline_s=50), EndReason.DEADLINE), (Limits(), EndReason.ANSWERED)):
        agent = Agent(ScriptedModel(call("late"), "Done."), [late], limits=limits)
        agent.runtime.monotonic = clock
        assert (await agent.ask("Go")).reason is reason


async def test_the_budget_of_a_day_is_kept_to_in_calls_tokens_and_money() -> None:
    """What an answer may use is reserved before the model is asked, and settled by its reply."""
    store = Noting()
    model = ScriptedModel([call("paint"), call("paint", colour="blue")], "Red.")
    answer = await Agent(model, [paint], store=store, budget=Budget(calls=1)).ask("Paint")
    results = [card.result for card in await store.calls(turn_id=answer.turn_id) if card.result]
    assert sorted(result.ok for result in results) == [False, True]

    class Reserving(Noting):
        asked: list[UsageRequest]

        async def reserve_usage(self, turn: Turn, wanted: UsageRequest) -> bool:
            self.asked = [*getattr(self, "asked", []), wanted]
            return await super().reserve_usage(turn, wanted)

    for budget, reserves in ((Budget(tokens=100_000), True), (Budget(calls=9), False)):
        store = Reserving()
        usage = Usage(10, 5, cost_usd=0.5)
        agent = Agent(ScriptedModel(says("Hello.", usage=usage)), store=store, budget=budget)
        await agent.ask("Hi")
        assert len(getattr(store, "asked", [])) == int(reserves)
        assert (await store.spent("agent", time.time())).tokens == 15, "no more is reserved"
        assert agent.runtime.rates == {"scripted:test": 0.5 / 15}
    clock = FrozenClock()

    class Reserved(Noting):
        async def reserve_usage(self, turn: Turn, wanted: UsageRequest) -> bool:
            clock.advance(1_000_000)
            return False

    model = ScriptedModel()
    agent = Agent(model, store=Reserved(), budget=Budget(tokens=5))
    agent.runtime.monotonic = clock
    answer = await agent.ask("Hi")
    assert (answer.reason, model.requests) == (EndReason.TOKEN_BUDGET, []), "others have reserved what is left"


async def test_a_turn_makes_no_more_calls_than_its_grant_allows() -> None:
    model = ScriptedModel([call("paint"), call("paint", colour="blue")], "Red.")
    agent = Agent(model, [paint], grant=Grant(Tier.RUN, max_calls=1), budget=Budget(calls=9), store=(store := Noting()))
    await agent.ask("Paint")
    results = [card.result for card in await store.calls() if card.result]
    assert sorted(result.ok for result in results) == [False, True]


# Steering


async def test_a_model_reads_what_a_call_that_runs_on_its_own_has_written_before_its_next_step() -> None:
    @tool
    async def measure(context: Context) -> str:
        """Measure."""
        agent.runtime.shown_output.add(context.turn_id, ToolCall("other", {}, "x"), "21 °C")
        return "measured"

    model, events = ScriptedModel(call("measure"), "Warm."), list[Event]()
    agent = Agent(model, [measure])
    answer = await agent.ask("Measure", on_event=events.append)
    [note] = [said for said in model.requests[1].messages if isinstance(said, Note)]
    assert ("21 °C" in note.text, [event.text for event in of(events, Noted)]) == (True, [note.text])
    assert [said for said in answer.turn.messages if isinstance(said, Note)] == [note]


async def test_who_intervenes_speaks_or_stops_and_takes_no_time_of_the_turn() -> None:
    clock, events = FrozenClock(), list[Event]()
    words: list[str | Ending | None] = ["Make it blue.", None, Ending(EndReason.STOPPED, "Enough.")]

    async def intervene(_: Turn) -> str | Ending | None:
        clock.advance(5.0)
        return words.pop(0)

    model = ScriptedModel(call("paint"), call("paint", colour="blue"))
    agent = Agent(model, [paint], intervene=intervene)
    agent.runtime.monotonic = clock
    answer = await agent.ask("Paint", on_event=events.append)
    assert (answer.text, answer.reason, answer.turn.waited_s) == ("Enough.", EndReason.STOPPED, 15.0)
    assert [event.text for event in of(events, Noted)] == ["Make it blue."]
    assert [one.text for one in model.requests[0].messages if isinstance(one, Note)] == ["Make it blue."]
    assert len(model.requests) == 2


# How a turn is left


async def test_a_turn_that_goes_on_stands_as_it_was_left() -> None:
    """With its replies, results and notes; what it had made calls for is run, and what was told is not told again."""

    async def intervene(turn: Turn) -> str | None:
        return "Make it blue." if turn.iterations == 1 else None

    store = Noting()
    broken = Agent(ScriptedModel(call("paint")), [paint], store=store, intervene=intervene)
    with pytest.raises(Exception, match="the script has 1 lines"):
        await broken.ask("Paint")
    [left] = store.left
    model = ScriptedModel(call("paint"), "Red.")
    answer = await Agent(model, [paint], store=store).resume(left.id)
    assert [said.text for said in model.requests[0].messages if isinstance(said, Note)] == ["Make it blue."]
    assert (answer.turn.calls, answer.turn.iterations, answer.text) == (2, 3, "Red.")
    assert answer.turn.warned, "the same call was made before it was left"


class Spans:
    """Hears of turns that are left."""

    def __init__(self) -> None:
        self.left: list[tuple[str, str]] = []

    def observe(self, turn: Turn, event: Event, at: float) -> None: ...

    def interrupted(self, turn: Turn, error: BaseException) -> None:
        self.left.append((turn.id, str(error)))

    def current_trace(self) -> Any:
        return Turn("x").trace

    def trace_of(self, turn: Turn, call_id: str = "") -> Any:
        return turn.trace


async def test_a_turn_that_cannot_go_on_is_released_with_what_it_waits_for_or_told_as_interrupted() -> None:
    @tool
    async def delegate(context: Context) -> str:
        """Delegate."""
        raise Suspended("child", ())

    for waits in (True, False):
        store, spans, events = Noting(), Spans(), list[Event]()
        script = [call("delegate")] if waits else []
        agent = Agent(ScriptedModel(*script), [delegate], store=store, events=EventHub(telemetry=spans))
        with pytest.raises(Suspended if waits else Exception) as raised:
            await agent.ask("Go", on_event=events.append)
        [left] = store.left
        told = of(events, TurnWaiting)
        assert len(left.waits) == len(told) == int(waits)
        assert [turn_id for turn_id, _ in spans.left] == ([] if waits else [left.id])
        if isinstance(raised.value, Suspended):
            assert (left.waits, told[0].waits, told[0].turn_id) == (raised.value.waits, raised.value.waits, left.id)
        resumed: list[Event] = []
        with pytest.raises(Suspended if waits else Exception):
            await Agent(ScriptedModel(), [delegate], store=store).resume(left.id, on_event=resumed.append)
        assert of(resumed, TurnStarted)[0].resumed


async def test_time_of_people_is_kept_of_a_turn_that_is_left_in_mid_step() -> None:
    clock, store = FrozenClock(), Noting()

    async def late(_: Any) -> Approval:
        clock.advance(9.0)
        return Approval(granted=True, by="ann")

    @tool(requires_confirmation=True)
    async def launch() -> str:
        """Launch."""
        raise Suspended("child", ())

    agent = Agent(ScriptedModel(call("launch")), [launch], store=store, approve=late)
    agent.runtime.monotonic = clock
    with pytest.raises(Suspended):
        await agent.ask("Launch")
    [left] = store.left
    assert left.waited_s == 9.0


async def test_calls_that_a_stopped_turn_has_not_run_are_ended_with_it() -> None:
    clock, store = FrozenClock(), Noting()

    class Late(ScriptedModel):
        async def ask(self, request: Request, on_delta: Any = None) -> Reply:
            clock.advance(100)
            return await super().ask(request, on_delta)

    agent = Agent(Late([call("paint"), call("paint")]), [paint], store=store, limits=Limits(deadline_s=50))
    agent.runtime.monotonic = clock
    answer = await agent.ask("Paint")
    cards = await store.calls(turn_id=answer.turn_id)
    assert (answer.reason, answer.turn.pending) == (EndReason.DEADLINE, ())
    assert [card.result and card.result.status for card in cards] == [Status.CANCELED] * 2


async def test_what_is_being_written_while_calls_are_sent_is_waited_for() -> None:
    fleet = Fleet()
    executor = Router(InProcessExecutor(), edge=fleet)
    for stopped in (True, False):
        clock, store = FrozenClock(), Noting()

        class Late(ScriptedModel):
            async def ask(self, request: Request, on_delta: Any = None) -> Reply:
                clock.advance(100 if stopped else 0)  # noqa: B023 -- it is asked within the round
                return await super().ask(request, on_delta)

        agent = Agent(Late(call("launch")), [far()], store=store, executor=executor, limits=Limits(deadline_s=50))
        agent.runtime.monotonic = clock
        if stopped:
            answer = await agent.ask("Launch")
            assert (answer.reason, fleet.sent) == (EndReason.DEADLINE, [])
        else:
            with pytest.raises(Suspended):
                await agent.ask("Launch")
            assert len(fleet.sent) == 1
        [card] = await store.calls()
        assert (card.result is not None) is stopped


async def test_calls_are_sent_while_they_are_written_down_unless_a_budget_may_refuse_them() -> None:
    class Slow(Noting):
        sent = -1

        async def append_reply(self, *given: Any, **named: Any) -> Any:
            for _ in range(5):
                await asyncio.sleep(0)
            self.sent = len(fleet.sent)
            return await super().append_reply(*given, **named)

    for budget, sent in ((None, 1), (Budget(calls=5), 0)):
        fleet, store = Fleet(), Slow()
        executor = Router(InProcessExecutor(), edge=fleet)
        with pytest.raises(Suspended):
            await Agent(ScriptedModel(call("launch")), [far()], store=store, executor=executor, budget=budget).ask("Go")
        assert (store.sent, len(fleet.sent)) == (sent, 1)


async def test_a_store_that_cannot_release_a_turn_hides_nothing() -> None:
    class Away(Noting):
        async def release(self, turn: Turn) -> None:
            raise StoreUnavailable("away")

    with pytest.raises(Exception, match="the script has 0 lines"):
        await Agent(ScriptedModel(), store=Away()).ask("Go")
