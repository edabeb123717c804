"""What stores in a database server have in common: machines share them, so owners keep leases in the database."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from toolwire.record.contract import BodyPlace, BodyStore
from toolwire.record.faults import to_store_error
from toolwire.record.lease_rows import LeaseRows, owners_with_lease, suspended_too
from toolwire.record.owners import Owners, owners_in_use
from toolwire.record.ownership import named_folder, prepare, writer_name
from toolwire.record.sqlite import Clocks, SqliteStore
from toolwire.record.warm import WarmLog
from toolwire.record.writer import Writer

Connect = Callable[[], sqlite3.Connection]
"""Opens a connection that executes statements and reads rows as SQLite's does."""


class ServerStore(SqliteStore):
    """Keeps turns, calls, the audit log and metrics in a database server, and in a local folder what is this machine's.

    Any number of machines may use one database. A turn belongs to the store that began or resumed it until it ends, is
    released, or that store has not renewed its lease for `lease_s`. Large bodies lie in the database unless `bodies`
    keeps them elsewhere; the warm log stays in the local folder.
    """

    @classmethod
    async def _on(
        cls,
        address: str,
        connect: Connect,
        migrate: Callable[[sqlite3.Connection], None],
        home: Path | str,
        clocks: Clocks,
        lease_s: float,
        bodies: BodyStore | BodyPlace,
    ) -> Self:
        place = named_folder(home)
        return await asyncio.to_thread(cls._reach, address, connect, migrate, place, clocks, lease_s, bodies)

    @classmethod
    def _reach(
        cls,
        address: str,
        connect: Connect,
        migrate: Callable[[sqlite3.Connection], None],
        home: Path,
        clocks: Clocks,
        lease_s: float,
        bodies: BodyStore | BodyPlace,
    ) -> Self:
        try:
            prepare(home)
            files = Owners(home / "owners", lease_s=lease_s, monotonic=clocks[1])
            name = writer_name(home)
        except OSError as error:
            raise to_store_error(error, home) from error
        elapsed = suspended_too if clocks[1] is time.monotonic else clocks[1]
        owners = LeaseRows(connect, files, lease_s=lease_s, elapsed=elapsed)
        try:
            owners.sweep(_prepared(connect, migrate, owners))
        except BaseException as error:
            owners.close()
            if isinstance(error, sqlite3.Error):
                raise to_store_error(error, address) from error
            raise
        clock = owners.clock if clocks[0] is time.time else clocks[0]
        warm = WarmLog(home / "logs", clock)
        # A server may be far, and the loop must not wait for it.
        writer = Writer(address, connect, warm.add, owners, near=False, name=name)
        return cls(
            home, address, connect, clock, clocks[1], bodies=bodies, owners=owners, warm=warm, writer=writer
        )  # fmt: skip


def _prepared(
    connect: Connect, migrate: Callable[[sqlite3.Connection], None], owners: LeaseRows
) -> frozenset[str]:  # fmt: skip
    """Bring the tables up to date, ask for the time, and say of which owners something is still asked.

    While the row of a dead one lasts, its file alone tells that it is dead.
    """
    connection = connect()
    try:
        migrate(connection)
        owners.ask_time(connection)
        return owners_in_use(connection) | owners_with_lease(connection)
    finally:
        connection.close()
