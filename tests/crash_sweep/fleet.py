"""A process of a fleet, put together from the product's parts: what it does depends on its role."""

import asyncio
import fcntl
import json
import logging
import os
import time
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from tests.crash_sweep.striking import Striker, StruckBus, StruckStore, add_line
from tests.simulation.crash_points import CrashPoint, Fault
from tests.simulation.delegation import GRANT, delegating_tools, plain_tools
from tests.simulation.fleet import LoggedErrors
from tests.simulation.foreign_service import ForeignService, HttpCards
from tests.simulation.virtual_loop import PROCESS
from tests.simulation.workload import (
    CALLED,
    MOST_CHARS,
    OF_WORKERS,
    SERVED,
    THINGS,
    Key,
    PlannedModel,
    Plans,
    Surroundings,
)
from toolwire import Agent, Grant
from toolwire.assemble import turn_runner
from toolwire.assemble.turn_runner import TurnRunner
from toolwire.bus.contract import Bus
from toolwire.bus.in_process import InProcessBus
from toolwire.bus.nats_connection import NatsServers
from toolwire.bus.nats_jetstream import nats_bus
from toolwire.define.toolbox import Toolbox
from toolwire.errors import BusError, StoreError, StoreUnavailable
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.fleet import service_claims
from toolwire.fleet.dispatcher import BusDispatcher
from toolwire.fleet.relay import Relay
from toolwire.fleet.reports import ReportReceiver
from toolwire.fleet.wakeups import hear_wakeups
from toolwire.fleet.worker import ToolWorker
from toolwire.hub.canceling import cancel_turn
from toolwire.protocol.approvals import Approval
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import Limits, Turn
from toolwire.record.postgres import PostgresStore
from toolwire.record.projects import of_project
from toolwire.record.sqlite import SqliteStore

DETACHED_LEASE_S = 1.5
_LEASE_S, _SHORT_LEASE_S = 30.0, 2.0
"""A process that dies loses its lease at once. One that is paused, or on another machine, has to lose it by time."""

LEDGER, WRONG = "ledger", "wrong"
_PAUSES_S = (0.4, 0.8, 1.5, 2.5)
_QUICKER = 10.0
"""Turns begin, tools work and people answer so many times sooner than in a simulation, whose time costs nothing."""

_POLL_S, _RETRY_S, _FIRST_PAUSE_S = 0.2, 0.1, 0.3
_RENEW_S = 0.02
_MARGIN_S, _REMEMBERS_S = 0.5, 3.5
"""A service may hold a call for so much longer than it may take; and so long it knows which calls it began."""

_LIMITS = Limits(consecutive_failures=100, repeats=100, result_chars=MOST_CHARS)


@dataclass(frozen=True, slots=True)
class Place:
    """What the processes of a run share. Without a broker's address the bus is the process's own.

    Where runners hand commands over, they send by themselves, and there is no relay. With the address of a `database`,
    the store is in a schema of it; with every other seed each process is then on a machine of its own, as it were.
    """

    folder: Path
    points: tuple[CrashPoint, ...]
    plans: Plans
    seed: int
    hands_over: bool = False
    broker: str = ""
    database: str = ""
    schema: str = ""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def has_machines(self) -> bool:
        return bool(self.database) and self.seed % 2 == 1

    @property
    def lease_s(self) -> float:
        has_to_end = self.has_machines or any(one.fault is Fault.PAUSE for one in self.points)
        return _SHORT_LEASE_S if has_to_end else _LEASE_S

    async def open_store(self, process: str) -> SqliteStore:
        if not self.database:
            return await SqliteStore.at(self.home, lease_s=self.lease_s)
        home = self.folder / f"home-{process}" if self.has_machines else self.home
        return await PostgresStore.on(self.database, home, schema=self.schema, lease_s=self.lease_s)

    def violate(self, what: str) -> None:
        add_line(self.folder / WRONG, what.replace("\n", " "))


class FileLedger:
    """What tools did to the world, by call: lines that outlive whoever wrote them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take_effect(self, name: str, number: int, key: Key, told: str) -> None:
        handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            before = map(json.loads, os.pread(handle, 1 << 24, 0).splitlines())
            if name != "pay" or all(one[:2] != list(key) for one in before):  # its journal knows the key
                os.write(handle, (json.dumps([*key, name, number, told, os.getpid(), time.time()]) + "\n").encode())
        finally:
            os.close(handle)


class FileJournal:
    """Which calls the service began lately. It outlives the processes of the service."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, key: tuple[str, str], asked_at: float) -> bool:
        now = asyncio.get_running_loop().time()
        if now > asked_at + _REMEMBERS_S:
            return False
        handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            before = map(json.loads, os.pread(handle, 1 << 24, 0).splitlines())
            if any(one[:2] == list(key) and one[2] > now for one in before):
                return False
            os.write(handle, (json.dumps([*key, now + _REMEMBERS_S]) + "\n").encode())
            return True
        finally:
            os.close(handle)


class Pace(Surroundings):
    async def take_time(self) -> None:
        await asyncio.sleep(self._random.random() * self._random.choice((0.01, 0.3, 3.0)) * self._pace / _QUICKER)


@dataclass(slots=True)
class Member:
    """One process of the fleet, or its part in a process that does all."""

    place: Place
    name: str
    view: StruckStore
    bus: StruckBus
    random: Random
    told: dict[tuple[str, str], str] = field(default_factory=dict)
    surroundings: Surroundings | None = None

    def work(self) -> list[Coroutine[Any, Any, Any]]:
        role = self.name.partition("-")[0]
        ledger = cast("Any", FileLedger(self.place.folder / LEDGER))
        self.surroundings = Pace(ledger, self.random, {self.name: self.view}, self._helper)
        clock = SimpleNamespace(surroundings=self.surroundings, time=time.time)
        PROCESS.set(cast("Any", SimpleNamespace(name=self.name, loop=clock, is_dead=False, is_paused=False)))
        return cast("list[Coroutine[Any, Any, Any]]", getattr(self, f"_{role}")())

    def _client(self) -> list[Coroutine[Any, Any, Any]]:
        async def begin() -> None:
            began = time.monotonic()
            for plan in sorted(self.place.plans.begun, key=lambda plan: plan.begins_at):
                await asyncio.sleep(max(0.0, began + plan.begins_at / _QUICKER - time.monotonic()))
                agent = self._agent(plan.project, None)
                while True:
                    try:
                        await agent.begin("Do it.", turn_id=plan.turn_id)
                    except StoreUnavailable:
                        await asyncio.sleep(_RETRY_S)
                        continue
                    except StoreError:  # it has begun before
                        pass
                    break
            await asyncio.Event().wait()

        return [begin()]

    def _person(self) -> list[Coroutine[Any, Any, Any]]:
        store = self.view.as_store

        async def answer() -> None:
            while True:
                await asyncio.sleep((1 + self.random.random() * 3) / _QUICKER)
                for card in await store.approvals(only_open=True):
                    await store.answer(card.id, Approval(self.random.random() < 0.8, "ann"), project=card.project)

        async def cancel() -> None:
            began = time.monotonic()
            plans = (*self.place.plans.begun, *self.place.plans.tasks.values())
            for plan in sorted(plans, key=lambda plan: plan.canceled_at or 0.0):
                if plan.canceled_at is None:
                    continue
                await asyncio.sleep(max(0.0, began + plan.canceled_at / _QUICKER - time.monotonic()))
                turns = await store.turns(limit=1_000, project=plan.project)
                turn_id = plan.turn_id or next((one.id for one in turns if one.question == plan.question), "")
                if any(one.id == turn_id for one in turns):
                    await cancel_turn(of_project(store, plan.project), turn_id, time.time())
            await asyncio.Event().wait()

        return [answer(), cancel()]

    def _runner(self) -> list[Coroutine[Any, Any, Any]]:
        relay = self._new_relay() if self.place.hands_over else None
        work = [] if relay is None else [relay.run()]
        for project, runner in self.runners(relay):
            wake = lambda _, runner=runner: runner.wake()  # noqa: E731
            hears = hear_wakeups(self.bus.as_bus, wake, durable=f"run-{project}", project=project)
            work += [runner.run_forever(), hears]
        return work

    def runners(self, relay: Relay | None) -> Iterator[tuple[str, TurnRunner]]:
        """What takes up turns, for each project."""
        for project in sorted({plan.project for plan in self.place.plans.begun}):
            agent = self._agent(project, relay)

            @asynccontextmanager
            async def opened(_turn: Turn, agent: Agent = agent) -> AsyncIterator[Agent]:
                yield agent

            yield project, TurnRunner(of_project(self.view.as_store, project), opened, poll_s=3 * _POLL_S)

    def _relay(self) -> list[Coroutine[Any, Any, Any]]:
        return [self._new_relay().run()]

    def _new_relay(self) -> Relay:
        pause: Callable[[int], float] = lambda sent: _PAUSES_S[min(sent, len(_PAUSES_S) - 1)]  # noqa: E731
        return Relay(self.view.as_store, self.bus.as_bus, poll_s=_POLL_S, pause=pause)

    def _worker(self) -> list[Coroutine[Any, Any, Any]]:
        worker = ToolWorker(
            self.view.as_store, self.bus.as_bus, OF_WORKERS, SERVED + THINGS, durable="workers", renew_s=_RENEW_S,
            at_once=2,
        )  # fmt: skip
        return [worker.run(drain_s=5.0)]

    def _service(self) -> list[Coroutine[Any, Any, Any]]:
        assert self.surroundings is not None
        cards = HttpCards(cast("Any", self.view), cast("Any", None))
        journal = cast("Any", FileJournal(self.place.folder / "service-journal"))
        return [ForeignService(cards, cast("Any", self.bus), journal, self.surroundings).run()]

    def _receiver(self) -> list[Coroutine[Any, Any, Any]]:
        async def find(_project: str, card: CallCard) -> Tool:
            return CALLED[card.call.name]

        return [ReportReceiver(self.view.as_store, self.bus.as_bus, durable="reports", find_tool=find).run()]

    def _agent(self, project: str, relay: Relay | None) -> Agent:
        sent = BusDispatcher(of_project(self.view.as_store, project), relay, limits=_LIMITS, queue_s=60.0)
        called = delegating_tools() if self.place.plans.tasks else plain_tools()
        return self.made_of(project, called, Router(InProcessExecutor(), bus=sent))

    def made_of(self, project: str, called: Toolbox, executor: Router) -> Agent:
        """An agent with these tools, whose model says what is planned."""

        async def reach(operation: str, when: str) -> None:
            self.view.striker.reach(operation, when)

        model = PlannedModel(
            project, self.place.plans, self.random, self.place.violate, reach, self.told, fails=0.0, slow_s=0.1
        )  # fmt: skip
        agent = Agent(
            model, called, store=self.view.as_store, executor=executor, project=project, grant=GRANT, limits=_LIMITS,
            suspends=True,
        )  # fmt: skip
        agent.runtime.detached_lease_s = DETACHED_LEASE_S
        return agent

    def _helper(self, grant: Grant) -> Agent:
        return self._agent("red", None)


@contextmanager
def hearing(violate: Callable[[str], None]) -> Iterator[None]:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")  # to the log of the process
    logger, errors = logging.getLogger("toolwire"), LoggedErrors(violate)
    logger.addHandler(errors)
    try:
        with (
            patch.object(turn_runner, "FIRST_PAUSE_S", _FIRST_PAUSE_S),
            patch.object(service_claims, "_MARGIN_S", _MARGIN_S),
        ):
            yield
    finally:
        logger.removeHandler(errors)


async def serve(place: Place, names: list[str], incarnation: int) -> None:
    """Be a process with these parts, until it is killed or its broker or store is away for too long."""
    async with AsyncExitStack() as closing:
        closing.enter_context(hearing(place.violate))
        bus: Bus = await closing.enter_async_context(
            nats_bus(NatsServers((place.broker,))) if place.broker else InProcessBus()
        )
        work: list[asyncio.Task[Any]] = []
        for name in names:  # each with a store of its own: what a worker has claimed is not the runner's own then
            store = await place.open_store(name)
            closing.push_async_callback(store.close_store)
            striker = Striker(place.folder, place.points, name)
            random = Random(f"{place.seed} {name} {incarnation}")
            member = Member(place, name, StruckStore(store, striker), StruckBus(bus, striker, random), random)
            work += in_context(member)
        await until_ended(work, place, " ".join(names))


async def until_ended(work: "list[asyncio.Task[Any]]", place: Place, name: str) -> None:
    """Do the work of a process, until its broker or its store is away: then it is started again."""
    try:
        await asyncio.gather(*work)
    except (StoreError, BusError):
        traceback.print_exc()
    except BaseException as error:
        place.violate(f"{name} broke: {error!r}")
        raise


def in_context(member: Member) -> list["asyncio.Task[Any]"]:
    """Each part of a process knows itself by its own name."""
    context = copy_context()
    loop = asyncio.get_running_loop()
    return [loop.create_task(one, context=context.copy()) for one in context.run(member.work)]
