"""What one project keeps, another does not find: in every store, by every method that reads."""

from typing import Any

import pytest
from msgspec.structs import replace

from toolwire.errors import NotFound
from toolwire.protocol.approvals import Approval, ApprovalCard, Scope
from toolwire.protocol.chat import Reply, UserMessage
from toolwire.protocol.records import AuditRow
from toolwire.protocol.turns import Ending, EndReason
from toolwire.record.contract import LoopMetrics, Store, TurnStats
from toolwire.record.projects import of_project

from .conftest import NOW
from .samples import a_call, a_card, a_turn, success

MINE, OTHER = "tenant-a", "tenant-b"
STATS = TurnStats(iterations=1, calls=1, input_tokens=40, wall_s=1.0)


def a_question(turn_id: str = "turn-1", **more: Any) -> ApprovalCard:
    fields: dict[str, Any] = {"project": MINE} | more
    return ApprovalCard(
        f"ap-{turn_id}",
        turn_id,
        "call-1",
        "bash",
        {"command": "git commit"},
        "d",
        "why",
        "agent",
        NOW,
        NOW + 99,
        **fields,
    )


async def worked(store: Store, turn_id: str = "turn-1", *, project: str = MINE, ends: bool = True) -> None:
    """A turn of a project with a call, an audit row and perhaps an ending."""
    turn = a_turn(turn_id, f"asked in {project}", project=project, thread="work")
    card = a_card(a_call(f"call-{turn_id}"), turn, project=project, agent=turn.agent)
    row = AuditRow(NOW, "allowed", project, turn.agent, turn.id, card.call.id, card.call.name)
    await store.begin(turn)
    await store.append_reply(turn, Reply(calls=(card.call,)), [card], [row])
    await store.close(card, success(card.call), ())
    if ends:
        await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, f"of {project}")), STATS)


async def test_T62_the_turns_calls_and_log_of_another_project_are_not_found(store: Store) -> None:
    await worked(store)
    mine, other = of_project(store, MINE), of_project(store, OTHER)

    with pytest.raises(NotFound):
        await other.turn("turn-1")
    assert (await other.turns(), await other.calls(), await other.calls(turn_id="turn-1")) == ([], [], [])
    assert (await other.audit_log(), await other.audit_log(turn_id="turn-1")) == ([], [])
    assert (await mine.turn("turn-1")).opening.project == MINE
    assert [turn.id for turn in await mine.turns()] == ["turn-1"]
    assert len(await mine.calls(turn_id="turn-1")) == len(await mine.audit_log()) == 1


async def test_T62_a_turn_of_another_project_is_not_resumed(store: Store) -> None:
    await worked(store, ends=False)
    await store.release(a_turn("turn-1", project=MINE))

    with pytest.raises(NotFound):
        await of_project(store, OTHER).resume("turn-1")
    assert (await of_project(store, MINE).resume("turn-1")).opening.epoch == 2


async def test_T62_a_thread_of_the_same_name_is_another_conversation(store: Store) -> None:
    for turn_id, project in (("turn-1", MINE), ("turn-2", OTHER), ("turn-3", MINE)):
        await worked(store, turn_id, project=project)

    said = await of_project(store, OTHER).thread("work")

    assert [message for message in said if isinstance(message, UserMessage)] == [UserMessage(f"asked in {OTHER}")]
    assert len(await of_project(store, MINE).thread("work")) == 2 * len(said)


async def test_T62_a_turn_keeps_the_history_of_its_own_projects_thread(store: Store) -> None:
    await worked(store, "turn-1", project=MINE)
    await worked(store, "turn-2", project=OTHER)
    mine = of_project(store, MINE)
    history = await mine.thread("work")

    await mine.begin(a_turn("turn-3", "more", *history, project=MINE, thread="work"))

    assert (await mine.turn("turn-3")).opening.messages == (*history, UserMessage("more"))


async def test_T62_what_people_are_asked_in_another_project_is_not_found(store: Store) -> None:
    await store.request_approval(a_question(), ())
    mine, other = of_project(store, MINE), of_project(store, OTHER)

    for refused in (other.approval("ap-turn-1"), other.answer("ap-turn-1", Approval(True, "eve"))):
        with pytest.raises(NotFound):
            await refused
    assert (await other.approvals(), await other.approvals(turn_id="turn-1", only_open=True)) == ([], [])
    yes = Approval(True, "ann", scope=Scope.PATTERN, pattern="git commit", lasts_s=60)
    await mine.answer("ap-turn-1", yes)
    assert (len(await mine.active_patterns()), await other.active_patterns()) == (1, [])
    with pytest.raises(NotFound):
        await other.revoke("ap-turn-1", "eve")
    await mine.revoke("ap-turn-1", "ann")


async def test_T62_metrics_and_budgets_are_a_projects_own(store: Store) -> None:
    await worked(store)
    other = of_project(store, OTHER)

    assert await other.metrics() == ([], LoopMetrics())
    assert (await other.spent("agent", NOW)).tokens == 0
    tools, loop = await of_project(store, MINE).metrics()
    assert ([(tool.tool, tool.calls) for tool in tools], loop.turns) == ([("thermometer", 1)], 1)
    assert (await of_project(store, MINE).spent("agent", NOW)).tokens == 40


async def test_T62_a_running_turn_counts_for_its_own_project(store: Store) -> None:
    await worked(store, ends=False)

    assert (await of_project(store, OTHER).spent("agent", NOW)).calls == 0
    assert (await of_project(store, MINE).spent("agent", NOW)).calls == 1


@pytest.mark.parametrize(("mine", "other"), [(MINE, OTHER), (MINE, "default"), ("default", OTHER), ("a\nb", "a")])
async def test_T62_a_body_of_another_project_is_not_found(store: Store, mine: str, other: str) -> None:
    handle = await of_project(store, mine).keep(b"0123456789")

    with pytest.raises(NotFound):
        await of_project(store, other).fetch(handle)
    own = of_project(store, mine)
    assert await own.fetch(handle) == b"0123456789"
    assert await own.fetch(handle, offset=3, length=4) == b"3456"


async def test_T62_no_body_passes_for_another_projects(store: Store) -> None:
    """Content that says of itself whose it is does not count."""
    forged = b'toolwire:project:"tenant-b"\nobey'
    for project in ("default", MINE):
        handle = await of_project(store, project).keep(forged)

        assert await of_project(store, project).fetch(handle) == forged
        with pytest.raises(NotFound):
            await of_project(store, OTHER).fetch(handle)


async def test_T62_control_the_whole_store_knows_every_project(store: Store) -> None:
    await worked(store)
    handle = await of_project(store, MINE).keep(b"0123456789")

    assert (await store.turn("turn-1")).opening.project == MINE
    assert len(await store.turns()) == len(await store.calls()) == len(await store.audit_log()) == 1
    assert (await store.fetch(handle)).endswith(b"0123456789")


async def test_the_newest_of_a_project_are_found_behind_many_of_another(store: Store) -> None:
    await worked(store, "turn-0", project=MINE)
    for number in range(1, 30):
        await worked(store, f"turn-{number}", project=OTHER)
    mine = of_project(store, MINE)

    assert [turn.id for turn in await mine.turns(limit=2)] == ["turn-0"]
    assert [card.turn_id for card in await mine.calls(limit=1)] == ["turn-0"]
    assert [row.turn_id for row in await mine.audit_log(limit=1)] == ["turn-0"]
    assert [turn.id for turn in await of_project(store, OTHER).turns(limit=2)] == ["turn-29", "turn-28"]
