"""Changes that a store could not make when they were due, tried again until it can.

A result that could not be kept, or a turn that could not be released, would otherwise strand the turn: this process is
alive and owns it, but runs it no more.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from toolwire.errors import StoreUnavailable

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
MOST = 10_000

Write = Callable[[Sequence[Any]], None]
"""Makes these changes durable together. Raises StoreUnavailable while that cannot be done."""


class Retries:
    """Changes in the order in which they were due. The thread that tries them exists only while there are any."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._changes: list[Any] = []
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def add(self, change: Any) -> None:
        with self._lock:
            if len(self._changes) < MOST:
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
        pause_s = FIRST_PAUSE_S
        while not self._stop.wait(pause_s):
            self.settle()
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            with self._lock:
                if not self._changes:
                    self._thread = None
                    return
