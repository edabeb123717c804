"""What a libSQL server can do to a store: refuse, vanish, forget, answer nonsense, or never answer."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.models.provider import Scripted, answer, half, provider_on_loopback, says
from toolwire.errors import Fenced, SettingsError, StoreError, StoreUnavailable
from toolwire.record.hrana import HranaConnection, http_address
from toolwire.record.libsql import LibsqlStore
from toolwire.record.liveness import LEASE_S

from .conftest import NOW
from .hrana_server import HranaServer, hrana_server
from .samples import a_turn

BOUND_S = 10


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HranaServer]:
    with hrana_server(tmp_path / "server.db") as server:
        yield server


@asynccontextmanager
async def opened(url: str, home: Path, token: str = "", patience_s: float = 5.0) -> AsyncIterator[LibsqlStore]:
    async with asyncio.timeout(BOUND_S):
        store = await LibsqlStore.on(url, home, token=token, clock=lambda: NOW, patience_s=patience_s)
    try:
        yield store
    finally:
        await store.close_store()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("libsql://house.turso.io", "https://house.turso.io"),
        ("libsql://127.0.0.1:8080?tls=0", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("https://host/db", "https://host/db"),
    ],
)
def test_an_address_means_tls_unless_it_says_otherwise(url: str, address: str) -> None:
    assert http_address(url) == address


@pytest.mark.parametrize("url", ["", "store.db", "libsql:store.db", "ftp://host", "libsql://ada:secret@host"])
def test_an_address_that_is_none_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        http_address(url)
    assert "secret" not in str(refused.value)


async def test_what_was_kept_is_there_for_the_next_process(server: HranaServer, tmp_path: Path) -> None:
    async with opened(server.url, tmp_path / "home") as store:
        await store.begin(a_turn())

    async with opened(server.url, tmp_path / "home") as store:
        assert (await store.turn(a_turn().id)).opening.question == a_turn().question


async def test_whoever_lost_a_turn_to_another_process_is_fenced(server: HranaServer, tmp_path: Path) -> None:
    """Nothing that one connection has learned may be believed after another one has written."""
    async with opened(server.url, tmp_path / "here") as here, opened(server.url, tmp_path / "there") as there:
        await here.begin(a_turn())
        server.later_s = LEASE_S + 1
        await there.resume(a_turn().id)

        with pytest.raises(Fenced):
            await here.release(a_turn())


async def test_a_server_that_was_started_again_is_asked_anew(server: HranaServer, tmp_path: Path) -> None:
    async with opened(server.url, tmp_path / "home") as store:
        await store.begin(a_turn("one"))
        server.forget_streams()
        await store.begin(a_turn("two"))

        assert {one.id for one in await store.turns()} == {"one", "two"}


async def test_a_wrong_token_is_said(tmp_path: Path) -> None:
    with hrana_server(tmp_path / "server.db", token="right") as server:
        async with opened(server.url, tmp_path / "home", "right"):
            pass
        with pytest.raises(StoreUnavailable, match="refused the token"):
            async with opened(server.url, tmp_path / "home", "wrong"):
                pass


async def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:  # a port on which nobody listens
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(StoreUnavailable, match="could not be reached"):
            async with opened(f"http://127.0.0.1:{taken.getsockname()[1]}", tmp_path / "home"):
                pass


NONSENSE: dict[str, Scripted] = {
    "a web page": answer(b"<html>Welcome</html>", kind="text/html"),
    "an empty answer": answer(b""),
    "no results": says({"baton": None}),
    "results of another kind": says({"results": [{"type": "ok", "response": {"type": "describe"}}] * 3}),
    "numbers for results": says({"results": 7}),
    "a list": says([]),
    "half an answer": half(b'{"results": [', kind="application/json"),
    "an error of the server": says({"error": "out of order"}, status=500),
    "silence": Scripted(b"", "hang"),
}


@pytest.mark.parametrize("said", NONSENSE)
async def test_a_server_that_is_none_is_said_within_bounds(tmp_path: Path, said: str) -> None:
    async with provider_on_loopback() as provider:
        provider.will(NONSENSE[said])
        with pytest.raises(StoreUnavailable):
            async with opened(provider.url, tmp_path / "home", patience_s=0.2):
                pass


async def test_another_programs_database_is_left_alone(server: HranaServer, tmp_path: Path) -> None:
    connection = HranaConnection(server.url)
    connection.execute("CREATE TABLE theirs (a)")

    with pytest.raises(StoreUnavailable, match="another program's database"):
        async with opened(server.url, tmp_path / "home"):
            pass

    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    connection.close()


def test_values_come_back_as_they_went(server: HranaServer) -> None:
    """Integers too: as JSON numbers, large ones would lose their last digits."""
    values = (2**62 + 1, -5, True, 0.1, 1e300, "a\0b 🦊", b"\x00\xff\x01", b"", None)
    connection = HranaConnection(server.url)

    row = connection.execute("SELECT " + ", ".join("?" * len(values)), values).fetchone()
    connection.close()

    assert row == values


def test_a_change_that_breaks_a_rule_leaves_nothing_behind(server: HranaServer) -> None:
    connection = HranaConnection(server.url)
    connection.execute("CREATE TABLE kept (a INTEGER NOT NULL)")
    connection.execute("BEGIN IMMEDIATE")

    with pytest.raises(sqlite3.IntegrityError):
        connection.executemany("INSERT INTO kept VALUES (?)", [(1,), (None,)])
    connection.execute("ROLLBACK")
    connection.execute("ROLLBACK")  # what has ended was rolled back already
    rows = connection.execute("SELECT * FROM kept").fetchall()
    connection.close()

    assert rows == []


async def test_a_question_waits_for_the_server_as_seldom_as_it_can(server: HranaServer, tmp_path: Path) -> None:
    async with opened(server.url, tmp_path / "home") as store:
        await store.begin(a_turn("one"))
        asked = []
        for question in (partial(store.turn, "one"), store.formats):
            before = server.posts
            await question()
            asked.append(server.posts - before)

    assert asked == [1, 2]


def test_a_transaction_that_cannot_begin_writes_nothing(server: HranaServer) -> None:
    holder, second = HranaConnection(server.url), HranaConnection(server.url)
    holder.execute("CREATE TABLE kept (a INTEGER)")
    server.patience_s = 0.0
    holder.execute("BEGIN IMMEDIATE")
    assert holder.execute("SELECT * FROM kept").fetchall() == []
    second.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        second.execute("INSERT INTO kept VALUES (1)")
    holder.execute("COMMIT")
    rows = holder.execute("SELECT * FROM kept").fetchall()
    holder.close()
    second.close()

    assert rows == []


async def test_a_closed_store_says_so(server: HranaServer, tmp_path: Path) -> None:
    async with opened(server.url, tmp_path / "home") as store:
        pass
    with pytest.raises(StoreError, match="open the store again"):
        await store.begin(a_turn())
