"""The audit log in three places: memory, files for a week, and the store."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.named_pipes import hearing
from toolwire.protocol.records import AuditRow
from toolwire.record.sqlite import SqliteStore
from toolwire.record.warm import HOT_ROWS, KEPT_DAYS
from toolwire.testing import FrozenClock

from .conftest import NOW
from .samples import a_card, a_row, success

DAY_S = 86_400.0
TODAY = "audit-2023-11-14.jsonl"


def rows(count: int, at: float = NOW) -> list[AuditRow]:
    return [AuditRow(at, "allowed", turn_id="t", call_id=f"c{n}", tool="echo", detail={"n": n}) for n in range(count)]


def warm(home: Path, name: str = TODAY) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (home / "logs" / name).read_text(encoding="utf-8").splitlines()]


async def kept(home: Path, *batches: list[AuditRow], clock: FrozenClock | None = None) -> SqliteStore:
    """A store that was given these rows, and closed."""
    async with await SqliteStore.at(home, clock=clock or FrozenClock(NOW)) as store:
        for batch in batches:
            await store.audit(batch)
    return store


@pytest.mark.feature("F224")
async def test_every_row_is_hot_in_memory_warm_in_a_file_and_cold_in_the_store(tmp_path: Path) -> None:
    store = await kept(tmp_path / "home", rows(3), rows(2))

    async with await SqliteStore.at(tmp_path / "home") as cold:
        stored = await cold.audit_log()
    assert [row.detail for row in store.newest_audit()] == [row.detail for row in stored]
    assert [row["detail"] for row in warm(tmp_path / "home")] == [row.detail for row in stored]
    assert {(row["event"], row["tool"], row["turn_id"]) for row in warm(tmp_path / "home")} == {
        ("allowed", "echo", "t")
    }


async def test_the_last_warm_row_carries_the_digest_of_the_whole_chain(tmp_path: Path) -> None:
    await kept(tmp_path / "home", rows(3))

    async with await SqliteStore.at(tmp_path / "home") as store:
        assert warm(tmp_path / "home")[-1]["chain"] == (await store.audit_chain()).head


async def test_rows_of_calls_are_written_while_the_store_is_open(tmp_path: Path) -> None:
    async with await SqliteStore.at(tmp_path / "home", clock=lambda: 0.0) as store:
        logs = tmp_path / "home" / "logs"
        logs.mkdir()
        async with asyncio.timeout(5), hearing(logs / "audit-1970-01-01.jsonl", for_long=True) as written:
            await store.open(a_card(), [a_row("allowed")])
            await store.close(a_card(), success(), [a_row("ended")])

            events = [json.loads(await written.readline())["event"] for _ in range(2)]

    assert events == ["allowed", "ended"]


async def test_a_refused_change_leaves_no_warm_row(tmp_path: Path) -> None:
    async with await SqliteStore.at(tmp_path / "home", clock=lambda: NOW) as store:
        with pytest.raises(Exception, match="open it before"):
            await store.claim(a_card(), [a_row("started")])

    assert not (tmp_path / "home" / "logs").exists()


@pytest.mark.feature("F224")
async def test_each_day_has_a_file_and_files_of_more_than_a_week_ago_are_removed(tmp_path: Path) -> None:
    clock = FrozenClock(NOW)
    for _ in range(10):
        await kept(tmp_path / "home", rows(1, clock.now), clock=clock)
        clock.advance(DAY_S)
    mine = tmp_path / "home" / "logs" / "audit-notes.jsonl"
    mine.touch()
    await kept(tmp_path / "home", rows(1, clock.now), clock=clock)

    names = sorted(path.name for path in (tmp_path / "home" / "logs").iterdir())

    assert names[0] == "audit-2023-11-17.jsonl"
    assert names[-1] == mine.name
    assert len(names) == KEPT_DAYS + 2


async def test_memory_keeps_the_newest_rows_only(tmp_path: Path) -> None:
    store = await kept(tmp_path / "home", rows(HOT_ROWS + 5))

    assert len(store.newest_audit(10_000)) == HOT_ROWS
    assert [row.detail["n"] for row in store.newest_audit(2)] == [HOT_ROWS + 3, HOT_ROWS + 4]
    assert len(warm(tmp_path / "home")) == HOT_ROWS + 5


async def test_a_folder_that_cannot_be_written_fails_no_call(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "logs").write_text("in the way", encoding="utf-8")

    await kept(tmp_path / "home", rows(3))

    async with await SqliteStore.at(tmp_path / "home") as store:
        assert len(await store.audit_log()) == 3


async def test_a_link_in_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("as it was", encoding="utf-8")
    (tmp_path / "home" / "logs").mkdir(parents=True)
    (tmp_path / "home" / "logs" / TODAY).symlink_to(precious)

    await kept(tmp_path / "home", rows(3))

    assert precious.read_text(encoding="utf-8") == "as it was"


async def test_warm_files_are_for_their_owner_alone_and_hold_whole_lines_of_many_stores(tmp_path: Path) -> None:
    stores = [await SqliteStore.at(tmp_path / "home", clock=lambda: NOW) for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        for store in stores:
            for row in rows(50):
                group.create_task(store.audit([row]))
    for store in stores:
        await store.close_store()

    assert len(warm(tmp_path / "home")) == 150
    assert (tmp_path / "home" / "logs" / TODAY).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "home" / "logs").stat().st_mode & 0o777 == 0o700


async def test_text_that_no_file_can_hold_is_written_as_its_escape(tmp_path: Path) -> None:
    await kept(tmp_path / "home", [AuditRow(NOW, "allowed", tool="a\ud800\n", detail={"x": "\ud800\u2028"})])

    assert warm(tmp_path / "home")[0]["tool"] == "a\\ud800\n"
