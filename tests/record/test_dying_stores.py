"""Processes that die at a named place of their store: what is kept is whole, and nothing that was confirmed is lost."""

import asyncio
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from tests.postgres_server import shared_server
from toolwire.record.checkpoints import faults, sign
from toolwire.record.postgres import PostgresStore
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW
from .dying_stores import GAP, LEFT, ROWS, TRIED
from .samples import a_row
from .test_audit_chain import tamper

ROOT = Path(__file__).parents[2]
Counts = tuple[int, int, int, int]
NOTHING, WHOLE = (0, 0, 0, 0), (1, 2, 1, 3)


def let_die(verb: str, folder: Path, *server: str) -> list[int]:
    """The signals by which the processes died."""
    words = [sys.executable, "-m", "tests.record.dying_stores", verb, str(folder), *server]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return [int(word) for word in ran.stdout.split()]


async def deaths(verb: str, folder: Path, *server: str) -> list[int]:
    return await asyncio.to_thread(let_die, verb, folder, *server)


async def accepted(home: Path) -> Counts:
    """How many replies, calls, commands on their way and audit rows there are of a step."""
    async with await SqliteStore.at(home) as store:
        [turn] = await store.turns()
        cards = await store.calls(turn_id=turn.id)
        with closing(sqlite3.connect(home / "store.db")) as connection:
            [(sent,)] = connection.execute("SELECT count(*) FROM dispatches")
        return len((await store.turn(turn.id)).events), len(cards), sent, len(await store.audit_log())


async def test_a_step_whose_process_dies_while_it_is_accepted_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """C3: before each statement of the transaction; the last process did not die."""
    died = await deaths("accept", tmp_path)
    found = [await accepted(tmp_path / str(number)) for number in range(len(died) + 1)]

    assert len(died) >= 6
    assert set(died) == {signal.SIGKILL}
    assert found[0] == NOTHING
    assert found[-1] == WHOLE
    assert set(found) == {NOTHING, WHOLE}


async def test_control_without_a_transaction_halves_of_a_step_are_found(tmp_path: Path) -> None:
    died = await deaths("torn-accept", tmp_path)
    found = [await accepted(tmp_path / str(number)) for number in range(len(died))]

    assert set(found) - {NOTHING, WHOLE}


async def test_a_step_that_meets_a_full_disk_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """C5: with ever more room left; what was refused leaves nothing behind."""
    assert set(await deaths("full-disk", tmp_path)) == {0}
    found = [await accepted(tmp_path / str(number)) for number in range(TRIED)]

    assert found[0] == NOTHING
    assert found[-1] == WHOLE
    assert set(found) == {NOTHING, WHOLE}


async def test_control_without_a_transaction_a_full_disk_leaves_halves_of_a_step(tmp_path: Path) -> None:
    await deaths("torn-full-disk", tmp_path)
    found = [await accepted(tmp_path / str(number)) for number in range(TRIED)]

    assert set(found) - {NOTHING, WHOLE}


async def is_sound(home: Path) -> bool:
    """Whether a store is whole and has all rows that were confirmed."""
    with closing(sqlite3.connect(home / "store.db")) as connection:
        try:
            verdict = connection.execute("PRAGMA integrity_check").fetchall()
        except sqlite3.DatabaseError:
            return False
    if verdict != [("ok",)]:
        return False
    async with await SqliteStore.at(home) as store:
        chain = await store.audit_chain()
        return (chain.rows, chain.broken_at, len(await store.audit_log(limit=1_000))) == (ROWS, None, ROWS)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """Stores whose log was copied in part, and how the processes died that did it."""
    folder = tmp_path_factory.mktemp("copied")
    return folder, let_die("copy-log", folder)


async def test_control_without_its_log_a_database_that_was_copied_half_way_is_not_sound(
    copied: tuple[Path, list[int]], tmp_path: Path
) -> None:
    shutil.copytree(copied[0] / str(len(LEFT) - 1), tmp_path / "home")
    for name in ("store.db-wal", "store.db-shm"):
        (tmp_path / "home" / name).unlink(missing_ok=True)

    assert not await is_sound(tmp_path / "home")


async def test_a_process_that_dies_while_the_log_of_the_database_is_copied_loses_nothing(
    copied: tuple[Path, list[int]],
) -> None:
    """C46: the kernel ends it in the write of one page or another of the checkpoint."""
    folder, died = copied

    assert died == [signal.SIGXFSZ] * len(LEFT)
    assert [await is_sound(folder / str(number)) for number in range(len(LEFT))] == [True] * len(LEFT)


@contextmanager
def place_of(kind: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """The server and schema of a store, if it has them."""
    if kind == "sqlite":
        yield ()
        return
    request.getfixturevalue("postgres")
    with shared_server().schemas.empty() as schema:
        yield shared_server().url, schema


@asynccontextmanager
async def opened(home: Path, server: tuple[str, ...]) -> AsyncIterator[SqliteStore]:
    if server:
        async with await PostgresStore.on(server[0], home, schema=server[1], clock=lambda: NOW) as store:
            yield store
    else:
        async with await SqliteStore.at(home, clock=lambda: NOW) as store:
            yield store


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_the_next_checkpoint_signs_the_rows_whose_process_died_before_it_signed_them(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """C47."""
    with place_of(kind, request) as server:
        async with opened(tmp_path, server) as store:
            await store.audit([a_row("accepted")])
            first = sign(tmp_path, await store.audit_chain(), NOW)
        died = await deaths("sign", tmp_path, *server)
        async with opened(tmp_path, server) as store:
            await store.audit([a_row("finished")])
            second = sign(tmp_path, await store.audit_chain(), NOW)
            chain = await store.audit_chain([first.seq, second.seq])
            rows = await store.audit_log(limit=100)

    assert died == [signal.SIGKILL]
    assert (chain.broken_at, faults([first, second], chain)) == (None, [])
    assert [row.detail["number"] for row in rows if row.event == "allowed"] == list(range(GAP))
    assert (chain.rows, second.seq - first.seq) == (GAP + 2, GAP + 1)


async def test_control_a_row_that_is_taken_out_of_such_a_gap_is_noticed(tmp_path: Path) -> None:
    """By the chain where others follow; at its end by the next checkpoint, once there is one."""
    async with opened(tmp_path, ()) as store:
        await store.audit([a_row("accepted")])
        first = sign(tmp_path, await store.audit_chain(), NOW)
    await deaths("sign", tmp_path)
    async with opened(tmp_path, ()) as store:
        second = sign(tmp_path, await store.audit_chain(), NOW)
    inside, at_its_end = tmp_path / "inside", tmp_path / "at its end"
    for home, seq in ((inside, 3), (at_its_end, second.seq)):
        home.mkdir()
        shutil.copy(tmp_path / "store.db", home)
        tamper(home, f"DELETE FROM audit WHERE seq = {seq}")

    async with opened(inside, ()) as store:
        assert (await store.audit_chain()).broken_at == 4
    async with opened(at_its_end, ()) as store:
        chain = await store.audit_chain([first.seq, second.seq])
        assert (chain.broken_at, faults([first], chain)) == (None, [])
        [fault] = faults([first, second], chain)
    assert "its tail was cut" in fault
