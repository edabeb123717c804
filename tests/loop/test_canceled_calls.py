"""Canceling a turn whose call another process holds: the holder is asked to stop, and the turn ends after it."""

import pytest

from tests.loop.test_dispatched_calls import FAR, SOON, Fleet, agent, claimed, far, launched, sent
from toolwire.deliver.endings import canceled_result
from toolwire.errors import Fenced, Suspended
from toolwire.hub.canceling import cancel_turn
from toolwire.protocol.events import Event, TurnEnded
from toolwire.protocol.outcomes import Status
from toolwire.protocol.records import CallCard
from toolwire.protocol.turns import EndReason
from toolwire.protocol.waits import ForResult
from toolwire.record.contract import Store


async def only_call(store: Store, turn_id: str) -> CallCard:
    [card] = await store.calls(turn_id=turn_id)
    return card


@pytest.mark.parametrize("stops", [True, False])
async def test_a_turn_whose_call_is_held_ends_canceled_when_its_holder_has_answered(store: Store, stops: bool) -> None:
    """Whether the holder stops, or is done before it hears of it."""
    fleet, one, seen = Fleet(), far(), list[Event]()
    turn_id = await sent(store, fleet, one)
    held = await claimed(store, turn_id)
    waits = await agent(store, fleet, one).cancel(turn_id, "Not today.")
    asked = await store.renew(held, FAR + 1)
    early = await store.ready_turns(SOON)
    await store.close(held, canceled_result(held.call, begun=True) if stops else launched(held), [])
    ready = [turn.id for turn in await store.ready_turns(SOON)]
    answer = await agent(store, fleet, one).resume(turn_id, on_event=seen.append)

    card = await only_call(store, turn_id)
    assert (waits, asked.cancel) == ((ForResult(held.call.id, FAR),), "Not today.")
    assert (early, ready) == ([], [turn_id])
    assert (answer.reason, answer.text) == (EndReason.CANCELED, "Not today.")
    assert card.result is not None
    assert card.result.status is (Status.CANCELED if stops else Status.SUCCESS)
    assert (await store.turn(turn_id)).state == "ended"
    assert [type(event) for event in seen] == [TurnEnded]


async def test_a_canceled_turn_is_not_resumed_while_its_holder_runs_on(store: Store) -> None:
    fleet, one = Fleet(), far()
    turn_id = await sent(store, fleet, one)
    held = await claimed(store, turn_id)
    await cancel_turn(store, turn_id, 5.0)
    for _ in range(2):
        with pytest.raises(Suspended) as waiting:
            await agent(store, fleet, one).resume(turn_id)
        assert waiting.value.waits == (ForResult(held.call.id, FAR),)
    assert (await store.turn(turn_id)).state == "interrupted"


async def test_a_holder_that_died_does_not_keep_a_canceled_turn_open(store: Store) -> None:
    fleet, one = Fleet(), far()
    turn_id = await sent(store, fleet, one)
    held = await claimed(store, turn_id)
    await cancel_turn(store, turn_id, 5.0)
    await store.renew(held, SOON)
    waits = await cancel_turn(store, turn_id, SOON)
    with pytest.raises(Fenced):
        await store.claim(await only_call(store, turn_id), [], owner="other", until=FAR)
    late = await store.close(held, launched(held), [])

    card = await only_call(store, turn_id)
    rows = [row.event for row in await store.audit_log(turn_id=turn_id)]
    assert (waits, card.result) == ((), late)
    assert late.status is Status.CANCELED
    assert "late_result" in rows
    ending = (await store.turn(turn_id)).ending
    assert ending is not None
    assert ending.reason is EndReason.CANCELED


async def test_a_call_whose_holder_was_asked_to_stop_is_claimed_by_no_other(store: Store) -> None:
    fleet, one = Fleet(), far()
    turn_id = await sent(store, fleet, one)
    held = await claimed(store, turn_id, until=FAR)
    asked = await store.ask_to_cancel(await only_call(store, turn_id), "not wanted")
    await store.renew(held, 1.0)
    with pytest.raises(Fenced, match="canceled"):
        await store.claim(asked, [], owner="other", until=FAR)


async def test_a_single_call_that_is_held_is_canceled_the_same_way(store: Store) -> None:
    fleet, one = Fleet(), far()
    with pytest.raises(Suspended) as waiting:
        await agent(store, fleet, one).call("launch", {"site": "pad"})
    turn_id = waiting.value.turn_id
    held = await claimed(store, turn_id)
    await cancel_turn(store, turn_id, 5.0)
    await store.close(held, canceled_result(held.call, begun=True), [])
    result = await agent(store, fleet, one).resume_call(turn_id)

    assert result.status is Status.CANCELED
    assert (await store.turn(turn_id)).state == "ended"


async def test_an_ordinary_turn_that_waits_for_a_result_is_not_taken_for_canceled(store: Store) -> None:
    fleet, one = Fleet(), far()
    turn_id = await sent(store, fleet, one)
    held = await claimed(store, turn_id)
    await store.close(held, canceled_result(held.call, begun=True), [])
    answer = await agent(store, fleet, one, "It was stopped.").resume(turn_id)

    assert (answer.text, answer.reason) == ("It was stopped.", EndReason.ANSWERED)
