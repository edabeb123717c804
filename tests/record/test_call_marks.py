"""Marks on calls, in every store: turns that do not wait, holders that are asked to stop, results that end turns."""

from typing import Any

import pytest
from msgspec.structs import replace

from toolwire.errors import Fenced, NotFound
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.chat import Reply, ResultsMessage
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Agreement
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record.contract import Store, TurnStats

from .conftest import NOW
from .samples import a_call, a_card, a_turn, success

TERMINATE, DETACH = AfterExecution.TERMINATE, AfterExecution.DETACH


async def accepted(store: Store, **more: Any) -> tuple[Turn, CallCard]:
    turn = a_turn()
    card = replace(a_card(turn=turn), step=1, **more)
    await store.begin(turn)
    await store.append_reply(turn, Reply(calls=(card.call,)), [card], [])
    return turn, card


async def test_a_card_keeps_its_step_and_what_was_agreed_about_it(store: Store) -> None:
    agreed = Agreement(TERMINATE, controls_turn=True)
    _, card = await accepted(store, agreed=agreed)

    [kept] = await store.calls(turn_id=card.turn_id)
    assert (kept.step, kept.agreed, kept.detached, kept.cancel) == (1, agreed, False, "")


async def test_a_detached_call_is_told_by_its_receipt_and_ends_after_its_turn(store: Store) -> None:
    turn, card = await accepted(store, agreed=Agreement(DETACH))
    detached = await store.detach(card)
    told = (await store.turn(turn.id)).events[-1]
    await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "Bye.")), TurnStats())
    [waiting] = await store.detached_calls()
    held = await store.claim(replace(card, epoch=7), [], owner="worker", until=NOW + 10)
    await store.close(held, success(card.call), [])

    [kept] = await store.calls(turn_id=turn.id)
    assert isinstance(told, ResultsMessage)
    assert card.call.id in told.results[0].text
    assert (detached.detached, waiting.call.id, kept.result) == (True, card.call.id, success(card.call))
    assert await store.detached_calls() == []
    assert (await store.turn(turn.id)).events[-1] == told


async def test_a_call_that_has_ended_is_not_marked(store: Store) -> None:
    _, card = await accepted(store)
    await store.close(card, success(card.call), [])
    marked = [await store.detach(card), await store.ask_to_cancel(card, "late")]

    assert [(one.result, one.detached, one.cancel) for one in marked] == [(success(card.call), False, "")] * 2


async def test_a_mark_is_the_write_of_the_turn_as_it_is(store: Store) -> None:
    turn, card = await accepted(store)
    await store.release(turn)
    await store.resume(turn.id)
    for mark in (store.detach(card), store.ask_to_cancel(card, "old")):
        with pytest.raises(Fenced, match="taken over"):
            await mark
    with pytest.raises(NotFound):
        await store.detach(a_card(a_call("other")))


async def test_a_holder_hears_that_it_is_asked_to_stop_and_keeps_its_claim(store: Store) -> None:
    _, card = await accepted(store)
    held = await store.claim(card, [], owner="worker", until=NOW + 10)
    await store.ask_to_cancel(card, "not wanted")
    renewed = await store.renew(held, NOW + 20)
    result = await store.close(renewed, success(card.call), [])

    [kept] = await store.calls(turn_id=card.turn_id)
    assert (renewed.cancel, renewed.until, kept.result, kept.cancel) == ("not wanted", NOW + 20, result, "not wanted")


async def test_the_kept_result_says_whether_its_turn_ends(store: Store) -> None:
    _, card = await accepted(store, agreed=Agreement(TERMINATE))
    told = await store.close(card, success(card.call), [])
    ending = Ending(EndReason.DELIVERED, "21", {"degrees": 21}, card.call.id)
    await store.end(replace(a_turn(), ending=ending), TurnStats())

    kept = await store.turn(card.turn_id)
    assert told.after_execution is TERMINATE
    assert kept.events[-1] == ResultsMessage((told,))
    assert kept.ending == ending
    assert [turn.value for turn in await store.turns()] == [{"degrees": 21}]
