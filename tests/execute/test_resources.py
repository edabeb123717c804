"""Who waits for whom."""

import asyncio
from concurrent.futures import Future

import pytest

from toolwire.execute.resources import Busy, Resources
from toolwire.plan.resources import LockClaim


async def test_readers_share_and_a_writer_waits_for_them_and_blocks_later_ones() -> None:
    resources, order = Resources(), list[str]()
    gates = {name: asyncio.Event() for name in ("r1", "r2", "w", "r3")}

    async def touch(name: str, *, writes: bool) -> None:
        async with resources.holding([LockClaim("file:a", writes)]):
            order.append(f"+{name}")
            await gates[name].wait()
            order.append(f"-{name}")

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for name in ("r1", "r2", "w", "r3"):
            group.create_task(touch(name, writes=name == "w"))
        await settle()
        assert order == ["+r1", "+r2"]
        gates["r1"].set()
        await settle()
        assert order == ["+r1", "+r2", "-r1"]
        gates["r2"].set()
        await settle()
        assert order[-1] == "+w"
        gates["w"].set()
        await settle()
        assert order[-2:] == ["-w", "+r3"]
        gates["r3"].set()


async def test_calls_over_several_resources_never_wait_in_a_circle() -> None:
    resources, done = Resources(), list[int]()

    async def touch(number: int, first: str, second: str) -> None:
        async with resources.holding([LockClaim(first, writes=True), LockClaim(second, writes=True)]):
            await asyncio.sleep(0)
            done.append(number)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for number in range(100):
            pair = ("a", "b") if number % 2 else ("b", "a")
            group.create_task(touch(number, *pair))
    assert done == list(range(100))


async def test_someone_who_stops_waiting_leaves_the_queue() -> None:
    resources = Resources()
    first = resources.holding([LockClaim("a", writes=True)])
    await first.__aenter__()

    async def wait() -> None:
        async with resources.holding([LockClaim("a", writes=True)]):
            pass

    gives_up, stays = asyncio.create_task(wait()), asyncio.create_task(wait())
    await settle()
    gives_up.cancel()
    await settle()
    await first.__aexit__(None, None, None)
    await asyncio.wait_for(stays, 5)
    assert resources._queues == {}


async def test_what_was_given_up_holds_its_claims_until_its_work_ends() -> None:
    resources, work, order = Resources(), Future[None](), list[str]()
    async with resources.holding([LockClaim("a", writes=True), LockClaim("b", writes=False)]) as ticket:
        ticket.until = work

    async def touch(name: str, resource: str, *, writes: bool) -> None:
        async with resources.holding([LockClaim(resource, writes)]):
            order.append(name)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(touch("writes a", "a", writes=True))
        group.create_task(touch("reads b", "b", writes=False))
        group.create_task(touch("writes b", "b", writes=True))
        await settle()
        assert order == ["reads b"]
        await asyncio.to_thread(work.set_result, None)
    assert sorted(order) == ["reads b", "writes a", "writes b"]
    assert resources._queues == {}


async def test_patience_with_work_that_was_given_up_ends_and_says_who_holds_what() -> None:
    resources, work = Resources(), Future[None]()
    async with resources.holding([LockClaim("file:a", writes=True)], "'save' (call_1)") as ticket:
        ticket.until = work
    with pytest.raises(Busy) as busy:
        async with asyncio.timeout(5), resources.holding([LockClaim("file:a", writes=False)], longest_wait_s=0.01):
            pass
    assert (busy.value.resource, busy.value.holder) == ("file:a", "'save' (call_1)")


async def test_patience_is_not_lost_over_calls_that_are_at_work_but_from_when_they_are_given_up() -> None:
    resources, work, order = Resources(), Future[None](), list[str]()

    async def touch() -> None:
        try:
            async with resources.holding([LockClaim("a", writes=True)], longest_wait_s=0):
                order.append("touched")
        except Busy:
            order.append("busy")

    async with asyncio.timeout(5):
        async with resources.holding([LockClaim("a", writes=True)]) as ticket:
            waiting = asyncio.create_task(touch())
            await settle()
            assert order == []
            ticket.until = work
        await waiting
        assert order == ["busy"]
        work.set_result(None)
        await touch()
    assert order == ["busy", "touched"]


def test_work_that_outlives_its_event_loop_is_seen_to_have_ended_from_the_next_one() -> None:
    resources, work = Resources(), Future[None]()

    async def give_up() -> None:
        async with resources.holding([LockClaim("a", writes=True)]) as ticket:
            ticket.until = work

    async def touch() -> str:
        async with asyncio.timeout(5), resources.holding([LockClaim("a", writes=True)]):
            return "touched"

    asyncio.run(give_up())
    work.set_result(None)
    assert asyncio.run(touch()) == "touched"


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
