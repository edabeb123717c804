"""A PostgreSQL server, with as much of a SQLite connection as the store uses.

The store asks from threads of its own, one statement after the other, so each connection has an event loop that runs
while a statement does. Transactions that write take turns by a lock of the database, as they do in SQLite: what a rule
reads inside one stays true until it commits, and rows are numbered in the order in which they become visible.

Each statement is a way to the server and back. So what calls and turns write waits for the end of the transaction, and
goes to the server in one statement. A transaction in which nothing else is asked or changed, as nearly all are, begins
and ends with it: the statement takes the lock, compares what was taken for true with what is kept, and writes the rows;
see `pg_functions`. What the changes of a transaction will ask is looked up before, for all of them together.
"""

import asyncio
import contextlib
import math
import select
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import asyncpg
import orjson
from asyncpg.cursor import CursorIterator
from asyncpg.prepared_stmt import PreparedStatement

from toolwire.errors import SettingsError, StoreUnavailable
from toolwire.event_loop import new_loop
from toolwire.record.hrana import Cursor
from toolwire.record.lone_questions import LONE_QUESTIONS
from toolwire.record.pg_dialect import COMMITS, LOCK, to_postgres
from toolwire.record.pg_functions import (
    INSTEAD,
    NUMBERS,
    Needs,
    learn,
    learn_left,
    looking,
    writing_name,
)
from toolwire.record.pg_rows import RowsToWrite, as_value, as_values, read_values
from toolwire.record.rows import CallKey, Row
from toolwire.record.transaction import Cache, Facts, StaleCache

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[Any]"
_MAKE_SCHEMA = """
    DO $$ BEGIN EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', current_setting('search_path')); END $$
"""
# A machine that stops in the middle of a change holds the lock of all writers: the server ends it before long.
_WATCHED = {
    "idle_in_transaction_session_timeout": "20s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "2",
}
# Under the lock of all writers a transaction must see what the one before it wrote, whatever the database is set to.
_ISOLATED = {"default_transaction_isolation": "read committed"}
# A plan is kept for as long as the connection lives, and tables that were small when it was made grow.
_BY_INDEX = {"enable_seqscan": "off", "enable_hashjoin": "off"}
_BEGIN = f"BEGIN; SELECT {LOCK}"
_COMMIT = "SELECT nextval('commits'); COMMIT"
_VERSION = f"SELECT {COMMITS}"
WRITE = f"SELECT {writing_name()}($1, $2, $3, $4)"
KNOWN, _LEFT = (f"SELECT * FROM {name}($1)" for name in looking())  # noqa: S608 -- our own names
_PAGE = 500
LONGER = 30
"""So many times longer than a change may a question take."""
_READS = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_UNREACHABLE = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
_FULL = (asyncpg.DiskFullError, asyncpg.OutOfMemoryError)
_LATER = (asyncpg.CannotConnectNowError, asyncpg.AdminShutdownError, asyncpg.CrashShutdownError,
          asyncpg.TooManyConnectionsError)  # fmt: skip


def address_of(url: str) -> str:
    """Where a server is, for messages. Raises SettingsError for an address that holds a password, or is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or not parts.hostname:
        raise SettingsError(f"a PostgreSQL store is at postgresql://user@host/database, not {url[:200]!r}")
    if parts.password is not None:
        raise SettingsError("the address of a store must not contain a password; name its variable in store.token_env")
    return f"postgresql://{parts.netloc}{parts.path}"


def open_connection(url: str, password: str, schema: str, patience_s: float) -> Awaitable[Connection]:
    """A connection with the settings that the store's statements need."""
    return asyncpg.connect(
        url,
        password=password or None,
        timeout=patience_s,
        server_settings={
            "search_path": schema,
            "application_name": f"toolwire {schema}",  # so that an operator sees which store a connection serves
            "jit": "off",
            **_ISOLATED,
            **_BY_INDEX,
            **_WATCHED,
        },
    )


class MissingChain(sqlite3.OperationalError):
    """The server cannot link audit rows by itself: their chain was pruned."""


class PgConnection:
    """One writer's or reader's way to the server. What it raises is sqlite3.Error or StoreUnavailable."""

    def __init__(self, url: str, password: str = "", *, schema: str = "toolwire", patience_s: float = 10.0) -> None:
        self._address = address_of(url)
        self._patience_s = patience_s
        self._loop = new_loop()
        self._writes = self._reads = self._is_in_view = False
        self._rows = RowsToWrite()
        self._is_here = False
        self.digests: list[str] = []
        self._connecting = partial(open_connection, url, password, schema, patience_s)
        try:
            self._connect()
        except BaseException:
            self._loop.close()
            raise

    def _connect(self) -> None:
        self._connection: Connection = self._run(self._connecting())
        self._prepared: dict[str, PreparedStatement[Any]] = {}
        self._has_written = False
        self._last = -1

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Cursor:
        """One statement."""
        if sql == "PRAGMA data_version":
            self._last = -1 if self._is_here else int(self._run(self._connection.fetchval(_VERSION)))
            return Cursor([(0,)])  # what is known is compared by the server, fact by fact
        if sql.startswith("PRAGMA"):
            return Cursor()
        match sql.split(None, 1)[0].upper():
            case "BEGIN":
                return self._begun(writes=sql != "BEGIN")
            case "COMMIT":
                return self._written_at_once() if self._is_here else self._committed()
            case "ROLLBACK":
                self.roll_back()
                return Cursor()
            case _:
                if self._reads:
                    if not self._is_in_view and sql in LONE_QUESTIONS:
                        return self._asked_alone(sql, parameters)
                    self._enter_view()
                    return Cursor(self._pages(sql, parameters))
                if self._writes and sql in NUMBERS:
                    self._rows.add(NUMBERS[sql], [parameters])
                    return Cursor()
                self._send()
                return self._run(self._asked(sql, parameters), longer=1 if self._writes else LONGER)

    def _asked_alone(self, sql: str, parameters: Sequence[Any]) -> Cursor:
        try:
            return self._run(self._asked(sql, parameters), longer=LONGER)
        except StoreUnavailable:  # the kept connection may have died meanwhile, and a question can be asked again
            self._connection.terminate()
            self._connect()
            return self._run(self._asked(sql, parameters), longer=LONGER)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> Cursor:
        """The same statement with each of these rows."""
        given = list(rows)
        if given and self._writes and sql in NUMBERS:
            self._rows.add(NUMBERS[sql], given)
        elif given:
            self._send()
            self._run(self._connection.executemany(to_postgres(sql), [as_values(row) for row in given]))
        return Cursor((), len(given))

    def prepare(self, known: Cache, made: Sequence[Any]) -> Facts:
        """In a transaction that has begun: look up what these changes will ask, all at once.

        Gives where to note what else is taken for true.
        """
        known.heads.clear()  # other processes of this folder go on with the same chains
        facts, needs = self._rows.facts, Needs(known, made, guesses=self._is_here)
        if needs.taken_over:
            keys = orjson.dumps(list(needs.taken_over)).decode()
            rows = self._run(self._connection.fetch(_LEFT, as_value(keys)))
            learn_left(known, facts, needs.taken_over, map(read_values, rows))
            if not self._is_here:
                facts.settled.update(needs.taken_over)
        self.look_up(known, list(needs.calls))
        return facts

    def look_up(self, known: Cache, keys: Sequence[CallKey]) -> None:
        """Learn of calls and their turns. Under the lock, what was looked up stays true."""
        if keys:
            rows = self._run(self._connection.fetch(KNOWN, as_value(orjson.dumps(keys).decode())))
            learn(known, keys, map(read_values, rows))
            if not self._is_here:
                self._rows.facts.settled.update(keys, (key[:2] for key in keys))

    def link_audit(self, rows: Sequence[Row], writer: str) -> bool:
        """Let the server link audit rows. Not in a transaction that has begun there: under its lock they are known."""
        if not self._is_here:
            self._rows.learn_chains(rows, writer)
        return self._is_here and self._rows.link_audit(rows, writer)

    def make_schema(self) -> None:
        """Make the schema that the store lives in, if there is none. Two who do it at once both succeed."""
        try:
            self._run(self._connection.execute(_MAKE_SCHEMA))
        except sqlite3.IntegrityError:
            return  # the other one was quicker

    def parameter_types(self, sql: str) -> list[str]:
        """The types of a statement's parameters."""
        return [kind.name for kind in self._run(self._statement(sql)).get_parameters()]

    def run(self, script: str) -> None:
        """Statements in PostgreSQL's own words, which may take as long as they need."""
        if self._writes:
            self._send()
        self._run(self._connection.execute(script), longer=math.inf)

    def roll_back(self) -> None:
        """End the transaction, if there is still one. A server that is gone has rolled it back already."""
        self._forget_transaction()
        self._reads = self._writes = self._is_in_view = False
        with contextlib.suppress(StoreUnavailable):
            if self._is_in_transaction():
                self._run(self._connection.execute("ROLLBACK"))

    def _forget_transaction(self) -> None:
        self._rows.clear()
        self._is_here, self._last = False, -1

    def _is_in_transaction(self) -> bool:
        return not self._connection.is_closed() and self._connection.is_in_transaction()

    def close(self) -> None:
        """Let go of the server. An open transaction is rolled back there."""
        if not self._loop.is_closed():
            self._connection.terminate()
            self._loop.run_until_complete(asyncio.sleep(0))  # so that the socket is closed, too
            self._loop.close()

    def _begun(self, *, writes: bool) -> Cursor:
        self._forget_transaction()
        self._writes, self._reads, self.digests = writes, not writes, []
        self._is_here = writes and self._has_written
        self._is_in_view = False
        return Cursor() if self._is_here or not writes else self._begun_there()

    def _enter_view(self) -> None:
        """Begin what one question sees. A statement that is asked alone sees one moment by itself."""
        if not self._is_in_view:
            self._begun_there()
            self._is_in_view = True

    def _begun_there(self) -> Cursor:
        first = _BEGIN if self._writes else _READS
        try:
            self._run(self._connection.execute(first))
        except StoreUnavailable:  # the kept connection may have died meanwhile, and a BEGIN can be said again
            self._connection.terminate()
            self._connect()
            self._run(self._connection.execute(first))
        return Cursor()

    def _send(self) -> None:
        """Let the server hear of a transaction that has begun here, and of the rows that wait. Raises StaleCache."""
        if self._is_here:
            self._is_here = False
            self._begun_there()
        if self._rows.any:
            self._write(ends=False)

    def _committed(self) -> Cursor:
        if not self._writes:
            if self._is_in_view:
                self._run(self._connection.execute("COMMIT"))
            self._reads = self._is_in_view = False
            return Cursor()
        if not self._is_in_transaction():
            raise sqlite3.OperationalError("cannot commit - no transaction is active")
        last = _COMMIT
        if self._rows.any:
            self._write(ends=True)
            last = "COMMIT"
        status = self._run(self._connection.execute(last))
        self._forget_transaction()
        self._writes = False
        if status != "COMMIT":
            raise sqlite3.OperationalError("the transaction was rolled back")
        self._has_written = True
        return Cursor()

    def _written_at_once(self) -> Cursor:
        """Make a transaction that has begun here, all of it. Raises StaleCache."""
        if may_be_gone(self._connection):
            raise self._stale()
        if self._rows.any:
            self._write(ends=True)
        self._forget_transaction()
        self._writes = False
        return Cursor()

    def _write(self, *, ends: bool) -> None:
        """Compare the facts and write the rows that wait. Raises StaleCache, and then nothing was written."""
        known = self._last if self._last >= 0 else None
        try:
            digests = self._run(self._connection.fetchval(WRITE, known, *self._rows.take(), ends))
        except MissingChain:
            self._rows.chains.clear()
            raise self._stale() from None
        if digests is None:
            raise self._stale()
        self.digests += digests

    def _stale(self) -> StaleCache:
        """What was known here may be wrong: the next transaction begins at the server."""
        self._has_written = False
        self.roll_back()
        return StaleCache("another connection has written meanwhile")

    async def _asked(self, sql: str, parameters: Sequence[Any]) -> Cursor:
        statement = await self._statement(sql)
        rows = await statement.fetch(*as_values(parameters))
        return Cursor(map(read_values, rows), _count(statement.get_statusmsg() or ""))

    async def _statement(self, sql: str) -> "PreparedStatement[Any]":
        statement = self._prepared.get(sql)
        if statement is None:
            statement = self._prepared[sql] = await self._connection.prepare(INSTEAD.get(sql) or to_postgres(sql))
        return statement

    def _pages(self, sql: str, parameters: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """The rows of a question: the first of them, and more as they are asked for. No answer is all here at once."""
        rows: CursorIterator[Any] | None = None

        async def page() -> list[tuple[Any, ...]]:
            nonlocal rows
            if rows is None:
                found = (await self._statement(sql)).cursor(*as_values(parameters), prefetch=_PAGE)
                rows = aiter(found)
            return [read_values(row) async for row in _at_most(_PAGE, rows)]

        first = self._run(page(), longer=LONGER)

        def rest() -> Iterator[tuple[Any, ...]]:
            last = first
            while len(last) == _PAGE:
                last = self._run(page(), longer=LONGER)
                yield from last

        return chain(first, rest())

    def _run(self, work: Awaitable[T], *, longer: float = 1) -> T:
        """Wait for an answer, so many times longer than usual."""
        limit_s = self._patience_s * longer
        with sqlite_errors(self._address, limit_s):
            return self._loop.run_until_complete(_within(limit_s, work))


def may_be_gone(connection: Connection) -> bool:
    """Whether something came from the server while it was asked nothing: its end, nearly always.

    A transaction that is sent in one statement cannot be sent again when the connection ends, as a BEGIN can.
    """
    if connection.is_closed():
        return True
    heard = select.poll()
    heard.register(cast("Any", connection)._transport.get_extra_info("socket"), select.POLLIN)
    return bool(heard.poll(0))


@contextlib.contextmanager
def sqlite_errors(address: str, limit_s: float) -> Iterator[None]:
    """Say what goes wrong with a server as sqlite3.Error or StoreUnavailable."""
    try:
        yield
    except TimeoutError as late:
        raise StoreUnavailable(
            f"{address} did not answer within {limit_s:g} s; another process may be writing, or it is far"
        ) from late
    except asyncpg.SerializationError as error:
        raise MissingChain(str(error)) from error
    except _FULL as error:
        raise _refusal(error, sqlite3.SQLITE_FULL) from error
    except asyncpg.IntegrityConstraintViolationError as error:
        raise sqlite3.IntegrityError(str(error)) from error
    except (*_LATER, asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
        raise StoreUnavailable(f"{address} refused the connection ({error}); check the server") from error
    except _UNREACHABLE as lost:
        raise StoreUnavailable(
            f"{address} could not be reached ({type(lost).__name__}); check the address and the server"
        ) from lost
    except asyncpg.PostgresError as error:
        raise sqlite3.OperationalError(str(error)) from error


async def _at_most(most: int, rows: AsyncIterator[T]) -> AsyncIterator[T]:
    while most > 0:
        try:
            yield await anext(rows)
        except StopAsyncIteration:
            return
        most -= 1


async def _within(limit_s: float, work: Awaitable[T]) -> T:
    async with asyncio.timeout(None if limit_s == math.inf else limit_s):
        return await work


def _refusal(error: Exception, code: int) -> sqlite3.OperationalError:
    refusal = sqlite3.OperationalError(str(error))
    refusal.sqlite_errorcode = code
    return refusal


def _count(status: str) -> int:
    """How many rows a statement changed: the last word of `UPDATE 3`."""
    last = status.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0
