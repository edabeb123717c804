"""The store in trouble: killed, locked out, without room, shared by processes that know nothing of each other."""

import asyncio
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from toolwire.errors import Fenced, StoreUnavailable
from toolwire.record.contract import LoopMetrics
from toolwire.record.sqlite import SqliteStore

from .conftest import OpenStore
from .samples import a_call, a_card, a_turn, success

ROOT = Path(__file__).parents[2]


async def child(verb: str, home: Path, name: str = "child") -> Process:
    module = [sys.executable, "-m", "tests.record.children", verb, str(home), name]
    return await asyncio.create_subprocess_exec(*module, cwd=ROOT, stdout=PIPE)


async def words(process: Process) -> list[str]:
    """The complete lines that a child said until its end."""
    assert process.stdout is not None
    *lines, _ = (await process.stdout.read()).decode().split("\n")
    await process.wait()
    return lines


def is_sound(home: Path) -> bool:
    connection = sqlite3.connect(home / "store.db")
    verdict = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return verdict == [("ok",)]


@pytest.mark.requirement("record.resume")
async def test_what_was_answered_survives_kill_9_and_the_turn_can_be_resumed(tmp_path: Path) -> None:
    """The protocol demands it: accepted means durable."""
    async with asyncio.timeout(30), await SqliteStore.at(tmp_path) as store:
        process = await child("work", tmp_path)
        assert process.stdout is not None
        acknowledged = [(await process.stdout.readline()).decode().strip() for _ in range(300)]
        with pytest.raises(Fenced, match="living process"):
            await store.resume("child")

        process.kill()
        acknowledged += await words(process)

        kept = {card.call.id: card.result for card in await store.calls(turn_id="child", limit=1_000_000)}
        assert [call for call in acknowledged if kept[call] != success(a_call(call))] == []
        assert [turn.state for turn in await store.turns()] == ["interrupted"]
        resumed = await store.resume("child")
        assert resumed.opening.epoch == 2
        with pytest.raises(Fenced, match="taken over"):
            await store.open(a_card(a_call("late"), a_turn("child")), [])
    assert is_sound(tmp_path)


async def test_processes_that_close_the_same_calls_agree_on_every_winner(tmp_path: Path) -> None:
    async with asyncio.timeout(30), await SqliteStore.at(tmp_path) as store:
        processes = [await child("race", tmp_path, name) for name in ("a", "b", "c")]
        said = [await words(process) for process in processes]

        assert said[0] == said[1] == said[2]
        assert len(said[0]) == 200
        late = [row for row in await store.audit_log(limit=1000) if row.event == "late_result"]
        assert len(late) == 400
        ((tool,), _) = await store.metrics()
        assert tool.calls == 200
    assert is_sound(tmp_path)


async def test_a_full_disk_is_said_to_all_who_wait_and_forgotten_once_there_is_room(tmp_path: Path) -> None:
    """A limit on file size stands for the full disk; the children of a test may not mount one."""
    async with asyncio.timeout(30):
        answered, readable, recovered, sentence = await words(await child("squeeze", tmp_path))

    assert answered == "50 answered, refused: True"
    assert readable == "readable: True"
    assert recovered == "recovered: 50"
    assert "space" in sentence
    assert is_sound(tmp_path)


async def test_a_store_for_which_there_is_no_room_says_so_and_is_made_once_there_is(tmp_path: Path) -> None:
    """A limit on file size stands for the full disk."""
    opening = [sys.executable, "-m", "tests.record.children", "race", str(tmp_path), "child"]
    squeezed = ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh", *opening]
    async with asyncio.timeout(30):
        process = await asyncio.create_subprocess_exec(*squeezed, cwd=ROOT, stdout=PIPE, stderr=PIPE)
        _, told = await process.communicate()

    *_, reason = told.decode().splitlines()
    assert reason.startswith("toolwire.errors.StoreUnavailable: ")
    assert "space" in reason
    await (await SqliteStore.at(tmp_path)).close_store()
    assert is_sound(tmp_path)


async def test_a_lock_held_too_long_is_said_and_forgotten_once_it_is_gone(
    open_sqlite: OpenStore, tmp_path: Path
) -> None:
    store = await open_sqlite()
    other = sqlite3.connect(tmp_path / "home" / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    outcomes = await asyncio.gather(
        *(store.open(a_card(a_call(f"c{n}")), []) for n in range(5)), return_exceptions=True
    )
    for error in outcomes:
        assert isinstance(error, StoreUnavailable)
        assert "locked by another process" in str(error)
    assert await store.calls() == []

    other.execute("ROLLBACK")
    other.close()
    assert await store.open(a_card(), []) == a_card()


async def test_a_home_that_cannot_be_made_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreUnavailable, match=r"cannot be used .*check the folder"):
        await SqliteStore.at(tmp_path / "file" / "home")


async def test_bodies_that_cannot_be_written_are_refused_with_a_reason(open_sqlite: OpenStore, tmp_path: Path) -> None:
    store = await open_sqlite()
    artifacts = tmp_path / "home" / "artifacts"
    artifacts.touch()

    with pytest.raises(StoreUnavailable, match=r"artifacts cannot be used"):
        await store.keep(b"large")

    artifacts.unlink()
    assert await store.fetch(await store.keep(b"large")) == b"large"


async def test_a_lease_that_cannot_be_taken_is_told_with_the_first_change_and_nothing_is_written(
    open_sqlite: OpenStore, tmp_path: Path
) -> None:
    store = await open_sqlite()
    owners = tmp_path / "home" / "owners"
    owners.touch()

    for change in (store.begin(a_turn()), store.open(a_card(), [])):
        with pytest.raises(StoreUnavailable, match=r"cannot be used .*check the folder"):
            await change
    assert (await store.calls(), await store.metrics()) == ([], ([], LoopMetrics()))

    owners.unlink()
    await store.begin(a_turn())
    assert (await store.turn("turn-1")).state == "running"
