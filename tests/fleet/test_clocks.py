"""C42: dates are those of the store, on whatever machine a part of the fleet runs, and whatever its own clock says."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.fleet.conftest import Fleet
from tests.postgres_server import shared_server
from toolwire.bus.in_process import InProcessBus
from toolwire.protocol.outcomes import Code
from toolwire.record.postgres import PostgresStore
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import FrozenClock, call


@asynccontextmanager
async def old_fleet(folder: Path, clock: FrozenClock) -> AsyncIterator[Fleet]:
    """A fleet whose store says that it is another time than it is here."""

    async def open_store() -> SqliteStore:
        return await SqliteStore.at(folder / "home", clock=clock)

    async with AsyncExitStack() as closing:
        bus = await closing.enter_async_context(InProcessBus())
        fleet = Fleet(open_store, bus, "clocks", closing)
        closing.push_async_callback(fleet.stop)
        yield fleet


async def test_all_parts_of_a_fleet_go_by_the_clock_of_the_store(tmp_path: Path) -> None:
    """It stands still many years ago: a part that went by its own would find that everything is long over."""
    clock = FrozenClock(1_000_000.0)
    async with old_fleet(tmp_path, clock) as fleet:
        store, note = await fleet.store(), fleet.tool()
        turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
        card = await fleet.card(store, turn_id)
        dispatch, _ = await store.dispatched(card.record_id, project=fleet.project)
        fleet.runner(await fleet.store(), [fleet.far(note)], "All noted.")
        await fleet.worker([note])
        await fleet.relay()

        answer = await fleet.answer()
        rows = await store.audit_log(turn_id=turn_id, project=fleet.project)

    assert (answer, fleet.noted) == ("All noted.", ["milk"])
    assert {row.at for row in rows} == {clock()}
    assert 0 < dispatch.expires_at - clock() < 86_400


async def test_control_a_call_that_is_dated_by_another_clock_is_given_up(tmp_path: Path) -> None:
    async with old_fleet(tmp_path, FrozenClock(1_000_000.0)) as fleet:
        store, note = await fleet.store(), fleet.tool()
        agent = fleet.agent(store, [fleet.far(note)], call("note", words="milk"), sends={"clock": lambda: 1_000.0})
        turn_id = await fleet.sent(agent)
        await fleet.relay()
        result = (await fleet.result(store, turn_id)).result

    assert result is not None
    assert result.error is not None
    assert result.error.code is Code.UNAVAILABLE


async def test_the_clock_of_a_store_in_postgresql_is_that_of_the_server(postgres: object, tmp_path: Path) -> None:
    with shared_server().schemas.empty() as schema:
        async with await PostgresStore.on(shared_server().url, tmp_path / "home", schema=schema) as store:
            before, told, after = time.time(), store.clock(), time.time()

    assert store.clock is not time.time
    assert before - 5 < told < after + 5  # the server runs on this machine
