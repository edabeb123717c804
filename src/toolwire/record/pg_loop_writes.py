"""Makes transactions on the event loop, in a PostgreSQL server, where the server need not be asked in between.

Nearly all need not: what they take for true is sent with the rows that they write, in one statement. The thread that
writes has an event loop of its own, and to go there and back takes as long as the statement. So it is left out: the
changes are made here, and the statement is sent from here. Whatever else a transaction turns out to need, nothing was
written by then, and the thread makes it.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

import orjson

from toolwire.errors import StoreUnavailable
from toolwire.record.hrana import Cursor
from toolwire.record.liveness import Liveness
from toolwire.record.pg_connection import KNOWN, WRITE, Connection, MissingChain, may_be_gone, sqlite_errors
from toolwire.record.pg_functions import NUMBERS, Needs, learn
from toolwire.record.pg_rows import RowsToWrite, as_value, read_values
from toolwire.record.transaction import Cache, Transaction
from toolwire.record.write_queue import Change
from toolwire.record.writer import Audited, NotOnLoop

MOST_CHANGES = 64
"""Of one transaction. More are made by the thread, since nothing else runs on the loop meanwhile."""


class PgLoopWrites:
    """See above. It belongs to one event loop."""

    def __init__(
        self, address: str, connect: Callable[[], Awaitable[Connection]], audited: Audited, liveness: Liveness,
        name: str, patience_s: float,
    ) -> None:  # fmt: skip
        self._address = address
        self._connect = connect
        self._audited = audited
        self._liveness = liveness
        self._name = name
        self._limit_s = patience_s
        self._rows = _RowsOfTransaction()
        self._known = Cache()
        self._connection: Connection | None = None
        self._is_sent = False

    async def write(self, changes: Sequence[Change]) -> list[Any]:
        """Make changes in one transaction; what comes of each. Raises NotOnLoop, and nothing was written then."""
        if len(changes) > MOST_CHANGES:
            raise NotOnLoop
        self._rows.clear()
        self._is_sent = False
        try:
            with sqlite_errors(self._address, self._limit_s):
                async with asyncio.timeout(self._limit_s):
                    return await self._written(changes)
        except NotOnLoop:
            self._forget()
            raise
        except StoreUnavailable as error:  # it may have been written
            self.close()
            return [StoreUnavailable(*error.args) for _ in changes]
        except asyncio.CancelledError:  # as all tasks are at the end of a loop; who asked is not to wait for ever
            self.close()
            if not self._is_sent:
                raise NotOnLoop from None
            return [StoreUnavailable(f"{self._address} was not waited for any longer") for _ in changes]
        except sqlite3.Error as error:
            self._forget()
            if isinstance(error, MissingChain):
                self._rows.chains.clear()
            raise NotOnLoop from None

    async def _written(self, changes: Sequence[Change]) -> list[Any]:
        connection = self._connection
        if connection is None or may_be_gone(connection):
            self.close()
            connection = self._connection = await self._connected()
        await self._look_up(connection, changes)
        tx, outcomes, sent = self._made(changes)
        self._is_sent = True
        digests = await connection.fetchval(WRITE, None, *sent, True)
        if digests is None:  # what was taken for true is not
            raise NotOnLoop
        if tx.audited:
            given = iter(digests)
            self._audited([row if row[-1] is not None else (*row[:-1], next(given)) for row in tx.audited])
        return outcomes

    async def _connected(self) -> Connection:
        """A connection of its own. Where the server lets in no more, the thread may have one."""
        try:
            return await self._connect()
        except TimeoutError:  # the thread would wait as long again
            raise
        except Exception:
            raise NotOnLoop from None

    async def _look_up(self, connection: Connection, changes: Sequence[Change]) -> None:
        """Learn what the changes will ask that is not known yet."""
        known = self._known = self._known.still_true(cast(sqlite3.Connection, self._rows))
        known.heads.clear()
        needs = Needs(known, changes, guesses=True)
        if needs.taken_over:
            raise NotOnLoop
        if keys := list(needs.calls):
            rows = await connection.fetch(KNOWN, as_value(orjson.dumps(keys).decode()))
            learn(known, keys, map(read_values, rows))

    def _made(self, changes: Sequence[Change]) -> tuple[Transaction, list[Any], tuple[str, str]]:
        """The changes as a transaction, and what is to be sent. Whatever goes wrong, the thread looks what it is."""
        connection = cast(sqlite3.Connection, self._rows)
        try:
            self._liveness.join(connection)
            tx = Transaction(connection, self._known, self._liveness.alive_on(connection), writer=self._name)
            tx.facts = self._rows.facts
            outcomes = [change(tx) for change in changes]
            tx.flush()
            return tx, outcomes, self._rows.take()
        except Exception:
            raise NotOnLoop from None

    def _forget(self) -> None:
        """What was asked or changed by a transaction that was not made may be otherwise."""
        for key in self._rows.facts.settled:
            self._known.turns.pop(key[:2], None)
            self._known.here.discard(key[:2])
            if len(key) > 2:
                self._known.calls.pop(key, None)

    def close(self) -> None:
        """Let go of the server. Harmless when called twice."""
        self._known = Cache()
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(RuntimeError):  # its loop was closed, and the socket with it
                connection.terminate()


class _RowsOfTransaction(RowsToWrite):
    """What a transaction needs of a connection if its rows are sent when it ends. Raises NotOnLoop for the rest."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor:
        if sql == "PRAGMA data_version":
            return Cursor([(0,)])  # what is known is compared by the server, fact by fact
        if sql not in NUMBERS:
            raise NotOnLoop
        self.add(NUMBERS[sql], [parameters])
        return Cursor()

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> Cursor:
        given = list(rows)
        if given and sql not in NUMBERS:
            raise NotOnLoop
        if given:
            self.add(NUMBERS[sql], given)
        return Cursor((), len(given))
