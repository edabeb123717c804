"""Who writes: the loop itself where that is quick, or a thread that makes all waiting changes durable with one commit.

Handing changes to a thread and back takes longer than a commit on a quick disk, and the caller has nothing
else to do. So a few changes, while the thread has none, are committed together on the spot; where that takes long, they
are left to the thread for a while.
"""

import asyncio
import contextlib
import math
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from toolwire.errors import StoreError, StoreUnavailable
from toolwire.record.faults import translated
from toolwire.record.liveness import Liveness
from toolwire.record.retries import Retries
from toolwire.record.rows import Row
from toolwire.record.transaction import Cache, Transaction
from toolwire.record.turnstile import SHARE, Turnstile

T = TypeVar("T")
Change = Callable[[Transaction], Any]
Waiting = tuple[Change, asyncio.Future[Any]]
Audited = Callable[[Sequence[Row]], None]
"""Told the rows of the audit log once they are durable. Must not wait, and must not raise."""
MAX_BATCH = 1024
FEW = 64
LONG_S = 0.002
LONGEST_PAUSE_S = 1.0


class Writer:
    """Applies changes from any number of event loops."""

    def __init__(
        self,
        path: Path | str,
        connect: Callable[[], sqlite3.Connection],
        audited: Audited,
        liveness: Liveness,
        *,
        near: bool = True,
        share: int = SHARE,
        name: str = "",
    ) -> None:
        """`near` says that a commit is quick enough for the loop to wait for it; `share` is what an agent may write.

        What is audited goes into the chain of this `name`, and what is owned belongs to the owner of `liveness`.
        """
        self._share = share
        self._turnstiles: WeakKeyDictionary[asyncio.AbstractEventLoop, Turnstile] = WeakKeyDictionary()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turnstile = Turnstile(share)
        self._path = path
        self._far = _Connection(connect, audited, liveness, name)
        self._near = _Connection(connect, audited, liveness, name)
        self._again = _Connection(connect, audited, liveness, name)
        self._retries = Retries(self._write_again)
        self._near_lock = threading.Lock()
        self._near_again_at = 0.0 if near else math.inf
        self._near_long = 0
        self._pending: dict[asyncio.AbstractEventLoop, list[Waiting]] = {}
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = True
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="toolwire-store-writer", daemon=True)
        self._thread.start()

    async def write(self, change: Callable[[Transaction], T | StoreError], whose: Any = None) -> T:
        """Wait until the change is durable and give back what came of it. Raises StoreError when it was refused.

        Of the changes of one agent only so many are handed on at once; `whose` names it.
        """
        loop = asyncio.get_running_loop()
        turnstile = self._turnstile if loop is self._loop else self._turnstile_of(loop)
        if (place := turnstile.enter(whose, loop)) is not None:
            await turnstile.wait(whose, place)
        try:
            return await self._hand_over(change, loop)
        finally:
            turnstile.leave(whose)

    def retry_later(self, change: Change) -> None:
        """Make a change later that could not be made now, as soon as the store can be written."""
        self._retries.add(change)

    async def settle(self) -> None:
        """Make now what is to be retried, if there is anything and the store can be written."""
        if self._retries.any:
            await asyncio.to_thread(self._retries.settle)

    def after(self, change: Change, loop: asyncio.AbstractEventLoop) -> None:
        """Make a change behind all that were handed over before, though nothing waits for it."""
        try:
            future = self._hand_over(change, loop)
        except StoreUnavailable:  # it was closed, which sets everything free
            return
        future.add_done_callback(lambda done: self._retries.add(change) if _failed(done) else None)

    def _write_again(self, changes: Sequence[Change]) -> None:
        try:
            self._again.write(changes, patient=True)
        except Exception as error:
            self._again.drop()
            refusal = translated(error, self._path)
            if isinstance(refusal, StoreUnavailable):
                raise refusal from error
            for change in changes if len(changes) > 1 else ():  # one that can never be made must not hold up the others
                self._write_again([change])

    def _turnstile_of(self, loop: asyncio.AbstractEventLoop) -> Turnstile:
        """The turnstile of a loop. The latest one is at hand, since most programs have one loop."""
        found = self._turnstiles.get(loop)
        if found is None:
            found = self._turnstiles[loop] = Turnstile(self._share)
        self._loop, self._turnstile = loop, found
        return found

    def _hand_over(
        self, change: Callable[[Transaction], T | StoreError], loop: asyncio.AbstractEventLoop
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._closed:
                raise StoreUnavailable(f"{self._path} was closed; open the store again")
            if not self._idle:
                self._queue.put((change, future))
            elif (pending := self._pending.get(loop)) is not None:
                pending.append((change, future))
            else:
                self._pending[loop] = [(change, future)]
                loop.call_soon(self._pass_on, loop)
        return future

    def close(self) -> None:
        """Finish what waits, then stop. Blocks; harmless when called twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for pending in self._pending.values():
                    self._enqueue(pending)
                self._pending.clear()
                self._queue.put(None)
        self._thread.join()
        self._retries.close()
        self._again.drop()
        with self._near_lock:
            self._near.drop()

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called once everyone who is ready has spoken: many changes go to the thread, a few need not."""
        with self._lock:
            pending = self._pending.pop(loop, [])
            here = 0 < len(pending) <= FEW and self._idle
            if not here:
                self._enqueue(pending)
        if here and not self._written_here(pending):
            with self._lock:
                self._enqueue(pending)

    def _enqueue(self, pending: Sequence[Waiting]) -> None:
        for waiting in pending:
            self._idle = False
            self._queue.put(waiting)

    def _written_here(self, pending: Sequence[Waiting]) -> bool:
        """Commit changes on the spot, if no other connection is writing. Whatever goes wrong is left to the thread."""
        began = perf_counter()
        if began < self._near_again_at or not self._near_lock.acquire(blocking=False):
            return False
        try:
            outcomes = self._near.write([change for change, _ in pending], patient=False)
        except Exception:  # the thread tries again, and says what is wrong
            self._near.drop()
            self._pause()
            return False
        finally:
            self._near_lock.release()
        if perf_counter() - began > LONG_S:
            self._pause()
        else:
            self._near_long = 0
        _wake([(future, outcome) for (_, future), outcome in zip(pending, outcomes, strict=True)])
        return True

    def _pause(self) -> None:
        """Leave changes to the thread for a while, longer each time in a row."""
        self._near_long = min(self._near_long + 1, 10)
        self._near_again_at = perf_counter() + min(LONGEST_PAUSE_S, LONG_S * 2**self._near_long)

    def _run(self) -> None:
        while batch := self._take():
            self._serve(batch)
        self._far.drop()

    def _take(self) -> list[Waiting]:
        """Everything that waits now, at least one; nothing once the store is closed."""
        with self._lock:
            self._idle = self._queue.empty()
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
            outcomes = self._far.write([change for change, _ in batch], patient=True)
        except Exception as error:  # whatever it was, those who wait must hear of it and the thread must go on
            refusal = translated(error, self._path)
            if isinstance(refusal, StoreUnavailable):
                self._far.drop()
                outcomes = [StoreUnavailable(*refusal.args) for _ in batch]
            elif len(batch) > 1:
                for waiting in batch:
                    self._serve([waiting])
                return
            else:
                outcomes = [refusal]
        _wake_all(zip((future for _, future in batch), outcomes, strict=True))


class _Connection:
    """A connection that writes, and what it has learned about the store."""

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], audited: Audited, liveness: Liveness, name: str
    ) -> None:
        self._connect = connect
        self._liveness = liveness
        self._name = name
        self._audited = audited
        self._connection: sqlite3.Connection | None = None
        self._known = Cache()

    def write(self, changes: Sequence[Change], *, patient: bool) -> list[Any]:
        """Apply changes in one transaction. The impatient raise at once when another connection is writing."""
        if self._connection is None:
            self._connection = self._connect()
            if not patient:
                self._connection.execute("PRAGMA busy_timeout = 0")
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._known = self._known.still_true(connection)
            self._liveness.join(connection)
            tx = Transaction(connection, self._known, self._liveness.alive_on(connection), writer=self._name)
            outcomes = [change(tx) for change in changes]
            tx.flush()
            connection.execute("COMMIT")
        except BaseException:
            self._known = Cache()
            self._liveness.rolled_back()
            # SQLite rolls back by itself after some errors, and a broken disk refuses even that.
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        if tx.audited:
            self._audited(tx.audited)
        return outcomes

    def drop(self) -> None:
        """Begin anew with the next write: after an error of the disk a connection may stay unusable."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
            self._known = Cache()


def _failed(done: "asyncio.Future[Any]") -> bool:
    return not done.cancelled() and isinstance(done.exception(), StoreUnavailable)


def _wake_all(outcomes: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for future, outcome in outcomes:
        by_loop.setdefault(future.get_loop(), []).append((future, outcome))
    for loop, group in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed: nothing waits there any more
            loop.call_soon_threadsafe(_wake, group)


def _wake(group: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in group:
        if future.done():
            continue  # the asker was canceled; the change is kept all the same
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
