"""Journeys of calls by themselves: trials, waits for other processes, secrets, time that is left, what is told."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from msgspec.structs import replace

from tests.loop.test_dispatched_calls import Fleet, far
from toolwire import Approval, Code, Grant, Limits, MemoryStore, Tier, Toolbox, ToolResult, tool
from toolwire.deliver.secrets import Secret, Secrets
from toolwire.errors import Fenced, NotFound, StoreUnavailable, Suspended
from toolwire.execute.contract import Dispatched
from toolwire.execute.inprocess import DEADLINE_NOTE, InProcessExecutor
from toolwire.execute.resources import Resources, Ticket
from toolwire.execute.router import Router
from toolwire.hub.calls import Accepted
from toolwire.hub.event_hub import EventHub
from toolwire.hub.runtime import Runtime
from toolwire.hub.slots import Slots
from toolwire.protocol.approvals import ApprovalCard
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.calls import Allowed, CallOptions, Decision, Denied, NeedsApproval, Text, ToolCall
from toolwire.protocol.chat import Message, Reply, ResultsMessage
from toolwire.protocol.context import Context
from toolwire.protocol.events import CallFinished, CallProgress, CallStarted, Event, OutputDelta
from toolwire.protocol.outcomes import Status
from toolwire.protocol.policy import TAINTED, Rule, Verdict
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Agreement, Delivery, Edge, Effect, Service, Tool
from toolwire.protocol.tracing import TraceContext
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import ForResult, ForTurn, Wait
from toolwire.record.story import receipt
from toolwire.testing import FrozenClock

TURN = Turn("t", agent="ann", grant=Grant(Tier.RUN, roots=("/w",)))
DETACHES = Agreement(AfterExecution.DETACH)
DAY = 50_000.0
LATE = ForResult("x", 5.0)
Acts = Callable[[Allowed, Context], Awaitable[str | ToolResult]]


@tool
def paint(colour: str = "red", command: str = "") -> str:
    """Paint."""
    raise AssertionError("the bench runs it")


class Bench:
    """Runs every call in the same way, and keeps what it was given."""

    def __init__(self, acts: Acts | None = None) -> None:
        self.acts = acts
        self.given: list[tuple[Allowed, Context]] = []

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        self.given.append((allowed, context))
        said = "painted" if self.acts is None else await self.acts(allowed, context)
        return said if isinstance(said, ToolResult) else done(allowed.call, said)

    async def close(self) -> None:
        """There is nothing to let go of."""


class Noting(MemoryStore):
    """Notes what begins, is claimed and renewed. Some turns are held by no process."""

    def __init__(self) -> None:
        super().__init__(clock=lambda: DAY)
        self.begun: list[str] = []
        self.renewed: list[float | None] = []
        self.claimed: list[float | None] = []
        self.loses: set[str] = set()

    def begins(self, turn_id: str, call_id: str, *, project: str = "default") -> None:
        self.begun.append(call_id)
        super().begins(turn_id, call_id, project=project)

    def holds(self, turn_id: str, *, project: str = "default") -> bool:
        return turn_id not in self.loses and super().holds(turn_id, project=project)

    async def claim(self, card: CallCard, *given: Any, **named: Any) -> CallCard:
        self.claimed.append(named["until"])
        return await super().claim(card, *given, **named)

    async def renew(self, card: CallCard, until: float | None = None) -> CallCard:
        self.renewed.append(until)
        return await super().renew(card, until)


class House:
    """A runtime, what it has told, and the calls of one step."""

    def __init__(self, acts: Acts | None = None, **more: Any) -> None:
        self.store: Noting = more.pop("store", None) or Noting()
        self.bench = Bench(acts)
        self.runtime = Runtime(Toolbox.of(paint), self.store, **{"executor": self.bench, "clock": lambda: DAY, **more})
        self.events: list[Event] = []
        self.slots = Slots(5)

    async def run(
        self, *decisions: Decision, turn: Turn = TURN, interrupted: bool = False, watched: bool = True, **card: Any
    ) -> tuple[ToolResult, ...]:
        calls = [call_of(decision) for decision in decisions]
        cards = [CallCard(f"r-{one.id}", "t", 1, one, "d", agent="ann", **{"effect": effect_of(decided), **card})
                 for one, decided in zip(calls, decisions, strict=True)]  # fmt: skip
        await self.store.begin(turn)
        await self.store.append_reply(turn, Reply(calls=tuple(calls)), cards, [])
        accepted = [Accepted(one, decided, interrupted) for one, decided in zip(cards, decisions, strict=True)]
        async with asyncio.timeout(5):
            return await self.runtime.run(turn, accepted, self.slots, self.events.append if watched else None)

    async def close(self) -> None:
        """In a task of its own: the one that tests share may have been canceled by an earlier test."""
        async with asyncio.timeout(5):
            await asyncio.create_task(self.runtime.close())

    async def card(self, call_id: str = "c") -> CallCard:
        return await self.store.call("t", call_id)

    async def rows(self) -> list[tuple[str, str]]:
        return [(row.event, row.rule) for row in await self.store.audit_log(turn_id="t")]

    async def counted(self) -> int:
        """How many calls the day of the agent is charged with."""
        return (await self.store.spent("ann", DAY)).calls

    def told(self, *kinds: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kinds)]


def done(call: ToolCall, text: str, **more: Any) -> ToolResult:
    return ToolResult(call.id, call.name, Status.SUCCESS, (Text(text),), **more)


def allowed(one: Tool = paint, call_id: str = "c", options: CallOptions | None = None, **arguments: Any) -> Allowed:
    return Allowed(ToolCall(one.name, arguments, call_id, options=options), one, arguments, 30.0)


def call_of(decision: Decision) -> ToolCall:
    return decision.allowed.call if isinstance(decision, NeedsApproval) else decision.call


def effect_of(decision: Decision) -> Effect:
    match decision:
        case Allowed(tool=one) | NeedsApproval(allowed=Allowed(tool=one)):
            return one.effect
    return Effect.UNSAFE


async def yes(_: NeedsApproval) -> Approval:
    return Approval(granted=True, by="bob")


# What comes back, and what is told of it


async def test_what_was_answered_before_is_told_as_replayed_unless_it_was_refused_just_now() -> None:
    call = ToolCall("paint", {}, "c")
    given, refusal = done(call, "red"), Denied(call, Code.NOT_FOUND, "gone", "exists")
    for decision, replayed in ((allowed(), True), (refusal, False)):
        house = House()
        assert await house.run(decision, result=given) == (given,)
        assert house.events == [CallFinished(call, given, replayed)]
        assert house.bench.given == []


async def test_a_refused_call_costs_nothing_and_one_that_ran_costs_a_call() -> None:
    ran, refused, detached = House(), House(), House()
    [result] = await ran.run(allowed())
    assert (result.text, await ran.rows(), await ran.counted()) == (
        "painted", [("started", ""), ("finished", "")], 1,
    )  # fmt: skip
    assert ran.events == [CallStarted(result_call := (await ran.card()).call), CallFinished(result_call, result, False)]

    denied = Denied(ToolCall("paint", {}, "c"), Code.PERMISSION_DENIED, "No.", "policy")
    [result] = await refused.run(denied)
    assert (result.text, await refused.rows(), await refused.counted()) == ("No.", [("finished", "policy")], 0)
    assert refused.events == [CallFinished(result_call, result, False)]

    [receipt] = await detached.run(allowed(), detached=True, agreed=DETACHES)
    assert "runs on its own" in receipt.text
    assert (detached.events, await detached.rows()) == ([], [])


async def test_a_detached_call_that_has_ended_before_its_turn_goes_on_is_told_as_on_record() -> None:
    """Its turn is told the same whenever it is taken up: `record.story` gives the receipt, too."""
    house, call = House(), ToolCall("paint", {}, "c")
    [told] = await house.run(allowed(), detached=True, agreed=DETACHES, result=done(call, "red"))

    assert told == receipt(call)


async def test_a_call_that_a_dead_process_began_is_unknown_and_charged_unless_it_may_run_again() -> None:
    for effect, text, attempts in ((Effect.UNSAFE, "process that ran it died", 1), (Effect.PURE, "painted", 2)):
        house = House()
        [result] = await house.run(allowed(), effect=effect, interrupted=True, attempt=1, owner="dead", until=1.0)
        assert text in result.text
        assert ((await house.card()).attempt, await house.counted()) == (attempts, 1)


async def test_a_call_that_is_known_elsewhere_by_its_record_is_sent_again() -> None:
    class Knows(Bench):
        def knows_calls(self, tool: Tool) -> bool:
            return isinstance(tool.target, Edge)

    for target, text in ((Edge("site"), "painted"), (paint.target, "process that ran it died")):
        house = House(executor=(bench := Knows()))
        [result] = await house.run(
            allowed(replace(paint, target=target)), interrupted=True, attempt=1, owner="dead", until=1.0
        )  # fmt: skip
        assert text in result.text
        assert len(bench.given) == (text == "painted")
    house = House(executor=Knows())
    [result] = await house.run(Denied(ToolCall("paint", {}, "c"), Code.NOT_FOUND, "gone", "exists"), interrupted=True)
    assert "process that ran it died" in result.text


@pytest.mark.parametrize(("begins", "said", "counted"), [(True, "may have taken", 1), (False, "not been started", 0)])
async def test_a_canceled_call_says_whether_it_had_begun(begins: bool, said: str, counted: int) -> None:
    reached = asyncio.Event()

    async def hangs(*_: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    house = House(hangs) if begins else House(approve=hangs)
    asked = allowed() if begins else NeedsApproval(allowed(), "why", "digest")
    task = asyncio.create_task(house.run(asked))
    async with asyncio.timeout(5):
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    result = (await house.card()).result
    assert result is not None
    assert said in result.text
    assert await house.counted() == counted
    assert not house.runtime.agent_slots(TURN).busy


async def test_of_a_step_that_fails_only_what_may_have_taken_effect_is_ended() -> None:
    """What may run again, or has not begun, is left for when the turn goes on."""
    reached = asyncio.Semaphore(0)

    class Away(Noting):
        async def close(self, card: CallCard, *given: Any, **named: Any) -> ToolResult:
            if card.call.id == "first":
                raise StoreUnavailable("away")
            return await super().close(card, *given, **named)

    async def act(one: Allowed, _: Context) -> str:
        if one.call.id == "first":
            await reached.acquire()
            await reached.acquire()
        else:
            reached.release()
            await asyncio.Event().wait()
        return "painted"

    safe = replace(paint, effect=Effect.PURE)
    calls = [allowed(call_id="first"), allowed(call_id="unsafe"), allowed(safe, call_id="safe")]

    async def never(_: NeedsApproval) -> Approval:
        await asyncio.Event().wait()
        raise AssertionError

    house = House(act, store=Away(), approve=never)
    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(5):
            await house.run(*calls, NeedsApproval(allowed(call_id="waits"), "why", "x"))
    ended = {name: (await house.card(name)).result for name in ("unsafe", "safe", "waits")}
    assert ended["unsafe"] is not None
    assert "may have taken effect" in ended["unsafe"].text
    assert (ended["safe"], ended["waits"]) == (None, None)


async def test_a_call_that_another_process_holds_is_waited_for() -> None:
    house = House()
    with pytest.raises(Suspended) as waiting:
        await house.run(allowed(), attempt=1, owner="worker", until=DAY + 9, interrupted=True, effect=Effect.PURE)
    assert waiting.value.waits == (ForResult("c", DAY + 9),)
    assert (house.bench.given, house.events) == ([], [])


@pytest.mark.parametrize("claimed", [True, False])
async def test_a_refusal_waits_for_a_process_that_has_claimed_the_call_meanwhile(claimed: bool) -> None:
    async def no(_: NeedsApproval) -> Approval:
        if claimed:
            await house.store.claim(await house.card(), [], owner="worker", until=DAY + 9)
        return Approval(granted=False, by="bob", reason="wet")

    house = House(approve=no)
    asked = NeedsApproval(allowed(), "why", "digest")
    if claimed:
        with pytest.raises(Suspended) as waiting:
            await house.run(asked)
        assert waiting.value.waits == (ForResult("c", DAY + 9),)
    else:
        [result] = await house.run(asked)
        assert result.text == "The user did not allow 'paint': wet"
        assert (await house.rows())[-1] == ("finished", "confirmation")
    assert house.bench.given == []


async def test_a_result_that_came_from_elsewhere_meanwhile_is_the_result_and_not_late() -> None:
    class Ends(Noting):
        async def claim(self, card: CallCard, *given: Any, **named: Any) -> CallCard:
            await self.close(card, done(card.call, "ended meanwhile"), [])
            return await super().claim(card, *given, **named)

    house = House(store=Ends())
    [result] = await house.run(allowed())
    assert (result.text, house.bench.given) == ("ended meanwhile", [])
    assert await house.rows() == []


async def test_a_call_of_this_process_runs_here_whatever_else_is_sent_or_detached() -> None:
    @tool
    def here() -> str:
        """Run here."""
        return "here"

    for agreed in (Agreement(), Agreement(AfterExecution.TERMINATE), Agreement(controls_turn=True)):
        fleet = Fleet()
        house = House(executor=Router(InProcessExecutor(), edge=fleet))
        [result] = await house.run(allowed(here), agreed=agreed)
        assert (result.text, fleet.sent, house.runtime.detached) == ("here", [], set())


@pytest.mark.parametrize(("child", "waits"), [("child", (ForTurn("child"), LATE)), ("", (LATE,))])
async def test_a_tool_that_waits_has_not_begun(child: str, waits: tuple[Wait, ...]) -> None:
    async def act(*_: Any) -> str:
        raise Suspended(child, (LATE,))

    house = House(act)
    with pytest.raises(Suspended) as waiting:
        await house.run(allowed())
    assert waiting.value.waits == waits
    await house.store.release(TURN)
    assert (await house.card()).attempt == 0, "it is claimed anew when its turn goes on"


# Calls of one step that go by each other


def ordered(call_id: str, *before: str, one: Tool = paint) -> Allowed:
    made = allowed(one, call_id, CallOptions(dependencies=before) if before else None)
    return replace(made, call=replace(made.call, alias=call_id))


async def test_a_call_that_comes_after_another_runs_when_that_has_succeeded_and_not_otherwise() -> None:
    order: list[str] = []

    async def act(one: Allowed, _: Context) -> str | ToolResult:
        order.append(one.call.id)
        return "painted" if one.call.id != "b" else ToolResult.failed(one.call, Code.EXECUTION_FAILED, "Dry.")

    house = House(act)
    results = await house.run(ordered("d", "b", "a"), ordered("c", "a"), ordered("a"), ordered("b"), ordered("e", "x"))
    assert [result.status for result in results] == [
        Status.CANCELED, Status.SUCCESS, Status.SUCCESS, Status.FAILED, Status.FAILED,
    ]  # fmt: skip
    assert (sorted(order), order.index("a") < order.index("c")) == (["a", "b", "c"], True)
    assert results[0].text == "This call did not run: it depends on a call of 'paint' that did not succeed."
    assert results[4].text == "This call did not run: it depends on 'x', and no request has this id."
    assert (results[4].error and results[4].error.code) == Code.INVALID_PARAMS
    assert (await house.rows()).count(("finished", "dependencies")) == 2
    assert await house.counted() == 3
    finished = [event.call.id for event in house.events if isinstance(event, CallFinished)]
    assert sorted(finished) == ["a", "b", "c", "d", "e"]


async def test_a_call_that_was_begun_or_answered_does_not_wait_for_those_before_it() -> None:
    house = House()
    given = done(ToolCall("paint", {}, "b"), "earlier")
    results = await house.run(ordered("b", "x"), ordered("c", "x"), result=given)
    assert [result.text for result in results] == ["earlier", "earlier"]
    begun = House()
    results = await begun.run(ordered("a"), ordered("b", "x"), interrupted=True, attempt=1, owner="dead", until=1.0)
    assert ["process that ran it died" in result.text for result in results] == [True, True]


async def test_a_call_after_one_that_waits_waits_as_well_and_so_does_its_repetition() -> None:
    async def waits(*_: Any) -> str:
        raise Suspended("child", ())

    for second in (ordered("b", "a"), replace(ordered("b"), call=ToolCall("paint", {}, "b", alias="a"))):
        house = House(waits)
        with pytest.raises(Suspended) as waiting:
            await house.run(ordered("a"), second)
        assert waiting.value.waits == (ForTurn("child"), ForTurn("child"))
        assert len(house.bench.given) == 1


async def test_a_repeated_call_has_the_result_of_the_first_and_is_not_charged() -> None:
    house = House()
    again = replace(ordered("b"), call=ToolCall("paint", {}, "b", alias="a"))
    results = await house.run(ordered("a"), again)
    assert [(result.call_id, result.text) for result in results] == [("a", "painted"), ("b", "painted")]
    assert (len(house.bench.given), await house.counted()) == (1, 1)
    assert ("finished", "repeated") in await house.rows()

    answered = House()
    given = done(ToolCall("paint", {}, "b"), "earlier")
    results = await answered.run(ordered("a"), again, result=given)
    assert results == (given, given)


@pytest.mark.parametrize("second", [("b", "a"), ("a",)], ids=["dependent", "repeated"])
@pytest.mark.parametrize("fails", [True, False])
async def test_a_call_that_waits_for_another_is_ended_where_the_turn_is_stopped_and_left_where_the_step_fails(
    second: tuple[str, ...], fails: bool
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    class Away(Noting):
        async def claim(self, card: CallCard, *given: Any, **named: Any) -> CallCard:
            if card.call.id == "a":
                reached.set()
                await go_on.wait()
                raise StoreUnavailable("away")
            return await super().claim(card, *given, **named)

    other = ordered("b", *second[1:])
    if len(second) == 1:
        other = replace(other, call=ToolCall("paint", {}, "b", alias="a"))
    house = House(store=Away())
    task = asyncio.create_task(house.run(ordered("a"), other))
    async with asyncio.timeout(5):
        await reached.wait()
        await asyncio.sleep(0)
        if fails:
            go_on.set()
        else:
            task.cancel()
        with pytest.raises(StoreUnavailable if fails else asyncio.CancelledError):
            await task
    ended = [(await house.card(name)).result for name in ("a", "b")]
    assert [one and one.status for one in ended] == ([None, None] if fails else [Status.CANCELED] * 2)
    assert all(one is None or "not been started" in one.text for one in ended)


# Commands whose files were approved


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("change", ["none", "file", "command"])
async def test_a_command_does_not_run_when_a_file_of_it_has_changed_since_it_was_approved(
    tmp_path: Path, elsewhere: bool, change: str
) -> None:
    script = tmp_path / "run.sh"
    script.write_text("echo one")
    fleet = Fleet()

    async def answers(_: NeedsApproval) -> Approval:
        if change != "none":
            script.write_text("echo two")
        chosen = {"command": "sh run.sh --quiet"} if change == "command" else None
        return Approval(granted=True, by="bob", arguments=chosen)

    command = replace(paint, needs=frozenset({"shell"}), target=Edge("site") if elsewhere else paint.target)
    asked = NeedsApproval(allowed(command, command="sh run.sh"), "It runs.", "digest")
    grant = Grant(Tier.RUN, frozenset({"shell"}), roots=(str(tmp_path),))
    house = House(approve=answers)
    house.runtime = Runtime(
        Toolbox.of(command), house.store, approve=answers, clock=lambda: DAY,
        executor=Router(InProcessExecutor(), edge=fleet) if elsewhere else house.bench,
    )  # fmt: skip
    try:
        [result] = await house.run(asked, turn=replace(TURN, grant=grant))
    except Suspended:
        result = None
    ran = fleet.sent if elsewhere else house.bench.given
    if change == "file":
        assert result is not None
        assert result.text.startswith("'run.sh' has changed since this command was approved")
        assert (result.error and result.error.code, ran) == (Code.PERMISSION_DENIED, [])
    else:
        assert len(ran) == 1


# Trials


def tries(refusal: str = "", one: Tool = paint) -> NeedsApproval:
    return NeedsApproval(allowed(one, command="ls"), "It writes.", "digest", tries=True, refusal=refusal)


async def test_a_trial_that_needs_nothing_more_is_the_result_and_is_not_claimed() -> None:
    house = House(approve=yes)
    [result] = await house.run(tries())
    [(_, context)] = house.bench.given
    assert (result.text, context.trial is not None) == ("painted", True)
    assert await house.rows() == [("started", "trial"), ("finished", "")]
    assert (house.store.claimed, house.store.begun, await house.counted()) == ([], [], 1)
    assert await house.store.approvals() == []


async def test_what_a_trial_wanted_is_asked_for_and_then_the_call_runs() -> None:
    asked: list[ApprovalCard] = []

    async def wants(_: Allowed, context: Context) -> str:
        if context.trial is not None:
            context.trial.wanted = "It would have changed wall.txt."
        return "painted"

    house = House(wants, approve=yes, tell=asked.append)
    [result] = await house.run(tries())
    assert [one.reason for one in asked] == ["It writes. It would have changed wall.txt."]
    assert [context.trial is None for _, context in house.bench.given] == [False, True]
    assert (result.text, house.store.begun) == ("painted", ["c"])
    assert [type(event) for event in house.told(CallStarted, CallFinished)] == [CallStarted, CallFinished]

    refused = House(wants, approve=yes)
    [result] = await refused.run(tries("Nothing may be written here."))
    assert (result.text, result.error and result.error.code) == ("Nothing may be written here.", Code.PERMISSION_DENIED)
    assert (await refused.rows())[-1] == ("finished", "policy")
    assert (len(refused.bench.given), await refused.counted()) == (1, 0)


async def test_a_call_is_tried_once_and_not_where_other_processes_run_it() -> None:
    async def wants(_: Allowed, context: Context) -> str:
        if context.trial is not None:
            context.trial.wanted = "More."
        return "painted"

    house = House(wants, suspends=True)
    with pytest.raises(Suspended):
        await house.run(tries())
    again = House(wants, suspends=True, store=house.store)
    with pytest.raises(Suspended):
        await again.runtime.run(TURN, [Accepted(await house.card(), tries())], again.slots)
    assert (len(house.bench.given), again.bench.given) == (1, [])

    fleet = Fleet()
    sent = House(executor=Router(InProcessExecutor(), edge=fleet), approve=yes)
    with pytest.raises(Suspended):
        await sent.run(tries(one=replace(paint, target=Edge("site"))))
    assert [context.trial for _, context in fleet.sent] == [None]


async def test_a_call_that_is_canceled_while_it_is_tried_has_not_begun() -> None:
    reached = asyncio.Event()

    async def hangs(*_: Any) -> str:
        reached.set()
        await asyncio.Event().wait()
        return ""

    house = House(hangs, approve=yes)
    task = asyncio.create_task(house.run(tries()))
    async with asyncio.timeout(5):
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    result = (await house.card()).result
    assert result is not None
    assert "had not been started" in result.text


# Calls of other processes


class Arrival:
    """Tells nothing. At the last wait, its worker has written the result down."""

    def __init__(self, house: "House", waits: int = 1, stays_s: float = math.inf) -> None:
        self.house, self.left, self.stays_s = house, waits, stays_s
        self.waits: list[float] = []
        self.closed = 0
        self.reached = asyncio.Event()

    async def wait(self, most_s: float) -> None:
        self.waits.append(most_s)
        self.reached.set()
        if len(self.waits) >= self.left:
            card = await self.house.store.call("t", "c")
            await self.house.store.close(card, done(card.call, "launched"), [])

    def close(self) -> None:
        self.closed += 1


class Never(Arrival):
    """Is waited for until that is stopped, within some rounds of the loop."""

    async def wait(self, most_s: float) -> None:
        await super().wait(most_s)
        for _ in range(1_000):
            await asyncio.sleep(0)
        raise AssertionError("it was to be given up")


class Staying(Fleet):
    """Sends calls whose results are waited for here."""

    def __init__(self) -> None:
        super().__init__()
        self.arrival: Arrival | None = None

    async def dispatch(self, allowed: Allowed, context: Context) -> ToolResult | Dispatched:
        await super().dispatch(allowed, context)
        return Dispatched(until=DAY + 5, stays=True, arrival=self.arrival)


def staying(**more: Any) -> tuple[House, Staying]:
    fleet = Staying()
    return House(executor=Router(InProcessExecutor(), edge=fleet), **more), fleet


async def test_a_result_that_is_waited_for_is_looked_for_now_and_then_and_told_once() -> None:
    clock = FrozenClock(0.0)
    house, fleet = staying(monotonic=clock)
    fleet.arrival = arrival = Arrival(house, waits=4)

    async def later(most_s: float, wait: Any = arrival.wait) -> None:
        clock.advance(2.0)
        await wait(most_s)

    arrival.wait = later  # type: ignore[method-assign]
    async with asyncio.timeout(5):
        [result] = await house.run(allowed(far()))
    assert (result.text, arrival.waits, arrival.closed) == ("launched", [0.25] * 4, 1)
    assert [type(event) for event in house.events] == [CallStarted, CallProgress, CallFinished]
    [slow] = house.told(CallProgress)
    assert isinstance(slow, CallProgress)
    assert (slow.call_id, slow.message, slow.fraction) == ("c", "no worker has taken it yet", None)
    assert await house.rows() == [], "the worker has said so"
    [(sent, context)] = fleet.sent
    assert (sent.arguments, context.record_id, context.epoch, context.turn_id) == ({}, "r-c", 1, "t")


async def test_nothing_is_told_of_a_slow_start_in_time_nor_to_no_one_nor_of_a_call_that_was_taken() -> None:
    for watched, taken, steps_s, told in (
        (True, False, 1.5, 0), (True, False, 3.5, 1), (False, False, 3.5, 0), (True, True, 3.5, 0),
    ):  # fmt: skip
        clock = FrozenClock(0.0)
        house, fleet = staying(monotonic=clock)
        fleet.arrival = arrival = Arrival(house, waits=3)

        async def later(
            most_s: float, arrival: Arrival = arrival, taken: bool = taken, steps_s: float = steps_s,
            clock: FrozenClock = clock, house: House = house, wait: Any = arrival.wait,
        ) -> None:  # fmt: skip
            clock.advance(steps_s)
            if taken and not arrival.waits:
                card = await house.store.call("t", "c")
                await house.store.claim(card, [], owner="worker", until=1.0)
            await wait(most_s)

        arrival.wait = later  # type: ignore[method-assign]
        async with asyncio.timeout(5):
            [result] = await house.run(allowed(far()), watched=watched)
        assert (result.text, len(house.told(CallProgress))) == ("launched", told)


async def test_a_result_that_no_one_announces_is_found_and_an_outage_of_the_store_is_waited_out() -> None:
    class Flaky(Noting):
        asked = 0

        async def call(self, *given: Any, **named: Any) -> CallCard:
            self.asked += 1
            if self.asked == 1:
                raise StoreUnavailable("away")
            card = await super().call(*given, **named)
            if self.asked == 2:
                await self.close(card, done(card.call, "launched"), [])
            return card

    house, fleet = staying(store=(store := Flaky()))
    fleet.arrival = None
    async with asyncio.timeout(5):
        [result] = await house.run(allowed(far()))
    assert (result.text, store.asked) == ("launched", 3)
    assert [type(event) for event in house.events] == [CallStarted, CallFinished]


async def test_who_stays_for_a_time_leaves_the_call_as_it_is_and_its_turn_waits() -> None:
    for stays_s, canceled in ((0.0, False), (600.0, True)):
        house, fleet = staying()
        fleet.arrival = arrival = Never(house, 99, stays_s)
        task = asyncio.create_task(house.run(allowed(far())))
        async with asyncio.timeout(5):
            if canceled:
                await arrival.reached.wait()
                task.cancel()
            with pytest.raises(Suspended) as waiting:
                await task
        assert waiting.value.waits == (ForResult("c", DAY + 5),)
        assert ((await house.card()).result, arrival.closed) == (None, 1)


async def test_who_stays_for_good_and_is_canceled_ends_the_call() -> None:
    house, fleet = staying()
    fleet.arrival = arrival = Never(house, 99)
    task = asyncio.create_task(house.run(allowed(far())))
    async with asyncio.timeout(5):
        await arrival.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    result = (await house.card()).result
    assert result is not None
    assert (result.status, arrival.closed) == (Status.CANCELED, 1)


async def test_what_must_not_travel_is_not_sent() -> None:
    secrets = Secrets(
        {
            "KEY": Secret("opensesame", frozenset({"launch"}), {"launch": ["example.org"]}),
            "URL_PASSWORD_1": Secret("hunter2", frozenset({"launch"}), anywhere=True),
        }
    )
    cases: list[tuple[Allowed, Secrets, str]] = [
        (allowed(far(), options=CallOptions(config_id="x")), secrets, "takes no configuration here"),
        (allowed(far(), site="https://u:{{secret:URL_PASSWORD_1}}@example.org"), secrets, "It was not sent"),
        (allowed(far(), site="https://u:{{secret:URL_PASSWORD_9}}@example.org"), secrets, "was not kept on record"),
    ]
    for asked, known, said in cases:
        fleet = Fleet()
        house = House(executor=Router(InProcessExecutor(), edge=fleet), secrets=known)
        [result] = await house.run(asked)
        assert said in result.text
        assert (result.error and result.error.code, fleet.sent) == (Code.PERMISSION_DENIED, [])
        assert await house.counted() == 0

    fleet = Fleet()
    house = House(executor=Router(InProcessExecutor(), edge=fleet), secrets=secrets)
    with pytest.raises(Suspended):
        await house.run(allowed(far(), site="{{secret:KEY}}", options=CallOptions()))
    [(sent, context)] = fleet.sent
    assert sent.arguments == {"site": "{{secret:KEY}}"}, "it is put in place where the tool lives"
    assert any("example.org" in rule for rule in context.grant.network)


async def test_a_call_that_is_sent_has_the_time_that_its_turn_has_left() -> None:
    fleet = Fleet()
    house = House(executor=Router(InProcessExecutor(), edge=fleet), monotonic=lambda: 107.0)
    with pytest.raises(Suspended):
        await house.run(allowed(far()), turn=replace(TURN, limits=Limits(deadline_s=10), running_since=100.0))
    [(sent, context)] = fleet.sent
    assert (sent.timeout_s, context.timeout_s, sent.notes) == (3.0, 3.0, (DEADLINE_NOTE,))


class Spans:
    """Gives each turn and each call a span of its own."""

    def observe(self, turn: Turn, event: Event, at: float) -> None: ...

    def interrupted(self, turn: Turn, error: BaseException) -> None: ...

    def current_trace(self) -> TraceContext:
        raise AssertionError("no turn begins")

    def trace_of(self, turn: Turn, call_id: str = "") -> TraceContext:
        return TraceContext(f"{turn.trace.traceparent}/{turn.id}/{call_id}")


async def test_a_call_knows_the_span_above_it_and_one_that_is_sent_the_span_of_its_turn() -> None:
    turn = replace(TURN, trace=TraceContext("root"))
    for events, here, sent in ((None, "root", "root"), (EventHub(telemetry=Spans()), "root/t/c", "root/t/")):
        house, fleet = House(events=events), Fleet()
        await house.run(allowed(), turn=turn)
        elsewhere = House(events=events, executor=Router(InProcessExecutor(), edge=fleet))
        with pytest.raises(Suspended):
            await elsewhere.run(allowed(far()), turn=turn, step=3)
        [(_, context)] = fleet.sent
        assert (house.bench.given[0][1].trace, context.trace) == (TraceContext(here), TraceContext(sent))
        assert context.step_id == "step_t_3"


# Calls that run on their own


async def test_a_detached_call_is_claimed_for_its_lease_and_ends_with_its_own_result() -> None:
    go_on = asyncio.Event()

    async def act(_: Allowed, context: Context) -> str:
        context.output("drying\n")
        await go_on.wait()
        return "dry"

    shows = replace(paint, shows_output=True)
    house = House(act)
    house.runtime.detached_lease_s = 40.0
    [receipt] = await house.run(allowed(shows), agreed=DETACHES)
    [work] = house.runtime.detached
    go_on.set()
    async with asyncio.timeout(5):
        await work
    card = await house.card()
    assert "runs on its own" in receipt.text
    assert (card.detached, card.result and card.result.text, house.runtime.detached) == (True, "dry", set())
    assert house.store.claimed == [DAY + 40]
    assert (await house.rows())[-1] == ("finished", "")
    kinds = [type(event) for event in house.events]
    assert kinds == [CallStarted, OutputDelta, CallFinished]
    shown = house.runtime.shown_output.take("t")
    assert ("drying" in shown, "dry" in shown.replace("drying", "")) == (True, True)


async def test_only_trusted_output_of_tools_that_show_it_is_told_to_the_model_of_a_detached_call() -> None:
    async def act(_: Allowed, context: Context) -> str:
        context.output("drying\n")
        return "dry"

    async def reads(_: Allowed, context: Context) -> str:
        context.read_from("https://example.org")
        return "dry"

    for one, acts, shown in (
        (replace(paint, shows_output=True), act, True), (paint, act, False),
        (replace(paint, shows_output=True, untrusted=True), act, False),
        (replace(paint, shows_output=True), reads, False),
    ):  # fmt: skip
        for watched in (True, False):
            house = House(acts)
            await house.run(allowed(one), agreed=DETACHES, watched=watched)
            await house.close()
            assert bool(house.runtime.shown_output.take("t")) is shown
            assert bool(house.told(OutputDelta)) is (watched and acts is act)


async def test_a_detached_call_that_has_ended_elsewhere_or_waits_is_an_ordinary_end() -> None:
    class Ends(Noting):
        async def detach(self, card: CallCard) -> CallCard:
            await self.close(card, done(card.call, "ended meanwhile"), [])
            return await super().detach(card)

    fleet = Fleet()
    for house, one in (
        (House(store=Ends()), paint),
        (House(store=Ends(), executor=Router(InProcessExecutor(), edge=fleet)), far()),
    ):
        [result] = await house.run(allowed(one), agreed=DETACHES)
        assert (result.text, house.runtime.detached, house.bench.given) == ("ended meanwhile", set(), [])

    async def waits(*_: Any) -> str:
        raise Suspended("", (ForTurn("child"),))

    house = House(waits)
    await house.run(allowed(), agreed=DETACHES)
    await house.close()
    card = await house.card()
    assert card.result is not None
    assert card.result.text == f"'paint' runs on its own and cannot wait for {ForTurn('child')}."

    held = House()
    with pytest.raises(Suspended):
        await held.run(
            allowed(), agreed=DETACHES, attempt=1, owner="w", until=DAY + 9, interrupted=True, effect=Effect.PURE
        )
    assert held.runtime.detached == set()


async def test_a_detached_call_that_another_process_let_go_of_meanwhile_is_told_as_it_was_there() -> None:
    """Its own process slept so long that its turn was taken over, and the call has run on its own since."""

    class TakenOver(Noting):
        async def claim(self, card: CallCard, *given: Any, **named: Any) -> CallCard:
            if self.claimed:
                return await super().claim(card, *given, **named)
            held = await super().claim(await self.detach(card), *given, **named)
            await self.close(held, done(card.call, "ended there"), [])
            return await super().claim(card, *given, **named)

    house = House(store=TakenOver())
    [told] = await house.run(allowed(), agreed=DETACHES)
    card = await house.card()

    assert (told, card.result and card.result.text) == (receipt(card.call), "ended there")
    assert (house.runtime.detached, house.bench.given) == (set(), [])


async def test_a_detached_call_whose_lease_is_lost_or_whose_store_is_away_ends_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Trouble(Noting):
        outages = 2

        async def renew(self, card: CallCard, until: float | None = None) -> CallCard:
            await super().renew(card, until)
            if self.outages:
                self.outages -= 1
                raise StoreUnavailable("away")
            raise Fenced("claimed by another process")

    async def hangs(*_: Any) -> str:
        await asyncio.Event().wait()
        return ""

    house = House(hangs, store=(store := Trouble()))
    house.runtime.detached_lease_s = 0.004
    await house.run(allowed(), agreed=DETACHES)
    [work] = house.runtime.detached
    async with asyncio.timeout(5):
        await work
    assert (store.outages, store.renewed) == (0, [DAY + 0.004] * 3)
    result = (await house.card()).result
    assert result is not None
    assert "may have taken effect" in result.text

    stopped = House(hangs)
    await stopped.run(allowed(), agreed=DETACHES)
    [work] = stopped.runtime.detached
    await asyncio.sleep(0)
    work.cancel()
    await asyncio.wait((work,))
    assert (work.cancelled(), (await stopped.card()).result is not None) == (True, True)

    async def fails(*_: Any) -> str:
        raise StoreUnavailable("gone for good")

    lost = House(fails)
    await lost.run(allowed(), agreed=DETACHES)
    await lost.close()
    assert (await lost.card()).result is None
    assert "call c of turn t runs on its own and is lost: gone for good" in caplog.text


@pytest.mark.parametrize("ends_elsewhere", [True, False])
async def test_a_detached_call_is_held_while_it_runs_and_stopped_where_it_has_ended_elsewhere(
    ends_elsewhere: bool,
) -> None:
    renewed = asyncio.Event()

    class Renews(Noting):
        async def renew(self, card: CallCard, until: float | None = None) -> CallCard:
            if len(self.renewed) == 2:
                renewed.set()
                if ends_elsewhere:
                    await self.close(card, done(card.call, "ended elsewhere"), [])
            return await super().renew(card, until)

    async def act(*_: Any) -> str:
        await renewed.wait()
        if ends_elsewhere:
            await asyncio.Event().wait()
        return "dry"

    house = House(act, store=(store := Renews()))
    house.runtime.detached_lease_s = 0.004
    await house.run(allowed(), agreed=DETACHES)
    [work] = house.runtime.detached
    async with asyncio.timeout(5):
        await work
    result = (await house.card()).result
    assert result is not None
    assert result.text == ("ended elsewhere" if ends_elsewhere else "dry")
    assert len(store.renewed) >= 3


async def test_a_detached_call_that_is_sent_is_told_as_such_unless_it_cannot_be_sent() -> None:
    for is_down, said in ((True, "No broker is there."), (False, "runs on its own")):
        fleet = Fleet(is_down=is_down)
        house = House(executor=Router(InProcessExecutor(), edge=fleet))
        [result] = await house.run(allowed(far()), agreed=DETACHES)
        assert said in result.text
        assert (await house.card()).detached is not is_down
        assert house.runtime.detached == set()


# The run


async def test_calls_wait_for_a_slot_and_the_wait_is_in_their_result() -> None:
    house, began = House(), perf_counter()
    house.slots = Slots(1)

    async def act(one: Allowed, _: Context) -> str:
        if one.call.id == "a":
            await asyncio.sleep(0.001)
        return one.call.id

    house.bench.acts = act
    first, second = await house.run(allowed(call_id="a"), allowed(call_id="b"))
    took_ms = (perf_counter() - began) * 1000
    assert (first.text, second.text, house.slots.peak, house.slots.busy) == ("a", "b", 1, False)
    assert 0 < second.queued_ms <= took_ms
    assert house.slots.take(), "the slot is free again"


async def test_a_call_that_is_alone_takes_no_slot_and_counts_as_one() -> None:
    house = House()
    house.slots = Slots(0)
    async with asyncio.timeout(5):
        [result] = await house.run(allowed(), attempt=1, token="r-c")
    assert (result.text, house.slots.peak, house.slots.busy) == ("painted", 1, False)
    assert (house.store.claimed, result.queued_ms) == ([], 0.0)
    agents = house.runtime.agent_slots(TURN)
    assert (agents.peak, agents.busy) == (1, False)


async def test_calls_of_one_agent_wait_for_each_other_over_all_turns() -> None:
    house, began = House(in_flight=1), perf_counter()
    agents = house.runtime.agent_slots(TURN)
    assert agents.take()
    task = asyncio.create_task(house.run(allowed(), attempt=1, token="r-c"))
    await asyncio.sleep(0.001)
    assert house.bench.given == []
    agents.leave()
    async with asyncio.timeout(5):
        [result] = await task
    assert 0 < result.queued_ms <= (perf_counter() - began) * 1000
    assert not agents.busy


async def test_what_a_call_touches_is_held_while_it_runs_and_the_wait_is_in_its_result() -> None:
    class Locks:
        def __init__(self) -> None:
            self.held: list[tuple[list[tuple[str, bool, int | None]], str, float]] = []

        def holding(self, claims: Any, holder: str = "", longest_wait_s: float = 30.0) -> Any:
            self.held.append(([(one.resource, one.writes, one.most) for one in claims], holder, longest_wait_s))
            return Resources().holding(claims, holder, longest_wait_s)

    writes = replace(paint, writes=("file:{colour}",))
    for one, limits, held in (
        (writes, Limits(), [("file:/w/red", True, None)]),
        (writes, Limits(in_flight=2), [("file:/w/red", True, None), ("agent:ann", False, 2)]),
        (paint, Limits(in_flight=2), [("agent:ann", False, 2)]),
    ):
        locks = Locks()
        house = House(locks=locks, monotonic=lambda: 100.0)
        limits = replace(limits, deadline_s=12)
        [result] = await house.run(
            allowed(one, colour="red"), turn=replace(TURN, limits=limits, running_since=95.0), attempt=1, token="r-c"
        )  # fmt: skip
        assert (result.text, locks.held) == ("painted", [(held, "'paint' (c)", 7.0)])


async def test_a_call_that_waits_in_vain_for_what_it_touches_is_busy() -> None:
    leftover: Future[None] = Future()

    class Abandons(Bench):
        def leftover(self, key: str) -> Future[None] | None:
            return leftover if key == "t/c" else None

    locks, began = Resources(), perf_counter()
    writes = replace(paint, writes=("wall",))
    house = House(executor=Abandons(), locks=locks)
    await house.run(allowed(writes))
    late = replace(allowed(writes, "late"), timeout_s=0.01)
    other = House(locks=locks)
    [result] = await other.run(late)
    assert (result.error and result.error.code, "wall is busy" in result.text) == (Code.UNAVAILABLE, True)
    assert "'paint' (c) was given up" in result.text
    assert 0 < result.queued_ms <= (perf_counter() - began) * 1000
    leftover.set_result(None)


async def test_a_call_that_waits_and_is_stopped_while_it_lets_go_has_not_begun() -> None:
    leaving = asyncio.Event()

    class Locks:
        @asynccontextmanager
        async def holding(self, *_: Any) -> AsyncIterator[Ticket]:
            yield Ticket((), "", 1.0)
            leaving.set()
            await asyncio.Event().wait()

    async def waits(*_: Any) -> str:
        raise Suspended("child", ())

    house = House(waits, locks=Locks())
    task = asyncio.create_task(house.run(allowed(replace(paint, writes=("wall",)))))
    async with asyncio.timeout(5):
        await leaving.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    result = (await house.card()).result
    assert result is not None
    assert "had not been started" in result.text


async def test_a_result_that_is_too_long_is_cut_and_kept_whole() -> None:
    async def long(*_: Any) -> str:
        return "wall " * 100

    house = House(long)
    [result] = await house.run(allowed(), turn=replace(TURN, limits=Limits(result_chars=50)))
    assert (len(result.text) < 500, result.handle is not None) == (True, True)


async def test_a_secret_that_is_refused_where_the_tool_lives_has_cost_nothing() -> None:
    async def reveals(one: Allowed, context: Context) -> str:
        assert context.reveal is not None
        return str(context.reveal(one).arguments)

    house = House(reveals, secrets=Secrets({"KEY": Secret("opensesame", frozenset({"other"}))}))
    [result] = await house.run(allowed(colour="{{secret:KEY}}"))
    assert result.text == "'paint' may not have the secret 'KEY'; it may have: none."
    assert (result.error and result.error.code, await house.counted()) == (Code.PERMISSION_DENIED, 0)


async def test_a_result_goes_where_its_call_or_its_tool_says() -> None:
    to_user = replace(paint, delivery=Delivery.USER)

    async def fails(one: Allowed, _: Context) -> ToolResult:
        return ToolResult.failed(one.call, Code.EXECUTION_FAILED, "Dry.")

    for asked, acts, delivery in (
        (allowed(), None, None),
        (allowed(to_user), None, Delivery.USER),
        (allowed(to_user, options=CallOptions()), None, Delivery.USER),
        (allowed(to_user, options=CallOptions(delivery=Delivery.MODEL)), None, None),
        (allowed(options=CallOptions(delivery=Delivery.USER)), None, Delivery.USER),
        (allowed(to_user), fails, None),
    ):  # fmt: skip
        [result] = await House(acts).run(asked)
        assert result.delivery is delivery


# What the executor is given


async def test_an_executor_is_given_what_it_may_know_and_the_beginning_is_noted_once() -> None:
    house = House()
    turn = replace(TURN, project="default", thread="shed")
    await house.run(allowed(), turn=turn, watched=False)
    [(_, context)] = house.bench.given
    assert (context.call_id, context.turn_id, context.project, context.agent) == ("c", "t", "default", "ann")
    assert (context.grant, context.timeout_s, context.attempt, context.thread) == (TURN.grant, 30.0, 1, "shed")
    assert (context.tainted_by, context.approved, context.trial, context.config) == ((), True, None, None)
    assert (context.recorder, context.reveal) == (house.runtime, None)
    assert (house.store.begun, house.store.renewed) == (["c"], [])

    class Notes(Bench):
        notes_begin = True

    house = House(executor=(bench := Notes()))
    await house.run(allowed(), watched=False)
    [(_, context)] = bench.given
    assert house.store.begun == []
    context.begins("t", "c")
    assert house.store.begun == ["c"]


async def test_a_process_that_slept_through_its_lease_asks_for_it_before_the_call_begins() -> None:
    house = House()
    house.store.loses.add("t")
    await house.run(allowed())
    assert (house.store.renewed, len(house.bench.given)) == ([None], 1)


@pytest.mark.parametrize(
    ("now", "waited_s", "asked_s", "left_s", "notes"),
    [
        (107.0, 0.0, 0.0, 3.0, (DEADLINE_NOTE,)),
        (107.0, 1.0, 0.5, 4.5, (DEADLINE_NOTE,)),
        (120.0, 0.0, 0.0, 0.0, (DEADLINE_NOTE,)),
        (80.0, 0.0, 0.0, 30.0, ()),
        (70.0, 0.0, 0.0, 30.0, ()),
    ],
)
async def test_a_call_has_no_more_time_than_its_turn(
    now: float, waited_s: float, asked_s: float, left_s: float, notes: tuple[str, ...]
) -> None:
    """Time in which approvals were pending is not the turn's."""
    house = House(monotonic=lambda: now)
    house.slots.waited_s = asked_s
    turn = replace(TURN, limits=Limits(deadline_s=10), running_since=100.0, waited_s=waited_s)
    await house.run(allowed(), turn=turn)
    [(given, context)] = house.bench.given
    assert (given.timeout_s, context.timeout_s, given.notes) == (left_s, left_s, notes)


async def test_a_call_is_told_what_its_turn_has_read_that_is_untrusted() -> None:
    def read(*origins: tuple[str, ...]) -> tuple[Message, ...]:
        calls = [ToolCall("fetch", {}, f"f{n}") for n in range(len(origins))]
        results = [
            ToolResult(call.id, "fetch", Status.SUCCESS, (Text("x"),), untrusted=True, origins=uris)
            for call, uris in zip(calls, origins, strict=True)
        ]
        return (Reply(calls=tuple(calls)), ResultsMessage(tuple(results)))

    many = tuple(f"https://{n}.org" for n in range(9))
    for turn, tainted_by in (
        (replace(TURN, tainted=True, messages=read(("https://a.org",), ("https://a.org", "https://b.org"))),
         ("https://a.org", "https://b.org")),
        (replace(TURN, tainted=True, messages=read(many)), many[:5]),
        (replace(TURN, tainted=True, messages=read(())), ("tool:fetch",)),
        (replace(TURN, tainted=True), ("tool:before",)),
        (replace(TURN, messages=read(("https://a.org",))), ()),
        (replace(TURN, grant=replace(TURN.grant, rules=(Rule(Verdict.ASK, reason=TAINTED),))), ("agent:asking",)),
        (replace(TURN, grant=replace(TURN.grant, rules=(Rule(Verdict.ASK),))), ()),
    ):  # fmt: skip
        house = House()
        await house.run(allowed(), turn=turn)
        [(_, context)] = house.bench.given
        assert context.tainted_by == tainted_by


async def test_a_watcher_is_told_of_progress_and_output_without_secrets() -> None:
    async def act(_: Allowed, context: Context) -> str:
        context.progress("opensesame half", 0.5)
        context.output("drying opensesame\n")
        context.output("done\n", "stderr")
        await asyncio.sleep(0)
        return "the word is opensesame"

    secrets = Secrets({"KEY": Secret("opensesame", frozenset({"paint"}))})
    for watched in (True, False):
        house = House(act, secrets=secrets)
        [result] = await house.run(allowed(), watched=watched)
        assert "opensesame" not in str(house.events) + result.text
        assert "the word is" in result.text
    house = House(act, secrets=secrets)
    await house.run(allowed())
    [progress] = house.told(CallProgress)
    assert isinstance(progress, CallProgress)
    assert (progress.call_id, progress.fraction, "half" in progress.message) == ("c", 0.5, True)
    written = [event for event in house.events if isinstance(event, OutputDelta)]
    assert [(event.call_id, event.stream) for event in written] == [("c", "stdout"), ("c", "stderr")]
    assert written[1].offset == len(written[0].text)
    assert type(house.events[-1]) is CallFinished


async def test_secrets_are_put_in_place_where_the_tool_lives_and_keep_to_their_hosts() -> None:
    secrets = Secrets(
        {
            "KEY": Secret("opensesame", frozenset({"paint"}), {"paint": ["example.org"]}),
            "URL_PASSWORD_1": Secret("hunter2", frozenset({"paint"}), anywhere=True),
        }
    )
    asked: dict[str, Any] = {"colour": "{{secret:KEY}}"}
    here, plain = House(secrets=secrets), House(secrets=secrets)
    await here.run(allowed(**asked))
    [(given, context)] = here.bench.given
    assert context.reveal is not None
    assert (given.arguments, context.reveal(given).arguments) == (asked, {"colour": "opensesame"})
    assert [rule for rule in context.grant.network if "example.org" in rule]
    await plain.run(allowed(colour="red"))
    assert plain.bench.given[0][1].grant == TURN.grant

    elsewhere = replace(paint, target=Service("far"))
    there = House(secrets=secrets)
    await there.run(allowed(elsewhere, colour="{{secret:KEY}}", command="{{secret:URL_PASSWORD_1}}"))
    [(given, context)] = there.bench.given
    assert (given.arguments, context.reveal) == ({"colour": "{{secret:KEY}}", "command": "hunter2"}, None)

    refused = House(secrets=secrets)
    [result] = await refused.run(allowed(elsewhere, command="{{secret:URL_PASSWORD_7}}"))
    assert (result.error and result.error.code, refused.bench.given) == (Code.PERMISSION_DENIED, [])
    assert (result.text.endswith("with it."), await refused.counted()) == (True, 0)


async def test_a_call_gets_the_configuration_that_it_names_and_its_keys_are_in_no_result() -> None:
    asked: list[tuple[str, str, str]] = []

    async def opens(config_id: str, tool: str, context: Context) -> Mapping[str, Any]:
        asked.append((config_id, tool, context.call_id))
        if config_id == "gone":
            raise NotFound("there is no configuration 'gone'")
        return {"apiKey": "sk-12345678"} if config_id == "keys" else {"colour": "blue"}

    async def blabs(_: Allowed, context: Context) -> str:
        return f"config {dict(context.config or {})}"

    def named(config_id: str, one: Tool = paint) -> Allowed:
        return allowed(one, options=CallOptions(config_id=config_id))

    house = House(blabs, open_config=opens)
    [result] = await house.run(named("keys"))
    assert (asked, "sk-12345678" in result.text) == ([("keys", "paint", "c")], False)
    assert house.bench.given[0][1].config == {"apiKey": "sk-12345678"}
    assert "sk-12345678" not in house.runtime.clean("It was sk-12345678.")

    plain = House(blabs, open_config=opens)
    [result] = await plain.run(named("plain"))
    assert "blue" in result.text

    service = replace(paint, target=Service("far"))
    for one, opener, said in (
        (named("gone"), opens, "there is no configuration 'gone'."),
        (named("keys"), None, "this tool takes no configuration here; leave out config_id."),
        (named("keys", service), opens, "this tool takes no configuration here; leave out config_id."),
    ):
        refused = House(blabs, open_config=opener)
        [result] = await refused.run(one)
        assert (result.text, result.error and result.error.code) == (said, Code.PERMISSION_DENIED)
        assert (refused.bench.given, await refused.counted()) == ([], 0)


async def test_what_a_tool_tells_about_its_call_is_on_record_also_where_it_is_canceled() -> None:
    reached = asyncio.Event()

    async def act(one: Allowed, context: Context) -> str:
        context.read_from("https://example.org")
        context.wrote_file("/w", "wall.txt")
        if one.call.id == "hangs":
            reached.set()
            await asyncio.Event().wait()
        return "painted"

    house = House(act)
    [result] = await house.run(allowed())
    assert (result.untrusted, result.origins) == (True, ("https://example.org",))
    marks = await house.runtime.recorder.marks("default")
    assert [mark.resource for mark in marks] == ["file:/w/wall.txt"]

    house = House(act)
    task = asyncio.create_task(house.run(allowed(call_id="hangs")))
    async with asyncio.timeout(5):
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [mark.resource for mark in await house.runtime.recorder.marks("default")] == ["file:/w/wall.txt"]

    untrusted = House()
    [result] = await untrusted.run(allowed(replace(paint, untrusted=True)))
    assert result.untrusted
    [result] = await House().run(allowed())
    assert not result.untrusted
