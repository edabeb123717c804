"""Every project has ids of its own, and a question of one reads no row of another."""

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire.errors import NotFound, StoreError
from toolwire.protocol.approvals import Approval, ApprovalCard, Scope
from toolwire.protocol.budgets import Allotment
from toolwire.protocol.chat import Reply
from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record.checkpoints import faults, sign
from toolwire.record.contract import Store, TurnStats
from toolwire.record.projects import ProjectStore, of_project
from toolwire.record.sqlite import SqliteStore
from toolwire.wire.formats.tally import FormatTally

from .conftest import NOW, OpenStore
from .samples import a_call, a_card, a_turn, success

ONE, OTHER = "tenant-a", "tenant-b"


def turn_and_card(project: str, turn_id: str = "turn-1", call_id: str = "call-1") -> tuple[Turn, CallCard]:
    turn = a_turn(turn_id, project=project, thread="main")
    return turn, replace(a_card(a_call(call_id), turn), project=project)


async def work(store: Store, project: str, turn_id: str = "turn-1", *, ends: bool = True) -> None:
    """A turn with a reply, a call, requests for approval, rows in the log and sums; its ids are as they are given."""
    view = of_project(store, project)
    turn, card = turn_and_card(project, turn_id)
    row = AuditRow(NOW, "allowed", project, turn.agent, turn.id, card.call.id, card.call.name)
    await view.begin(turn)
    await view.append_reply(turn, Reply(calls=(card.call,)), [card], [row])
    for name in ("ask", "pattern"):
        asked = ApprovalCard(
            f"{name}-{turn_id}", turn_id, name, "git", {}, "d", expires_at=NOW + 60, project=project
        )  # fmt: skip
        await view.request_approval(asked, [])
    await view.answer(f"pattern-{turn_id}", Approval(True, "ann", scope=Scope.PATTERN, pattern="git x", lasts_s=60))
    await view.reserve_share(turn_id, Allotment(8), 4)
    await view.mark_untrusted(project, [UntrustedMark(turn_id, ("web",), "1", "2", NOW)])
    if ends:
        held = await view.claim(card, [replace(row, event="started")], until=NOW + 60)
        await view.close(held, success(card.call, elapsed_ms=5.0), [replace(row, event="finished")])
        stats = TurnStats(iterations=1, formats=(FormatTally(f"model of {turn_id}", "native"),))
        await view.end(replace(turn, ending=Ending(EndReason.ANSWERED, f"of {project}")), stats)


async def test_T62_the_same_ids_belong_to_each_project_for_itself(store: Store) -> None:
    for project in (ONE, OTHER):
        await work(store, project)

    for project in (ONE, OTHER):
        view = of_project(store, project)
        kept = await view.turn("turn-1")
        assert (kept.opening.project, kept.ending) == (project, Ending(EndReason.ANSWERED, f"of {project}"))
        assert [card.project for card in await view.calls(turn_id="turn-1")] == [project]
        assert (await view.approval("ask-turn-1")).project == project
        assert [card.project for card in await view.active_patterns()] == [project]
        assert {row.project for row in await view.audit_log(turn_id="turn-1")} == {project}
        assert [tally.model for tally in await view.formats()] == ["model of turn-1"]
        assert (await view.reserved_shares("turn-1")).calls == 4


async def test_T62_an_id_of_two_projects_is_asked_for_with_its_project(store: Store) -> None:
    for project in (ONE, OTHER):
        await work(store, project, ends=False)

    for asked in (store.turn("turn-1"), store.resume("turn-1"), store.approval("ask-turn-1")):
        with pytest.raises(StoreError, match="is kept in several projects; ask the view of one"):
            await asked
    with pytest.raises(StoreError, match="several projects"):
        await store.answer("ask-turn-1", Approval(True, "ann"))
    with pytest.raises(NotFound):
        await store.turn("turn-2")
    assert len(await store.calls(turn_id="turn-1")) == 2


async def test_T62_a_claim_and_its_result_are_of_one_project(store: Store) -> None:
    for project in (ONE, OTHER):
        view = of_project(store, project)
        turn, card = turn_and_card(project)
        await view.begin(turn)
        await view.open(card, [])
    (_, mine), (_, theirs) = turn_and_card(ONE), turn_and_card(OTHER)

    held = await of_project(store, ONE).claim(mine, [], until=NOW + 60)
    taken = await of_project(store, OTHER).claim(theirs, [], until=NOW + 60)
    await of_project(store, ONE).close(held, success(held.call, "of one"), [])

    assert (held.attempt, taken.attempt) == (1, 1)
    [card] = await of_project(store, OTHER).calls()
    assert card.result is None
    await of_project(store, OTHER).close(taken, success(taken.call, "of the other"), [])
    [card] = await of_project(store, OTHER).calls()
    assert card.result is not None
    assert card.result.text == "of the other"


async def test_T62_that_a_call_has_begun_is_noted_for_its_own_project(open_sqlite: OpenStore) -> None:
    """The result of another project's call of the same ids does not erase the note, so nothing runs a second time."""
    killed = await open_sqlite()
    for project in (ONE, OTHER):
        turn, card = turn_and_card(project)
        await killed.begin(turn)
        await killed.append_reply(turn, Reply(calls=(card.call,)), [replace(card, attempt=1, token=card.record_id)], [])
        of_project(killed, project).begins(turn.id, card.call.id)
    _, card = turn_and_card(OTHER)
    await killed.close(card, success(card.call), [])
    await killed.release(turn_and_card(ONE)[0])

    taken = await of_project(await open_sqlite(), ONE).resume("turn-1")

    [card] = await of_project(killed, ONE).calls(turn_id=taken.opening.id)
    assert card.attempt == 1


Question = Callable[[ProjectStore], Awaitable[Any]]
READS: dict[str, Question] = {
    "turn": lambda view: view.turn("turn-1"),
    "turns": lambda view: view.turns(),
    "running turns": lambda view: view.turns(state="running"),
    "interrupted turns": lambda view: view.turns(state="interrupted"),
    "waiting turns": lambda view: view.turns(state="waiting"),
    "ended turns": lambda view: view.turns(state="ended"),
    "turns after": lambda view: view.turns_after(1),
    "thread": lambda view: view.thread("main"),
    "calls": lambda view: view.calls(),
    "calls of a turn": lambda view: view.calls(turn_id="turn-1"),
    "calls of a tool": lambda view: view.calls(tool="thermometer"),
    "calls after": lambda view: view.calls_after(1),
    "approval": lambda view: view.approval("ask-turn-1"),
    "approvals": lambda view: view.approvals(),
    "pending approvals": lambda view: view.approvals(only_open=True),
    "approvals of a turn": lambda view: view.approvals(turn_id="turn-1"),
    "pending approvals of a turn": lambda view: view.approvals(turn_id="turn-1", only_open=True),
    "approvals after": lambda view: view.approvals_after(1),
    "active patterns": lambda view: view.active_patterns(),
    "audit log": lambda view: view.audit_log(),
    "audit log of a turn": lambda view: view.audit_log(turn_id="turn-1"),
    "audit log of a tool": lambda view: view.audit_log(tool="thermometer"),
    "audit log after": lambda view: view.audit_log(after=1),
    "audit chain": lambda view: view.audit_chain(),
    "metrics": lambda view: view.metrics(),
    "formats": lambda view: view.formats(),
    "spent": lambda view: view.spent("agent", NOW),
    "reserved_shares": lambda view: view.reserved_shares("turn-1"),
    "untrusted": lambda view: view.untrusted(ONE),
}
WRITES: dict[str, Question] = {
    "begin": lambda view: view.begin(turn_and_card(ONE, "turn-new")[0]),
    "reply": lambda view: view.append_reply(*_reply()),
    "open": lambda view: view.open(turn_and_card(ONE, "running", "call-3")[1], []),
    "claim": lambda view: view.claim(turn_and_card(ONE, "running")[1], []),
    "close": lambda view: view.close(turn_and_card(ONE, "running")[1], success(), []),
    "audit": lambda view: view.audit([AuditRow(NOW, "said", ONE)]),
    "ask": lambda view: view.request_approval(
        ApprovalCard("ask-3", "running", "call-3", "git", {}, "d", expires_at=NOW + 60, project=ONE), []
    ),
    "answer": lambda view: view.answer("ask-running", Approval(True, "ann")),
    "revoke": lambda view: view.revoke("pattern-running", "ann"),
    "reserve_share": lambda view: view.reserve_share("running", Allotment(8), 1),
    "mark": lambda view: view.mark_untrusted(ONE, [UntrustedMark("file", ("web",), "1", "2", NOW)], ["other"]),
    "release": lambda view: view.release(turn_and_card(ONE, "running")[0]),
    "resume": lambda view: view.resume("running"),
    "end": lambda view: view.end(
        replace(turn_and_card(ONE, "running")[0], epoch=2, ending=Ending(EndReason.ANSWERED, "")), TurnStats()
    ),
}
# Tables without rows of projects, and what is looked up by the row's own number.
_NO_PROJECT = ("owner_leases", "audit_shared", "audit_cuts", "cursor_floors", "sqlite_master", "json_each")
_BY_NUMBER = "USING INTEGER PRIMARY KEY (rowid=?)"
_NEWEST_NUMBER = ("SEARCH turns", "SEARCH approvals", "SEARCH audit")  # max(seq), which is one row


def _reply() -> tuple[Turn, Reply, list[CallCard], list[AuditRow]]:
    turn, card = turn_and_card(ONE, "running", "call-2")
    return turn, Reply(calls=(card.call,)), [card], [AuditRow(NOW, "allowed", ONE)]


def all_connections(store: SqliteStore) -> list[sqlite3.Connection]:
    writer = store._writer
    found = [store._reader._connection, *(one._connection for one in (writer._connection, writer._again))]
    return [connection for connection in found if connection is not None]


async def statements(store: SqliteStore, ask: Awaitable[Any]) -> set[str]:
    """The SQL that a question or a change is made of."""
    found: set[str] = set()
    for connection in all_connections(store):
        connection.set_trace_callback(found.add)
    try:
        await ask
    finally:
        for connection in all_connections(store):
            connection.set_trace_callback(None)
    return {sql for sql in found if sql.lstrip().upper().startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"))}


def foreign_rows(connection: sqlite3.Connection, sql: str) -> list[str]:
    """The parts of a plan that look at rows without asking for a project."""
    plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    looks = [part for part in plan if part.startswith(("SCAN", "SEARCH"))]
    own = [part for part in looks if "project=?" in part or _BY_NUMBER in part or part in _NEWEST_NUMBER]
    materialized = ("SCAN c", "SCAN (subquery", "SCAN CONSTANT ROW")
    rest = [part for part in looks if part not in own and not part.startswith(materialized)]
    return [part for part in rest if not any(name in part for name in _NO_PROJECT)]


@pytest.fixture
async def shared(tmp_path: Path) -> Any:
    """A store in which another project has far more than this one, under the same ids."""
    async with await SqliteStore.at(tmp_path / "home", clock=lambda: NOW) as store:
        await work(store, ONE)
        await work(store, ONE, "running", ends=False)
        await work(store, OTHER)
        await work(store, OTHER, "running", ends=False)
        yield store


@pytest.mark.parametrize("name", [*READS, *WRITES])
async def test_T62_no_statement_of_a_project_looks_at_rows_of_another(shared: SqliteStore, name: str) -> None:
    view = of_project(shared, ONE)
    await view.turns()
    if name == "resume":
        await view.release(turn_and_card(ONE, "running")[0])
    if name == "end":
        await view.release(turn_and_card(ONE, "running")[0])
        await view.resume("running")

    found = await statements(shared, (READS | WRITES)[name](view))

    assert found
    [connection, *_] = all_connections(shared)
    assert {sql: parts for sql in found if (parts := foreign_rows(connection, sql))} == {}


async def test_T62_control_a_statement_over_all_projects_is_noticed(shared: SqliteStore) -> None:
    await shared.turns()

    found = await statements(shared, shared.audit_log())

    [connection, *_] = all_connections(shared)
    assert any(foreign_rows(connection, sql) for sql in found)


async def steps_of(store: SqliteStore, ask: Awaitable[Any]) -> int:
    """About how many steps SQLite takes to answer."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    [connection, *_] = all_connections(store)
    connection.set_progress_handler(count, 10)
    try:
        await ask
    finally:
        connection.set_progress_handler(None, 10)
    return taken * 10


async def test_what_a_project_is_answered_costs_the_same_however_much_others_have(shared: SqliteStore) -> None:
    view = of_project(shared, ONE)
    await view.turns()
    before = {name: await steps_of(shared, ask(view)) for name, ask in READS.items()}
    for number in range(40):
        await work(shared, OTHER, f"turn-{number + 2}")
        await work(shared, "tenant-c", f"turn-{number}", ends=number % 2 == 0)

    after = {name: await steps_of(shared, ask(view)) for name, ask in READS.items()}

    assert {name: (before[name], cost) for name, cost in after.items() if cost > before[name] + 100} == {}


async def tampered(store: SqliteStore, home: Path, statement: str) -> None:
    connection = sqlite3.connect(home / "store.db")
    for trigger in ("audit_is_never_changed", "audit_is_never_cut"):
        connection.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET event = 'other' WHERE seq = 5",
        "DELETE FROM audit WHERE seq = 5",
        f"UPDATE audit SET project = '{ONE}' WHERE seq = 5",
    ],
)
async def test_T68_a_project_proves_its_part_of_the_log_without_the_rows_of_others(
    tmp_path: Path, statement: str
) -> None:
    home = tmp_path / "home"
    async with await SqliteStore.at(home, clock=lambda: NOW) as store:
        one, other = of_project(store, ONE), of_project(store, OTHER)
        for number in range(6):
            whose = ONE if number % 2 else OTHER  # so row 5 is the other's
            await store.audit([AuditRow(NOW, f"event-{number}", whose)])
        chain = await one.audit_chain()
        assert (chain.rows, chain.last, chain.broken_at, chain.project) == (3, 6, None, ONE)
        mark = sign(home, chain, NOW)
        theirs = sign(home, await other.audit_chain(), NOW)

        await tampered(store, home, statement)

        after = await one.audit_chain([mark.seq])
        moved = "project" in statement
        assert (after.broken_at, faults([mark, theirs], after)) == (5 if moved else None, [])
        assert (await store.audit_chain()).broken_at is not None
        found = await other.audit_chain([theirs.seq])
        assert found.broken_at is not None or faults([theirs], found)
