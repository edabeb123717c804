"""Wakes those who follow the changes of a project's records: one look at the store for all of them.

Changes of this process ring at once; those of other processes are seen with the next look, which is taken only while
someone waits.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from toolwire.errors import ToolwireError

POLL_S = 1.0
_log = logging.getLogger("toolwire.records")


class ChangeFeed:
    """The changes of one project, for any number of followers in one event loop. A follower keeps its own cursor."""

    def __init__(self, newest: Callable[[], Awaitable[int]], *, poll_s: float = POLL_S) -> None:
        """`newest` gives the cursor behind the newest change."""
        self._look_up = newest
        self._poll_s = poll_s
        self._newest = -1
        self._came = asyncio.Event()
        self._rung = asyncio.Event()
        self._followers = 0
        self._looking: asyncio.Task[None] | None = None
        self.is_closed = False

    def ring(self) -> None:
        """Something was changed in this process."""
        self._rung.set()

    def close(self) -> None:
        """Let all who wait go; from now on nothing is waited for."""
        self.is_closed = True
        self._came.set()
        if self._looking is not None:
            self._looking.cancel()

    async def wait(self, cursor: int, timeout_s: float) -> bool:
        """Wait until there is a change behind a cursor; False where the time is over, or the feed is closed."""
        self._followers += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="toolwire-record-changes")
        try:
            async with asyncio.timeout(timeout_s):
                while self._newest <= cursor and not self.is_closed:
                    await self._came.wait()
        except TimeoutError:
            return False
        finally:
            self._followers -= 1
            if not self._followers:
                self._looking.cancel()
                self._looking = None
        return not self.is_closed

    async def _look(self) -> None:
        while True:
            self._rung.clear()
            try:
                newest = await self._look_up()
            except ToolwireError as lost:
                _log.warning("changes of records cannot be looked up: %s", lost)
                newest = self._newest
            if newest != self._newest:
                self._newest = newest
                self._came.set()
                self._came = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), self._poll_s)
