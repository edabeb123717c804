"""The one thread that reads, on a connection of its own: it never waits for the writer, nor the writer for it."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from toolwire.errors import StoreUnavailable
from toolwire.record.faults import to_store_error

P = ParamSpec("P")
T = TypeVar("T")


class Reader:
    """Answers questions from one consistent view of the store each."""

    def __init__(self, path: Path | str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path = path
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "toolwire-store-reader")

    async def read(
        self, question: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Ask away from the event loop. Raises StoreError, also for kept data that cannot be understood."""
        loop = asyncio.get_running_loop()
        try:
            asked = loop.run_in_executor(self._thread, lambda: self._ask(lambda c: question(c, *args, **kwargs)))
        except RuntimeError:  # how a pool of threads says that it was shut down
            raise StoreUnavailable(f"{self._path} was closed; open the store again") from None
        return await asked

    def interrupt(self) -> None:
        """Let the question that is being answered fail. Over HTTP it goes on until it is answered."""
        if isinstance(self._connection, sqlite3.Connection):
            self._connection.interrupt()

    def close(self) -> None:
        """Finish what was asked, then stop. Blocks; harmless when called twice."""
        self._thread.shutdown()
        self._drop_connection()

    def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self._connection = connection = self._connection or self._connect()
            connection.execute("BEGIN")
            try:
                return question(connection)
            finally:
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._drop_connection()
            raise to_store_error(error, self._path) from error
        except (LookupError, TypeError, ValueError) as error:
            raise StoreUnavailable(
                f"{self._path} holds something that this version cannot read ({error!r:.200}); "
                "upgrade toolwire, or restore a copy"
            ) from error

    def _drop_connection(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
