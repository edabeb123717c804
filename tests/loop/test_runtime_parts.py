"""The hub's verbs by themselves: single calls, replies that are written down, steps, and what is left at the end."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.loop.test_dispatched_calls import Fleet, far
from tests.loop.test_journey_parts import (
    DAY,
    DETACHES,
    Bench,
    House,
    Never,
    Noting,
    allowed,
    done,
    ordered,
    paint,
    staying,
    yes,
)
from toolwire import Code, Grant, Limits, MemoryStore, Tier, Toolbox, ToolResult, tool
from toolwire.define.canonical import digest
from toolwire.errors import NotFound, StoreUnavailable, Suspended
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.hub.calls import Accepted
from toolwire.hub.runtime import Runtime
from toolwire.hub.slots import Slots
from toolwire.protocol.budgets import Spending
from toolwire.protocol.calls import Allowed, Denied, NeedsApproval, ToolCall
from toolwire.protocol.chat import Reply
from toolwire.protocol.context import Context
from toolwire.protocol.events import CallFinished, CallStarted, Event
from toolwire.protocol.outcomes import Status
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.tools import Edge, Effect, Tool
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import ForResult, ForTurn
from toolwire.record.contract import Reservation

TURN = Turn("t", agent="ann", grant=Grant(Tier.RUN))


def runtime_of(*tools: Tool, store: MemoryStore | None = None, **more: Any) -> Runtime:
    bench = more.pop("executor", None) or Bench()
    return Runtime(Toolbox.of(*tools), store or Noting(), executor=bench, clock=lambda: DAY, **more)


def sending(fleet: Fleet, *tools: Tool, store: MemoryStore | None = None) -> Runtime:
    return runtime_of(*tools, store=store, executor=Router(InProcessExecutor(), edge=fleet))


def refuse(card: CallCard, spent: Spending) -> tuple[CallCard, AuditRow]:
    result = ToolResult.failed(card.call, Code.PERMISSION_DENIED, f"The day has had {spent.calls} calls.")
    return replace(card, result=result), AuditRow.about(card, "denied", DAY, "budget", result)


def no_more_than(most: int) -> Reservation:
    return Reservation(most, ("ann",), refuse)


# The tools of a turn


def test_turns_with_the_same_grant_are_offered_the_same_tools_until_these_change() -> None:
    @tool(tier=Tier.RUN)
    def launch() -> str:
        """Launch."""
        return "gone"

    runtime = runtime_of(paint, launch)
    first = runtime.offer(TURN)
    assert sorted(one.name for one in first) == ["launch", "paint"]
    assert runtime.offer(replace(TURN, id="u")) is first
    assert [one.name for one in runtime.offer(replace(TURN, grant=Grant(Tier.WALK)))] == ["paint"]
    assert runtime.offer(replace(TURN, limits=Limits(tools_enabled=False))) == ()
    runtime.offer(TURN)
    runtime.change_tools(Toolbox.of(launch))
    assert [one.name for one in runtime.offer(TURN)] == ["launch"]


# A single call


async def test_the_same_call_at_the_same_time_runs_once_and_again_when_the_first_was_given_up() -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def act(*_: Any) -> str:
        reached.set()
        await go_on.wait()
        return "painted"

    safe = replace(paint, effect=Effect.PURE)
    call = ToolCall("paint", {}, "c")
    for canceled in (False, True):
        bench, events = Bench(act), list[Event]()
        reached.clear()
        go_on.clear()
        runtime = runtime_of(safe, executor=bench)
        await runtime.store.begin(TURN)
        first = asyncio.create_task(runtime.execute(call, TURN, events.append))
        async with asyncio.timeout(5):
            await reached.wait()
            second = asyncio.create_task(runtime.execute(call, TURN))
            await asyncio.sleep(0)
            assert (len(bench.given), list(runtime.executing)) == (1, [("t", "c")])
            if canceled:
                first.cancel()
                await asyncio.wait((first,))
            go_on.set()
            result = await second
        assert runtime.executing == {}
        if canceled:
            assert (first.cancelled(), result.status) == (True, Status.CANCELED)
        else:
            assert (await first, result.text, len(bench.given)) == (result, "painted", 1)
            assert [type(event) for event in events] == [CallStarted, CallFinished]
        assert await runtime.execute(call, TURN) == result


async def test_a_single_call_that_is_on_record_goes_by_what_is_kept() -> None:
    """It was begun by a process that died, or was written down and never begun."""
    call = ToolCall("paint", {}, "c")
    for attempt, text in ((1, "process that ran it died"), (0, "painted")):
        runtime = runtime_of(paint)
        store = runtime.store
        await store.begin(TURN)
        await store.open(card_of(call, attempt), [])
        assert text in (await runtime.execute(call, TURN)).text
        [row] = [row for row in await store.audit_log(turn_id="t") if row.event == "finished"]
        assert row.call_id == "c"


def card_of(call: ToolCall, attempt: int) -> CallCard:
    """The card of a call; one with an attempt was begun by a process that is dead."""
    card = CallCard("old", "t", 1, call, digest(call.arguments), agent="ann")
    return replace(card, attempt=attempt, owner="dead", until=1.0) if attempt else card


async def test_a_single_call_that_the_day_has_no_room_for_does_not_run() -> None:
    bench = Bench()
    runtime = runtime_of(paint, executor=bench)
    await runtime.store.begin(TURN)
    texts = [
        (await runtime.execute(ToolCall("paint", {}, name), TURN, None, no_more_than(1))).text for name in ("a", "b")
    ]
    assert texts == ["painted", "The day has had 1 calls."]
    assert len(bench.given) == 1
    again = runtime_of(paint, store=runtime.store)  # type: ignore[arg-type]
    assert (await again.execute(ToolCall("paint", {}, "b"), TURN, None, no_more_than(9))).text == texts[1]


class Slow(Noting):
    """Takes some rounds of the loop to write a call down, and notes how many were sent by then."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self.fleet = fleet
        self.sent: list[int] = []

    async def open(self, *given: Any, **named: Any) -> CallCard:
        for _ in range(5):
            await asyncio.sleep(0)
        self.sent.append(len(self.fleet.sent))
        return await super().open(*given, **named)


async def test_a_single_call_is_sent_while_it_is_written_down_unless_that_may_be_refused() -> None:
    """The day may have no room for it; and a turn that was taken over may have it on record already."""
    for turn, reserve, early in ((TURN, None, 1), (replace(TURN, epoch=2), None, 0), (TURN, no_more_than(5), 0)):
        fleet, events = Fleet(), list[Event]()
        runtime = sending(fleet, far(), store=(store := Slow(fleet)))
        await store.begin(turn)
        with pytest.raises(Suspended) as waiting:
            await runtime.execute(ToolCall("launch", {}, "c"), turn, events.append, reserve)
        [(sent, context)] = fleet.sent
        card = await store.call("t", "c")
        assert (sent.call.id, context.record_id, card.attempt, store.sent) == ("c", card.record_id, 0, [early])
        assert waiting.value.waits == (ForResult("c", 1_000.0),)
        assert [row.event for row in await store.audit_log(turn_id="t")] == ["allowed"]
    fleet.is_down = True
    result = await runtime.execute(ToolCall("launch", {}, "d"), TURN)
    assert result.text == "No broker is there."


async def test_a_password_of_a_single_call_is_in_no_result() -> None:
    async def blabs(one: Allowed, _: Context) -> str:
        return str(one.arguments)

    runtime = runtime_of(paint, executor=Bench(blabs))
    await runtime.store.begin(TURN)
    placeholder = "https://u:{{secret:URL_PASSWORD_1}}@example.org"
    result = await runtime.execute(ToolCall("paint", {"colour": placeholder}, "c"), TURN)
    assert result.text, "another process has withheld it"


# Replies


async def accepted(runtime: Runtime, *calls: ToolCall, **more: Any) -> list[Accepted]:
    reply = Reply(calls=calls)
    names = frozenset(one.name for one in runtime.toolbox)
    return await runtime.accept(TURN, reply, names, **more)


async def test_calls_are_on_record_with_their_reply_before_any_of_them_runs() -> None:
    runtime = runtime_of(paint)
    await runtime.store.begin(TURN)
    made = await accepted(runtime, ToolCall("paint", {}, "a"), ToolCall("nothing", {}, "b"))
    assert [type(one.decision) for one in made] == [Allowed, Denied]
    assert [card.call.id for card in await runtime.store.calls(turn_id="t")] == ["a", "b"]
    assert [row.event for row in await runtime.store.audit_log(turn_id="t")] == ["allowed", "denied"]
    assert await accepted(runtime) == []
    assert await accepted(runtime, left_out=3) == []
    assert len((await runtime.store.turn("t")).events) == 3


async def test_the_last_of_too_many_calls_is_refused_for_all_that_were_left_out() -> None:
    runtime = runtime_of(paint)
    await runtime.store.begin(TURN)
    first, last = await accepted(runtime, ToolCall("paint", {}, "a"), ToolCall("paint", {}, "b"), left_out=7)
    assert isinstance(first.decision, Allowed)
    assert isinstance(last.decision, Denied)
    assert (last.decision.left_out, last.card.call.id) == (7, "b")


async def test_calls_that_the_day_has_no_room_for_are_refused_as_they_are_kept() -> None:
    runtime = runtime_of(paint)
    await runtime.store.begin(TURN)
    calls = [ToolCall("paint", {}, name) for name in ("a", "b")]
    first, last = await accepted(runtime, *calls, reserve=no_more_than(1))
    assert (type(first.decision), type(last.decision)) == (Allowed, Denied)
    assert last.card.result is not None
    assert last.card.result.text == "The day has had 1 calls."


async def test_only_where_all_calls_are_sent_and_nothing_is_reserved_they_are_not_waited_for() -> None:
    fly, detaches = far(), replace(far(), after_execution=DETACHES.after_execution, name="leave")
    ask = replace(far(requires_confirmation=True), name="ask")

    def calls(*names: str) -> list[ToolCall]:
        return [ToolCall(name, {}, f"{place}") for place, name in enumerate(names)]

    for asked, reserve, gives, at_once in (
        (calls("launch", "launch"), None, True, True),
        (calls("launch", "paint"), None, True, False),
        (calls("launch", "leave"), None, True, False),
        (calls("launch", "ask"), None, True, False),
        (calls("launch"), no_more_than(5), True, False),
        (calls("launch"), None, False, False),
        ([], None, True, False),
    ):
        runtime = sending(Fleet(), fly, paint, detaches, ask)
        await runtime.store.begin(TURN)
        writing: list[asyncio.Task[Any]] = []
        made = await accepted(runtime, *asked, reserve=reserve, writing=writing if gives else None)
        assert ([one.card.call.id for one in made], len(writing)) == ([one.id for one in asked], int(at_once))
        await asyncio.gather(*writing)
        assert len(await runtime.store.calls(turn_id="t")) == len(asked)
    here = runtime_of(paint)
    await here.store.begin(TURN)
    writing = []
    await accepted(here, ToolCall("paint", {}, "a"), writing=writing)
    assert writing == []


class Grouping(Noting):
    """Changes that come together are made together in it. It notes which may wait."""

    groups_changes = True

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[bool] = []

    async def open(self, *given: Any, may_wait: bool = False, **named: Any) -> CallCard:
        self.waited.append(may_wait)
        return await super().open(*given, **named)

    async def append_reply(self, *given: Any, may_wait: bool = False, **named: Any) -> Sequence[CallCard]:
        self.waited.append(may_wait)
        return await super().append_reply(*given, **named)


async def test_only_replies_whose_calls_all_change_nothing_and_run_here_are_written_down_late() -> None:
    def named(name: str, **more: Any) -> Tool:
        return replace(paint, name=name, **{"effect": Effect.PURE} | more)

    tools = [
        named("look"),
        named("note", effect=Effect.IDEMPOTENT),
        named("ask", requires_confirmation=True),
        named("leave", after_execution=DETACHES.after_execution),
        named("reach", target=Edge("site")),
    ]
    for names, reserve, waits in (
        (["look", "look"], None, True),
        (["look", "note"], None, False),
        (["ask", "look"], None, False),
        (["look", "leave"], None, False),
        (["look", "reach"], None, False),
        (["look", "nothing"], None, False),
        (["look"], no_more_than(5), False),
    ):
        runtime, writing = runtime_of(*tools, store=(store := Grouping())), list[asyncio.Task[Any]]()
        await store.begin(TURN)
        calls = [ToolCall(name, {}, f"{place}") for place, name in enumerate(names)]
        await accepted(runtime, *calls, reserve=reserve, writing=writing)
        assert (store.waited, len(writing)) == ([waits], int(waits))
        await asyncio.gather(*writing)
    await accepted(runtime, ToolCall("look", {}, "again"))
    assert store.waited == [False, False], "it is waited for"
    quick = runtime_of(*tools)
    await quick.store.begin(TURN)
    await accepted(quick, ToolCall("look", {}, "0"), writing=writing)
    assert len(writing) == 0, "nothing takes long there"


async def test_only_a_single_call_whose_turn_begins_with_it_is_written_down_late() -> None:
    look = replace(paint, name="look", effect=Effect.PURE)
    for name, begins, reserve, waits in (
        ("look", TURN, None, True),
        ("look", None, None, False),
        ("look", TURN, no_more_than(5), False),
        ("paint", TURN, None, False),
    ):
        runtime = runtime_of(look, paint, store=(store := Grouping()))
        if begins is None:
            await store.begin(TURN)
        result = await runtime.execute(ToolCall(name, {}, "c"), TURN, None, reserve, begins=begins)
        assert (result.text, store.waited) == ("painted", [waits])


async def test_what_is_sent_while_it_is_written_down_is_tried_again_once_it_is_on_record() -> None:
    """Its turn hears of what went wrong with the writing first."""

    class Late(Fleet):
        async def dispatch(self, allowed: Allowed, context: Context) -> Any:
            if not self.is_down:
                self.is_down = True
                raise NotFound("no such call")
            self.is_down = False
            return await super().dispatch(allowed, context)

    fleet = Late()
    runtime = sending(fleet, far())
    written = asyncio.Event()

    async def writes() -> None:
        written.set()

    await runtime.store.begin(TURN)
    [one] = await accepted(runtime, ToolCall("launch", {}, "c"))
    with pytest.raises(Suspended):
        await runtime.run_early(asyncio.create_task(writes()), TURN, [one], Slots(1))
    assert (written.is_set(), len(fleet.sent)) == (True, 1)

    async def fails() -> None:
        raise StoreUnavailable("the writing failed")

    again = sending(Fleet(), far())
    await again.store.begin(TURN)
    [one] = await accepted(again, ToolCall("launch", {}, "c"))
    with pytest.raises(StoreUnavailable, match="the writing failed"):
        await again.run_early(asyncio.create_task(fails()), TURN, [one], Slots(1))


async def test_a_process_that_goes_on_with_a_turn_takes_its_calls_up_as_they_are_on_record() -> None:
    runtime = runtime_of(paint)
    store = runtime.store
    await store.begin(TURN)
    await accepted(runtime, ToolCall("paint", {}, "new"))
    begun = replace(card_of(ToolCall("paint", {}, "begun"), 1), record_id="old-1")
    idle = replace(card_of(ToolCall("paint", {}, "idle"), 0), record_id="old-2")
    for card in (begun, idle):
        await store.open(card, [])
    pending = tuple(ToolCall("paint", {}, name) for name in ("begun", "idle", "unheard"))
    turn = replace(TURN, pending=pending)
    reopened = await runtime.reopen(turn, frozenset({"paint"}))
    assert [(one.card.call.id, one.interrupted) for one in reopened] == [
        ("begun", True), ("idle", False), ("unheard", False),
    ]  # fmt: skip
    assert [one.card.record_id for one in reopened][:2] == ["old-1", "old-2"]
    assert await runtime.reopen(replace(TURN, pending=()), frozenset()) == []


# A step


async def test_the_results_of_a_step_come_in_the_order_of_its_calls_unless_one_waits() -> None:
    async def act(one: Allowed, _: Context) -> str:
        if one.call.id == "waits":
            raise Suspended("child", ())
        return one.call.id

    results = await House(act).run(allowed(call_id="a"), allowed(call_id="b"))
    assert [result.text for result in results] == ["a", "b"]
    house = House(act)
    with pytest.raises(Suspended) as waiting:
        await house.run(allowed(call_id="a"), allowed(call_id="waits"), allowed(call_id="b"))
    assert (waiting.value.turn_id, waiting.value.waits) == ("t", (ForTurn("child"),))
    assert len(house.bench.given) == 3
    [only] = await House(act).run(ordered("a", "a"))
    assert "circular" in only.text


async def test_only_the_same_call_under_the_same_id_takes_effect_once() -> None:
    def named(call_id: str, alias: str | None, **arguments: Any) -> Allowed:
        made = allowed(call_id=call_id, **arguments)
        return replace(made, call=replace(made.call, alias=alias))

    polling = replace(paint, polling=True)

    def polls(call_id: str) -> Allowed:
        return replace(named(call_id, "x"), tool=polling)

    for first, second, ran in (
        (named("a", "x"), named("b", "x"), 1),
        (named("a", None), named("b", None), 2),
        (named("a", "x"), named("b", "y"), 2),
        (polls("a"), polls("b"), 2),
        (NeedsApproval(named("a", "x"), "why", "1"), NeedsApproval(named("b", "x"), "why", "2"), 2),
    ):
        house = House(approve=yes)
        await house.run(first, second)
        assert len(house.bench.given) == ran
    house = House()
    await house.run(named("a", "x"), named("b", "x"), named("c", "x"))
    assert len(house.bench.given) == 1


async def test_a_repetition_that_names_others_before_it_does_not_wait_for_them() -> None:
    house = House()
    again = replace(ordered("b", "a"), call=replace(ordered("b", "a").call, alias="a"))
    results = await house.run(ordered("a"), again)
    assert [result.text for result in results] == ["painted", "painted"]
    assert len(house.bench.given) == 1


async def test_what_a_call_depends_on_may_be_of_an_earlier_step() -> None:
    house = House()
    earlier = Reply(calls=(ToolCall("paint", {}, "z", alias="first"), ToolCall("paint", {}, "y")))
    turn = replace(TURN, messages=(earlier,))
    results = await house.run(ordered("a", "first"), ordered("b", "a"), turn=turn)
    assert [result.text for result in results] == ["painted", "painted"]


async def test_the_first_failure_of_a_step_is_what_is_raised() -> None:
    class Away(Noting):
        async def close(self, card: CallCard, *given: Any, **named: Any) -> ToolResult:
            raise StoreUnavailable(f"away for {card.call.id}")

    with pytest.raises(StoreUnavailable, match="away for a"):
        await House(store=Away()).run(allowed(call_id="a"), allowed(call_id="b"))


async def test_a_stopped_step_with_calls_that_run_elsewhere_waits_for_them() -> None:
    for others in (0, 1):
        house, fleet = staying()
        fleet.arrival = arrival = Never(house, 99, 600.0)
        task = asyncio.create_task(house.run(allowed(far()), *[allowed(far(), f"d{n}") for n in range(1 + others)]))
        async with asyncio.timeout(5):
            await arrival.reached.wait()
            task.cancel()
            with pytest.raises(Suspended) as waiting:
                await task
        assert len(waiting.value.waits) == 2 + others


# The end


async def test_calls_that_will_not_run_any_more_have_a_result_that_says_whether_they_had_begun() -> None:
    runtime = runtime_of(paint)
    await runtime.store.begin(TURN)
    made = await accepted(runtime, *(ToolCall("paint", {}, name) for name in ("a", "b", "c")))
    given = done(made[2].card.call, "earlier")
    begun = replace(made[1], interrupted=True)
    ended = replace(made[2], card=replace(made[2].card, result=given))
    await runtime.abandon([made[0], begun, ended])
    cards = {card.call.id: card.result for card in await runtime.store.calls(turn_id="t")}
    assert [name for name, result in cards.items() if result is None] == ["c"]
    assert ["may have taken effect" in str(cards[name]) for name in ("a", "b")] == [False, True]
    assert (await runtime.store.spent("ann", DAY)).calls == 2


@pytest.mark.parametrize("interrupted", ["", "before", "while closing"])
async def test_what_runs_on_its_own_is_waited_for_at_the_end_and_canceled_for_who_is_interrupted(
    interrupted: str,
) -> None:
    class Closes(Bench):
        closed = 0

        async def close(self) -> None:
            self.closed += 1

    go_on, reached = asyncio.Event(), asyncio.Event()

    async def act(*_: Any) -> str:
        reached.set()
        await go_on.wait()
        return "dry"

    house = House(executor=(bench := Closes(act)))

    async def work() -> None:
        try:
            await house.run(allowed(), agreed=DETACHES)
            if interrupted == "before":
                await asyncio.Event().wait()
        finally:
            await house.runtime.close()

    working = asyncio.create_task(work())
    async with asyncio.timeout(5):
        await reached.wait()
        await asyncio.sleep(0)
        [left] = house.runtime.detached
        assert (working.done(), bench.closed) == (False, 0)
        if interrupted:
            working.cancel()
        else:
            go_on.set()
        await asyncio.wait((working,))
    assert (working.cancelled(), bench.closed, house.runtime.detached) == (bool(interrupted), 1, set())
    assert left.cancelled() is bool(interrupted)
    result = (await house.card()).result
    assert result is not None
    assert result.status is (Status.CANCELED if interrupted else Status.SUCCESS)
