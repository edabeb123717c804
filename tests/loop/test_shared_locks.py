"""Locks and limits of calls in flight that hold over all processes that share a store."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.loop.test_liveness import owner
from tests.record.conftest import database_server, migrated_server
from toolwire import Agent, Limits, MemoryStore, SqliteStore, tool
from toolwire.protocol.tools import Tool
from toolwire.record.contract import Store
from toolwire.record.libsql import LibsqlStore
from toolwire.record.liveness import LEASE_S
from toolwire.testing import ScriptedModel, call

BOUND_S = 30
A_MOMENT_S = 0.3
Opens = Callable[[], Awaitable[Store]]


@pytest.fixture(params=["memory", "sqlite", "libsql", "postgres"])
async def opens(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opens]:
    """Opens the store as another process would, or as another machine; what is kept in memory has one store."""
    memory, kind = MemoryStore(), request.param
    async with AsyncExitStack() as stack:
        on = stack.enter_context(database_server("postgres" if kind == "postgres" else "libsql", tmp_path, request))
        homes = iter(range(10))

        async def opened() -> Store:
            match kind:
                case "memory":
                    return memory
                case "sqlite":
                    return await stack.enter_async_context(await SqliteStore.at(tmp_path / "home"))
            store = await on(tmp_path / f"home-{next(homes)}")
            return await stack.enter_async_context(store)

        yield opened


class Printer:
    """Tools that note who is at work, and work until they are let go."""

    def __init__(self) -> None:
        self.at_work: list[str] = []
        self.peak = 0
        self.entered = asyncio.Semaphore(0)
        self.may_go = asyncio.Event()

    async def work(self, what: str) -> str:
        self.at_work.append(what)
        self.peak = max(self.peak, len(self.at_work))
        self.entered.release()
        await self.may_go.wait()
        self.at_work.remove(what)
        return what

    def tools(self, **options: Any) -> list[Tool]:
        @tool(name="print", **options)
        async def printed(what: str) -> str:
            """Print."""
            return await self.work(what)

        @tool(name="status", reads="shared:printer")
        async def status(what: str) -> str:
            """Look."""
            return await self.work(what)

        return [printed, status]


@pytest.mark.parametrize(
    ("options", "at_once"),
    [({"in_flight": 1}, 1), ({"in_flight": 2}, 2), ({"writes": "shared:printer"}, 1), ({"reads": "shared:printer"}, 3)],
)
async def test_what_a_tool_declares_holds_over_all_processes(
    opens: Opens, options: dict[str, Any], at_once: int
) -> None:
    printer = Printer()
    agents = [Agent(ScriptedModel(), printer.tools(**options), store=await opens()) for _ in range(3)]
    calls = [asyncio.create_task(one.call("print", {"what": str(n)})) for n, one in enumerate(agents)]
    async with asyncio.timeout(BOUND_S):
        for _ in range(at_once):
            await printer.entered.acquire()
        await asyncio.wait(calls, timeout=A_MOMENT_S)  # time enough for the others to begin, if they did not wait
        printer.may_go.set()
        results = await asyncio.gather(*calls)

    assert [result.text for result in results] == ["0", "1", "2"]
    assert printer.peak == at_once


async def test_the_calls_of_an_agent_in_flight_are_limited_over_all_processes(opens: Opens) -> None:
    printer, limits = Printer(), Limits(in_flight=2)
    agents = [Agent(ScriptedModel(), printer.tools(), store=await opens(), limits=limits) for _ in range(3)]
    other = Agent(ScriptedModel(), printer.tools(), store=await opens(), limits=limits, name="other")
    calls = [asyncio.create_task(one.call("print", {"what": str(n)})) for n, one in enumerate(agents)]
    async with asyncio.timeout(BOUND_S):
        for _ in range(2):
            await printer.entered.acquire()
        await asyncio.wait(calls, timeout=A_MOMENT_S)  # time enough for the third to begin, if it did not wait
        assert printer.peak == 2
        calls.append(asyncio.create_task(other.call("print", {"what": "of another agent"})))
        await printer.entered.acquire()
        assert "of another agent" in printer.at_work
        printer.may_go.set()
        results = await asyncio.gather(*calls)

    assert [result.text for result in results] == ["0", "1", "2", "of another agent"]


async def test_the_calls_of_one_step_share_the_places_of_their_agent() -> None:
    printer = Printer()
    printer.may_go.set()
    steps = ScriptedModel([call("print", what=str(n)) for n in range(4)], "Done.")
    answer = await Agent(steps, printer.tools(), limits=Limits(in_flight=1)).ask("Print")

    assert (answer.text, printer.peak) == ("Done.", 1)


async def test_an_agent_that_sets_itself_to_work_takes_no_place_for_that() -> None:
    printer, store, limits = Printer(), MemoryStore(), Limits(in_flight=1)
    printer.may_go.set()
    worker = ScriptedModel([call("print", what="below")], "Printed.")

    @tool(name="task", category="session")
    async def task() -> str:
        """Set an agent of the same name to work."""
        return (await Agent(worker, printer.tools(), store=store, limits=limits).ask("Print")).text

    asks = ScriptedModel([call("task")], "Done.")
    async with asyncio.timeout(BOUND_S):
        answer = await Agent(asks, [task], store=store, limits=limits).ask("Have it printed")

    assert (answer.text, answer.turn.failed_calls, printer.peak) == ("Done.", 0, 1)


async def test_a_writer_waits_for_readers_of_other_processes(opens: Opens) -> None:
    printer = Printer()
    one, other = [Agent(ScriptedModel(), printer.tools(writes="shared:printer"), store=await opens()) for _ in range(2)]
    async with asyncio.timeout(BOUND_S):
        reading = asyncio.create_task(one.call("status", {"what": "reads"}))
        await printer.entered.acquire()
        writing = asyncio.create_task(other.call("print", {"what": "writes"}))
        await asyncio.wait({writing}, timeout=A_MOMENT_S)
        assert printer.at_work == ["reads"]
        printer.may_go.set()
        await asyncio.gather(reading, writing)


async def test_control_a_lock_that_is_not_shared_is_that_of_one_process(tmp_path: Path) -> None:
    printer = Printer()
    async with await SqliteStore.at(tmp_path) as one, await SqliteStore.at(tmp_path) as other:
        calls = [
            asyncio.create_task(
                Agent(ScriptedModel(), printer.tools(writes="printer"), store=store).call("print", {"what": "x"})
            )
            for store in (one, other)
        ]
        async with asyncio.timeout(BOUND_S):
            for _ in calls:
                await printer.entered.acquire()
            printer.may_go.set()
            await asyncio.gather(*calls)
    assert printer.peak == 2


async def test_a_call_that_is_canceled_while_it_waits_leaves_the_queue(opens: Opens) -> None:
    printer = Printer()
    one, other, third = [Agent(ScriptedModel(), printer.tools(in_flight=1), store=await opens()) for _ in range(3)]
    async with asyncio.timeout(BOUND_S):
        first = asyncio.create_task(one.call("print", {"what": "first"}))
        await printer.entered.acquire()
        waiting = asyncio.create_task(other.call("print", {"what": "waiting"}))
        await asyncio.wait({waiting}, timeout=A_MOMENT_S)
        waiting.cancel()
        await asyncio.wait({waiting})
        printer.may_go.set()
        await first
        assert (await third.call("print", {"what": "third"})).ok


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGSTOP])
async def test_the_lock_of_a_process_that_is_killed_or_stopped_ends_with_its_lease(
    tmp_path: Path, ends: signal.Signals
) -> None:
    """`owner.py` has a tool that locks `shared:pad`."""
    with migrated_server(tmp_path) as server:

        @tool(writes="shared:pad")
        def land() -> str:
            """Land."""
            return "landed"

        async with owner(tmp_path / "one", tmp_path / "ledger", "in_tool", server.url) as process:
            process.send_signal(ends)
            async with asyncio.timeout(BOUND_S), await LibsqlStore.on(server.url, tmp_path / "two") as store:
                landing = asyncio.create_task(Agent(ScriptedModel(), [land], store=store).call("land", {}))
                await asyncio.wait({landing}, timeout=A_MOMENT_S)
                assert not landing.done()
                server.later_s += LEASE_S + 1
                assert (await landing).text == "landed"
