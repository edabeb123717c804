"""Pruning by itself: a store with limits is pruned in the background of ordinary use, about once a day.

It is done through a second connection and in small steps, as another process would do it, so that no turn waits for
more than one step. A process that ends before the work is done gives it a moment, then leaves the rest to a later one.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from toolwire.errors import ToolwireError
from toolwire.record.retention import DAY_S, PrunePace, Retention
from toolwire.record.sqlite import SqliteStore

MARKER = "pruned"
_AGAIN_S = 600.0  # after an attempt that was not finished
_LOOK_S = 3_600.0  # a process that lives for days looks so often whether it is time
_LONGEST_S = 30.0
_MOMENT_S = 0.25
_log = logging.getLogger("toolwire")

OpenStore = Callable[[], Awaitable[SqliteStore]]


@asynccontextmanager
async def pruned_in_background(
    open_store: OpenStore, home: Path, retention: Retention, *, clock: Callable[[], float] = time.time
) -> AsyncIterator[asyncio.Event]:
    """Prune the store while the block runs, if it is time; gives what is set once that was looked at.

    Nothing is done where nothing but log files has a limit.
    """
    ended, done = asyncio.Event(), asyncio.Event()
    if retention == Retention(logs=retention.logs):
        done.set()
        yield done
        return
    work = asyncio.create_task(_prune_daily(partial(_prune, open_store, home, retention, clock), ended, done))
    try:
        yield done
    finally:
        ended.set()
        await asyncio.wait({work}, timeout=_MOMENT_S)
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def _prune_daily(prune: Callable[[], Awaitable[None]], ended: asyncio.Event, done: asyncio.Event) -> None:
    while not ended.is_set():
        await prune()
        done.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), _LOOK_S)


async def _prune(open_store: OpenStore, home: Path, retention: Retention, clock: Callable[[], float]) -> None:
    now, pace = clock(), PrunePace(time.monotonic() + _LONGEST_S)
    if not _is_due(home, now):
        return
    try:
        await asyncio.to_thread(_mark, home, now - DAY_S + _AGAIN_S)
        store = await open_store()
        try:
            await store.prune(retention, pace=pace)
        finally:
            pace.stop()
            store.interrupt_reads()
            await store.close_store()
        await asyncio.to_thread(_mark, home, now)
    except (ToolwireError, OSError) as error:
        _log.warning("the record could not be pruned in the background: %s; try: toolwire store prune", error)


def _is_due(home: Path, now: float) -> bool:
    try:
        return not 0 <= now - (home / MARKER).stat().st_mtime < DAY_S
    except OSError:
        return True


def _mark(home: Path, at: float) -> None:
    """Say when the store was pruned, for all processes that use it."""
    marker = os.open(home / MARKER, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.utime(marker, (at, at))
    finally:
        os.close(marker)
