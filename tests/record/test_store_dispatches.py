"""Calls on their way to other processes, in every store: kept once, sent again with pauses, dropped when they ended."""

import pytest
from msgspec.structs import replace

from toolwire.errors import CallHeld, Fenced, NotFound
from toolwire.protocol.records import AuditRow, CallCard, Dispatch
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.protocol.waits import ForResult
from toolwire.record.contract import Store, TurnStats
from toolwire.record.projects import of_project

from .conftest import NOW
from .samples import a_call, a_card, a_turn, success

FAR = NOW + 10_000


async def opened(store: Store, call_id: str = "call-1", project: str = "default") -> tuple[Turn, CallCard]:
    turn = a_turn(project=project)
    card = replace(a_card(a_call(call_id), turn), project=project)
    await store.begin(turn)
    await store.open(card, [])
    return turn, card


def to_send(card: CallCard, due: float = NOW, **parts: object) -> Dispatch:
    usual = Dispatch(
        card.project, card.turn_id, card.call.id, card.record_id, card.epoch, "cg.v1r4.p.c.cmd.tool.x", "{}", due, FAR
    )
    return replace(usual, **parts)


async def due(store: Store, now: float, **named: str) -> list[tuple[str, int, bool]]:
    taken = await store.take_due(now, lambda sent: 5.0 * (sent + 1), **named)  # type: ignore[arg-type]
    return [(one.dispatch.call_id, one.dispatch.sent, one.gives_up) for one in taken]


async def test_a_dispatch_is_sent_again_with_pauses_until_its_call_has_ended(store: Store) -> None:
    _, card = await opened(store)
    row = AuditRow.about(card, "dispatched", NOW)
    await store.dispatch(to_send(card), [row])

    assert await due(store, NOW - 1) == []
    assert await due(store, NOW) == [("call-1", 1, False)]
    assert await due(store, NOW + 4) == []
    assert await due(store, NOW + 5) == [("call-1", 2, False)]
    assert await due(store, NOW + 14) == []
    held = await store.claim(card, [], owner="worker", until=FAR)
    assert await due(store, NOW + 15) == []
    await store.close(held, success(card.call), [])
    assert await due(store, FAR + 1) == []
    with pytest.raises(NotFound, match="not that of a call on its way"):
        await store.dispatched(card.record_id)
    assert [row.event for row in await store.audit_log(turn_id=card.turn_id)] == ["dispatched"]


async def test_what_was_sent_is_found_with_its_card_and_without_a_token(store: Store) -> None:
    _, card = await opened(store)
    await store.dispatch(to_send(card, message='{"ü": "\\ud800"}'), [])
    await store.claim(card, [], owner="worker", until=FAR)

    dispatch, kept = await store.dispatched(card.record_id)

    assert (dispatch.message, dispatch.epoch, dispatch.sent) == ('{"ü": "\\ud800"}', card.epoch, 0)
    assert (kept.record_id, kept.call, kept.attempt, kept.token) == (card.record_id, card.call, 1, "")
    assert await store.dispatched_call(card.turn_id, card.call.id) == (dispatch, kept)
    for turn_id, call_id, project in (
        ("turn-2", "call-1", "default"),
        ("turn-1", "2", "default"),
        ("turn-1", "call-1", "p"),
    ):
        with pytest.raises(NotFound):
            await store.dispatched_call(turn_id, call_id, project=project)


async def test_a_call_that_is_held_or_has_ended_or_is_of_another_epoch_is_not_sent(store: Store) -> None:
    turn, card = await opened(store)
    held = await store.claim(card, [], owner="worker", until=FAR)
    with pytest.raises(CallHeld):
        await store.dispatch(to_send(card), [])
    result = await store.close(held, success(card.call), [])
    assert (await store.dispatch(to_send(card), [])).result == result
    with pytest.raises(Fenced, match="taken over"):
        await store.dispatch(to_send(card, epoch=card.epoch - 1), [])
    with pytest.raises(NotFound):
        await store.dispatch(to_send(card, call_id="call-9"), [])
    assert await due(store, FAR) == []
    assert turn.id == card.turn_id


@pytest.mark.parametrize("repeatable", [True, False])
async def test_after_the_death_of_its_holder_a_call_is_sent_again_or_given_up(store: Store, repeatable: bool) -> None:
    _, card = await opened(store)
    await store.dispatch(to_send(card, repeatable=repeatable), [])
    await store.claim(card, [], owner="worker", until=NOW - 1)

    assert await due(store, NOW) == [("call-1", 1 if repeatable else 0, not repeatable)]


async def test_a_call_that_no_process_takes_is_given_up(store: Store) -> None:
    _, card = await opened(store)
    await store.dispatch(to_send(card, expires_at=NOW), [])

    assert await due(store, NOW) == [("call-1", 0, True)]


async def test_under_a_newer_epoch_only_its_own_dispatch_is_sent(store: Store) -> None:
    turn, card = await opened(store)
    await store.dispatch(to_send(card), [])
    await store.release(turn)
    kept = await store.resume(turn.id)
    assert await due(store, NOW) == []

    await store.dispatch(to_send(replace(card, epoch=kept.opening.epoch)), [])
    assert await due(store, NOW) == [("call-1", 1, False)]
    await store.end(replace(kept.opening, ending=Ending(EndReason.CANCELED, "")), TurnStats())
    assert await due(store, FAR) == []


async def test_T62_a_project_sends_its_own_calls_only(store: Store) -> None:
    for project in ("house", "rival"):
        _, card = await opened(store, project=project)  # with the same ids
        await store.dispatch(to_send(card, subject=f"to {project}"), [])

    ours = of_project(store, "house")
    assert [one.dispatch.subject for one in await ours.take_due(NOW, lambda _: 5.0)] == ["to house"]
    assert (await ours.dispatched(card.record_id))[0].subject == "to house"
    assert [one.dispatch.subject for one in await store.take_due(NOW, lambda _: 5.0)] == ["to rival"]


async def test_a_turn_does_not_wait_for_a_call_that_no_process_sends_or_holds(store: Store) -> None:
    turn, card = await opened(store)
    await store.dispatch(to_send(card), [])
    await store.claim(card, [], owner="worker", until=NOW + 10)
    waiting = (ForResult(card.call.id),)
    await store.release(replace(turn, waits=waiting))
    again = (await store.resume(turn.id)).opening
    await store.release(replace(again, waits=waiting))  # it is not sent again while a worker holds it

    assert [one.id for one in await store.ready_turns(NOW + 9)] == []
    assert [one.id for one in await store.ready_turns(NOW + 11)] == [turn.id]  # the worker has died
    assert [one.id for one in await of_project(store, "other").ready_turns(NOW + 11)] == []


async def test_a_turn_waits_for_a_call_that_is_still_sent(store: Store) -> None:
    turn, card = await opened(store)
    await store.dispatch(to_send(card), [])
    await store.release(replace(turn, waits=(ForResult(card.call.id),)))

    assert await store.ready_turns(FAR) == []


async def test_a_canceled_call_stays_until_its_holder_or_its_turn_has_ended_it(store: Store) -> None:
    turn, card = await opened(store)
    await store.dispatch(to_send(card), [])
    await store.claim(card, [], owner="worker", until=NOW + 10)
    waiting = (ForResult(card.call.id),)
    await store.release(replace(turn, waits=waiting))
    again = (await store.resume(turn.id)).opening
    await store.ask_to_cancel(replace(card, epoch=again.epoch), "enough")
    await store.release(replace(again, waits=waiting))

    assert await due(store, NOW + 20) == []
    assert [one.id for one in await store.ready_turns(NOW + 20)] == [turn.id]


async def test_a_claim_whose_answer_was_lost_is_made_again_with_its_own_token(store: Store) -> None:
    turn, card = await opened(store)
    first = await store.claim(card, [], owner="worker", until=FAR, token="my-own")
    with pytest.raises(CallHeld):
        await store.claim(card, [], owner="worker", until=FAR, token="another")
    await store.release(turn)
    await store.resume(turn.id)  # that the turn went on meanwhile does not matter to the holder

    again = await store.claim(card, [], owner="worker", until=FAR, token="my-own")

    assert (again.attempt, again.token, first.token) == (1, "my-own", "my-own")
    assert (await store.close(again, success(card.call), [])) == success(card.call)


async def test_of_many_due_dispatches_projects_take_turns(store: Store) -> None:
    for number in range(4):
        turn = a_turn(f"turn-{number}", project="flood")
        card = replace(a_card(a_call(f"call-{number}"), turn), project="flood")
        await store.begin(turn)
        await store.open(card, [])
        await store.dispatch(to_send(card, due=NOW - 10 + number), [])
    _, late = await opened(store, "late", project="other")
    await store.dispatch(to_send(late), [])

    first = await store.take_due(NOW, lambda _: 60.0, limit=2)
    second = await store.take_due(NOW, lambda _: 60.0, limit=2)

    assert [one.dispatch.call_id for one in first] == ["call-0", "late"]
    assert [one.dispatch.call_id for one in second] == ["call-1", "call-2"]


async def test_which_calls_have_a_result_is_known_for_each_project(store: Store) -> None:
    _, card = await opened(store)
    await opened(store, project="other")
    held = await store.claim(card, [], owner="worker", until=FAR)
    assert await store.calls_with_results(["turn-1"], project="default") == set()
    await store.close(held, success(card.call), [])

    assert await store.calls_with_results(["turn-1", "none"], project="default") == {("turn-1", "call-1")}
    assert await store.calls_with_results(["turn-1"]) == {("turn-1", "call-1")}
    for turn_ids, project in ((["turn-1"], "other"), (["turn-2"], "default"), ([], "default")):
        assert await store.calls_with_results(turn_ids, project=project) == set()


async def test_a_due_dispatch_that_is_skipped_stays_as_it_is(store: Store) -> None:
    _, card = await opened(store)
    await store.dispatch(to_send(card), [])

    for project in (None, "default"):
        assert await store.take_due(NOW, lambda _: 60.0, skip=["cg.v1r4.p.c.cmd.tool.x"], project=project) == []
    assert await due(store, NOW) == [("call-1", 1, False)]
    assert await due(store, NOW + 5) == [("call-1", 2, False)]
    late = await store.take_due(FAR, lambda _: 60.0, skip=["cg.v1r4.p.c.cmd.tool.x"])
    assert len(late) == 1


async def test_a_call_that_ran_unclaimed_is_claimed_and_closed_at_once(store: Store) -> None:
    turn, card = await opened(store)
    mine = replace(card, token="mine", attempt=1)
    rows = [AuditRow.about(mine, event, NOW) for event in ("started", "finished")]

    first = await store.close(mine, success(card.call), rows, claims=True)

    kept = await store.call(turn.id, card.call.id)
    assert (kept.attempt, kept.result, first.text) == (1, first, success(card.call).text)
    assert await store.close(mine, success(card.call), [], claims=True) == first  # asked again, its answer was lost
    assert [row.event for row in await store.audit_log(turn_id=turn.id)][:2] == ["started", "finished"]


@pytest.mark.parametrize("why", ["held", "ended", "taken over", "canceled"])
async def test_a_result_without_a_claim_is_refused_where_the_claim_would_be(store: Store, why: str) -> None:
    turn, card = await opened(store)
    if why == "held":
        other = await store.claim(card, [], owner="worker", until=FAR)
    elif why == "ended":
        other = await store.claim(card, [], owner="worker", until=FAR)
        await store.close(other, replace(success(card.call), structured={"other": 1}), [])
    elif why == "canceled":
        await store.ask_to_cancel(card, "no longer wanted")
    else:
        await store.release(turn)
        await store.resume(turn.id)

    closing = store.close(replace(card, token="mine", attempt=1), success(card.call), [], claims=True)
    if why == "ended":
        assert (await closing).structured == {"other": 1}
    else:
        with pytest.raises(Fenced):
            await closing
    kept = await store.call(turn.id, card.call.id)
    assert (kept.result is not None, kept.attempt) == (why == "ended", 1 if why in ("held", "ended") else 0)
    assert [row.event for row in await store.audit_log(turn_id=turn.id)] == ["late_result"]


async def test_a_call_on_its_way_comes_under_the_epoch_that_its_turn_is_in(store: Store) -> None:
    turn, card = await opened(store)
    await store.dispatch(to_send(card), [])
    assert (await store.dispatched(card.record_id))[1].epoch == turn.epoch
    await store.release(turn)
    await store.resume(turn.id)

    dispatch, kept = await store.dispatched(card.record_id)
    assert (dispatch.epoch, kept.epoch) == (turn.epoch, turn.epoch + 1)
