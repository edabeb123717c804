"""Who writes: a thread that makes all waiting changes durable with one commit.

The way from a loop to a thread and back takes longer than a commit on a quick disk, and most of it is the way back. So
the loop waits for a few changes on the spot, as long as it may stand still; where the disk is slow it does so no more
for a while, and is woken instead. What waits for the thread is in `write_queue.py`.
"""

import asyncio
import contextlib
import math
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from toolwire.errors import StoreError, StoreUnavailable
from toolwire.record.faults import to_store_error
from toolwire.record.liveness import Liveness
from toolwire.record.rows import Row
from toolwire.record.transaction import Cache, StaleCache, Transaction
from toolwire.record.write_queue import SHARE, Change, ChangeGroup, WriteQueue

T = TypeVar("T")
Audited = Callable[[Sequence[Row]], None]
"""Told the rows of the audit log once they are durable. Must not wait, and must not raise."""
MAX_BATCH = 1024
FEW = 8
STANDSTILL_S = 0.0015
"""So long a loop may stand still for a commit: a little less than the 2 ms that were promised."""
LONGEST_PAUSE_S = 1.0
MOMENT_S = 0.001
"""So long a change that may wait is held back for what comes next."""
FIRST_RETRY_S, LONGEST_RETRY_S = 0.05, 1.0
MOST_RETRIED = 10_000
LONG_LOG_PAGES = 1500
"""About so many pages of SQLite's log are copied at once; at 2,000 a commit would do it."""
PAGES_OF_COMMIT, PAGES_OF_CHANGE = 8, 1
COPY_LOG = "PRAGMA wal_checkpoint(PASSIVE)"


class NotOnLoop(Exception):
    """A transaction cannot be made on the event loop. Nothing of it was written."""


class LoopWrites(Protocol):
    """Makes transactions on one event loop, where that is quicker than in the thread."""

    async def write(self, changes: Sequence[Change]) -> list[Any]:
        """What comes of each change. Raises NotOnLoop."""
        ...


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
        moment_s: float = MOMENT_S,
        name: str = "",
    ) -> None:
        """`near` says that a commit may be quick enough for a loop to wait for it; `share` is what an agent may write.

        A change that may wait does so for `moment_s`. What is audited goes into the chain of this `name`, and what is
        owned belongs to the owner of `liveness`.
        """
        self._share = share
        self._moment_s = moment_s
        self._turnstiles: WeakKeyDictionary[asyncio.AbstractEventLoop, WriteQueue] = WeakKeyDictionary()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turnstile: WriteQueue
        """That of `_loop`, once there is one."""
        self._path = path
        self.name = name
        self._connection = Connection(connect, audited, liveness, name)
        self._commit = self._connection.write
        self._tell: Callable[[int, float], None] | None = None
        self._on_loop: LoopWrites | None = None
        self._of_loop: asyncio.AbstractEventLoop | None = None
        self._making: asyncio.Task[None] | None = None
        self._again = Connection(connect, audited, liveness, name)
        self._retries = Retries(self._write_again)
        self._stands_still_at = 0.0 if near else math.inf
        self._stood_still_s = 0.0
        self._too_long = 0
        self._pending: dict[asyncio.AbstractEventLoop, ChangeGroup] = {}
        self._queue: SimpleQueue[ChangeGroup | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = True
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="toolwire-store-writer", daemon=True)
        self._thread.start()

    def write(
        self, change: Callable[[Transaction], T | StoreError], whose: Any = None, *, may_wait: bool = False
    ) -> Awaitable[T]:
        """Wait until the change is durable and give back what came of it. Raises StoreError when it was refused.

        Of the changes of one agent only so many are handed on at once; `whose` names it. What `may_wait` is made
        durable with what this loop writes next, if that comes soon.
        """
        loop = asyncio.get_running_loop()
        turnstile = self._turnstile if loop is self._loop else self._turnstile_of(loop)
        if (place := turnstile.enter(whose, loop)) is not None:
            return self._write_in_line(change, whose, place)
        return self._hand_over(change, loop, (whose,), may_wait)

    async def _write_in_line(
        self, change: Callable[[Transaction], T | StoreError], whose: Any, place: "asyncio.Future[None]"
    ) -> T:
        loop = asyncio.get_running_loop()
        await self._turnstile_of(loop).wait(whose, place)
        return await self._hand_over(change, loop, (whose,))

    def watch_commits(self, tell: Callable[[int, float], None]) -> None:
        """Tell of each commit from now on how many changes it held and how many seconds it took, in any thread."""
        write = self._connection.write

        def timed(changes: Sequence[Change]) -> list[Any]:
            began = perf_counter()
            outcomes = write(changes)
            tell(len(changes), perf_counter() - began)
            return outcomes

        self._commit, self._tell = timed, tell

    def write_on_loop(self, writes: LoopWrites) -> None:
        """Make what the first event loop that writes asks for there, while nothing else is being written."""
        self._on_loop = writes

    async def leave_loop(self) -> None:
        """Make nothing on the event loop from now on, and wait until all is made that was begun there."""
        self._on_loop = None
        if (making := self._making) is not None and self._of_loop is asyncio.get_running_loop():
            await asyncio.wait((making,))

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
            future = self._hand_over(change, loop, ())
        except StoreUnavailable:  # it was closed, which sets everything free
            return
        future.add_done_callback(lambda done: self._retries.add(change) if _failed(done) else None)

    def _write_again(self, changes: Sequence[Change]) -> None:
        try:
            self._again.write(changes)
        except Exception as error:
            self._again.drop()
            refusal = to_store_error(error, self._path)
            if isinstance(refusal, StoreUnavailable):
                raise refusal from error
            for change in changes if len(changes) > 1 else ():  # one that can never be made must not hold up the others
                self._write_again([change])

    def _turnstile_of(self, loop: asyncio.AbstractEventLoop) -> WriteQueue:
        """The turnstile of a loop. The latest one is at hand, since most programs have one loop."""
        found = self._turnstiles.get(loop)
        if found is None:
            found = self._turnstiles[loop] = WriteQueue(self._share)
        self._loop, self._turnstile = loop, found
        return found

    def _hand_over(
        self,
        change: Callable[[Transaction], T | StoreError],
        loop: asyncio.AbstractEventLoop,
        inside: tuple[Any, ...],
        may_wait: bool = False,
    ) -> "asyncio.Future[T]":
        """Give a change to the thread. Whose place it took is `inside`, until the change is answered."""
        with self._lock:
            group = self._pending.get(loop)
            if group is not None:
                future = group.add(change, inside)
                if may_wait or not group.ends_wait():  # others are ready as well
                    return future
            else:
                if self._closed:
                    for whose in inside:
                        self._turnstile_of(loop).leave(whose)
                    raise StoreUnavailable(f"{self._path} was closed; open the store again")
                group = self._pending[loop] = ChangeGroup(loop, self._turnstile_of(loop))
                future = group.add(change, inside)
                if may_wait:
                    group.wait(self._moment_s, self._pass_on)
                    return future
            is_alone = self._is_quiet(loop)
            if is_alone:
                del self._pending[loop]
                self._send(group)
            else:
                loop.call_soon(self._pass_on, loop)
        if is_alone:
            self._stand_still(group)
        return future

    def _is_quiet(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether no one else is about to write, and the loop may stand still: it did not do so for long just now."""
        if self._on_loop is not None or self._making is not None:
            return False
        return self._idle and self._stood_still_s < STANDSTILL_S / 2 and not getattr(loop, "_ready", True)

    def close(self) -> None:
        """Finish what waits, then stop. Blocks; harmless when called twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for group in self._pending.values():
                    self._queue.put(group)
                self._pending.clear()
                self._queue.put(None)
        self._thread.join()
        self._retries.close()
        self._again.drop()

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called once everyone who is ready has spoken."""
        with self._lock:
            if self._making is not None and loop is self._of_loop:  # then this comes again
                return
            group = self._pending.pop(loop, None)
            if group is None:  # the store was closed meanwhile
                return
            group.ends_wait()
            self._stood_still_s = 0.0
            is_here = self._may_write_on(loop)
            if not is_here:
                self._send(group)
        if is_here:
            self._making = loop.create_task(self._write_here(group), name="toolwire-write")
            self._making.add_done_callback(lambda made: self._not_begun(group) if made.cancelled() else None)
        else:
            self._stand_still(group)

    def _may_write_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether a group may be made on its loop, in the order in which groups come."""
        if self._on_loop is None or not self._idle:
            return False
        self._of_loop = self._of_loop or loop
        return loop is self._of_loop

    async def _write_here(self, group: ChangeGroup) -> None:
        """Make a group on its loop, or hand it to the thread before all that comes later."""
        began = perf_counter()
        try:
            if self._on_loop is None:
                raise NotOnLoop
            group.outcomes = await self._on_loop.write(group.changes)
        except NotOnLoop:
            with self._lock:
                self._send(group)
        except Exception as error:  # those who wait must hear of it
            group.outcomes = [to_store_error(error, self._path) for _ in group.changes]
            group.wake()
        else:
            if self._tell is not None:
                self._tell(len(group.changes), perf_counter() - began)
            group.wake()
        finally:
            self._go_on(group.loop)

    def _not_begun(self, group: ChangeGroup) -> None:
        """The task of a group was canceled before its first step, as all are at the end of a loop."""
        with self._lock:
            self._send(group)
        self._go_on(group.loop)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._making = None
        if loop in self._pending:
            self._pass_on(loop)

    def _send(self, group: ChangeGroup) -> None:
        """Hand a group to the thread. Under the lock."""
        is_small = len(group.changes) <= FEW
        group.is_awaited = is_small and self._idle and perf_counter() >= self._stands_still_at
        self._idle = False
        self._queue.put(group)

    def _stand_still(self, group: ChangeGroup) -> None:
        """Wait on the loop for a group for which that was said to be."""
        if not group.is_awaited:
            return
        began = perf_counter()
        if group.stand_still(STANDSTILL_S - self._stood_still_s):
            self._too_long = 0
        else:
            self._pause()
        self._stood_still_s += perf_counter() - began

    def _pause(self) -> None:
        """Stand still no more for a while, longer each time in a row."""
        self._too_long = min(self._too_long + 1, 10)
        self._stands_still_at = perf_counter() + min(LONGEST_PAUSE_S, STANDSTILL_S * 2**self._too_long)

    def _run(self) -> None:
        while groups := self._take():
            self._serve(groups)
        self._connection.drop()

    def _take(self) -> list[ChangeGroup]:
        """Everything that waits now, at least one group; nothing once the store is closed."""
        first = self._queue.get()
        if first is None:
            return []
        groups, size = [first], len(first.changes)
        while size < MAX_BATCH and not self._queue.empty():  # this thread alone takes any
            group = self._queue.get()
            if group is None:
                self._queue.put(None)
                break
            groups.append(group)
            size += len(group.changes)
        return groups

    def _serve(self, groups: Sequence[ChangeGroup]) -> None:
        """Make the changes of groups, and answer: the last thing before the thread sleeps or copies the log."""
        outcomes = self._outcomes([change for group in groups for change in group.changes])
        has_long_log = self._connection.has_long_log
        with self._lock:
            self._idle = self._queue.empty() and not has_long_log
        place = 0
        for group in groups:
            group.answer(outcomes[place : (place := place + len(group.changes))])
        if has_long_log:
            self._connection.copy_log()
            with self._lock:
                self._idle = self._queue.empty()

    def _outcomes(self, changes: Sequence[Change]) -> list[Any]:
        """What comes of each change: whatever goes wrong, those who wait must hear of it and the thread must go on."""
        try:
            return self._commit(changes)
        except Exception as error:
            refusal = to_store_error(error, self._path)
            if isinstance(refusal, StoreUnavailable):
                self._connection.drop()
                return [StoreUnavailable(*refusal.args) for _ in changes]
            if len(changes) > 1:  # the others must not suffer from one that cannot be made
                return [outcome for change in changes for outcome in self._outcomes([change])]
            return [refusal]


class Connection:
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
        self._log_pages = 0

    @property
    def has_long_log(self) -> bool:
        """Whether SQLite would soon copy its log into the file as a part of a commit, for which someone waits."""
        return self._log_pages > LONG_LOG_PAGES

    def copy_log(self) -> None:
        """Copy the log while no one waits for a commit; if that fails, a later commit does it."""
        self._log_pages = 0
        if self._connection is not None and hasattr(self._connection, "backup"):  # a server looks after its own log
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute(COPY_LOG).fetchone()

    def write(self, changes: Sequence[Change]) -> list[Any]:
        """Apply changes in one transaction."""
        self._log_pages += PAGES_OF_COMMIT + len(changes) * PAGES_OF_CHANGE
        try:
            return self._write(changes)
        except StaleCache:  # it was taken for true before the server was asked, and is empty now
            return self._write(changes)

    def _write(self, changes: Sequence[Change]) -> list[Any]:
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._known = self._known.still_true(connection)
            self._liveness.join(connection)
            tx = Transaction(connection, self._known, self._liveness.alive_on(connection), writer=self._name)
            if (prepare := getattr(connection, "prepare", None)) is not None:
                tx.facts = prepare(self._known, changes)
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
            self._audited(tx.audited if tx.facts is None else _with_digests(connection, tx.audited))
        return outcomes

    def drop(self) -> None:
        """Begin anew with the next write: after an error of the disk a connection may stay unusable."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
            self._known = Cache()


class Retries:
    """Changes that could not be made when they were due, in that order, tried again until they can.

    A result that could not be kept, or a turn that could not be released, would otherwise strand the turn: this process
    is alive and owns it, but runs it no more. The thread that tries them exists only while there are any.
    """

    def __init__(self, write: Callable[[Sequence[Change]], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._changes: list[Change] = []
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def add(self, change: Change) -> None:
        with self._lock:
            if len(self._changes) < MOST_RETRIED:
                self._changes.append(change)
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="toolwire-store-retries", daemon=True)
                self._thread.start()

    def settle(self) -> None:
        """Make now all that is to be retried, if the store can be written. Blocks for as long as one attempt takes."""
        with self._writing:
            with self._lock:
                changes = list(self._changes)
            if not changes:
                return
            try:
                self._write(changes)
            except StoreUnavailable:
                return
            with self._lock:
                del self._changes[: len(changes)]

    @property
    def any(self) -> bool:
        return bool(self._changes)

    def close(self) -> None:
        """One last attempt. Harmless when called twice."""
        self._stop.set()
        with self._lock:  # one that is being started cannot be waited for yet
            thread = self._thread
        if thread is not None:
            thread.join()
        self.settle()

    def _run(self) -> None:
        pause_s = FIRST_RETRY_S
        while not self._stop.wait(pause_s):
            self.settle()
            pause_s = min(pause_s * 2, LONGEST_RETRY_S)
            with self._lock:
                if not self._changes:
                    self._thread = None
                    return


def _with_digests(connection: sqlite3.Connection, rows: Sequence[Row]) -> list[Row]:
    """Audit rows with the digests that a server has given those that it linked itself."""
    digests = iter(getattr(connection, "digests", ()))
    return [row if row[-1] is not None else (*row[:-1], next(digests)) for row in rows]


def _failed(done: "asyncio.Future[Any]") -> bool:
    return not done.cancelled() and isinstance(done.exception(), StoreUnavailable)
