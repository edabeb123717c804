"""Locks of a store by themselves: who waits, what is let go of when, and a lease that was slept through."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager

import pytest

from toolwire import MemoryStore
from toolwire.errors import StoreUnavailable
from toolwire.execute.resources import Resources
from toolwire.hub.shared_locks import SharedLocks
from toolwire.plan.resources import LockClaim

BOUND_S = 5
SHARED, LOCAL = LockClaim("shared:printer", writes=True), LockClaim("printer", writes=True)


class Noting(MemoryStore):
    """Notes what becomes of the queue. It can lose what was queued, and be out of reach."""

    def __init__(self) -> None:
        super().__init__()
        self.queued: list[tuple[str, ...]] = []
        self.released: list[str] = []
        self.asked = asyncio.Semaphore(0)
        self.loses = self.is_down = False

    async def queue_locks(self, claims: Sequence[LockClaim], token: str, *, project: str = "default") -> bool:
        self.queued.append((token, *(claim.resource for claim in claims)))
        return await super().queue_locks(claims, token, project=project)

    async def holds_locks(self, token: str, *, project: str = "default") -> bool | None:
        self.asked.release()
        if self.loses:
            self.loses = False
            await super().release_locks(token, project=project)
        return await super().holds_locks(token, project=project)

    async def release_locks(self, token: str, *, project: str = "default") -> None:
        self.released.append(token)
        if self.is_down:
            raise StoreUnavailable("out of reach")
        await super().release_locks(token, project=project)


class Process:
    """The locks of one of the processes that share a store."""

    def __init__(self, store: Noting, name: str) -> None:
        self.locks = SharedLocks(Resources(), store, lambda: name)
        self.holds, self.may_go = asyncio.Event(), asyncio.Event()

    async def work(self, *claims: LockClaim) -> None:
        async with self.locks.holding(claims):
            self.holds.set()
            await self.may_go.wait()


@asynccontextmanager
async def at_work(*works: "asyncio.Task[None]") -> AsyncIterator[None]:
    async with asyncio.timeout(BOUND_S):
        yield
        await asyncio.gather(*works)


@pytest.mark.parametrize("loses", [False, True])
async def test_the_next_process_goes_on_when_the_first_lets_go(loses: bool) -> None:
    store = Noting()
    one, two = Process(store, "one"), Process(store, "two")
    first = asyncio.create_task(one.work(SHARED, LOCAL))
    await asyncio.wait_for(one.holds.wait(), BOUND_S)
    second = asyncio.create_task(two.work(SHARED))
    async with at_work(first, second):
        for _ in range(3):
            await store.asked.acquire()
        store.loses = loses
        await store.asked.acquire()
        await store.asked.acquire()
        waits = not two.holds.is_set()
        one.may_go.set()
        await two.holds.wait()
        two.may_go.set()

    assert waits
    assert store.queued == [("one", "shared:printer"), *[("two", "shared:printer")] * (2 if loses else 1)]
    assert store.released == ["one", "two"]


async def test_a_lock_that_is_not_shared_never_reaches_the_store() -> None:
    store = Noting()
    one, two = Process(store, "one"), Process(store, "two")
    works = [asyncio.create_task(each.work(LOCAL)) for each in (one, two)]
    async with at_work(*works):
        await one.holds.wait()
        await two.holds.wait()
        one.may_go.set()
        two.may_go.set()

    assert (store.queued, store.released) == ([], [])


async def test_a_lock_is_held_until_the_work_is_over_that_outlives_its_call() -> None:
    store, work = Noting(), Future[None]()
    one, two = Process(store, "one"), Process(store, "two")
    async with asyncio.timeout(BOUND_S):
        async with one.locks.holding([SHARED]) as ticket:
            ticket.until = work
        second = asyncio.create_task(two.work(SHARED))
        for _ in range(2):
            await store.asked.acquire()
        before = (list(store.released), two.holds.is_set())
        work.set_result(None)
        await two.holds.wait()
        two.may_go.set()
        await second
        done = Future[None]()
        done.set_result(None)
        async with one.locks.holding([SHARED]) as ticket:
            ticket.until = done
        after = list(store.released)

    assert before == ([], False)
    assert after == ["one", "two", "one"], "what is over is let go of at once"


async def test_a_store_out_of_reach_does_not_fail_what_has_been_done() -> None:
    store = Noting()
    one = Process(store, "one")
    async with asyncio.timeout(BOUND_S), one.locks.holding([SHARED]):
        store.is_down = True

    assert store.released == ["one"]
