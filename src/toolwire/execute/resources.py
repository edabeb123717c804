"""Calls that touch the same resource wait for each other, in the order in which they came."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

from toolwire.plan.resources import LockClaim


class Busy(Exception):
    """A resource is held by a call that was given up and whose work has not ended."""

    def __init__(self, resource: str, holder: str) -> None:
        super().__init__(f"{resource} is held by {holder}")
        self.resource = resource
        self.holder = holder


class Ticket:
    """One call's place in the queues of everything it touches.

    A caller that gives up a call whose work goes on says so in `until`: its claims are held until that is done.
    """

    __slots__ = ("claims", "holder", "longest_wait_s", "ready", "until", "wait_timer")

    def __init__(self, claims: Sequence[LockClaim], holder: str, longest_wait_s: float) -> None:
        self.claims = claims
        self.holder = holder
        self.longest_wait_s = longest_wait_s
        self.wait_timer: asyncio.TimerHandle | None = None
        self.ready: asyncio.Future[None] | None = None
        self.until: Future[None] | None = None

    @property
    def waits(self) -> bool:
        return self.ready is not None and not self.ready.done()


class Locks(Protocol):
    """Locks over named resources: many readers or one writer. `Resources` has them in one process."""

    def holding(
        self, claims: Sequence[LockClaim], holder: str = "", longest_wait_s: float = 30.0
    ) -> AbstractAsyncContextManager[Ticket]:
        """Wait until every claim is ours, and hold them inside the block. Raises Busy."""
        ...


class Resources:
    """First come, first served locks over named resources: many readers or one writer.

    A ticket enters all its queues at once, so every queue has the same order and there is no deadlock. Calls
    at work are waited for as long as it takes, since their time is bounded; work that was given up is not, so it is
    waited for no longer than a set time.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[tuple[LockClaim, Ticket]]] = {}

    @asynccontextmanager
    async def holding(
        self, claims: Sequence[LockClaim], holder: str = "", longest_wait_s: float = 30.0
    ) -> AsyncIterator[Ticket]:
        """Wait until every claim is ours, hold them inside the block, and let the next in line go on afterwards.

        Raises Busy after `longest_wait_s` of waiting for work that was given up.
        """
        ticket = Ticket(claims, holder, longest_wait_s)
        for claim in claims:
            self._queues.setdefault(claim.resource, deque()).append((claim, ticket))
        try:
            if not self._may_go(ticket):
                ticket.ready = asyncio.get_running_loop().create_future()
                self._start_timer(ticket)
                await ticket.ready
            yield ticket
        finally:
            self._let_go(ticket)

    def _may_go(self, ticket: Ticket) -> bool:
        return next(self._before(ticket), None) is None

    def _before(self, ticket: Ticket) -> Iterator[tuple[LockClaim, Ticket]]:
        """What must end before this ticket may go."""
        for claim in ticket.claims:
            for other, holder in self._queues[claim.resource]:
                if holder is ticket:
                    break
                if other.conflicts(claim) and not (holder.until is not None and holder.until.done()):
                    yield other, holder

    def _start_timer(self, ticket: Ticket) -> None:
        """Start the timer if work that was given up is in the way."""
        if ticket.wait_timer is None and any(holder.until is not None for _, holder in self._before(ticket)):
            loop = asyncio.get_running_loop()
            ticket.wait_timer = loop.call_later(ticket.longest_wait_s, self._give_up, ticket)

    def _give_up(self, ticket: Ticket) -> None:
        ticket.wait_timer = None
        if ticket.ready is None or ticket.ready.done():
            return
        if self._may_go(ticket):
            ticket.ready.set_result(None)
        for claim, holder in self._before(ticket):
            if holder.until is not None:
                ticket.ready.set_exception(Busy(claim.resource, holder.holder))
                return

    def _let_go(self, ticket: Ticket) -> None:
        if ticket.until is None or ticket.until.done():
            self._leave(ticket)
            return
        for other in self._waiting_behind(ticket):
            self._start_timer(other)
        ticket.until.add_done_callback(_on_this_loop(lambda: self._leave(ticket)))

    def _leave(self, ticket: Ticket) -> None:
        if ticket.wait_timer is not None:
            ticket.wait_timer.cancel()
        waiting = self._waiting_behind(ticket)
        for claim in ticket.claims:
            queue = self._queues[claim.resource]
            queue.remove((claim, ticket))
            if not queue:
                del self._queues[claim.resource]
        for other in waiting:
            if other.ready is not None and not other.ready.done() and self._may_go(other):
                other.ready.set_result(None)

    def _waiting_behind(self, ticket: Ticket) -> list[Ticket]:
        return [other for claim in ticket.claims for _, other in self._queues[claim.resource] if other.waits]


def _on_this_loop(act: Callable[[], None]) -> Callable[[object], None]:
    """Act on the loop that runs now, whichever thread calls; once that loop has ended nothing waits on it."""
    loop = asyncio.get_running_loop()

    def call(_: object) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(act)

    return call
