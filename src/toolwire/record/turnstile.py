"""Who may hand changes to the writer: each agent only so many at a time, so that no one waits behind another's flood.

All changes that wait are made durable together, and whoever is among them waits for all of them. A flood therefore
waits before it gets there, in a line of its own.
"""

import asyncio
from collections import deque
from typing import Any

SHARE = 32


class Turnstile:
    """Places for the changes of each agent, on one event loop."""

    __slots__ = ("_inside", "_lines", "_share")

    def __init__(self, share: int = SHARE) -> None:
        self._share = share
        self._inside: dict[Any, int] = {}
        self._lines: dict[Any, deque[asyncio.Future[None]]] = {}

    def enter(self, whose: Any) -> "asyncio.Future[None] | None":
        """Take a place; where all of this agent's are taken, what to wait for first."""
        inside = self._inside.get(whose, 0)
        if inside < self._share:
            self._inside[whose] = inside + 1
            return None
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(whose, deque()).append(place)
        return place

    async def wait(self, whose: Any, place: "asyncio.Future[None]") -> None:
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was passed on to one who has just gone
                self.leave(whose)
            raise

    def leave(self, whose: Any) -> None:
        """Give a place back: to the next in this agent's line, if there is one."""
        line = self._lines.get(whose)
        while line:
            place = line.popleft()
            if not place.done():
                place.set_result(None)
                return
        if line is not None:
            del self._lines[whose]
        self._inside[whose] -= 1
        if not self._inside[whose]:
            del self._inside[whose]
