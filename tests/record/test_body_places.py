"""Where large bodies lie: one promise, held in memory, in a folder, and in the database of one or several machines."""

import asyncio
import contextlib
import hashlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import pytest

from tests.postgres_server import PostgresServer, new_schema
from toolwire.errors import NotFound, StoreError
from toolwire.record.bodies import PIECE, DatabaseBodies
from toolwire.record.contract import BodyPlace, Store
from toolwire.record.libsql import LibsqlStore
from toolwire.record.memory import MemoryStore
from toolwire.record.postgres import PostgresStore
from toolwire.record.projects import of_project
from toolwire.record.reader import Reader
from toolwire.record.retention import KeepLimits, Retention
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import FrozenClock

from .conftest import NOW, database_server, libsql_server

DAY_S = 86_400.0
PLACES = ["memory", "folder", "database", "libsql", "postgres"]
LASTING = ["folder", "database"]
P = ParamSpec("P")
T = TypeVar("T")
Machine = Callable[[str], Awaitable[SqliteStore]]


@contextlib.asynccontextmanager
async def opened(place: str, folder: Path, clock: Callable[[], float] = lambda: NOW) -> AsyncIterator[Store]:
    match place:
        case "memory":
            yield MemoryStore()
        case "folder" | "database":
            where: BodyPlace = "database" if place == "database" else "folder"
            async with await SqliteStore.at(folder / "home", clock=clock, bodies=where) as store:
                yield store
        case _:
            with libsql_server(folder) as url:
                async with await LibsqlStore.on(url, folder / "home", clock=clock) as store:
                    yield store


@pytest.fixture(params=PLACES)
async def bodies(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        async with await PostgresStore.on(server.url, tmp_path / "home", schema=new_schema()) as store:
            yield store
        return
    async with opened(request.param, tmp_path) as store:
        yield store


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for piece in given:
        yield piece


BODY = bytes(range(256)) * (PIECE // 100)  # a bit more than two pieces


async def test_a_body_is_found_whole_and_in_ranges(bodies: Store) -> None:
    handle = await bodies.keep(BODY)

    assert handle == f"sha256:{hashlib.sha256(BODY).hexdigest()}"
    assert await bodies.fetch(handle) == BODY
    for offset, length in ((0, 10), (PIECE - 3, 6), (PIECE, PIECE), (len(BODY) - 2, 9), (len(BODY) + 5, 3), (-4, 3)):
        assert await bodies.fetch(handle, offset=offset, length=length) == BODY[max(offset, 0) :][:length]
    assert await bodies.fetch(handle, offset=5, length=0) == b""
    assert await bodies.keep(BODY) == handle


async def test_an_empty_body_is_a_body(bodies: Store) -> None:
    handle = await bodies.keep(b"")

    assert await bodies.fetch(handle) == b""
    assert await bodies.keep_pieces(pieces()) == handle


@pytest.mark.parametrize("project", ["default", "tenant-a"])
async def test_a_body_in_pieces_has_the_handle_of_the_whole(bodies: Store, project: str) -> None:
    view = of_project(bodies, project)
    for body in (b"toolwire:project:forged", BODY, b"x"):
        cut = [body[:1], body[1:7], b"", body[7:]]

        assert await view.keep_pieces(pieces(*cut)) == (handle := await view.keep(body))
        assert await view.fetch(handle) == body


async def test_T62_a_body_in_pieces_of_another_project_is_not_found(bodies: Store) -> None:
    handle = await of_project(bodies, "tenant-a").keep_pieces(pieces(b"01234", b"56789"))

    assert await of_project(bodies, "tenant-a").fetch(handle, offset=3, length=4) == b"3456"
    for other in ("tenant-b", "default"):
        with pytest.raises(NotFound):
            await of_project(bodies, other).fetch(handle)


@pytest.mark.parametrize("handle", ["", "sha256:", "sha256:" + "0" * 64, "../../etc/passwd", "sha256:" + "A" * 64])
async def test_an_unknown_handle_is_not_found(bodies: Store, handle: str) -> None:
    with pytest.raises(NotFound, match="nothing is kept"):
        await bodies.fetch(handle)


async def test_pieces_that_end_in_an_error_leave_nothing(bodies: Store) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield BODY
        raise OSError("the source is gone")

    with pytest.raises((OSError, StoreError)):
        await bodies.keep_pieces(broken())

    with pytest.raises(NotFound):
        await bodies.fetch(f"sha256:{hashlib.sha256(BODY).hexdigest()}")
    assert await bodies.fetch(await bodies.keep(BODY)) == BODY


def damage(place: str, home: Path, digest: str) -> None:
    if place == "folder":
        path = home / "artifacts" / digest[:2] / digest[2:]
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        return
    connection = sqlite3.connect(home / "store.db")
    connection.execute("UPDATE body_parts SET data = zeroblob(length(data)) WHERE part = 1")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("place", LASTING)
async def test_a_damaged_body_is_not_read(tmp_path: Path, place: str) -> None:
    async with opened(place, tmp_path) as store:
        handle = await store.keep(BODY)
    damage(place, tmp_path / "home", handle.removeprefix("sha256:"))

    async with opened(place, tmp_path) as store:
        with pytest.raises(StoreError, match=r"is damaged: its digest is another; restore a copy"):
            await store.fetch(handle, offset=0, length=5)


_KEEPS = """
import asyncio, sys
from toolwire.record.sqlite import SqliteStore

async def pieces():
    for number in range(8):
        yield bytes([number]) * 400_000
        print(number, flush=True)
    await asyncio.Event().wait()

async def main(home, where):
    store = await SqliteStore.at(home, bodies=where)
    await store.keep_pieces(pieces())

asyncio.run(main(*sys.argv[1:]))
"""


def kill_half_way(home: Path, place: str) -> None:
    words = [sys.executable, "-c", _KEEPS, str(home), place]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        for line in iter(killed.stdout.readline, "7\n"):
            assert line
        killed.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("place", LASTING)
async def test_a_process_that_is_killed_half_way_leaves_nothing_that_is_read_as_whole(
    tmp_path: Path, place: str
) -> None:
    await asyncio.to_thread(kill_half_way, tmp_path / "home", place)
    written = b"".join(bytes([number]) * 400_000 for number in range(8))

    async with opened(place, tmp_path, clock=lambda: NOW) as store:
        for size in (len(written), PIECE, 6 * PIECE, 400_000):
            with pytest.raises(NotFound):
                await store.fetch(f"sha256:{hashlib.sha256(written[:size]).hexdigest()}")
        handle = await store.keep_pieces(pieces(written))
        assert await store.fetch(handle) == written


async def test_what_a_killed_process_left_in_the_database_is_removed_later(tmp_path: Path) -> None:
    async with opened("database", tmp_path) as store:
        await store.keep(b"whole")
    connection = sqlite3.connect(tmp_path / "home" / "store.db")
    for part in (0, 1):
        connection.execute("INSERT INTO body_parts VALUES (NULL, 'left', ?, x'00', ?)", (part, NOW))
    connection.commit()
    uploads = "SELECT upload = 'left' FROM body_parts ORDER BY seq"

    async with opened("database", tmp_path, clock=lambda: NOW + 60) as store:
        await store.keep(b"a minute later")
        assert connection.execute(uploads).fetchall() == [(0,), (1,), (1,), (0,)]
    async with opened("database", tmp_path, clock=lambda: NOW + 7200) as store:
        await store.keep(b"hours later")
        assert connection.execute(uploads).fetchall() == [(0,), (0,), (0,)]
        assert await store.fetch(f"sha256:{hashlib.sha256(b'whole').hexdigest()}") == b"whole"
    connection.close()


@pytest.mark.parametrize("place", LASTING)
async def test_a_body_of_100_megabytes_goes_in_and_out_with_a_few_in_memory(tmp_path: Path, place: str) -> None:
    size, piece = 100_000_000, os.urandom(1_000_000)

    async def many() -> AsyncIterator[bytes]:
        for _ in range(size // len(piece)):
            yield piece

    async with opened(place, tmp_path) as store:
        tracemalloc.start()
        try:
            handle = await store.keep_pieces(many())
            digest = hashlib.sha256()
            for offset in range(0, size, 1_000_000):
                digest.update(await store.fetch(handle, offset=offset, length=1_000_000))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert handle == f"sha256:{digest.hexdigest()}"
    assert peak < 16_000_000


async def test_machines_that_share_a_database_find_each_others_bodies(tmp_path: Path) -> None:
    with libsql_server(tmp_path) as url:
        async with (
            await LibsqlStore.on(url, tmp_path / "one") as one,
            await LibsqlStore.on(url, tmp_path / "two") as two,
        ):
            handle = await of_project(one, "tenant").keep(BODY)

            assert await of_project(two, "tenant").fetch(handle) == BODY
            with pytest.raises(NotFound):
                await of_project(two, "other").fetch(handle)
        async with await LibsqlStore.on(url, tmp_path / "one", bodies="folder") as old:
            kept_before = await old.keep(b"of an earlier version")
        async with await LibsqlStore.on(url, tmp_path / "one") as one:
            assert await one.fetch(kept_before) == b"of an earlier version"


async def test_bodies_in_the_database_are_pruned_and_copied_with_it(tmp_path: Path) -> None:
    now = NOW
    async with opened("database", tmp_path, clock=lambda: now) as store:
        assert isinstance(store, SqliteStore)
        old = await store.keep(b"old and named by no result")
        now += 8 * DAY_S
        new = await store.keep(BODY)
        dry = await store.prune(Retention(bodies=KeepLimits(days=1)), dry_run=True)
        assert (dry.bodies, await store.fetch(old)) == (1, b"old and named by no result")
        pruned = await store.prune(Retention(bodies=KeepLimits(days=1)))
        assert (pruned.bodies, pruned.body_bytes) == (1, 26)
        with pytest.raises(NotFound):
            await store.fetch(old)
        await store.backup(tmp_path / "copy")
    async with await SqliteStore.at(tmp_path / "copy", bodies="database") as copy:
        assert await copy.fetch(new) == BODY
    connection = sqlite3.connect(tmp_path / "home" / "store.db")
    assert connection.execute("SELECT count(DISTINCT upload) FROM body_parts").fetchone() == (1,)
    connection.close()
    assert not [path for path in (tmp_path / "home" / "artifacts").glob("*") if re.fullmatch("..", path.name)]


async def test_the_same_body_kept_at_the_same_time_is_kept_once(tmp_path: Path) -> None:
    async with opened("database", tmp_path) as store:
        handles = await asyncio.gather(*(store.keep_pieces(pieces(BODY)) for _ in range(4)))

        assert len(set(handles)) == 1
        assert await store.fetch(handles[0]) == BODY
    connection = sqlite3.connect(tmp_path / "home" / "store.db")
    assert connection.execute("SELECT count(DISTINCT upload) FROM body_parts").fetchone() == (1,)
    connection.close()


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(NOW)


@pytest.fixture(params=["database", "libsql", "postgres"])
def machine(request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock) -> Iterator[Machine]:
    """Opens stores that share a database, each on a machine of its own."""
    if request.param == "database":
        yield lambda _: SqliteStore.at(tmp_path / "home", clock=clock, bodies="database")
        return
    with database_server(request.param, tmp_path, request) as on:
        yield lambda name: on(tmp_path / name, clock=clock)


async def swept(machine: Machine) -> None:
    """What a process does with its first body."""
    async with await machine("other") as other:
        await other.keep(b"a small one")


async def parts_of(store: SqliteStore) -> int:
    """How many parts of bodies the database holds."""
    count = await store._reader.read(
        lambda connection: connection.execute("SELECT count(*) FROM body_parts").fetchone()
    )
    return int(count[0])


async def test_an_upload_that_lasts_for_hours_is_kept_whole(machine: Machine, clock: FrozenClock) -> None:
    async def slow() -> AsyncIterator[bytes]:
        for start in range(0, len(BODY), PIECE):
            yield BODY[start : start + PIECE]
            clock.advance(2_400)
            await swept(machine)

    async with await machine("one") as one, await machine("two") as two:
        handle = await one.keep_pieces(slow())
        assert await two.fetch(handle) == BODY


@pytest.mark.parametrize("body", [BODY, BODY[: 2 * PIECE], BODY[:PIECE]])
@pytest.mark.parametrize("after", [0, 1])
async def test_an_upload_whose_parts_were_removed_fails_and_leaves_nothing(
    machine: Machine, clock: FrozenClock, body: bytes, after: int
) -> None:
    async def stalled() -> AsyncIterator[bytes]:
        starts = range(0, len(body), PIECE)
        for number, start in enumerate(starts):
            yield body[start : start + PIECE]
            if number == min(after, len(starts) - 1):
                clock.advance(7_200)
                await swept(machine)

    async with await machine("one") as one:
        with pytest.raises(StoreError, match=r"no piece of it came for an hour.*; keep it again"):
            await one.keep_pieces(stalled())
        with pytest.raises(NotFound):
            await one.fetch(f"sha256:{hashlib.sha256(body).hexdigest()}")
        await one.keep(b"")  # whatever was on its way to the store has arrived
        assert await parts_of(one) == 1
        assert await one.fetch(await one.keep(body)) == body


class ReadsBetween(Reader):
    """Reads as another reader does; something happens before one of its questions."""

    def __init__(self, reader: Reader, number: int, happens: Callable[[], Awaitable[object]]) -> None:
        self._real, self._left, self._happens = reader, number, happens

    async def read(
        self, question: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._left -= 1
        if self._left == 0:
            await self._happens()
        return await self._real.read(question, *args, **kwargs)


async def test_a_body_that_is_needed_again_while_old_ones_are_pruned_stays(
    machine: Machine, clock: FrozenClock
) -> None:
    clock.advance(0.123456789)
    async with await machine("one") as one, await machine("two") as two:
        handle = await one.keep(BODY)
        pruning = one.bodies
        assert isinstance(pruning, DatabaseBodies)
        (found,) = await pruning.kept()
        clock.advance(0.001)
        await two.keep(BODY)
        assert not await pruning.drop(found)
        assert await one.fetch(handle) == BODY
        (found,) = await pruning.kept()
        assert await pruning.drop(found)
        assert not await pruning.drop(found)
        assert await parts_of(one) == 0
        with pytest.raises(NotFound):
            await one.fetch(handle)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("number", range(1, 7))
async def test_a_body_that_is_pruned_while_it_is_read_is_whole_or_not_found(
    machine: Machine, number: int, is_known: bool
) -> None:
    async with await machine("one") as one:
        handle = await one.keep(BODY)
        pruning = one.bodies
        assert isinstance(pruning, DatabaseBodies)
        (found,) = await pruning.kept()
        reading = DatabaseBodies(one._writer, reader := one._reader, one._clock)
        if is_known:
            await reading.fetch(handle)
        reading._reader = ReadsBetween(reader, number, lambda: pruning.drop(found))
        try:
            assert await reading.fetch(handle, offset=5, length=PIECE) == BODY[5:][:PIECE]
        except NotFound:
            assert await pruning.kept() == []


async def test_a_body_that_lost_a_part_after_it_was_compared_is_damaged(tmp_path: Path) -> None:
    async with opened("database", tmp_path) as store:
        handle = await store.keep(BODY)
        assert await store.fetch(handle) == BODY
        with contextlib.closing(sqlite3.connect(tmp_path / "home" / "store.db")) as connection:
            connection.execute("DELETE FROM body_parts WHERE part = 1")
            connection.commit()
        assert await store.fetch(handle, length=PIECE) == BODY[:PIECE]
        with pytest.raises(StoreError, match="is damaged"):
            await store.fetch(handle)
