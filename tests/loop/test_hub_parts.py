"""The small parts of the hub by themselves: what may run again, slots, ending turns, what resuming lacks."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.loop.test_journey_parts import done
from toolwire import Agent, Grant, MemoryStore, Tier, Toolbox, tool
from toolwire.errors import CannotResume, Fenced, NotFound, Suspended
from toolwire.hub.calls import Accepted, end_with_call
from toolwire.hub.canceling import cancel_turn, turns_waited_for
from toolwire.hub.event_hub import EventHub
from toolwire.hub.resuming import approved_calls, lacks, require_same_tools, require_still_granted
from toolwire.hub.slots import Slots
from toolwire.protocol.agents import AgentSpec, SkillSpec, ToolsSpec
from toolwire.protocol.calls import Allowed, Denied, NeedsApproval, Text, ToolCall, ToolResult
from toolwire.protocol.chat import Reply, Usage
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Effect, Tool
from toolwire.protocol.turns import Ending, EndReason, Limits, Turn
from toolwire.protocol.waits import ForApproval, ForTurn
from toolwire.record.contract import Store, TurnStats
from toolwire.testing import ScriptedModel, call


@tool
def paint(colour: str = "red") -> str:
    """Paint."""
    return colour


# Calls


def card(effect: Effect) -> CallCard:
    return CallCard("r", "t", 1, ToolCall("paint", {}, "c"), "d", effect=effect)


@pytest.mark.parametrize(
    ("effect", "journaled", "may"),
    [
        (Effect.PURE, False, True),
        (Effect.IDEMPOTENT, False, True),
        (Effect.TRANSACTIONAL, False, False),
        (Effect.TRANSACTIONAL, True, True),
        (Effect.UNSAFE, False, False),
        (Effect.UNSAFE, True, False),
    ],
)
@pytest.mark.parametrize("needs_approval", [True, False])
def test_a_call_may_run_again_by_its_effect_or_by_the_journal_of_its_tool(
    effect: Effect, journaled: bool, may: bool, needs_approval: bool
) -> None:
    allowed = Allowed(ToolCall("paint", {}, "c"), replace(paint, effect=effect, journaled=journaled), {}, 1.0)
    decision = NeedsApproval(allowed, "why", "digest") if needs_approval else allowed

    one = Accepted(card(effect), decision)

    assert one.may_run_again is may
    assert one.tool is allowed.tool
    assert one.interrupted is False


@pytest.mark.parametrize(("effect", "may"), [(Effect.PURE, True), (Effect.TRANSACTIONAL, False)])
def test_a_denied_call_has_no_tool_and_goes_by_its_card(effect: Effect, may: bool) -> None:
    one = Accepted(card(effect), Denied(ToolCall("paint", {}, "c"), Code.NOT_FOUND, "gone", "exists"))

    assert one.tool is None
    assert one.may_run_again is may


@pytest.mark.parametrize(
    ("result", "reason", "failed"),
    [
        (done(ToolCall("paint", {}, "c"), "red"), EndReason.DELIVERED, 0),
        (ToolResult.failed(ToolCall("paint", {}, "c"), Code.EXECUTION_FAILED, "no paint"), EndReason.CALL_FAILED, 1),
    ],
)
def test_a_turn_that_is_a_single_call_ends_with_its_text_and_its_time(
    result: ToolResult, reason: EndReason, failed: int
) -> None:
    result = replace(result, elapsed_ms=2_000.0, queued_ms=500.0)
    turn, stats = end_with_call(Turn("t"), result)
    assert turn.ending == Ending(reason, result.text)
    assert stats == TurnStats(calls=1, failed_calls=failed, duration_ms=2_000.0, wall_s=2.5)


# Slots


async def test_slots_are_given_in_the_order_of_asking_and_counted() -> None:
    slots, order = Slots(2), []

    async def use(name: int) -> None:
        await slots.wait()
        order.append(name)
        slots.leave()

    assert (slots.busy, slots.take(), slots.take(), slots.take()) == (False, True, True, False)
    assert (slots.busy, slots.peak) == (True, 2)
    waiting = [asyncio.create_task(use(name)) for name in range(3)]
    await asyncio.sleep(0)
    assert order == []
    slots.leave()
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)

    assert (order, slots.peak) == ([0, 1, 2], 2)
    assert slots.take(), "the slot that all have passed on is free again"
    assert not slots.take()
    slots.leave()
    slots.leave()
    assert (slots.busy, slots.peak) == (False, 2)
    assert (slots.take(), slots.take(), slots.take()) == (True, True, False)


async def test_a_slot_that_was_given_to_a_canceled_waiter_is_passed_on() -> None:
    slots = Slots(1)
    assert slots.take()
    first, second = asyncio.create_task(slots.wait()), asyncio.create_task(slots.wait())
    await asyncio.sleep(0)
    slots.leave()  # given to the first, which does not want it any more
    first.cancel()
    async with asyncio.timeout(5):
        await asyncio.gather(first, return_exceptions=True)
        await second

    assert first.cancelled()
    assert (slots.busy, slots.peak) == (True, 1)
    slots.leave()
    assert slots.take()


async def test_a_slot_that_was_given_to_a_canceled_waiter_is_free_where_no_other_waits() -> None:
    slots = Slots(1)
    assert slots.take()
    waiter = asyncio.create_task(slots.wait())
    await asyncio.sleep(0)
    slots.leave()
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)

    assert not slots.busy
    assert (slots.take(), slots.take()) == (True, False)


async def test_a_canceled_waiter_leaves_the_queue_and_takes_nothing_with_it() -> None:
    slots = Slots(1)
    assert slots.take()
    waiter = asyncio.create_task(slots.wait())
    await asyncio.sleep(0)
    before = slots.busy
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    slots.leave()

    assert (before, slots.busy) == (True, False)
    assert (slots.take(), slots.take()) == (True, False)


def test_time_in_which_approvals_are_pending_counts_once() -> None:
    slots = Slots(1)
    slots.ask(10.0)
    slots.ask(12.0)
    slots.heard(15.0)
    assert slots.waited_s == 0.0
    slots.heard(17.0)
    slots.ask(20.0)
    slots.heard(21.5)

    assert slots.waited_s == 8.5


# Events


async def test_an_open_stream_waits_for_events_and_a_closed_one_ends() -> None:
    hub = EventHub()
    before = hub.emitter(Turn("t"))
    with hub.stream() as stream:
        during = hub.emitter(Turn("t"))
        reading = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        waits = not reading.done()
    async with asyncio.timeout(5):
        with pytest.raises(StopAsyncIteration):
            await reading

    assert waits
    assert (before, during is None, hub.emitter(Turn("t"))) == (None, False, None)


# Ending turns from outside


async def waits_for(store: Store, turn_id: str, *others: str) -> None:
    turn = Turn(turn_id, waits=tuple(map(ForTurn, others)))
    await store.begin(turn)
    await store.release(turn)


async def test_a_turn_ends_with_all_turns_that_it_waits_for_and_no_others(store: Store) -> None:
    await waits_for(store, "grandchild")
    await waits_for(store, "child", "grandchild", "pruned")
    await waits_for(store, "ended")
    await cancel_turn(store, "ended", 1.0, "Done.")
    await waits_for(store, "parent", "child", "ended")
    await waits_for(store, "other", "child")
    found = await turns_waited_for(store, "parent")
    await cancel_turn(store, "parent", 2.0, "Enough.")
    states = {turn.id: turn.state for turn in await store.turns()}
    answers = {turn_id: (await store.turn(turn_id)).ending for turn_id in ("parent", "child", "grandchild", "ended")}

    assert sorted(found) == ["child", "grandchild"]
    assert states == {**dict.fromkeys(("parent", "child", "grandchild", "ended"), "ended"), "other": "interrupted"}
    assert {ending.reason for ending in answers.values() if ending} == {EndReason.CANCELED}
    assert {name: ending.answer for name, ending in answers.items() if ending} == {
        "parent": "Enough.", "child": "Enough.", "grandchild": "Enough.", "ended": "Done.",
    }  # fmt: skip


async def test_turns_that_wait_for_each_other_end(store: Store) -> None:
    await waits_for(store, "one", "two")
    await waits_for(store, "two", "one")
    async with asyncio.timeout(5):
        found = await turns_waited_for(store, "one")

    assert sorted(found) == ["one", "two"]


async def test_a_turn_that_is_run_or_unknown_is_not_ended(store: Store) -> None:
    await store.begin(Turn("running"))
    with pytest.raises(Fenced):
        await cancel_turn(store, "running", 1.0)
    with pytest.raises(NotFound):
        await cancel_turn(store, "missing", 1.0)
    await cancel_ended_twice(store)

    assert (await store.turn("running")).state == "running"


async def cancel_ended_twice(store: Store) -> None:
    await waits_for(store, "waiting")
    for reason in ("First.", "Second."):
        await cancel_turn(store, "waiting", 1.0, reason)
    ending = (await store.turn("waiting")).ending
    assert ending is not None
    assert ending.answer == "First."


@pytest.mark.parametrize("own_time", [True, False])
async def test_what_a_canceled_turn_has_used_is_in_the_metrics(store: Store, own_time: bool) -> None:
    turn = Turn("t", limits=Limits(own_time=own_time))
    begun = CallCard("r1", "t", 1, ToolCall("paint", {}, "c1"), "d", attempt=1, token="r1")
    waiting = CallCard("r2", "t", 1, ToolCall("paint", {}, "c2"), "d")
    done = CallCard("r3", "t", 1, ToolCall("paint", {}, "c3"), "d", attempt=1, token="r3")
    await store.begin(turn)
    reply = Reply(calls=(begun.call, waiting.call, done.call), usage=Usage(7, 5))
    await store.append_reply(turn, reply, [begun, waiting, done], [])
    store.begins("t", "c1")
    result = ToolResult("c3", "paint", Status.SUCCESS, (Text("red"),))
    await store.close(done, result, [])
    await store.release(turn)
    await cancel_turn(store, "t", 9.0)
    cards = {one.call.id: one.result for one in await store.calls(turn_id="t")}
    _, loop = await store.metrics()
    rows = [row for row in await store.audit_log(turn_id="t") if row.event == "finished" and row.at == 9.0]

    assert cards["c3"] == result
    assert cards["c2"] is not None
    assert cards["c1"] is not None
    assert "may" in cards["c1"].text, "it had begun"
    assert cards["c1"].text != cards["c2"].text
    assert (loop.turns, loop.iterations, loop.input_tokens, loop.output_tokens) == (1, 1, 7, 5)
    assert sorted(row.call_id for row in rows) == ["c1", "c2"]


# Resuming


def test_what_a_call_lacks_is_named() -> None:
    far = replace(paint, tier=Tier.RUN, needs=frozenset({"brushes", "ladder"}))
    box, asked = Toolbox.of(far), ToolCall("paint", {}, "c")
    had = Grant(Tier.RUN, frozenset({"brushes", "ladder"}), roots=("/a", "/b"))

    assert lacks(Toolbox(), asked, had, had) == "there is no such tool now"
    assert lacks(box, asked, had, had) == ""
    assert lacks(box, asked, Grant(), Grant()) == "", "it could not run before either"
    assert lacks(box, asked, had, replace(had, tier=Tier.WALK)) == "it needs tier run, which is not granted any more"
    less = lacks(box, asked, had, replace(had, permissions=frozenset({"brushes"})))
    assert less == "it needs ladder, which is not granted any more"
    assert lacks(box, asked, had, replace(had, roots=("/a",))) == "", "it names no path"


def test_a_call_with_paths_needs_the_folders_that_it_was_approved_for() -> None:
    @tool(needs=["file_read"], reads=("path",))
    def read(path: str) -> str:
        """Read."""
        return path

    box, asked = Toolbox.of(read), ToolCall("read", {"path": "a.txt"}, "c")
    had = Grant(permissions=frozenset({"file_read"}), roots=("/a", "/b"))

    assert "not all folders" in lacks(box, asked, had, replace(had, roots=("/a",)))
    assert lacks(box, asked, had, had) == ""


async def asked_about(store: Store, one: Tool) -> str:
    agent = Agent(ScriptedModel(call(one.name)), [one], store=store, suspends=True)
    with pytest.raises(Suspended) as waiting:
        await agent.ask("Paint")
    return waiting.value.turn_id


async def test_only_calls_that_people_were_asked_about_need_their_tool(store: Store) -> None:
    one = replace(paint, requires_confirmation=True, version="2")
    turn_id = await asked_about(store, one)
    turn = (await store.turn(turn_id)).opening
    [(card_of, approval)] = await approved_calls(store, turn_id)

    await require_same_tools(store, turn, Toolbox.of(one), None)
    await require_still_granted(store, turn, Toolbox.of(one), turn.grant)
    with pytest.raises(CannotResume, match="there is no such tool now"):
        await require_same_tools(store, turn, Toolbox(), None)
    with pytest.raises(CannotResume, match="it has version 3 now, and the approval is for version 2"):
        await require_same_tools(store, turn, Toolbox.of(replace(one, version="3")), None)
    with pytest.raises(CannotResume, match="there is no such tool now"):
        await require_still_granted(store, turn, Toolbox(), turn.grant)
    assert (card_of.call.name, approval.turn_id, card_of.result) == ("paint", turn_id, None)
    assert await approved_calls(store, "missing") == []


async def test_a_call_of_a_skill_needs_the_files_that_the_approval_was_for(store: Store) -> None:
    one = replace(paint, requires_confirmation=True, skill="decor")
    turn_id = await asked_about(store, one)
    kept = (await store.turn(turn_id)).opening
    before, after = (AgentSpec(tools=ToolsSpec(skills=(SkillSpec("decor", "1", digest),))) for digest in ("old", "new"))
    turn = replace(kept, spec=before)

    await require_same_tools(store, turn, Toolbox.of(one), before)
    await require_same_tools(store, turn, Toolbox.of(one), None)
    await require_same_tools(store, replace(kept, spec=None), Toolbox.of(one), after)
    await require_same_tools(store, turn, Toolbox.of(replace(one, skill="")), after)
    with pytest.raises(CannotResume, match="the files of skill 'decor' have changed"):
        await require_same_tools(store, turn, Toolbox.of(one), after)
    with pytest.raises(CannotResume, match="the files of skill 'decor' have changed"):
        await require_same_tools(store, turn, Toolbox.of(one), AgentSpec())


async def test_an_answered_call_is_not_among_the_approved_ones() -> None:
    store = MemoryStore()
    one = replace(paint, requires_confirmation=True)
    turn_id = await asked_about(store, one)
    [asked] = await store.approvals()
    assert (await store.turn(turn_id)).opening.waits == (ForApproval(asked.id),)
    await cancel_turn(store, turn_id, 1.0)

    assert await approved_calls(store, turn_id) == []
