"""The store in a PostgreSQL server: the same tables and rules as in SQLite."""

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from toolwire.errors import StoreUnavailable
from toolwire.record import dispatch_rows, pg_dialect, pg_functions, reads, schema
from toolwire.record.contract import BodyPlace, BodyStore
from toolwire.record.liveness import LEASE_S
from toolwire.record.pg_connection import PgConnection, address_of, open_connection
from toolwire.record.pg_lookups import PgLookups
from toolwire.record.pg_loop_writes import PgLoopWrites
from toolwire.record.reader import BatchedReads
from toolwire.record.server_store import ServerStore

SCHEMA = "toolwire"
_PAUSE_S = 0.002
"""Between lookups of a busy process; one that makes one call after the other asks less often than that."""

_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
_VERSION = "SELECT version FROM store_version"
_HAS_FUNCTION = "SELECT 1 FROM pg_proc WHERE proname = ? AND pronamespace = current_schema()::regnamespace"
_BEGINNING = (
    "CREATE TABLE store_version (version BIGINT NOT NULL)",
    "INSERT INTO store_version VALUES (0)",
    "CREATE SEQUENCE commits",
    *pg_dialect.FUNCTIONS,
)


class PostgresStore(ServerStore):
    """The store in a schema of a PostgreSQL database. Open with `await PostgresStore.on(…)`."""

    _lookups: PgLookups
    _loop_writes: PgLoopWrites

    @classmethod
    async def on(
        cls,
        url: str,
        home: Path | str,
        *,
        password: str = "",
        schema: str = SCHEMA,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        patience_s: float = 10.0,
        lease_s: float = LEASE_S,
        bodies: BodyStore | BodyPlace = "database",
    ) -> "PostgresStore":
        """Open the store at `postgresql://user@host/database`, making what is missing.

        Raises StoreUnavailable and SettingsError. Large bodies lie in the database, in the folder, or where `bodies`
        keeps them.
        """
        address = address_of(url)
        connect = partial(_connected, url, password, _plain(schema), patience_s)
        migrate = partial(_migrate, address)
        store = await cls._on(address, connect, migrate, home, (clock, monotonic), lease_s, bodies)
        opening = partial(open_connection, url, password, schema, patience_s)
        store._lookups = lookups = PgLookups(address, opening, store._reader, patience_s)
        store._dispatched = BatchedReads(partial(lookups.ask, dispatch_rows.of_cards), pause_s=_PAUSE_S)
        store._calls = BatchedReads(partial(lookups.ask, reads.calls_by_id), pause_s=_PAUSE_S)
        writer, added = store._writer, store._warm.add
        store._loop_writes = PgLoopWrites(address, opening, added, store._owners, writer.name, patience_s)
        writer.write_on_loop(store._loop_writes)
        return store

    async def close_store(self) -> None:
        await self._writer.leave_loop()
        self._loop_writes.close()
        await super().close_store()
        self._lookups.close()


def _plain(name: str) -> str:
    if not (name.isidentifier() and name.isascii() and name.islower()):
        raise ValueError(f"a schema is named in lower case letters, digits and _, not {name[:80]!r}")
    return name


def _connected(url: str, password: str, schema: str, patience_s: float) -> sqlite3.Connection:
    # The store executes statements and reads rows; of that the other connection can do all.
    return cast(sqlite3.Connection, PgConnection(url, password, schema=schema, patience_s=patience_s))


def _migrate(address: str, connection: sqlite3.Connection) -> None:
    """Bring the tables up to date, one transaction a step. A new store takes one step to the tables of today."""
    server = cast(PgConnection, connection)
    while _version(server, address) < len(schema.STEPS):
        server.make_schema()
        # Another process may have taken this step while we waited for the lock.
        _change(server, lambda: _take_step(server, _version(server, address)))
    functions = {pg_functions.writing_name(): "", **pg_functions.looking()}
    if missing := [name for name in functions if server.execute(_HAS_FUNCTION, (name,)).fetchone() is None]:
        making = [functions[name] or pg_functions.writing(server.parameter_types) for name in missing]
        _change(server, lambda: server.run(";\n".join(making)))


def _change(server: PgConnection, work: Callable[[], None]) -> None:
    server.execute("BEGIN IMMEDIATE")
    try:
        work()
        server.execute("COMMIT")
    except BaseException:
        server.roll_back()
        raise


def _version(server: PgConnection, address: str) -> int:
    present = {name for (name,) in server.execute(_TABLES)}
    if not present:
        return 0
    if "store_version" not in present:
        raise StoreUnavailable(f"{address} has another program's tables in this schema; choose another one")
    version = int(server.execute(_VERSION).fetchall()[0][0])
    if version > len(schema.STEPS):
        raise schema.too_new(address, version)
    return version


def _take_step(server: PgConnection, done: int) -> None:
    if done == len(schema.STEPS):
        return
    statements = pg_dialect.tables(schema.STEPS[done] if done else schema.newest())
    server.run(";\n".join((*(() if done else _BEGINNING), *statements)))
    version = done + 1 if done else len(schema.STEPS)
    server.execute("UPDATE store_version SET version = ?", (version,))
