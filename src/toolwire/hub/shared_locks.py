"""Locks that hold over all processes that share a store, for tools that declare them.

Most locks are between the calls of one process and cost nothing: those are local. A resource whose name begins with
`shared:`, and a tool's limit of calls in flight, are queued in the store as well. The queue is first come, first
served, and what an owner holds ends with its lease.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress

from toolwire.errors import StoreError
from toolwire.execute.resources import Locks, Ticket
from toolwire.plan.resources import LockClaim
from toolwire.record.contract import LockStore

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25


class SharedLocks:
    """The locks of this process, and those of the store for claims that are shared; see `Locks`."""

    def __init__(self, local: Locks, store: LockStore, new_id: Callable[[], str]) -> None:
        self._local = local
        self._store = store
        self._new_id = new_id
        self._leaving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def holding(
        self, claims: Sequence[LockClaim], holder: str = "", longest_wait_s: float = 30.0
    ) -> AsyncIterator[Ticket]:
        """Wait until every claim is ours, here and then in the store, and hold them inside the block. Raises Busy.

        Calls at work are waited for as long as it takes, since their time is bounded, and so is the lease of a process.
        """
        shared = [claim for claim in claims if claim.is_shared]
        async with self._local.holding(claims, holder, longest_wait_s) as ticket:
            if not shared:
                yield ticket
                return
            token = self._new_id()
            try:
                await self._wait(shared, token)
                yield ticket
            finally:
                await self._leave(token, ticket.until)

    async def _wait(self, claims: Sequence[LockClaim], token: str) -> None:
        pause_s = _FIRST_PAUSE_S
        may_go: bool | None = await self._store.queue_locks(claims, token)
        while not may_go:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            may_go = await self._store.holds_locks(token)
            if may_go is None:  # this process slept through its lease, and others went on
                may_go = await self._store.queue_locks(claims, token)

    async def _leave(self, token: str, until: Future[None] | None) -> None:
        """Let the next one go; once the work is over that outlives its call, if there is any."""
        leaving = asyncio.create_task(self._release(token, until), name="toolwire-shared-locks")
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        if until is None or until.done():
            await asyncio.shield(leaving)

    async def _release(self, token: str, until: Future[None] | None) -> None:
        if until is not None:
            await asyncio.wait([asyncio.wrap_future(until)])
        with suppress(StoreError):  # the store tries again; and what is held ends with this process's lease
            await self._store.release_locks(token)
