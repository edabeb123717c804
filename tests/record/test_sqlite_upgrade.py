"""Stores made by other versions, other programs, or half-way through an upgrade."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolwire.errors import StoreUnavailable
from toolwire.protocol.approvals import Approval
from toolwire.protocol.records import AuditRow
from toolwire.protocol.turns import Ending, EndReason
from toolwire.record import schema
from toolwire.record.contract import TurnStats
from toolwire.record.projects import of_project
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW
from .samples import a_call, a_card, success

OLD = Path(__file__).parent / "old"


def make(path: Path, *statements: str) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.executescript(statement)
    connection.commit()
    connection.close()


def version(path: Path) -> int:
    connection = sqlite3.connect(path)
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return int(found)


async def test_a_store_of_the_first_version_is_brought_up_to_date_with_all_it_holds(tmp_path: Path) -> None:
    """Before version 2 there were no metrics: results kept since then are counted."""
    home = tmp_path / "home"
    make(home / "store.db", (OLD / "version-1.sql").read_text(encoding="utf-8"))

    async with await SqliteStore.at(home) as store:
        (turn,) = await store.turns()
        kept = await store.turn(turn.id)
        calls = await store.calls(turn_id=turn.id)
        tools, _ = await store.metrics()
        audit = await store.audit_log()

    assert (turn.question, turn.answer, turn.state) == ("How warm is it?", "21 degrees in the kitchen.", "ended")
    assert [type(event).__name__ for event in kept.events] == ["Reply", "ResultsMessage", "Reply"]
    assert [(card.call.arguments["room"], card.attempt, card.result is not None) for card in calls] == [
        ("kitchen", 1, True),
        ("cellar", 1, True),
    ]
    assert [(tool.tool, tool.calls, tool.success, tool.errors, tool.max_ms) for tool in tools] == [
        ("thermometer", 2, 1, 1, 12.5)
    ]
    assert len(audit) == 4
    assert version(home / "store.db") == len(schema.STEPS)


async def test_many_can_open_a_new_store_at_the_same_moment(tmp_path: Path) -> None:
    for number in range(5):
        stores = await asyncio.gather(*(SqliteStore.at(tmp_path / str(number)) for _ in range(6)))
        await stores[0].open(a_card(), [])
        assert len(await stores[-1].calls()) == 1
        for store in stores:
            await store.close_store()


async def test_a_new_store_is_opened_once_another_process_has_written_to_it(tmp_path: Path) -> None:
    """Its file is there without tables and without a log, and that process holds it for writing."""
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    asyncio.get_running_loop().call_later(0.1, other.execute, "ROLLBACK")

    async with await SqliteStore.at(tmp_path) as store:
        await store.open(a_card(), [])

        assert len(await store.calls()) == 1
    other.close()


async def test_a_new_store_that_stays_locked_is_told_to_be(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable, match="locked"):
        await SqliteStore.at(tmp_path, busy_timeout_s=0.05)
    other.close()


def test_connections_have_the_settings_that_durability_rests_on(tmp_path: Path) -> None:
    """A kill cannot show the difference, only a power cut can: without FULL the newest commits would be gone."""
    connection = schema.connect(tmp_path / "store.db", busy_timeout_s=1.0)

    settings = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "synchronous")]

    connection.close()
    assert settings == [("wal",), (2,)]


def made(path: Path) -> set[tuple[str, ...]]:
    """The tables, indexes and triggers of a store, and as whose it is marked, in no order."""
    connection = sqlite3.connect(path)
    try:
        found = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
        names = ("user_version", "application_id")
        settings = {(name, str(connection.execute(f"PRAGMA {name}").fetchone())) for name in names}
        return {(kind, name, of, " ".join((sql or "").split())) for kind, name, of, sql in found} | settings
    finally:
        connection.close()


@pytest.mark.parametrize("since", [1, 15, 21])
async def test_a_new_store_and_one_that_was_upgraded_have_the_same_tables(tmp_path: Path, since: int) -> None:
    old = tmp_path / "old" / "store.db"
    make(old, (OLD / f"version-{since}.sql").read_text(encoding="utf-8"))

    for home in (old.parent, tmp_path / "new"):
        await (await SqliteStore.at(home)).close_store()

    assert made(tmp_path / "new" / "store.db") == made(old)


async def test_a_new_store_holds_what_the_steps_to_it_would_have_left(tmp_path: Path) -> None:
    await (await SqliteStore.at(tmp_path)).close_store()
    stepped = sqlite3.connect(tmp_path / "stepped.db", isolation_level=None)
    schema.migrate(stepped, "stepped", list(schema.STEPS))
    new = sqlite3.connect(tmp_path / "store.db")

    rows = [sorted(one for one in each.iterdump() if one.startswith("INSERT")) for each in (stepped, new)]
    stepped.close()
    new.close()

    assert rows[0] == rows[1] != []
    assert made(tmp_path / "stepped.db") == made(tmp_path / "store.db")


async def test_an_upgrade_that_breaks_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "home" / "store.db"
    make(path, (OLD / "version-1.sql").read_text(encoding="utf-8"))
    connection = schema.connect(path, busy_timeout_s=1.0)
    half = [*schema.STEPS[:1], [*schema.STEPS[1], "CREATE TABLE broken ("]]

    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(connection, path, half)

    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert version(path) == 1
    assert "tool_metrics" not in tables
    async with await SqliteStore.at(path.parent) as store:
        assert len(await store.calls()) == 2


async def test_a_store_made_by_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with await SqliteStore.at(home) as store:
        await store.open(a_card(), [])
    connection = sqlite3.connect(home / "store.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = (home / "store.db").read_bytes()

    with pytest.raises(StoreUnavailable, match=r"newer toolwire .*99.*upgrade toolwire"):
        await SqliteStore.at(home)

    assert (home / "store.db").read_bytes() == before


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make(home / "store.db", "CREATE TABLE recipes (name TEXT);")
    before = (home / "store.db").read_bytes()

    with pytest.raises(StoreUnavailable, match="another program's database"):
        await SqliteStore.at(home)

    assert (home / "store.db").read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "home" / "store.db"
    path.parent.mkdir()
    path.write_text("Dear diary, " * 1000)

    with pytest.raises(StoreUnavailable, match="is not a store; move it away"):
        await SqliteStore.at(path.parent)

    assert path.read_text().startswith("Dear diary")


PAGE = 4096


def roots_of_records(path: Path) -> list[int]:
    """The first pages of the table of records and of its indexes, where each question begins."""
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = 'records'").fetchall()
    connection.close()
    return [number for (number,) in found]


def pages_of_results(path: Path) -> list[int]:
    """The pages that hold what the calls gave back."""
    data = path.read_bytes()
    return [1 + at // PAGE for at in range(0, len(data), PAGE) if b"x" * 400 in data[at : at + PAGE]]


@pytest.mark.parametrize("damaged", [roots_of_records, pages_of_results])
async def test_a_damaged_store_says_so_instead_of_answering_wrongly(
    tmp_path: Path, damaged: Callable[[Path], list[int]]
) -> None:
    home = tmp_path / "home"
    async with await SqliteStore.at(home) as store:
        for number in range(200):
            await store.open(a_card(a_call(f"c{number}")), [])
            await store.close(a_card(a_call(f"c{number}")), success(text="x" * 500), [])
    pages = damaged(home / "store.db")
    assert len(pages) >= 4
    with (home / "store.db").open("r+b") as file:
        for number in pages:
            file.seek((number - 1) * PAGE)
            file.write(b"\xff" * PAGE)

    with pytest.raises(StoreUnavailable, match="is damaged; restore a copy"):
        async with await SqliteStore.at(home) as store:
            await store.calls(limit=1000)


@pytest.fixture
async def of_version_15(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    home = tmp_path / "home"
    make(home / "store.db", (OLD / "version-15.sql").read_text(encoding="utf-8"))
    async with await SqliteStore.at(home, clock=lambda: NOW) as store:
        yield store


async def test_the_audit_chain_of_a_store_of_version_15_holds_and_goes_on(of_version_15: SqliteStore) -> None:
    chain = await of_version_15.audit_chain([8])
    assert (chain.rows, chain.broken_at, chain.heads[8][:8]) == (8, None, "110059bc")

    await of_version_15.audit([AuditRow(NOW, "later")])

    chain = await of_version_15.audit_chain([8])
    assert (chain.rows, chain.broken_at, chain.heads[8][:8]) == (9, None, "110059bc")


async def test_approvals_of_a_store_of_version_15_are_pending_and_stand(of_version_15: SqliteStore) -> None:
    [pending] = await of_version_15.approvals(only_open=True)
    [pattern] = await of_version_15.active_patterns()
    answered = await of_version_15.answer(pending.id, Approval(True, "ann"))
    taken = await of_version_15.resume("waiting")
    card = await of_version_15.open(a_card(a_call("call-1", "git", command="commit"), taken.opening), [])
    mine = await of_version_15.claim(card, [])

    assert (pending.id, pattern.id, pattern.pattern, answered.state.value) == ("ask-1", "ask-2", "git push", "granted")
    assert (card.attempt, mine.attempt) == (0, 1)
    assert await of_version_15.close(mine, success(card.call), []) == success(card.call)


@pytest.mark.parametrize(("turn_id", "attempts"), [("killed", [1, 0]), ("alone-killed", [1])])
async def test_turns_of_a_store_of_version_15_are_resumed_with_their_begun_calls(
    of_version_15: SqliteStore, turn_id: str, attempts: list[int]
) -> None:
    taken = await of_version_15.resume(turn_id)

    cards = await of_version_15.calls(turn_id=turn_id)
    assert (taken.opening.epoch, [card.attempt for card in cards]) == (2, attempts)
    for card, attempt in zip(cards, attempts, strict=True):
        mine = await of_version_15.claim(replace(card, epoch=2), [])
        assert mine.attempt == attempt + 1
        await of_version_15.close(mine, success(card.call), [])
    ended = replace(taken.opening, ending=Ending(EndReason.ANSWERED, "done"))
    await of_version_15.end(ended, TurnStats())
    assert (await of_version_15.turn(turn_id)).state == "ended"


async def test_projects_of_a_store_of_version_15_keep_what_is_theirs(of_version_15: SqliteStore) -> None:
    acme, default = of_project(of_version_15, "acme"), of_project(of_version_15, "default")

    assert [turn.id for turn in await acme.turns()] == ["tenant"]
    assert ((await acme.reserved_shares("tenant")).calls, (await default.reserved_shares("tenant")).calls) == (4, 0)
    assert (len(await acme.thread("main")), len(await default.thread("main"))) == (2, 3)
    assert ([one.model for one in await default.formats()], await acme.formats()) == (["m"], [])
    assert (await default.spent("agent", NOW)).tokens == 15
    followed = [turn.id for _, turn in await of_version_15.turns_after()]
    assert followed == ["ended", "waiting", "tenant", "killed", "alone-killed"]
