"""Who may hand changes to the writer: each agent only so many at a time, so that no one waits behind another's flood.

All changes that wait are made durable together, and each of them waits for all. A flood therefore waits before it gets
there, in a line of its own. An agent that has had the store to itself for a moment is not held up: together is faster.
"""

import asyncio
from collections import deque
from typing import Any

SHARE = 32
ALONE = 256
"""What an agent may hand over while no other has written for `_MOMENT_S`."""

_MOMENT_S = 1.0
_NONE_YET = object()


class WriteQueue:
    """Places for the changes of each agent, on one event loop."""

    __slots__ = ("_alone", "_inside", "_latest", "_lines", "_other_at", "_room", "_share")

    def __init__(self, share: int = SHARE, alone: int = ALONE) -> None:
        self._share = share
        self._alone = max(share, alone)
        self._inside: dict[Any, int] = {}
        self._lines: dict[Any, deque[asyncio.Future[None]]] = {}
        self._room = share
        self._latest: Any = _NONE_YET
        self._other_at = -_MOMENT_S

    def enter(self, whose: Any, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[None] | None":
        """Take a place; where all of this agent's are taken, what to wait for first."""
        inside = self._inside.get(whose, 0)
        if (inside < self._room and whose == self._latest) or inside < self._room_for(whose, loop.time()):
            self._inside[whose] = inside + 1
            return None
        place: asyncio.Future[None] = loop.create_future()
        self._lines.setdefault(whose, deque()).append(place)
        return place

    def _room_for(self, whose: Any, now: float) -> int:
        """How many changes of this agent may be inside now; as long as no other comes, there is no need to ask."""
        if whose != self._latest:
            if self._latest is not _NONE_YET:
                self._other_at = now  # or a little before
            self._latest = whose
        self._room = self._share if now - self._other_at < _MOMENT_S else self._alone
        return self._room

    async def wait(self, whose: Any, place: "asyncio.Future[None]") -> None:
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was passed on to one who has just gone
                self.leave(whose)
            raise

    def leave(self, whose: Any) -> None:
        """Give a place back: to the next in this agent's line, unless there are too many inside for what is shared."""
        inside = self._inside[whose]
        if inside > 1 and not self._lines:
            self._inside[whose] = inside - 1
            return
        line = self._lines.get(whose)
        shared = line and inside > self._share and whose != self._latest
        while line and not shared:
            place = line.popleft()
            if not place.done():
                place.set_result(None)
                return
        if line is not None and not line:
            del self._lines[whose]
        if inside > 1:
            self._inside[whose] = inside - 1
        else:
            del self._inside[whose]
