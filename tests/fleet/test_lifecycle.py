"""What a turn does about calls that run in workers: it ends with them, goes on without them, or cancels them."""

import asyncio
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fleet.conftest import Fleet
from toolwire import Limits, Tier, tool
from toolwire.fleet.parcels import call_card, command_of, read_parcel
from toolwire.hub.canceling import LOOK_AGAIN_S, cancel_turn
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.outcomes import Status
from toolwire.protocol.turns import EndReason
from toolwire.protocol.waits import ForResult
from toolwire.record.contract import Store
from toolwire.record.projects import of_project
from toolwire.testing import call


@pytest.mark.feature("F028")
@pytest.mark.parametrize("by_result", [False, True])
async def test_a_call_in_a_worker_ends_its_turn(fleet: Fleet, by_result: bool) -> None:
    @tool(tier=Tier.WALK)
    async def note(words: str) -> dict[str, Any]:
        """Write words down."""
        control = {"__cg_control": {"after_execution": "terminate"}} if by_result else {}
        return {"noted": words, **control}

    store = await fleet.store()
    after = AfterExecution.SUSPEND if by_result else AfterExecution.TERMINATE
    far = fleet.far(note, after_execution=after, controls_turn=by_result)
    await fleet.worker([note])
    await fleet.relay()
    turn_id = await fleet.sent(fleet.agent(store, [far], call("note", words="milk")))
    fleet.runner(await fleet.store(), [far])
    await fleet.answer()

    ending = (await store.turn(turn_id, project=fleet.project)).ending
    assert ending is not None
    assert (ending.reason, ending.value) == (EndReason.DELIVERED, {"noted": "milk"})


async def test_a_call_that_was_to_be_canceled_ends_although_its_worker_and_who_canceled_it_have_died(
    fleet: Fleet,
) -> None:
    """The turn goes on meanwhile, and is canceled once the call has ended."""
    store = await fleet.store()
    far = fleet.far(fleet.tool())
    agent = fleet.agent(store, [far], call("note", words="milk"))
    turn_id = await fleet.sent(agent)
    view = of_project(store, fleet.project)
    card = await fleet.card(store, turn_id)
    await view.claim(card, [], owner="worker", until=1.0)
    await view.ask_to_cancel(card, "Enough.")
    await fleet.relay()
    ended = await fleet.result(store, turn_id)
    await agent.resume(turn_id)

    kept = await view.turn(turn_id)
    assert ended.result is not None
    assert ended.result.status is Status.CANCELED
    assert kept.ending is not None
    assert (kept.ending.reason, kept.ending.answer) == (EndReason.CANCELED, "Enough.")


@pytest.mark.feature("F025")
async def test_a_turn_goes_on_without_a_detached_call_that_a_worker_runs_later(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    far = fleet.far(note, after_execution=AfterExecution.DETACH)
    answer = await fleet.agent(store, [far], call("note", words="milk"), "It will be noted.").ask("Note it")
    before = await store.detached_calls(project=fleet.project)
    await fleet.worker([note])
    await fleet.relay()
    card = await fleet.result(store, answer.turn_id)

    assert card.result is not None
    assert (answer.text, len(before), card.result.text) == ("It will be noted.", 1, "noted milk")
    assert await store.detached_calls(project=fleet.project) == []


async def test_canceling_a_turn_stops_the_tool_in_its_worker(fleet: Fleet) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @tool(tier=Tier.WALK)
    async def note(words: str) -> str:
        """Write words down."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return words

    store = await fleet.store()
    await fleet.worker([note])
    await fleet.relay()
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    await begun.wait()
    fleet.runner(await fleet.store(), [fleet.far(note)])
    [wait] = await cancel_turn(of_project(store, fleet.project), turn_id, 5.0, "Not today.")
    async with asyncio.timeout(5):
        await stopped.wait()
    card = await fleet.result(store, turn_id)

    assert card.result is not None
    assert isinstance(wait, ForResult)
    assert (card.result.status, wait.until) == (Status.CANCELED, 5.0 + LOOK_AGAIN_S)
    assert await fleet.answer() == "Not today."
    ending = (await store.turn(turn_id, project=fleet.project)).ending
    assert ending is not None
    assert ending.reason is EndReason.CANCELED


async def test_a_canceled_turn_ends_though_its_worker_died(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    dead = await fleet.open_store()
    await dead.claim(await fleet.card(store, turn_id), [])
    view = of_project(store, fleet.project)
    waits = await cancel_turn(view, turn_id, 5.0)
    await dead.close_store()
    await fleet.worker([note])
    await fleet.relay(pause=lambda _: 0.01)
    later = await cancel_turn(view, turn_id, 20.0)

    assert (len(waits), later, fleet.noted) == (1, (), [])
    assert (await store.turn(turn_id, project=fleet.project)).state == "ended"


@pytest.mark.feature("F191")
async def test_a_command_and_its_card_name_the_step_of_the_turn(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    far = fleet.far(note, fixed={"words": "{step_id}"})
    turn_id = await fleet.sent(fleet.agent(store, [replace(far, validator=None)], call("note")))
    dispatch, card = await store.dispatched(
        (await fleet.card(store, turn_id)).record_id, project=fleet.project
    )  # fmt: skip
    parcel = read_parcel(dispatch)

    step_id = f"step_{turn_id}_1"
    assert command_of(parcel, dispatch, card).step_id == call_card(parcel, dispatch, card).step_id == step_id
    assert parcel.arguments == {"words": step_id}


async def test_the_card_of_a_call_says_when_it_must_have_ended(fleet: Fleet) -> None:
    """The time for which it may wait, and the time that its tool has; a turn with less time left gives less."""
    store, note = await fleet.store(), fleet.tool(timeout_s=20)
    agent = fleet.agent(store, [fleet.far(note)], call("note"), sends={"queue_s": 100.0, "clock": lambda: 1_000.0})
    turn_id = await fleet.sent(agent)
    hurried = fleet.agent(
        store, [fleet.far(note)], call("note"), sends={"queue_s": 100.0, "clock": lambda: 1_000.0},
        limits=Limits(deadline_s=5),
    )  # fmt: skip
    sooner_id = await fleet.sent(hurried)

    ends = [datetime.fromisoformat(await deadline(fleet, store, one)).timestamp() for one in (turn_id, sooner_id)]
    assert ends[0] == 1_120.0
    assert 1_100.0 < ends[1] <= 1_105.0


async def deadline(fleet: Fleet, store: Store, turn_id: str) -> str:
    [card] = await store.calls(turn_id=turn_id, project=fleet.project)
    dispatch, card = await store.dispatched(card.record_id, project=fleet.project)
    return call_card(read_parcel(dispatch), dispatch, card).deadline


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_a_call_that_may_take_as_long_as_it_likes_is_run(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool(timeout_s=1e12)
    await fleet.worker([note])
    await fleet.relay()
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))

    result = (await fleet.result(store, turn_id)).result
    assert result is not None
    assert (result.ok, fleet.noted) == (True, ["milk"])
