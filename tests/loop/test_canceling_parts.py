"""Ending turns whose calls others hold, by itself: what is waited for, what is asked, and what the turn has used."""

import pytest
from msgspec.structs import replace

from toolwire import MemoryStore
from toolwire.deliver.endings import canceled_result
from toolwire.hub.canceling import LOOK_AGAIN_S, cancel_turn
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Reply
from toolwire.protocol.records import CallCard
from toolwire.protocol.turns import Limits, Turn
from toolwire.protocol.waits import ForResult, ForTurn
from toolwire.record.contract import KeptTurn

NOW, LATER = 100.0, 500.0


def card(call_id: str) -> CallCard:
    return CallCard(f"r-{call_id}", "t", 1, ToolCall("paint", {}, call_id), "d")


async def waiting(store: MemoryStore, until: float | None) -> CallCard:
    """A turn that no process runs with two calls: one is idle, the other held by a worker."""
    turn = Turn("t", waits=(ForResult("held", LATER),))
    await store.begin(turn)
    await store.append_reply(
        turn, Reply(calls=(card("idle").call, card("held").call)), [card("idle"), card("held")], []
    )
    held = await store.claim(card("held"), [], owner="worker", until=until)
    await store.release(turn)
    return held


@pytest.mark.parametrize(("until", "looked_at"), [(LATER, LATER), (None, NOW + LOOK_AGAIN_S)])
async def test_a_turn_waits_for_the_holder_of_its_call_or_looks_at_it_again(
    until: float | None, looked_at: float
) -> None:
    store = MemoryStore(clock=lambda: NOW)
    held = await waiting(store, until)
    waits = await cancel_turn(store, "t", NOW, "Enough.")
    kept = await store.turn("t")

    assert waits == (ForResult("held", looked_at),) == kept.opening.waits
    assert kept.state == "interrupted"
    assert {one.call.id: (one.result is None, one.cancel) for one in await store.calls(turn_id="t")} == {
        "idle": (False, ""), "held": (True, "Enough."),
    }  # fmt: skip
    await store.close(held, canceled_result(held.call, begun=True), [])
    assert await cancel_turn(store, "t", NOW) == ()
    assert (await store.turn("t")).state == "ended"
    assert await cancel_turn(store, "t", NOW) == (), "it has ended before"


async def test_a_turn_whose_holder_is_done_when_it_is_asked_to_stop_ends_at_once() -> None:
    class Done(MemoryStore):
        async def ask_to_cancel(self, card: CallCard, why: str) -> CallCard:
            await self.close(held, canceled_result(held.call, begun=True), [])
            return await super().ask_to_cancel(card, why)

    store = Done(clock=lambda: NOW)
    held = await waiting(store, LATER)
    assert await cancel_turn(store, "t", NOW) == ()
    assert (await store.turn("t")).state == "ended"


async def test_a_turn_that_goes_on_before_it_is_taken_over_ends_with_what_it_waits_for_then() -> None:
    class GoesOn(MemoryStore):
        async def resume(self, turn_id: str, *, project: str | None = None) -> KeptTurn:
            kept = await super().resume(turn_id, project=project)
            if turn_id != "parent" or kept.opening.epoch > 2:
                return kept
            await self.release(replace(kept.opening, waits=(ForTurn("second"),)))  # a runner went on with it
            return await super().resume(turn_id, project=project)

    store = GoesOn(clock=lambda: NOW)
    for turn_id, waits in (("first", ()), ("second", ()), ("parent", (ForTurn("first"),))):
        await store.begin(Turn(turn_id, waits=waits), runs=False)
    await cancel_turn(store, "first", NOW)
    await cancel_turn(store, "parent", NOW)

    assert {turn.id: turn.state for turn in await store.turns()} == dict.fromkeys(
        ("first", "second", "parent"), "ended"
    )


@pytest.mark.parametrize(("own_time", "charged_s"), [(True, 3.0), (False, 0.0)])
async def test_a_canceled_turn_costs_its_agent_the_time_that_counts_as_its_own(
    own_time: bool, charged_s: float
) -> None:
    moment = 0.0
    store = MemoryStore(clock=lambda: NOW, monotonic=lambda: moment)
    turn = Turn("t", agent="ann", limits=Limits(own_time=own_time))
    await store.begin(turn)
    moment = 3.0
    await store.append_reply(turn, Reply("Hm."), [], [])
    await store.release(turn)
    await cancel_turn(store, "t", NOW)

    assert (await store.spent("ann", NOW)).wall_s == charged_s
