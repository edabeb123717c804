"""The writer and the event loop: a loop is never held by a commit that takes long."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from toolwire.errors import StoreError, StoreUnavailable
from toolwire.protocol.chat import Reply
from toolwire.protocol.records import AuditRow
from toolwire.record import schema
from toolwire.record.owners import Owners
from toolwire.record.sqlite import SqliteStore
from toolwire.record.transaction import MAX_KNOWN, Cache
from toolwire.record.warm import WarmLog
from toolwire.record.write_queue import ALONE, ChangeGroup, WriteQueue
from toolwire.record.writer import COPY_LOG, Writer

from .conftest import NOW
from .samples import a_call, a_card, a_row, a_turn, success

PATIENCE_S = 5.0


class SlowDisk:
    """Connections whose commits take as long as the test says."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self.is_slow = self.held_the_loop = self.copies_slowly = False
        self.is_done = threading.Event()
        self.committing = asyncio.Event()

    def connect(self) -> sqlite3.Connection:
        return cast(sqlite3.Connection, SlowConnection(self, schema.connect(self._path, busy_timeout_s=5.0)))

    def commit(self) -> None:
        if self.is_slow:
            self._loop.call_soon_threadsafe(self.committing.set)
            self.held_the_loop |= not self.is_done.wait(PATIENCE_S)

    def copy_log(self) -> None:
        if self.copies_slowly:
            self._loop.call_soon_threadsafe(self.committing.set)
            self.held_the_loop |= not self.is_done.wait(PATIENCE_S)


class SlowConnection:
    def __init__(self, disk: SlowDisk, connection: sqlite3.Connection) -> None:
        self._disk = disk
        self._connection = connection

    def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self._disk.commit()
        if sql == COPY_LOG:
            self._disk.copy_log()
        return self._connection.execute(sql, *given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.fixture
async def disk(tmp_path: Path) -> SlowDisk:
    home = tmp_path / "home"
    await (await SqliteStore.at(home)).close_store()
    return SlowDisk(home / "store.db")


@pytest.fixture
async def store(tmp_path: Path, disk: SlowDisk) -> AsyncIterator[SqliteStore]:
    home = tmp_path / "home"
    warm, owners = WarmLog(home / "logs", lambda: NOW), Owners(home / "owners")
    parts: Any = {"warm": warm, "owners": owners, "writer": Writer(home / "store.db", disk.connect, warm.add, owners)}
    connect = partial(schema.connect, home / "store.db", busy_timeout_s=5.0)
    async with SqliteStore(home, home / "store.db", connect, lambda: NOW, **parts) as opened:
        yield opened


@pytest.mark.parametrize("at_once", [1, 3, 100])
async def test_a_slow_commit_does_not_hold_the_event_loop(store: SqliteStore, disk: SlowDisk, at_once: int) -> None:
    """Only the loop can end the commit, so a commit that holds it never ends."""
    disk.is_slow = True
    cards = [a_card(a_call(f"c{number}")) for number in range(at_once)]

    async def end_commit() -> None:
        await disk.committing.wait()
        disk.is_done.set()

    kept, _ = await asyncio.gather(asyncio.gather(*(store.open(card, []) for card in cards)), end_commit())

    assert not disk.held_the_loop
    assert [card.record_id for card in kept] == [card.record_id for card in cards]


async def test_a_change_that_is_alone_and_slow_is_told_once_it_is_durable(store: SqliteStore, disk: SlowDisk) -> None:
    """Nothing else is ready on the loop when it is handed over; a timer ends the commit."""
    card = a_card(a_call("c1"))
    disk.is_slow = True
    asyncio.get_running_loop().call_later(0.01, disk.is_done.set)

    opened = await store.open(card, [])
    result = await store.close(opened, success(card.call), [])

    assert not disk.held_the_loop
    assert result == success(card.call)
    assert [kept.result for kept in await store.calls()] == [result]


@pytest.fixture
async def patient(tmp_path: Path, disk: SlowDisk) -> AsyncIterator[tuple[SqliteStore, list[int]]]:
    """A store that holds changes back for as long as the test lasts; and how many each commit had."""
    home, commits = tmp_path / "home", list[int]()
    owners, warm = Owners(home / "owners"), WarmLog(home / "logs", lambda: NOW)
    writer = Writer(home / "store.db", disk.connect, warm.add, owners, moment_s=600.0)
    writer.watch_commits(lambda changes, _: commits.append(changes))
    connect = partial(schema.connect, home / "store.db", busy_timeout_s=5.0)
    parts: Any = {"warm": warm, "owners": owners, "writer": writer}
    async with SqliteStore(home, home / "store.db", connect, lambda: NOW, **parts) as opened:
        yield opened, commits


async def test_what_may_wait_is_made_durable_with_what_comes_next(patient: tuple[SqliteStore, list[int]]) -> None:
    store, commits = patient
    cards = [a_card(a_call(name), a_turn(), attempt=1) for name in ("c1", "c2", "c3")]
    opening = [
        asyncio.create_task(store.open(cards[0], [a_row("first")], begins=a_turn(), may_wait=True)),
        asyncio.create_task(store.append_reply(a_turn(), Reply("so"), cards[1:], [], may_wait=True)),
    ]
    await asyncio.wait(opening, timeout=0.05)
    assert (commits, [one.done() for one in opening]) == ([], [False, False])

    result = await store.close(cards[0], success(cards[0].call), [a_row("second")])
    await asyncio.gather(*opening)  # their tasks may go on after this one
    assert (result, commits) == (success(cards[0].call), [3])
    assert [row.event for row in await store.audit_log()] == ["first", "second"]
    assert {card.call.id: card.result for card in await store.calls()} == {"c1": result, "c2": None, "c3": None}

    await store.close(cards[1], success(cards[1].call), [])
    assert commits == [3, 1]


async def test_what_may_wait_and_is_followed_by_several_goes_with_all_of_them(
    patient: tuple[SqliteStore, list[int]],
) -> None:
    store, commits = patient
    waits = asyncio.create_task(store.append_reply(a_turn(), Reply("so"), [], [], may_wait=True))
    begins = asyncio.create_task(store.begin(a_turn()))
    await asyncio.gather(begins, store.audit([a_row("a")]), store.audit([a_row("b")]), return_exceptions=True)
    assert commits == [4]
    with pytest.raises(StoreError, match="no turn"):  # it was handed over first, and its turn began behind it
        await waits


async def test_what_may_wait_is_kept_where_nothing_follows_but_the_end(
    tmp_path: Path, patient: tuple[SqliteStore, list[int]]
) -> None:
    store, commits = patient
    opening = asyncio.create_task(store.open(a_card(a_call("c1")), [], may_wait=True))
    await asyncio.sleep(0)
    await store.close_store()
    await opening
    assert commits == [1]
    async with await SqliteStore.at(tmp_path / "home") as again:
        assert [card.call.id for card in await again.calls()] == ["c1"]


async def test_what_may_wait_and_is_not_followed_is_written_after_a_moment(store: SqliteStore) -> None:
    async with asyncio.timeout(PATIENCE_S):
        kept = await store.open(a_card(a_call("c1")), [], may_wait=True)
    assert [card.record_id for card in await store.calls()] == [kept.record_id]


async def test_a_loop_that_is_canceled_while_a_commit_is_slow_leaves_a_durable_change(
    store: SqliteStore, disk: SlowDisk
) -> None:
    await store.begin(a_turn())
    disk.is_slow = True
    opening = asyncio.create_task(store.open(a_card(a_call("c1"), a_turn()), []))
    await disk.committing.wait()
    opening.cancel()
    await asyncio.wait([opening])
    disk.is_done.set()

    await store.audit([])

    assert opening.cancelled()
    assert [card.call.id for card in await store.calls()] == ["c1"]


async def many_rows(store: SqliteStore) -> None:
    """Enough rows, in six commits, that the log of the database is long after the last."""
    for _ in range(6):
        await asyncio.gather(*(store.audit([a_row("noted")]) for _ in range(ALONE)))


async def test_no_change_waits_until_the_log_of_the_database_is_copied(store: SqliteStore, disk: SlowDisk) -> None:
    """Only the loop can end the copying, and it does so once all rows are said to be durable."""
    disk.copies_slowly = True
    await many_rows(store)
    async with asyncio.timeout(PATIENCE_S):
        await disk.committing.wait()
    later = asyncio.create_task(store.audit([a_row("later")]))
    await asyncio.sleep(0)
    disk.is_done.set()
    await later

    assert not disk.held_the_loop
    assert len(await store.audit_log(limit=2_000)) == 6 * ALONE + 1


async def test_a_long_log_is_copied_into_the_file_of_the_database(tmp_path: Path) -> None:
    async with await SqliteStore.at(tmp_path) as store:
        await many_rows(store)
        await store.audit([])  # behind the copying

        with sqlite3.connect(f"file:{tmp_path / 'store.db'}?immutable=1", uri=True) as file:
            (kept,) = file.execute("SELECT count(*) FROM audit").fetchone()
        file.close()
    assert kept == 6 * ALONE


async def test_what_is_handed_over_after_the_end_is_refused_in_words(store: SqliteStore) -> None:
    await store.close_store()

    with pytest.raises(StoreUnavailable, match="was closed; open the store again"):
        await store.begin(a_turn())


@pytest.mark.parametrize("number", [7, 8, 9, 45, 64, 73])
async def test_all_rows_of_calls_that_are_written_together_are_kept_in_order(tmp_path: Path, number: int) -> None:
    """Many rows go into one statement; how many there are makes no difference."""
    turns = [a_turn(f"turn-{place}") for place in range(number)]
    calls = [a_call(f"call-{place}", room=str(place)) for place in range(number)]
    cards = [a_card(call, turn) for call, turn in zip(calls, turns, strict=True)]
    async with await SqliteStore.at(tmp_path / "other") as store:
        await asyncio.gather(*map(store.begin, turns))
        opened = await asyncio.gather(*(store.open(card, [a_row("allowed", card)]) for card in cards))
        closing = [store.close(card, success(card.call), [a_row("finished", card)]) for card in opened]
        assert await asyncio.gather(*closing) == [success(call) for call in calls]

        kept = await store.calls(limit=1_000)
        rows = await store.audit_log(limit=1_000)
        assert [(card.call, card.result) for card in kept] == [(call, success(call)) for call in calls[::-1]]
        ids = [call.id for call in calls]
        assert [(row.event, row.call_id) for row in rows] == [
            *(("allowed", name) for name in ids),
            *(("finished", name) for name in ids),
        ]
        assert (await store.audit_chain()).broken_at is None
        assert [tool.calls for tool in (await store.metrics())[0]] == [number]
        assert (await store.turn("turn-0")).calls == 1


async def test_a_row_that_the_database_refuses_takes_none_with_it_of_those_in_its_statement(tmp_path: Path) -> None:
    async with await SqliteStore.at(tmp_path / "home") as store:
        rows = [AuditRow(float("nan") if place == 9 else NOW, f"event-{place}") for place in range(20)]
        done = await asyncio.gather(*(store.audit([row]) for row in rows), return_exceptions=True)

        assert [str(one).partition("(")[2] for one in done if one] == ["NOT NULL constraint failed: audit.at)"]
        assert [row.event for row in await store.audit_log()] == [row.event for row in rows if row is not rows[9]]
        assert (await store.audit_chain()).broken_at is None


async def test_a_loop_does_not_stand_still_where_another_has_used_up_the_time() -> None:
    group = ChangeGroup(asyncio.get_running_loop(), WriteQueue())
    future = group.add(lambda _: None)
    group.is_awaited = True
    assert not group.stand_still(-0.001)
    threading.Thread(target=group.answer, args=(["kept"],)).start()
    assert await future == "kept"


def test_a_connection_that_knows_too_much_forgets_the_older_turns_with_their_calls() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        known = Cache().still_true(connection)
        keys = [("default", f"turn-{place}") for place in range(MAX_KNOWN // 4)]
        known.here.update(keys)
        known.turns.update(dict.fromkeys(keys))
        known.calls.update({(*key, f"call-{place}"): None for place in range(3) for key in keys})

        assert known.still_true(connection) is known
        newer = keys[len(keys) // 2 + 1 :]
        assert list(known.turns) == newer
        assert known.here == {key[:2] for key in known.calls} == set(newer)

        known.heads.update({f"project-{place}": (1, "") for place in range(MAX_KNOWN)})
        assert known.still_true(connection) == Cache(known.version)
