"""One agent's flood of changes does not stand in the way of another's: seen by the order in which they are served."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolwire.record import schema
from toolwire.record.contract import Store
from toolwire.record.owners import Owners
from toolwire.record.sqlite import SqliteStore
from toolwire.record.warm import WarmLog
from toolwire.record.write_queue import SHARE, WriteQueue
from toolwire.record.writer import Writer

from .conftest import NOW
from .samples import a_turn

FLOOD = 500


@pytest.fixture
async def unfair(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A store whose writer takes all changes as they come."""
    home = tmp_path / "home"
    await (await SqliteStore.at(home)).close_store()
    connect = partial(schema.connect, home / "store.db", busy_timeout_s=5.0)
    warm = WarmLog(home / "logs", lambda: NOW)
    owners = Owners(home / "owners")
    writer = Writer(home / "store.db", connect, warm.add, owners, share=1_000_000)
    parts: Any = {"warm": warm, "owners": owners, "writer": writer}
    async with SqliteStore(home, home / "store.db", connect, lambda: NOW, **parts) as store:
        yield store


async def served(store: Store, *, others: int = 1) -> list[str]:
    """The agents in the order in which their turns are on record: a flood of one, then some of another.

    The other one has written a moment before, so that the store is shared.
    """
    order: list[str] = []

    async def begin(number: int, agent: str) -> None:
        await store.begin(a_turn(f"{agent}-{number}", agent=agent))
        order.append(agent)

    await store.begin(a_turn("quiet-before", agent="quiet"))
    flood = [asyncio.create_task(begin(number, "flood")) for number in range(FLOOD)]
    quiet = [asyncio.create_task(begin(number, "quiet")) for number in range(others)]
    await asyncio.gather(*flood, *quiet)
    return order


async def test_T69_the_changes_of_another_agent_are_served_among_the_first(store: Store) -> None:
    order = await served(store)

    assert (len(order), order.count("quiet")) == (FLOOD + 1, 1)
    if not type(store).__name__.startswith("Memory"):  # which writes at once, so that nothing ever waits
        assert order.index("quiet") <= 2 * SHARE


async def test_T69_control_without_shares_they_wait_for_the_whole_flood(unfair: SqliteStore) -> None:
    assert (await served(unfair)).index("quiet") == FLOOD


async def test_each_agent_is_served_in_the_order_of_asking(store: Store) -> None:
    order: list[int] = []

    async def begin(number: int) -> None:
        await store.begin(a_turn(f"turn-{number}"))
        order.append(number)

    await asyncio.gather(*map(begin, range(200)))

    assert order == list(range(200))


async def test_a_place_of_one_who_has_gone_is_passed_on() -> None:
    turnstile, loop = WriteQueue(1, alone=1), asyncio.get_running_loop()
    assert turnstile.enter("a", loop) is None
    waiting = [turnstile.enter("a", loop) for _ in range(3)]
    tasks = [asyncio.create_task(turnstile.wait("a", place)) for place in waiting if place is not None]
    await asyncio.sleep(0)
    tasks[0].cancel()
    turnstile.leave("a")
    tasks[1].cancel()
    await asyncio.wait(tasks[:2])

    await asyncio.wait_for(tasks[2], 10)
    turnstile.leave("a")
    assert turnstile.enter("a", loop) is None
    assert turnstile.enter("b", loop) is None
