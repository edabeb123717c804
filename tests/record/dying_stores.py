"""Stores whose process dies at a named place: `python -m tests.record.dying_stores VERB FOLDER [URL SCHEMA]`.

Each verb forks a process for each place, which dies there by a signal, and prints how many did. What was on the disk at
death N lies in the folder N. What had been confirmed by then is printed by name.
"""

import asyncio
import os
import resource
import shutil
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from toolwire.errors import StoreError
from toolwire.protocol.chat import Reply
from toolwire.protocol.records import Dispatch
from toolwire.record.postgres import PostgresStore
from toolwire.record.sqlite import SqliteStore

from .samples import a_call, a_card, a_row, a_turn

NEVER = 1_000_000
ROWS, GAP = 60, 4
PAGE = 4096
TRIED, ROOM = 16, 6_000
"""How often a step is accepted on a full disk, each time with so much more room."""
LEFT = (0, 1, 2, 5, 9)
"""How many more pages the database may take until a checkpoint of its log dies."""


class DyingConnection(sqlite3.Connection):
    """Kills its process before the statement of a number. Without transactions, each statement is kept for itself."""

    left = NEVER
    has_transactions = True

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        return super().execute(self._counted(sql), parameters)

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        return super().executemany(self._counted(sql), rows)

    def _counted(self, sql: str) -> str:
        if DyingConnection.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        DyingConnection.left -= DyingConnection.left < NEVER
        word = sql.split(maxsplit=1)[0].rstrip(";").upper()
        is_bracket = word in ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")
        return "SELECT 1" if is_bracket and not DyingConnection.has_transactions else sql


async def accept(home: Path, killed_before: int = NEVER, room: int | None = None) -> None:
    """Accept a step with two calls, of which one is sent, and die before a statement of that.

    With `room`, the disk has so many bytes left from then on, until it was tried.
    """
    async with await SqliteStore.at(home) as store:
        turn, calls = a_turn(), (a_call("call-1"), a_call("call-2"))
        cards = [a_card(call, turn) for call in calls]
        await store.begin(turn)
        DyingConnection.left = killed_before
        sent = Dispatch("default", turn.id, "call-2", cards[1].record_id, turn.epoch, "a.subject", "{}", 0.0, 1e12)
        with disk_of(home, room):
            outcomes = await asyncio.gather(
                store.append_reply(turn, Reply(calls=calls), cards, [a_row("allowed", card) for card in cards]),
                store.dispatch(sent, [a_row("dispatched", cards[1])]),
                return_exceptions=True,
            )
        DyingConnection.left = NEVER
    assert all(room is not None and isinstance(one, StoreError) for one in outcomes if isinstance(one, Exception))


@contextmanager
def disk_of(home: Path, room: int | None) -> Iterator[None]:
    """A limit on file size stands for the full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if room is not None:
        most = (home / "store.db-wal").stat().st_size + room
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def fill(home: Path) -> None:
    """Keep rows, and die with all of them in the log of the database alone."""
    store = await SqliteStore.at(home)
    for number in range(ROWS):
        await store.audit([a_row("allowed", detail={"number": number, "text": "x" * 3_000})])
    os.kill(os.getpid(), signal.SIGKILL)


def copy_log(home: Path, more_pages: int) -> None:
    """Copy the log into the database, and die in the write that makes the database too large by then."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    most = (home / "store.db").stat().st_size + more_pages * PAGE
    connection = sqlite3.connect(home / "store.db", isolation_level=None)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


async def sign_none(home: Path, *server: str) -> None:
    """Keep rows, and die before a checkpoint signs them; with a `server`, in one of its schemas."""
    if server:
        store: SqliteStore = await PostgresStore.on(server[0], home, schema=server[1])
    else:
        store = await SqliteStore.at(home)
    for number in range(GAP):
        await store.audit([a_row("allowed", detail={"number": number})])
    assert (await store.audit_chain()).rows >= GAP
    os.kill(os.getpid(), signal.SIGKILL)


def died(work: Callable[[], Any]) -> int:
    """By which signal a process of its own died that did this; 0 if it did not."""
    if not (pid := os.fork()):
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0
    return os.WTERMSIG(status)


def asyncio_run(work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    asyncio.run(work(*args))


def accept_dying(folder: Path) -> Iterator[int]:
    number, every = 0, 1 if DyingConnection.has_transactions else 3
    with patch.object(sqlite3, "connect", partial(sqlite3.connect, factory=DyingConnection)):
        while signal_number := died(partial(asyncio_run, accept, folder / str(number), number * every)):
            yield signal_number
            number += 1


def accept_without_room(folder: Path) -> Iterator[int]:
    with patch.object(sqlite3, "connect", partial(sqlite3.connect, factory=DyingConnection)):
        for number in range(TRIED):
            yield died(partial(asyncio_run, partial(accept, room=number * ROOM), folder / str(number)))


def copy_log_dying(folder: Path) -> Iterator[int]:
    filled = folder / "filled"
    assert died(partial(asyncio_run, fill, filled)) == signal.SIGKILL
    for number, pages in enumerate(LEFT):
        home = folder / str(number)
        shutil.copytree(filled, home)
        (home / "store.db-shm").unlink(missing_ok=True)
        yield died(partial(copy_log, home, pages))


def main(verb: str, folder: str, *server: str) -> None:
    DyingConnection.has_transactions = not verb.startswith("torn-")
    match verb.removeprefix("torn-"):
        case "accept":
            signals = list(accept_dying(Path(folder)))
        case "full-disk":
            signals = list(accept_without_room(Path(folder)))
        case "copy-log":
            signals = list(copy_log_dying(Path(folder)))
        case _:
            signals = [died(partial(asyncio_run, sign_none, Path(folder), *server))]
    sys.stdout.write(" ".join(map(str, signals)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
