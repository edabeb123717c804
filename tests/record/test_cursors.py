"""Followers of a store: however slowly they read, and wherever they are cut off, they see every row once."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.protocol.approvals import ApprovalCard
from toolwire.protocol.breadcrumbs import Record
from toolwire.protocol.chat import Reply
from toolwire.protocol.records import AuditRow
from toolwire.protocol.turns import Ending, EndReason
from toolwire.record.contract import Store, TurnStats
from toolwire.record.memory import MemoryStore
from toolwire.record.projects import ProjectStore, of_project
from toolwire.record.retention import KeepLimits, Retention
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW, database_server
from .samples import a_call, a_card, a_turn, success

DAY_S = 86_400.0
Read = Callable[[Store, int, int], Awaitable[list[tuple[int, str]]]]


async def audit(store: Store, cursor: int, limit: int) -> list[tuple[int, str]]:
    return [(row.seq, row.turn_id) for row in await store.audit_log(after=cursor, limit=limit)]


async def turns(store: Store, cursor: int, limit: int) -> list[tuple[int, str]]:
    return [(number, turn.id) for number, turn in await store.turns_after(cursor, limit=limit)]


async def calls(store: Store, cursor: int, limit: int) -> list[tuple[int, str]]:
    return [(number, card.turn_id) for number, card in await store.calls_after(cursor, limit=limit)]


async def approvals(store: Store, cursor: int, limit: int) -> list[tuple[int, str]]:
    return [(number, card.turn_id) for number, card in await store.approvals_after(cursor, limit=limit)]


async def records(store: Store, cursor: int, limit: int) -> list[tuple[int, str]]:
    """What happened to records; they are followed project by project."""
    projects = [store.project] if isinstance(store, ProjectStore) else ["mine", "others"]
    found = [await store.record_changes(cursor, limit=limit, project=project) for project in projects]
    return sorted((number, change.record.title) for rows in found for number, change in rows)[:limit]


READS: dict[str, Read] = {"audit": audit, "turns": turns, "calls": calls, "approvals": approvals, "records": records}


async def work(store: Store, name: str, project: str) -> None:
    """A turn with a call, a request for approval, a row in the log and a record; all carry its name."""
    turn = a_turn(name, project=project)
    card = replace(a_card(a_call(), turn), project=project)
    await store.begin(turn)
    await store.append_reply(turn, Reply(calls=(card.call,)), [card], [AuditRow(NOW, "said", project, turn_id=name)])
    await store.request_approval(ApprovalCard(f"ask-{name}", name, "call-1", "t", {}, "d", project=project), [])
    await store.close(card, success(), [])
    await store.create_record(Record(name, project, "note.v1", name, created_by="ann"))
    await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "done")), TurnStats())


class Follower:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.cursor = 0
        self.seen: list[str] = []

    async def read(self, store: Store, limit: int) -> None:
        rows = await READS[self.kind](store, self.cursor, limit)
        assert len(rows) <= limit
        numbers = [self.cursor, *(number for number, _ in rows)]
        assert numbers == sorted(set(numbers)), "cursors rise"
        self.cursor = numbers[-1]
        self.seen += [name for _, name in rows]


a_step = st.one_of(
    st.just(("work", 0)), st.just(("work elsewhere", 0)), st.tuples(st.just("read"), st.integers(1, 3)),
    st.tuples(st.just("prune"), st.just(0)),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "examples"), [("memory", 80), ("sqlite", 10), ("libsql", 2), ("postgres", 2)])
@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize("scoped", [False, True])
def test_a_follower_sees_every_row_once_wherever_it_is_cut(kind: str, examples: int, scoped: bool) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps=st.lists(a_step, max_size=20))
    def run(steps: list[tuple[str, int]]) -> None:
        asyncio.run(played(kind, steps, scoped=scoped))

    run()


async def played(kind: str, steps: list[tuple[str, int]], *, scoped: bool) -> None:
    now = NOW
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store: Store
        if kind == "memory":
            store = MemoryStore(clock=lambda: now)
        elif kind == "sqlite":
            store = await SqliteStore.at(folder / "home", clock=lambda: now)
        else:
            on = stack.enter_context(database_server(kind, folder))
            store = await on(folder / "home", clock=lambda: now)
        view = of_project(store, "mine") if scoped else store
        followers, made, kept = [Follower(kind) for kind in READS], [], set[str]()
        for number, (step, limit) in enumerate(steps):
            match step:
                case "work" | "work elsewhere":
                    project = "mine" if step == "work" else "others"
                    await work(store, f"turn-{number}", project)
                    if not scoped or project == "mine":
                        made.append(f"turn-{number}")
                        kept.add(f"turn-{number}")
                case "read":
                    for one in followers:
                        await one.read(view, limit)
                case "prune" if isinstance(store, SqliteStore):
                    now += 2 * DAY_S
                    await store.prune(Retention(turns=KeepLimits(days=1)))
                    kept.clear()
        for one in followers:
            before = -1
            while one.cursor != before:
                before = one.cursor
                await one.read(view, 1)
            seen = [name for name in one.seen if name]  # pruning leaves a row about itself
            assert seen == [name for name in made if name in seen], "in order, and none twice"
            assert kept <= set(seen)
        await store.close_store()


async def test_the_newest_rows_of_the_log_come_without_a_cursor(store: Store) -> None:
    for number in range(5):
        await store.audit([AuditRow(NOW, f"event-{number}")])

    assert [row.event for row in await store.audit_log(limit=2)] == ["event-3", "event-4"]
    assert [row.event for row in await store.audit_log(limit=2, after=0)] == ["event-0", "event-1"]
    assert [row.event for row in await store.audit_log(limit=9, after=2)] == ["event-2", "event-3", "event-4"]
    assert await store.audit_log(after=5) == []


@pytest.mark.parametrize("page", [1, 2, 3, 10])
async def test_turns_are_read_backwards_each_once_and_of_one_project_only(store: Store, page: int) -> None:
    """New turns that begin meanwhile are not among the older ones."""
    for number in range(5):
        await work(store, f"own-{number}", "garden")
        await work(store, f"other-{number}", "shed")
    own = of_project(store, "garden")
    seen: list[str] = []
    rows = await own.turns_before(limit=page)
    while rows:
        seen += [turn.id for _, turn in rows]
        await work(store, f"late-{len(seen)}", "garden")
        rows = await own.turns_before(rows[-1].cursor, limit=page)

    assert seen == [f"own-{number}" for number in reversed(range(5))]
    assert await own.turns_before(0, limit=page) == []
    assert await own.turns_before(limit=0) == []
    newest = [number for number, _ in await store.turns_before(limit=100)]
    assert newest == sorted(newest, reverse=True)
    assert newest == [number for number, _ in reversed(await store.turns_after(limit=100))]
