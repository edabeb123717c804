"""The stores under test, and small values to keep in them."""

import functools
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from tests.postgres_server import shared_server
from toolwire.record import schema
from toolwire.record.contract import Store
from toolwire.record.hrana import HranaConnection
from toolwire.record.libsql import LibsqlStore
from toolwire.record.memory import MemoryStore
from toolwire.record.postgres import PostgresStore
from toolwire.record.sqlite import SqliteStore

from .hrana_server import HranaServer, hrana_server

NOW = 1_700_000_000.0

OnServer = Callable[..., Awaitable[SqliteStore]]
OpenStore = Callable[[], Awaitable[SqliteStore]]


@pytest.fixture(params=["memory", "sqlite", "libsql", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    match request.param:
        case "memory":
            yield MemoryStore(clock=lambda: NOW)
        case "sqlite":
            async with await SqliteStore.at(tmp_path / "home", clock=lambda: NOW) as opened:
                yield opened
        case kind:
            with database_server(kind, tmp_path, request) as on:
                async with await on(tmp_path / "home", clock=lambda: NOW) as opened:
                    yield opened


@contextmanager
def database_server(kind: str, folder: Path, request: pytest.FixtureRequest | None = None) -> Iterator[OnServer]:
    """Opens stores in one empty database of a server of this kind, as many processes and machines would.

    A test that has no request to give uses the fixture `postgres`.
    """
    if kind == "postgres":
        if request is not None:
            request.getfixturevalue("postgres")
        with shared_server().schemas.empty() as schema:
            yield functools.partial(PostgresStore.on, shared_server().url, schema=schema)
        return
    with libsql_server(folder) as url:
        yield functools.partial(LibsqlStore.on, url)


@contextmanager
def libsql_server(folder: Path) -> Iterator[str]:
    """A server with an empty database: the one that a variable names, or one of our own."""
    if url := os.environ.get("TEST_LIBSQL_URL"):
        emptied(url)
        yield url
        return
    with migrated_server(folder) as server:
        yield server.url


@contextmanager
def migrated_server(folder: Path) -> Iterator[HranaServer]:
    """A server of our own on the database `server.db` of this folder; a new one has our tables, and nothing in them."""
    if not (folder / "server.db").exists():
        (folder / "server.db").write_bytes(new_database())
    with hrana_server(folder / "server.db") as server:
        yield server


@functools.cache
def new_database() -> bytes:
    """A database with our tables in it, made once: a server takes a third of a second of CPU for all the statements."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.db"
        with hrana_server(path) as server:
            connection = HranaConnection(server.url)
            schema.migrate(cast(sqlite3.Connection, connection), server.url, identity=schema.SERVER_IDENTITY)
            connection.close()
        return path.read_bytes()


def emptied(url: str) -> None:
    connection = HranaConnection(url)
    connection.execute("PRAGMA user_version = 0")
    connection.execute("PRAGMA foreign_keys = OFF")
    for kind, name in connection.execute("SELECT type, name FROM sqlite_master WHERE sql IS NOT NULL").fetchall():
        if kind == "table":
            connection.execute(f'DROP TABLE IF EXISTS "{name}"')
    connection.close()


@pytest.fixture
async def open_sqlite(tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens stores on one home; all are closed with the test."""
    opened: list[SqliteStore] = []

    async def open_one() -> SqliteStore:
        opened.append(await SqliteStore.at(tmp_path / "home", clock=lambda: NOW, busy_timeout_s=0.2))
        return opened[-1]

    yield open_one
    for one in opened:
        await one.close_store()
