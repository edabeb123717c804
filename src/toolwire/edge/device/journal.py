"""What the device has accepted, begun, finished and reported, in one SQLite file.

All work on the file is done by one thread, several requests in one transaction, so that the disk of a small device is
asked as seldom as possible and never by the event loop. Every commit survives a crash of the process. Only what must
survive a loss of power as well is forced to the disk: that a call has begun which must not run twice.
"""

import asyncio
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import orjson
from msgspec import Struct

from toolwire.errors import StoreUnavailable

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

MOST_EVENTS = 10_000
_MOST_TOGETHER = 256

_SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (
    key TEXT PRIMARY KEY, digest TEXT NOT NULL, epoch INTEGER NOT NULL, state TEXT NOT NULL, harmless INTEGER NOT NULL,
    command BLOB NOT NULL, body BLOB, delivered INTEGER NOT NULL DEFAULT 0, kept_until REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS calls_open ON calls (state, delivered) WHERE delivered = 0;
CREATE TABLE IF NOT EXISTS kept_artifacts (id TEXT PRIMARY KEY, size INTEGER NOT NULL, kept_until REAL NOT NULL);
CREATE TABLE IF NOT EXISTS artifact_pieces (id TEXT, place INTEGER, data BLOB NOT NULL, PRIMARY KEY (id, place));
CREATE TABLE IF NOT EXISTS events (number INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, detail BLOB);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


_PIECE_BYTES = 128 * 1024


class CallState(StrEnum):
    """How far a call has come."""

    ACCEPTED = "accepted"
    STARTED = "started"
    FINISHED = "finished"


class JournalRow(Struct, frozen=True):
    """One call. `command` is the newest one of it, as JSON, and `body` that of its report once it has finished.

    A call that is `harmless` may run again after a crash.
    """

    key: str
    digest: str
    epoch: int
    state: CallState
    harmless: bool
    command: bytes
    body: bytes | None = None


class Opening(Struct, frozen=True):
    """What the journal had about a call before it was to be accepted: None for a new one."""

    before: JournalRow | None


class JournalEvent(Struct, frozen=True):
    """Something that an operator may want to know: a refused message, a late report."""

    number: int
    at: float
    kind: str
    detail: dict[str, Any]


class JournalInUse(StoreUnavailable):
    """Another process works with the same journal."""


class CallJournal:
    """`async with CallJournal(path) as journal`. Raises StoreUnavailable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = -1
        self._flushes: bool | None = None

    async def __aenter__(self) -> "CallJournal":
        try:
            self._lock = _lock_file(self._path)
            connection = await asyncio.to_thread(_open, self._path)
        except (OSError, sqlite3.Error) as error:
            self._release()
            raise StoreUnavailable(f"the journal {self._path} cannot be opened: {error}") from None
        self._thread = threading.Thread(target=self._serve, args=(connection,), name="toolwire-journal", daemon=True)
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None
        self._release()

    async def accept(self, row: JournalRow, kept_until: float) -> Opening:
        """Write down a new call. One that is there stays, and gets the newer command and epoch of this one."""
        return await self._do(lambda db: _accept(db, row, kept_until), durable=not row.harmless)

    async def start(self, key: str, *, harmless: bool) -> None:
        """Write down that a call begins."""
        await self._do(
            lambda db: db.execute("UPDATE calls SET state = ? WHERE key = ?", (CallState.STARTED, key)),
            durable=not harmless,
        )

    async def finish(self, key: str, body: bytes, *, durable: bool = False) -> None:
        """Write down how a call has ended. The first result counts."""
        words = "UPDATE calls SET state = ?, body = ? WHERE key = ? AND body IS NULL"
        await self._do(lambda db: db.execute(words, (CallState.FINISHED, body, key)), durable=durable)

    async def find(self, key: str) -> JournalRow | None:
        return await self._do(lambda db: _find(db, key))

    async def set_delivered(self, key: str) -> None:
        await self._do(lambda db: db.execute("UPDATE calls SET delivered = 1 WHERE key = ?", (key,)))

    async def undelivered(self) -> list[JournalRow]:
        """The finished calls whose reports the broker may not have."""
        return await self._do(lambda db: _rows(db, _UNDELIVERED))

    async def unfinished(self) -> list[JournalRow]:
        """The calls that a process which is gone accepted or began."""
        return await self._do(lambda db: _rows(db, _UNFINISHED))

    async def newest(self, most: int) -> list[JournalRow]:
        """The calls that came last, newest first."""
        return await self._do(lambda db: _rows(db, _NEWEST, most))

    async def keep_artifact(self, name: str, data: bytes, kept_until: float) -> None:
        await self._do(lambda db: _keep_artifact(db, name, data, kept_until))

    async def read_artifact(self, name: str, offset: int, length: int) -> tuple[bytes, int] | None:
        """A piece of an artifact, and the size of the whole; None where there is none of this name."""
        return await self._do(lambda db: _read_artifact(db, name, offset, length))

    async def note_event(self, at: float, kind: str, detail: dict[str, Any]) -> None:
        """Keep something for an operator to read; of too many the oldest are forgotten."""
        await self._do(lambda db: _note_event(db, at, kind, detail))

    async def events(self, most: int = 100) -> list[JournalEvent]:
        """The newest events, oldest first."""
        words = "SELECT number, at, kind, detail FROM events ORDER BY number DESC LIMIT ?"
        found = await self._do(lambda db: db.execute(words, (most,)).fetchall())
        return [JournalEvent(number, at, kind, orjson.loads(detail)) for number, at, kind, detail in reversed(found)]

    async def set_fact(self, name: str, value: Any) -> None:
        data = orjson.dumps(value)
        await self._do(lambda db: db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, data)))

    async def fact(self, name: str) -> Any:
        found = await self._do(lambda db: db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone())
        return None if found is None else orjson.loads(found[0])

    async def prune(self, now: float) -> None:
        """Forget delivered calls, and artifacts, whose time is over.

        `now` and `kept_until` count the seconds in which agents were at work with this journal: no clock that is set
        can make a call forgotten while its command may still come again.
        """
        await self._do(lambda db: _prune(db, now))

    # The thread

    def _do(self, work: Work[T], *, durable: bool = False) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._waiting.put(_Request(work, durable, loop, answer))
        return answer

    def _serve(self, connection: sqlite3.Connection) -> None:
        stays = True
        while stays:
            first = self._waiting.get()
            together = [] if first is None else [first]
            stays = first is not None
            while stays and len(together) < _MOST_TOGETHER:
                try:
                    more = self._waiting.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    stays = False
                else:
                    together.append(more)
            if together:
                self._answer(connection, together)
        connection.close()

    def _answer(self, connection: sqlite3.Connection, together: "list[_Request]") -> None:
        try:
            answers: list[Any] = self._commit(connection, together)
        except Exception:  # whatever it was, this thread must go on: without it no call would ever end
            answers = [self._alone(connection, one) for one in together]
        with suppress(RuntimeError):  # the loop has ended, and no one waits any more
            together[0].loop.call_soon_threadsafe(_hand_out, together, answers)

    def _alone(self, connection: sqlite3.Connection, one: "_Request") -> Any:
        try:
            return self._commit(connection, [one])[0]
        except Exception as error:
            return StoreUnavailable(f"the journal {self._path} cannot be used: {error}")

    def _commit(self, connection: sqlite3.Connection, together: "list[_Request]") -> list[Any]:
        flush = any(one.durable for one in together)
        if flush != self._flushes:
            connection.execute("PRAGMA synchronous = FULL" if flush else "PRAGMA synchronous = NORMAL")
            self._flushes = flush
        connection.execute("BEGIN IMMEDIATE")
        try:
            answers = [one.work(connection) for one in together]
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        return answers

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class _Request:
    """Work for the thread, and where its answer goes."""

    __slots__ = ("answer", "durable", "loop", "work")

    def __init__(
        self, work: Work[Any], durable: bool, loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]"
    ) -> None:
        self.work, self.durable, self.loop, self.answer = work, durable, loop, answer


def _hand_out(together: list[_Request], answers: list[Any]) -> None:
    for one, answer in zip(together, answers, strict=True):
        if one.answer.done():
            continue
        if isinstance(answer, StoreUnavailable):
            one.answer.set_exception(answer)
        else:
            one.answer.set_result(answer)


def _lock_file(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise JournalInUse(f"another process works with the journal {path}; one agent at a time may") from None
    return lock


def _open(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(_SCHEMA)
    return connection


_CALLS = "SELECT key, digest, epoch, state, harmless, command, body FROM calls"
_OF_KEY = f"{_CALLS} WHERE key = ?"
_UNDELIVERED = f"{_CALLS} WHERE state = 'finished' AND delivered = 0"
_UNFINISHED = f"{_CALLS} WHERE state != 'finished' AND delivered = 0"
_NEWEST = f"{_CALLS} ORDER BY kept_until DESC LIMIT ?"


def _find(db: sqlite3.Connection, key: str) -> JournalRow | None:
    found = db.execute(_OF_KEY, (key,)).fetchone()
    return None if found is None else _row(found)


def _rows(db: sqlite3.Connection, statement: str, *values: int) -> list[JournalRow]:
    return [_row(one) for one in db.execute(statement, values)]


def _row(found: Any) -> JournalRow:
    key, digest, epoch, state, harmless, command, body = found
    return JournalRow(key, digest, epoch, CallState(state), bool(harmless), command, body)


def _accept(db: sqlite3.Connection, row: JournalRow, kept_until: float) -> Opening:
    before = _find(db, row.key)
    if before is None:
        values = (row.key, row.digest, row.epoch, row.state, row.harmless, row.command, row.body, 0, kept_until)
        db.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    elif row.epoch >= before.epoch and is_same_call(row, before):
        words = "UPDATE calls SET epoch = ?, command = ?, delivered = 0, kept_until = max(kept_until, ?) WHERE key = ?"
        db.execute(words, (row.epoch, row.command, kept_until, row.key))
    return Opening(before)


def is_same_call(row: JournalRow, before: JournalRow) -> bool:
    """Whether two commands are about one call. What was canceled before it came has no digest yet."""
    return row.digest == before.digest or not before.digest


def _note_event(db: sqlite3.Connection, at: float, kind: str, detail: dict[str, Any]) -> None:
    words = "INSERT INTO events (at, kind, detail) VALUES (?, ?, ?)"
    number = db.execute(words, (at, kind, orjson.dumps(detail))).lastrowid
    db.execute("DELETE FROM events WHERE number <= ?", ((number or 0) - MOST_EVENTS,))


def _keep_artifact(db: sqlite3.Connection, name: str, data: bytes, kept_until: float) -> None:
    """In pieces: SQLite walks through all pages before the one that it reads of a large value."""
    db.execute("INSERT OR REPLACE INTO kept_artifacts VALUES (?, ?, ?)", (name, len(data), kept_until))
    db.executemany(
        "INSERT OR REPLACE INTO artifact_pieces VALUES (?, ?, ?)",
        ((name, place, data[place : place + _PIECE_BYTES]) for place in range(0, len(data), _PIECE_BYTES)),
    )


def _read_artifact(db: sqlite3.Connection, name: str, offset: int, length: int) -> tuple[bytes, int] | None:
    found = db.execute("SELECT size FROM kept_artifacts WHERE id = ?", (name,)).fetchone()
    if found is None:
        return None
    first = offset - offset % _PIECE_BYTES
    pieces = db.execute(
        "SELECT data FROM artifact_pieces WHERE id = ? AND place >= ? AND place < ? ORDER BY place",
        (name, first, offset + length),
    )
    joined = b"".join(data for (data,) in pieces)
    return joined[offset - first : offset - first + length], found[0]


def _prune(db: sqlite3.Connection, now: float) -> None:
    db.execute("DELETE FROM calls WHERE delivered = 1 AND state = 'finished' AND kept_until < ?", (now,))
    db.execute("DELETE FROM kept_artifacts WHERE kept_until < ?", (now,))
    db.execute("DELETE FROM artifact_pieces WHERE id NOT IN (SELECT id FROM kept_artifacts)")
