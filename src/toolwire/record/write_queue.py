"""How changes reach the writer: each agent hands over only so many at a time, and those that are ready go together.

All changes that wait are made durable together, and each of them waits for all. A flood therefore waits before it gets
there, in a line of its own. An agent that has had the store to itself for a moment is not held up: together is faster.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from toolwire.record.transaction import Transaction

Change = Callable[[Transaction], Any]
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


class ChangeGroup:
    """Changes of one loop that are handed over together, and what comes of them."""

    __slots__ = ("_answered", "_lock", "_turnstile", "_waits", "changes", "futures", "inside", "is_awaited", "loop",
                 "outcomes")  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, turnstile: WriteQueue) -> None:
        self.loop = loop
        self._turnstile = turnstile
        self.inside: list[Any] = []
        """Whose changes took a place in the turnstile."""
        self.changes: list[Change] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.outcomes: Sequence[Any] | None = None
        self.is_awaited = False
        self._waits: asyncio.TimerHandle | None = None
        self._lock = threading.Lock()
        self._answered = threading.Lock()
        self._answered.acquire()

    def add(self, change: Change, inside: tuple[Any, ...] = ()) -> "asyncio.Future[Any]":
        """One more change, and whose place it took."""
        future = self.loop.create_future()
        self.changes.append(change)
        self.futures.append(future)
        self.inside += inside
        return future

    def wait(self, most_s: float, pass_on: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        """On the loop: let the group wait for more changes, so long at most."""
        self._waits = self.loop.call_later(most_s, pass_on, self.loop)

    def ends_wait(self) -> bool:
        """Whether the group has waited until now; from now on it does so no more."""
        waits, self._waits = self._waits, None
        if waits is None:
            return False
        waits.cancel()
        return True

    def stand_still(self, most_s: float) -> bool:
        """On the loop: wait until the group is answered, so long at most. If it is not, the loop is woken for it."""
        try:
            self._answered.acquire(timeout=max(most_s, 0.0))  # another loop may have used up the time
        finally:
            with self._lock:
                self.is_awaited = False
                is_answered = self.outcomes is not None
        if is_answered:
            self.wake()
        return is_answered

    def answer(self, outcomes: Sequence[Any]) -> None:
        """In the thread that writes: say what came of each change."""
        with self._lock:
            self.outcomes = outcomes
            if self.is_awaited:
                self._answered.release()
                return
        with contextlib.suppress(RuntimeError):  # the loop was closed: nothing waits there any more
            self.loop.call_soon_threadsafe(self.wake)

    def wake(self) -> None:
        """On the loop: tell those who wait, and let in who waits behind them."""
        for whose in self.inside:
            self._turnstile.leave(whose)
        for future, outcome in zip(self.futures, self.outcomes or (), strict=True):
            if future.done():
                continue  # the asker was canceled; the change is kept all the same
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
