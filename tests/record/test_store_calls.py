"""Calls in every store: written down once, ended once, never changed by whoever lost the turn."""

import asyncio

import pytest
from msgspec.structs import replace

from toolwire.errors import Fenced, NotFound, StoreError
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Reply
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record.contract import Ends, Store, TurnStats

from .conftest import NOW
from .samples import a_call, a_card, a_row, a_turn, failure, success


async def events(store: Store) -> list[str]:
    return [row.event for row in await store.audit_log()]


@pytest.mark.requirement("record.idempotent")
async def test_a_call_opened_twice_is_one_call_and_keeps_its_first_card(store: Store) -> None:
    """The protocol demands it: the same turn and call id re-entering stays idempotent."""
    first = await store.open(a_card(), [a_row("accepted")])
    again = await store.open(a_card(created_at=99.0), [a_row("accepted")])

    assert first == again == a_card()
    assert await store.calls() == [a_card()]
    assert await events(store) == ["accepted"]


async def test_a_turn_that_begins_with_a_call_is_kept_with_it_or_not_at_all(store: Store) -> None:
    turn = a_turn()
    assert await store.open(a_card(), [a_row("accepted")], begins=turn) == a_card()
    assert (await store.turn(turn.id)).state == "running"
    assert store.holds(turn.id)

    with pytest.raises(StoreError, match="already kept"):
        await store.open(a_card(a_call("call-2")), [a_row("accepted")], begins=turn)

    assert await store.calls() == [a_card()]
    await store.end(replace(turn, ending=Ending(EndReason.DELIVERED, "21 degrees")), TurnStats(calls=1))
    assert ((await store.turn(turn.id)).state, await events(store)) == ("ended", ["accepted"])


def ends_delivered(turn: Turn) -> Ends:
    return lambda result: (replace(turn, ending=Ending(EndReason.DELIVERED, result.text)), TurnStats(calls=1))


async def test_a_turn_of_a_single_call_ends_with_the_result_that_was_kept_first(store: Store) -> None:
    turn, card = a_turn(), a_card()
    held = await store.claim(await store.open(card, [], begins=turn), [])
    first = await store.close(held, success(card.call), [a_row("finished")], ends=ends_delivered(turn))

    kept = await store.turn(turn.id)
    assert (kept.state, kept.ending) == ("ended", Ending(EndReason.DELIVERED, first.text))
    assert (await store.metrics())[1].turns == 1
    with pytest.raises(Fenced, match="has ended"):  # the result that comes back is the first, and it has ended before
        await store.close(held, failure(card.call), [], ends=ends_delivered(turn))
    assert (await store.call(turn.id, card.call.id)).result == first


async def test_a_result_of_the_holder_is_kept_where_its_turn_may_not_be_ended_by_it(store: Store) -> None:
    turn, card = a_turn(), a_card()
    held = await store.claim(await store.open(card, [], begins=turn), [], owner="worker", until=NOW + 10)
    await store.release(turn)
    await store.resume(turn.id)

    with pytest.raises(Fenced, match="taken over"):
        await store.close(held, success(card.call), [], ends=ends_delivered(turn))

    assert (await store.call(turn.id, card.call.id)).result is not None
    assert (await store.turn(turn.id)).state == "running"


@pytest.mark.parametrize(("left", "state"), [("", "ended"), ("released", "interrupted"), ("resumed", "running")])
async def test_another_process_ends_a_turn_with_its_call_only_where_the_turn_still_runs(
    store: Store, left: str, state: str
) -> None:
    """Its result counts in any case. Whoever runs the turn sees both in one look."""
    turn, card = a_turn(), a_card()
    held = await store.claim(await store.open(card, [], begins=turn), [], owner="worker", until=NOW + 10)
    assert await store.call_and_end(turn.id, card.call.id) == (await store.call(turn.id, card.call.id), False)
    if left:
        await store.release(turn)
    if left == "resumed":
        await store.resume(turn.id)

    told: list[bool] = []
    first = await store.close(held, success(card.call), [], ends=ends_delivered(turn), tell_end=told.append)

    kept, (found, has_ended) = await store.turn(turn.id), await store.call_and_end(turn.id, card.call.id)
    assert (kept.state, found.result, has_ended) == (state, first, state == "ended")
    assert told[-1] == has_ended
    assert (await store.metrics())[1].turns == int(has_ended)
    with pytest.raises(NotFound):
        await store.call_and_end(turn.id, "call-2")


@pytest.mark.requirement("record.idempotent")
async def test_a_call_opened_again_after_it_ended_comes_back_with_its_result(store: Store) -> None:
    card = await store.open(a_card(), [])
    await store.claim(card, [])
    await store.close(card, success(), [])

    again = await store.open(a_card(), [])

    assert again.result == success()
    assert again.attempt == 1


@pytest.mark.requirement("record.idempotent")
async def test_the_same_call_with_other_arguments_is_refused_and_audited(store: Store) -> None:
    await store.open(a_card(a_call(room="kitchen")), [])

    with pytest.raises(StoreError, match="other arguments"):
        await store.open(a_card(a_call(room="cellar")), [a_row("accepted")])

    (kept,) = await store.calls()
    assert kept.call.arguments == {"room": "kitchen"}
    assert await events(store) == ["idempotency_conflict"]


@pytest.mark.requirement("record.first-wins")
async def test_the_first_result_wins_and_a_later_one_is_only_audited(store: Store) -> None:
    """The protocol demands it: an accepted call has exactly one result; late reports are events."""
    card = await store.open(a_card(), [])
    first = await store.close(card, success(text="first"), [a_row("result")])
    second = await store.close(card, failure(), [a_row("result")])

    assert first == second == success(text="first")
    assert (await store.calls())[0].result == success(text="first")
    rows = await store.audit_log()
    assert [(row.event, row.status) for row in rows] == [("result", ""), ("late_result", "failed")]
    (tool,), _ = await store.metrics()
    assert (tool.calls, tool.errors) == (1, 0)


@pytest.mark.requirement("record.first-wins")
async def test_results_that_race_for_one_call_all_see_the_same_winner(store: Store) -> None:
    card = await store.open(a_card(), [])

    answers = await asyncio.gather(*(store.close(card, success(text=str(n)), []) for n in range(20)))

    assert len(set(answers)) == 1
    assert await events(store) == ["late_result"] * 19


async def test_calls_opened_at_the_same_moment_are_kept_once(store: Store) -> None:
    cards = await asyncio.gather(*(store.open(a_card(created_at=float(n)), [a_row("accepted")]) for n in range(20)))

    assert len({card.created_at for card in cards}) == 1
    assert await events(store) == ["accepted"]


async def test_one_refused_change_does_not_harm_those_made_at_the_same_moment(store: Store) -> None:
    await store.open(a_card(a_call("taken", room="attic")), [])
    wanted = [a_card(a_call(f"call-{n}")) for n in range(10)]

    outcomes = await asyncio.gather(
        *(store.open(card, []) for card in wanted[:5]),
        store.open(a_card(a_call("taken", room="cellar")), []),
        store.close(a_card(a_call("never opened")), success(), []),
        *(store.open(card, []) for card in wanted[5:]),
        return_exceptions=True,
    )

    assert [card for card in outcomes if not isinstance(card, BaseException)] == wanted
    assert [type(error) for error in outcomes if isinstance(error, BaseException)] == [StoreError, NotFound]
    assert len(await store.calls()) == 11


async def test_each_claim_raises_the_attempt_that_later_readers_see(store: Store) -> None:
    card = await store.open(a_card(), [])

    assert (await store.claim(card, [a_row("started")], until=NOW)).attempt == 1
    assert (await store.claim(card, [a_row("started")], until=NOW)).attempt == 2
    assert (await store.open(a_card(), [])).attempt == 2
    assert (await store.calls())[0].attempt == 2
    assert await events(store) == ["started", "started"]


async def test_a_call_may_be_opened_as_claimed(store: Store) -> None:
    """We chose it: a call that starts at once needs one write less."""
    card = await store.open(a_card(attempt=1), [])

    assert (card.attempt, card.token) == (1, card.record_id)
    assert (await store.claim(card, [])).attempt == 1
    assert (await store.calls())[0].attempt == 1


async def test_a_call_that_ended_is_not_started_again(store: Store) -> None:
    card = await store.open(a_card(), [])
    await store.close(card, success(), [])

    started = await store.claim(card, [a_row("started")])

    assert (started.result, started.attempt) == (success(), 0)
    assert await events(store) == []


async def test_a_card_given_with_a_result_is_closed_at_once(store: Store) -> None:
    refused = failure()
    card = await store.open(a_card(result=refused), [a_row("denied")])

    assert card.result == refused
    assert await store.close(card, success(), []) == refused
    (tool,), _ = await store.metrics()
    assert (tool.calls, tool.errors) == (1, 1)


async def test_a_call_that_was_never_opened_can_neither_start_nor_end(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.claim(a_card(), [])
    with pytest.raises(NotFound):
        await store.close(a_card(), success(), [])


@pytest.mark.requirement("record.fenced")
async def test_whoever_lost_the_turn_can_change_none_of_its_calls(store: Store) -> None:
    """The protocol demands it: every state change is a compare-and-set on the epoch."""
    turn = a_turn()
    await store.begin(turn)
    mine = await store.open(a_card(turn=turn), [])
    await store.release(turn)
    await store.resume(turn.id)
    before = await store.calls()

    for change in (
        store.open(a_card(a_call("another"), turn), [a_row("accepted")]),
        store.claim(mine, [a_row("started")]),
        store.close(mine, success(), [a_row("result")]),
    ):
        with pytest.raises(Fenced, match="taken over"):
            await change

    assert await store.calls() == before
    assert await events(store) == ["late_result"]
    assert (await store.metrics())[0] == []


@pytest.mark.requirement("record.resume")
async def test_the_new_owner_ends_a_call_that_the_old_one_opened(store: Store) -> None:
    turn = a_turn()
    await store.begin(turn)
    await store.claim(await store.open(a_card(turn=turn), []), [])
    await store.release(turn)
    taken = (await store.resume(turn.id)).opening

    card = await store.open(a_card(turn=taken), [])

    assert (card.epoch, card.attempt) == (2, 1)
    assert await store.close(card, success(), []) == success()


async def test_a_result_that_comes_after_the_turn_ended_is_still_kept(store: Store) -> None:
    """We chose it: a detached call outlives its turn, and its outcome belongs on record."""
    turn = a_turn()
    await store.begin(turn)
    card = await store.open(a_card(turn=turn), [])
    await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "soon")), TurnStats())

    assert await store.close(card, success(), []) == success()
    assert (await store.calls())[0].result == success()


async def test_calls_are_listed_in_call_order_for_a_turn_and_newest_first_otherwise(store: Store) -> None:
    turn, other = a_turn("turn-1"), a_turn("turn-2")
    for owner, call in ((turn, a_call("a")), (other, a_call("b", "clock")), (turn, a_call("c", "clock"))):
        await store.open(a_card(call, owner), [])

    async def ids(turn_id: str | None = None, tool: str | None = None, limit: int = 50) -> list[str]:
        return [card.call.id for card in await store.calls(turn_id=turn_id, tool=tool, limit=limit)]

    assert await ids() == ["c", "b", "a"]
    assert await ids(limit=1) == ["c"]
    assert await ids("turn-1") == ["a", "c"]
    assert await ids("turn-1", limit=1) == ["a"]
    assert await ids(tool="clock") == ["c", "b"]
    assert await ids("turn-1", "clock") == ["c"]
    assert await ids("no such turn") == []


@pytest.mark.threat("T5")
@pytest.mark.parametrize(
    "call",
    [
        ToolCall("half \ud83d a pair", {"text": "\udc00", "\ud800": 1}, id="c"),
        ToolCall("with\0nul", {"text": "a\0b"}, id="c"),
        ToolCall("numbers", {"huge": 10**400, "minus": -(2**64), "inf": float("inf")}, id="c"),
        ToolCall("markers", {"$text": "AAAA", "nested": [{"$int": "0x1"}, {"$object": []}], "none": None}, id="c"),
    ],
    ids=["surrogates", "nul", "numbers", "markers"],
)
async def test_what_a_model_says_comes_back_exactly_however_odd(store: Store, call: ToolCall) -> None:
    card = a_card(call, args_digest="d")
    result = success(call, text=str(call.arguments), structured=dict(call.arguments))
    await store.open(card, [a_row("accepted", card)])
    await store.close(card, result, [])

    assert await store.calls(tool=call.name) == [replace(card, result=result)]


async def test_a_reply_and_its_cards_are_kept_together_or_not_at_all(store: Store) -> None:
    turn = a_turn()
    await store.begin(turn)
    await store.open(a_card(a_call("taken", room="attic"), turn), [])
    calls = (a_call("new"), a_call("taken", room="cellar"))

    with pytest.raises(StoreError, match="other arguments"):
        await store.append_reply(turn, Reply(calls=calls), [a_card(call, turn) for call in calls], [a_row("accepted")])

    assert (await store.turn(turn.id)).events == ()
    assert [card.call.id for card in await store.calls()] == ["taken"]
    assert await events(store) == ["idempotency_conflict"]
