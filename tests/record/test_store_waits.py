"""What turns wait for, in every store: kept with the turn, and found once it has come."""

import asyncio
import itertools
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolwire.errors import Fenced
from toolwire.protocol.approvals import Approval, ApprovalCard
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.protocol.waits import ForApproval, ForResult, ForTurn, Until, Wait
from toolwire.record.contract import Store, TurnStats
from toolwire.record.projects import of_project
from toolwire.record.ready import MOST_AT_ONCE
from toolwire.record.sqlite import SqliteStore

from .samples import a_call, a_card, a_turn, success

FAR = 9_999_999_999.0
NUMBERS = itertools.count()


async def waiting(store: Store, turn_id: str, *waits: Wait, project: str = "default") -> Turn:
    turn = a_turn(turn_id, project=project)
    await store.begin(turn)
    await store.release(replace(turn, waits=waits))
    return turn


async def ready(store: Store, now: float = 100.0) -> list[str]:
    return [turn.id for turn in await store.ready_turns(now)]


def a_question(turn_id: str, approval_id: str = "q1") -> ApprovalCard:
    return ApprovalCard(approval_id, turn_id, "call-1", "oven", {"on": True}, "sha256:aa", expires_at=FAR)


async def test_what_a_turn_waits_for_is_kept_with_it(store: Store) -> None:
    waits = (ForApproval("q1"), ForResult("call-2", 5.0), ForResult("call-3"), ForTurn("child"), Until(7.0, "busy"))
    await waiting(store, "turn-1", *waits)

    assert (await store.turn("turn-1")).opening.waits == waits
    [summary] = await store.turns(state="waiting")
    assert (summary.id, summary.state, summary.waits) == ("turn-1", "interrupted", waits)


async def test_a_turn_can_begin_with_a_wait_so_that_its_crash_is_not_its_end(store: Store) -> None:
    turn = a_turn(waits=(Until(0.0),))
    await store.begin(turn)
    assert await ready(store) == []

    await store.release(turn)
    assert await ready(store) == ["turn-1"]


async def test_a_turn_that_was_interrupted_and_waits_for_nothing_is_left_to_people(store: Store) -> None:
    await waiting(store, "turn-1")

    assert await ready(store) == []
    assert await store.turns(state="waiting") == []
    assert [turn.id for turn in await store.turns(state="interrupted")] == ["turn-1"]


@pytest.mark.parametrize("granted", [True, False])
async def test_a_turn_is_ready_once_its_approval_is_decided(store: Store, granted: bool) -> None:
    turn = a_turn()
    await store.begin(turn)
    await store.request_approval(a_question(turn.id), [])
    await store.release(replace(turn, waits=(ForApproval("q1"),)))
    assert await ready(store) == []

    await store.answer("q1", Approval(granted))
    assert await ready(store) == ["turn-1"]


async def test_a_turn_is_ready_once_any_of_several_things_has_come(store: Store) -> None:
    await waiting(store, "turn-1", Until(FAR), Until(50.0))

    assert await ready(store, 49.0) == []
    assert await ready(store, 50.0) == ["turn-1"]


async def test_a_parent_is_ready_when_the_turn_of_its_sub_agent_has_ended(store: Store) -> None:
    child = a_turn("child")
    await store.begin(child)
    await waiting(store, "parent", ForTurn("child"))
    assert await ready(store) == []

    await store.end(replace(child, ending=Ending(EndReason.ANSWERED, "done")), TurnStats())
    assert await ready(store) == ["parent"]


async def test_a_turn_is_ready_when_a_result_came_from_elsewhere_or_the_lease_ran_out(store: Store) -> None:
    turn, call = a_turn(), a_call()
    await store.begin(turn)
    await store.open(a_card(call, turn), [])
    await store.release(replace(turn, waits=(ForResult(call.id, 200.0),)))
    assert await ready(store, 199.0) == []
    assert await ready(store, 200.0) == ["turn-1"]

    kept = await store.resume(turn.id)
    await store.close(a_card(call, kept.opening), success(call), [])
    await store.release(replace(kept.opening, waits=(ForResult(call.id, 200.0),)))
    assert await ready(store, 199.0) == ["turn-1"]


async def test_what_is_not_on_record_is_not_waited_for(store: Store) -> None:
    await waiting(store, "turn-1", ForApproval("gone"))
    await waiting(store, "turn-2", ForTurn("gone"))

    assert await ready(store) == ["turn-1", "turn-2"]


async def test_a_running_or_ended_turn_is_never_ready(store: Store) -> None:
    await waiting(store, "turn-1", Until(0.0))
    kept = await store.resume("turn-1")
    assert await ready(store) == []
    with pytest.raises(Fenced):
        await store.resume("turn-1")

    await store.end(replace(kept.opening, ending=Ending(EndReason.ANSWERED, "done")), TurnStats())
    assert await ready(store) == []


async def test_a_project_sees_only_its_own_waiting_turns(store: Store) -> None:
    await waiting(store, "ours", Until(0.0), project="house")
    await waiting(store, "theirs", Until(0.0), project="rival")

    assert await ready(of_project(store, "house")) == ["ours"]


async def test_projects_take_turns_where_many_turns_can_go_on(store: Store) -> None:
    for number in range(3):
        await waiting(store, f"flood-{number}", Until(0.0), project="flood")
    await waiting(store, "late-0", Until(0.0), project="late")
    await waiting(store, "late-1", Until(0.0), project="late")

    assert await ready(store) == ["flood-0", "late-0", "flood-1", "late-1", "flood-2"]
    assert [turn.id for turn in await store.ready_turns(100.0, limit=2)] == ["flood-0", "late-0"]
    assert [turn.id for turn in await store.ready_turns(100.0, limit=2, project="flood")] == ["flood-0", "flood-1"]


async def test_a_turn_can_go_on_however_many_older_ones_still_wait(tmp_path: Path) -> None:
    async with await SqliteStore.at(tmp_path / "home") as store:
        for _ in range(3):
            many = (waiting(store, f"flood-{next(NUMBERS)}", Until(FAR)) for _ in range(MOST_AT_ONCE // 2))
            await asyncio.gather(*many)
        await waiting(store, "late", Until(0.0))

        assert await ready(store) == ["late"]
        assert [turn.id for turn in await store.ready_turns(100.0, project="default")] == ["late"]
