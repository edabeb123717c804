"""A whole fleet in one process: the same tests over SQLite with a bus of this process, and PostgreSQL with NATS."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.bus.servers import NatsServer, running
from tests.postgres_server import shared_server
from toolwire import Agent, Grant, Tier, tool
from toolwire.assemble.turn_runner import RanTurn, TurnRunner
from toolwire.bus.contract import Bus
from toolwire.bus.in_process import InProcessBus
from toolwire.bus.nats_jetstream import NatsServers, nats_bus
from toolwire.errors import Suspended
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.fleet.dispatcher import BusDispatcher
from toolwire.fleet.fair_share import FairSlots
from toolwire.fleet.relay import Relay
from toolwire.fleet.wakeups import hear_wakeups
from toolwire.fleet.worker import ToolWorker
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import BusService, Effect, Tool
from toolwire.protocol.turns import Turn
from toolwire.record.contract import TurnSummary
from toolwire.record.postgres import PostgresStore
from toolwire.record.projects import of_project
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import ScriptedModel

BOUND_S = 60
SUBJECT = "cg.v1r4.{project_id}.{channel_id}.cmd.tool.notes"
_numbers = itertools.count(1)

OpenStore = Callable[[], Awaitable[SqliteStore]]


@pytest.fixture(scope="session")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running(tmp_path_factory.mktemp("nats")) as server:
        yield server


class _Holding:
    """A bus whose subscriber gets nothing before so many messages of this fleet are there."""

    def __init__(self, bus: Bus, number: int) -> None:
        self._bus = bus
        self._number = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    @asynccontextmanager
    async def subscribe(self, pattern: str, **named: Any) -> AsyncIterator[Any]:
        async with self._bus.subscribe(pattern, **named) as found:
            taken = [await anext(found) for _ in range(self._number)]

            class Held:
                drain = found.drain
                take_handoffs = found.take_handoffs

                async def __aiter__(self) -> AsyncIterator[Any]:
                    for one in taken:
                        yield one
                    async for one in found:
                        yield one

            yield Held()


class Fleet:
    """Stores and buses of one fleet, and what its processes are made of. Each process opens a store of its own."""

    def __init__(self, open_store: OpenStore, bus: Bus, project: str, closing: AsyncExitStack) -> None:
        self.open_store = open_store
        self.bus = bus
        self.project = project
        self.target = "notes"
        self.closing = closing
        self.noted: list[str] = []
        self.ran: list[RanTurn] = []
        self._tasks: list[asyncio.Task[Any]] = []

    # Tools

    def tool(self, effect: Effect = Effect.UNSAFE, **more: Any) -> Tool:
        @tool(effect=effect, tier=Tier.WALK, **more)
        async def note(words: str = "") -> str:
            """Write words down."""
            self.noted.append(words)
            return f"noted {words}"

        return note

    def far(self, one: Tool, **target: Any) -> Tool:
        """The tool as those know it who call it over the bus."""
        return replace(one, target=BusService(SUBJECT.replace("notes", self.target), **target))

    # Processes

    async def store(self) -> SqliteStore:
        return await self.closing.enter_async_context(await self.open_store())

    def agent(self, store: SqliteStore, tools: Iterable[Tool], *script: Any, **more: Any) -> Agent:
        relay = more.pop("relay", None)
        view = of_project(store, self.project)
        executor = Router(InProcessExecutor(), bus=BusDispatcher(view, relay, **more.pop("sends", {})))
        return Agent(
            ScriptedModel(*script), list(tools), store=view, executor=executor, project=self.project,
            grant=Grant(tier=Tier.RUN), suspends=True, **more,
        )  # fmt: skip

    async def worker(self, tools: Iterable[Tool], **more: Any) -> ToolWorker:
        store = more.pop("store", None) or await self.store()
        subject = f"cg.v1r4.{self.project}.*.cmd.tool.notes"
        worker = ToolWorker(store, self.bus, tools, subject, durable=f"worker-{self.project}", renew_s=0.05, **more)
        self.spawn(worker.run(drain_s=5))
        await worker.ready.wait()
        return worker

    async def shared_worker(self, tools: Iterable[Tool], holds: int = 0, **more: Any) -> ToolWorker:
        """One that serves all projects; it begins once it `holds` so many commands."""
        store = more.pop("store", None) or await self.store()
        slots = more.pop("slots", None) or FairSlots.shared(4)
        bus = _Holding(self.bus, holds) if holds else self.bus
        subject, durable = f"cg.v1r4.*.*.cmd.tool.{self.target}", f"workers-{self.target}"
        worker = ToolWorker(store, bus, tools, subject, durable=durable, slots=slots, renew_s=0.05, **more)
        self.spawn(worker.run(drain_s=5))
        await worker.ready.wait()
        return worker

    async def relay(self, **more: Any) -> Relay:
        relay = Relay(more.pop("store", None) or await self.store(), self.bus, poll_s=0.05, **more)
        self.spawn(relay.run())
        return relay

    def runner(self, store: SqliteStore, tools: Iterable[Tool], *script: Any) -> TurnRunner:
        """One that is woken by the bus."""

        @asynccontextmanager
        async def again(_turn: Turn) -> AsyncIterator[Agent]:
            yield self.agent(store, tools, *script)

        runner = TurnRunner(of_project(store, self.project), again, poll_s=600, tell=self.ran.append)
        self.spawn(runner.run_forever())
        wake = hear_wakeups(self.bus, lambda _: runner.wake(), durable=f"run-{self.project}", project=self.project)
        self.spawn(wake)
        return runner

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        self._tasks.append(asyncio.create_task(work))
        return self._tasks[-1]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # What happens

    async def sent(self, agent: Agent, question: str = "Note it") -> str:
        """A turn that waits for the result of a call elsewhere."""
        with pytest.raises(Suspended) as waits:
            await agent.ask(question)
        return waits.value.turn_id

    async def card(self, store: SqliteStore, turn_id: str) -> CallCard:
        [card] = await store.calls(turn_id=turn_id, project=self.project)
        return card

    async def turns(self, store: SqliteStore) -> list[TurnSummary]:
        return await store.turns(project=self.project)

    async def result(self, store: SqliteStore, turn_id: str) -> CallCard:
        """The card of a turn's only call, once it has a result."""

        async def ended() -> CallCard | None:
            card = await self.card(store, turn_id)
            return card if card.result is not None else None

        card: CallCard = await self.until(ended)
        return card

    async def answer(self) -> str:
        """What the first turn says that a runner brought to its end."""

        async def ended() -> RanTurn | None:
            return next((one for one in self.ran if one.answer is not None or one.error), None)

        ran: RanTurn = await self.until(ended)
        return ran.answer.text if ran.answer is not None else ran.error

    async def until(self, look: Callable[[], Awaitable[Any]]) -> Any:
        """What `look` gives once it gives something."""
        async with asyncio.timeout(BOUND_S):
            while not (found := await look()):  # noqa: ASYNC110 -- it happens in another process
                await asyncio.sleep(0.01)
        return found

    async def events(self, store: SqliteStore, turn_id: str) -> list[str]:
        return [row.event for row in await store.audit_log(turn_id=turn_id, project=self.project)]


@pytest.fixture(params=["embedded", "servers"])
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    project = f"p{next(_numbers)}"
    async with AsyncExitStack() as closing:
        bus: Bus
        if request.param == "embedded":

            async def open_store() -> SqliteStore:
                return await SqliteStore.at(tmp_path / "home")

            bus = await closing.enter_async_context(InProcessBus())
        else:
            request.getfixturevalue("postgres")
            server = request.getfixturevalue("nats")
            schema = closing.enter_context(shared_server().schemas.empty())

            async def open_store() -> SqliteStore:
                return await PostgresStore.on(shared_server().url, tmp_path / "home", schema=schema)

            bus = await closing.enter_async_context(nats_bus(NatsServers((server.url,))))
        one = Fleet(open_store, bus, project, closing)
        closing.push_async_callback(one.stop)
        yield one
