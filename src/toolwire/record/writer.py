"""The one thread that writes: it takes every change that waits and makes them durable with one commit."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from toolwire.errors import StoreError, StoreUnavailable
from toolwire.record.faults import translated
from toolwire.record.page import Known, Page

T = TypeVar("T")
Change = Callable[[Page], Any]
Waiting = tuple[Change, asyncio.Future[Any]]
MAX_BATCH = 1024


class Writer:
    """Applies changes from any number of event loops, in the order in which they came."""

    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path = path
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._known = Known()
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="toolwire-store-writer", daemon=True)
        self._thread.start()

    async def write(self, change: Callable[[Page], T | StoreError]) -> T:
        """Wait until the change is durable and give back what came of it. Raises StoreError when it was refused."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._closed:
                raise StoreUnavailable(f"{self._path} was closed; open the store again")
            self._queue.put((change, future))
        return await future

    def close(self) -> None:
        """Finish what waits, then stop. Blocks; harmless when called twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while batch := self._take():
            self._serve(batch)
        self._drop_connection()

    def _take(self) -> list[Waiting]:
        """Everything that waits now, at least one; nothing once the store is closed."""
        first = self._queue.get()
        if first is None:
            return []
        batch = [first]
        with contextlib.suppress(Empty):
            while len(batch) < MAX_BATCH:
                waiting = self._queue.get_nowait()
                if waiting is None:
                    self._queue.put(None)
                    break
                batch.append(waiting)
        return batch

    def _serve(self, batch: Sequence[Waiting]) -> None:
        try:
            outcomes = self._transact([change for change, _ in batch])
        except Exception as error:  # whatever it was, those who wait must hear of it and the thread must go on
            refusal = translated(error, self._path)
            if isinstance(refusal, StoreUnavailable):
                self._drop_connection()
                outcomes = [StoreUnavailable(*refusal.args) for _ in batch]
            elif len(batch) > 1:
                for waiting in batch:
                    self._serve([waiting])
                return
            else:
                outcomes = [refusal]
        _wake_all(zip((future for _, future in batch), outcomes, strict=True))

    def _transact(self, changes: Sequence[Change]) -> list[Any]:
        self._connection = connection = self._connection or self._connect()
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._known = self._known.still_true(connection)
            page = Page(connection, self._known)
            outcomes = [change(page) for change in changes]
            page.flush()
            connection.execute("COMMIT")
        except BaseException:
            self._known = Known()
            # SQLite rolls back by itself after some errors, and a broken disk refuses even that.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        return outcomes

    def _drop_connection(self) -> None:
        """Begin anew with the next batch: after an error of the disk a connection may stay unusable."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
            self._known = Known()


def _wake_all(outcomes: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for future, outcome in outcomes:
        by_loop.setdefault(future.get_loop(), []).append((future, outcome))
    for loop, group in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits there any more
            loop.call_soon_threadsafe(_wake, group)


def _wake(group: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in group:
        if future.done():
            continue  # whoever asked was canceled; the change is kept all the same
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
