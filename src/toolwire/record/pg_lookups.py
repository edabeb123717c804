"""Asks a PostgreSQL server on the event loop, for what is looked up with every call.

The reader's thread and the loop inside it take longer than the server does to find a row. So the few questions that
every call waits for are asked here, by a connection of their own. It belongs to the first loop that asks; any other
loop, of which most programs have none, asks the reader.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from asyncpg.prepared_stmt import PreparedStatement

from toolwire.errors import StoreUnavailable
from toolwire.record.faults import to_store_error
from toolwire.record.lookup import Lookup
from toolwire.record.pg_connection import LONGER, Connection, sqlite_errors
from toolwire.record.pg_dialect import to_postgres
from toolwire.record.pg_functions import INSTEAD
from toolwire.record.pg_rows import as_values, read_values
from toolwire.record.reader import Reader
from toolwire.record.rows import Row

Key = TypeVar("Key")
Found = TypeVar("Found")


class PgLookups:
    """Looks up rows by their keys."""

    def __init__(
        self, address: str, connect: Callable[[], Awaitable[Connection]], reader: Reader, patience_s: float
    ) -> None:
        self._address = address
        self._connect = connect
        self._reader = reader
        self._limit_s = patience_s * LONGER
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: Connection | None = None
        self._prepared: dict[str, PreparedStatement[Any]] = {}
        self._asking = asyncio.Lock()
        self._is_closed = False

    async def ask(self, lookup: Lookup[Key, Found], keys: Sequence[Key]) -> Mapping[Key, Found]:
        """What is found. Raises StoreError, also for kept data that cannot be understood."""
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop or self._is_closed:
            return await self._reader.read(lookup, keys)
        parameters = as_values(lookup.parameters(keys))
        try:
            async with self._asking:
                rows = await self._asked(lookup.sql, parameters)
            return lookup.read(keys, rows)
        except (sqlite3.Error, OSError) as error:
            raise to_store_error(error, self._address) from error
        except (LookupError, TypeError, ValueError) as error:
            raise self._reader.unreadable(error) from error

    async def _asked(self, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        if self._connection is not None:
            with contextlib.suppress(StoreUnavailable):  # it may have died meanwhile, and a question can be asked again
                return await self._rows(self._connection, sql, parameters)
            self._drop()
        with sqlite_errors(self._address, self._limit_s):
            self._connection = connection = await self._connect()
        if self._is_closed:
            self.close()
            raise StoreUnavailable(f"{self._address} was closed; open the store again")
        return await self._rows(connection, sql, parameters)

    async def _rows(self, connection: Connection, sql: str, parameters: Sequence[Any]) -> Sequence[Row]:
        with sqlite_errors(self._address, self._limit_s):
            async with asyncio.timeout(self._limit_s):
                statement = self._prepared.get(sql)
                if statement is None:
                    statement = await connection.prepare(INSTEAD.get(sql) or to_postgres(sql))
                    self._prepared[sql] = statement
                return list(map(read_values, await statement.fetch(*parameters)))

    def close(self) -> None:
        """Let go of the server. Harmless when called twice."""
        self._is_closed = True
        self._drop()

    def _drop(self) -> None:
        connection, self._connection, self._prepared = self._connection, None, {}
        if connection is not None:
            with contextlib.suppress(RuntimeError):  # its loop was closed, and the socket with it
                connection.terminate()
