"""Stores made by other versions, other programs, or half-way through an upgrade."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from toolwire.errors import StoreUnavailable
from toolwire.record import schema
from toolwire.record.sqlite import SqliteStore

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


async def test_a_damaged_store_says_so_instead_of_answering_wrongly(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with await SqliteStore.at(home) as store:
        for number in range(200):
            await store.open(a_card(a_call(f"c{number}")), [])
            await store.close(a_card(a_call(f"c{number}")), success(text="x" * 500), [])
    with (home / "store.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096 * 10)

    with pytest.raises(StoreUnavailable, match="is damaged; restore a copy"):
        async with await SqliteStore.at(home) as store:
            await store.calls(limit=1000)
