"""The store in a libSQL server: the same tables, asked over HTTP."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from toolwire.protocol.checked import folder
from toolwire.record import reads, schema
from toolwire.record.artifacts import Artifacts
from toolwire.record.contract import BodyStore
from toolwire.record.faults import translated
from toolwire.record.hrana import HranaConnection, http_address
from toolwire.record.lease_rows import LeaseRows, suspended_too
from toolwire.record.liveness import LEASE_S
from toolwire.record.owners import Owners
from toolwire.record.ownership import prepare, writer_name
from toolwire.record.reader import Reader
from toolwire.record.sqlite import Clocks, SqliteStore
from toolwire.record.warm import WarmLog
from toolwire.record.writer import Writer


class LibsqlStore(SqliteStore):
    """Keeps turns, calls, the audit log and metrics in a libSQL server such as sqld or Turso.

    Any number of machines may use one database. A turn belongs to the store that began or resumed it until it ends, is
    released, or that store has not renewed its lease for `lease_s`. Large bodies and the warm log stay in a local
    folder unless `bodies` keeps them elsewhere. Open with `await LibsqlStore.on(…)`.
    """

    @classmethod
    async def on(
        cls,
        url: str,
        home: Path | str,
        *,
        token: str = "",
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        patience_s: float = 10.0,
        lease_s: float = LEASE_S,
        bodies: BodyStore | None = None,
    ) -> "LibsqlStore":
        """Open the store at `libsql://host`, making what is missing. Raises StoreUnavailable and SettingsError.

        Large bodies lie in the folder, or where `bodies` keeps them.
        """
        clocks = (clock, monotonic)
        store = await asyncio.to_thread(cls._reach, url, folder(home), token, clocks, patience_s, lease_s)
        store.bodies = bodies
        return store

    @classmethod
    def _reach(
        cls, url: str, home: Path, token: str, clocks: Clocks, patience_s: float, lease_s: float
    ) -> "LibsqlStore":
        address = http_address(url)
        connect = partial(_connected, url, token, patience_s)
        try:
            prepare(home)
            files = Owners(home / "owners", lease_s=lease_s, monotonic=clocks[1])
            artifacts = Artifacts(home / "artifacts")
            name = writer_name(home)
        except OSError as error:
            raise translated(error, home) from error
        elapsed = suspended_too if clocks[1] is time.monotonic else clocks[1]
        owners = LeaseRows(connect, files, lease_s=lease_s, elapsed=elapsed)
        try:
            owners.sweep(_prepare(connect, address))
        except BaseException as error:
            owners.close()
            if isinstance(error, sqlite3.Error):
                raise translated(error, address) from error
            raise
        warm = WarmLog(home / "logs", clocks[0])
        # A server may be far, and the loop must not wait for it.
        writer = Writer(address, connect, warm.add, owners, near=False, name=name)
        return cls(writer, Reader(address, connect), owners, artifacts, warm, *clocks)


def _connected(url: str, token: str, patience_s: float) -> sqlite3.Connection:
    # The store executes statements and reads rows; of that the other connection can do all.
    return cast(sqlite3.Connection, HranaConnection(url, token, patience_s=patience_s))


def _prepare(connect: Callable[[], sqlite3.Connection], address: str) -> frozenset[str]:
    connection = connect()
    try:
        schema.migrate(connection, address, identity=schema.SERVER_IDENTITY)
        return reads.owners_in_use(connection)
    finally:
        connection.close()
