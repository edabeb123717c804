"""Calls that touch the same resource wait for each other, in the order in which they came."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from toolwire.plan.resources import Claim


class Ticket:
    """One call's place in the queues of everything it touches."""

    __slots__ = ("claims", "ready")

    def __init__(self, claims: Sequence[Claim]) -> None:
        self.claims = claims
        self.ready: asyncio.Future[None] | None = None


class Resources:
    """First come, first served locks over named resources: many readers or one writer.

    A ticket enters all its queues at once, so every queue has the same order and nobody can wait in a circle.
    """

    def __init__(self) -> None:
        self._queues: dict[str, deque[tuple[Claim, Ticket]]] = {}

    @asynccontextmanager
    async def holding(self, claims: Sequence[Claim]) -> AsyncIterator[None]:
        """Wait until every claim is ours, hold them inside the block, and let the next in line go on afterwards."""
        ticket = Ticket(claims)
        for claim in claims:
            self._queues.setdefault(claim.resource, deque()).append((claim, ticket))
        try:
            if not self._may_go(ticket):
                ticket.ready = asyncio.get_running_loop().create_future()
                await ticket.ready
            yield
        finally:
            self._leave(ticket)

    def _may_go(self, ticket: Ticket) -> bool:
        return not any(self._blocked(claim, ticket) for claim in ticket.claims)

    def _blocked(self, claim: Claim, ticket: Ticket) -> bool:
        for other, holder in self._queues[claim.resource]:
            if holder is ticket:
                return False
            if other.conflicts(claim):
                return True
        return False

    def _leave(self, ticket: Ticket) -> None:
        waiting: list[Ticket] = []
        for claim in ticket.claims:
            queue = self._queues[claim.resource]
            queue.remove((claim, ticket))
            waiting += (other for _, other in queue if other.ready is not None)
            if not queue:
                del self._queues[claim.resource]
        for other in waiting:
            if other.ready is not None and not other.ready.done() and self._may_go(other):
                other.ready.set_result(None)
