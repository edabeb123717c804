"""Puts a simulated fleet together from the product's parts, disturbs it, and lets it come to its end."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from random import Random
from typing import Any

from tests.simulation.crash_points import CRASH_POINTS, DEADLY, CrashPoint, Fault
from tests.simulation.delegation import GRANT, delegating_tools, plain_tools
from tests.simulation.faults import CALM, FaultPlan, draw_faults
from tests.simulation.foreign_service import ForeignService, HttpCards, Journal
from tests.simulation.invariants import MOST_RECEIVERS, check_end
from tests.simulation.lossy_bus import LossyBus
from tests.simulation.shared_store import LEASE_S, Network, SharedStore, StoreView
from tests.simulation.virtual_loop import PROCESS, SimulatedProcess, Stuck, VirtualLoop
from tests.simulation.workload import (
    CALLED,
    MOST_CHARS,
    OF_WORKERS,
    SERVED,
    THINGS,
    OutsideLedger,
    PlannedModel,
    Surroundings,
    draw_plans,
)
from toolwire import Agent, Grant
from toolwire.assemble.turn_runner import TurnRunner
from toolwire.errors import BusUnavailable, StoreError, StoreUnavailable
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
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
from toolwire.record.projects import of_project

PAUSES_S = (1.0, 3.0, 6.0, 10.0)
QUIET_S = 240.0
"""So long after the last fault everything must have come to its end."""

EVENTS = 60
_LIMITS = Limits(consecutive_failures=100, repeats=100, result_chars=MOST_CHARS)
DETACHED_LEASE_S = 6.0
PAUSE_S, BROKER_AWAY_S = 3 * LEASE_S, 25.0
"""How long a crash point pauses a process, and keeps the broker away."""

Start = Callable[[SimulatedProcess, "StoreView"], list[Coroutine[Any, Any, Any]]]


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a seed."""

    seed: int
    violations: tuple[str, ...]
    events: tuple[str, ...]
    counts: Counter[str]
    part: str = ""
    point: str = ""
    """The name of the crash point, where the run was about one."""

    @property
    def is_sound(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {len(self.violations)} violations", *self.violations[:5]]
        lines += ["", f"the last {len(self.events)} events:", *self.events, ""]
        what = f" --part {self.part}" if self.part else ""
        what = f' --point "{self.point}"' if self.point else what
        return "\n".join([*lines, f"again: python -m tests.simulation --seed {self.seed}{what}"])


class SimulatedFleet:
    """One run. `simulate` is the way to make one."""

    def __init__(
        self,
        seed: int,
        *,
        trace: int = EVENTS,
        is_verbose: bool = False,
        crash: CrashPoint | None = None,
        part: str = "",
    ) -> None:
        self.loop = VirtualLoop(Random(f"{seed} order"))
        self.violations: list[str] = []
        self.events: deque[str] = deque(maxlen=trace)
        self.counts: Counter[str] = Counter()
        self.faults: FaultPlan = draw_faults(Random(f"{seed} faults")) if crash is None else CALM
        self.plans = draw_plans(Random(f"{seed} plans"), part)
        self.ledger = OutsideLedger(self.violate, self.note)
        self.store = SharedStore(self.loop, self.violate)
        self.network = Network(self.loop, Random(f"{seed} network"))
        self.bus = LossyBus(self.loop, Random(f"{seed} bus"), self.network)
        self.surroundings = Surroundings(self.ledger, Random(f"{seed} tools"), self.store.views, self._helper)
        self.loop.surroundings = self.surroundings
        self._called = delegating_tools() if self.plans.tasks else plain_tools()
        self._told: dict[tuple[str, str], str] = {}
        self._journal = Journal(self.loop)
        self.workers: dict[str, ToolWorker] = {}
        self.processes: dict[str, SimulatedProcess] = {}
        self._random = Random(f"{seed} fleet")
        self._incarnations: Counter[str] = Counter()
        self._began = self.loop.time()
        self._quiet = False
        self._begun = 0
        self.must_cancel: set[tuple[str, str]] = set()
        self.network.tell = self.note if is_verbose else None
        self._crash_points = () if crash is None else crash.all_of_it
        self.network.crash = None if crash is None else self._crash

    # What is heard

    def note(self, event: str) -> None:
        self.events.append(f"{self.loop.time() - self._began:9.3f} {PROCESS.get(self.loop.world).name:16} {event}")

    def violate(self, what: str) -> None:
        self.violations.append(what)
        self.note(f"VIOLATION: {what}")

    # The run

    def run(self) -> None:
        loop, faults = self.loop, self.faults
        self.network.slow_s = self.bus.faults.slow_s = faults.slow_s
        self.network.lost_answers = faults.lost_answers
        for name in ("drop", "double", "reorder", "lost_ack"):
            setattr(self.bus.faults, name, getattr(faults, name))
        loop.set_exception_handler(self._broken)
        for role, start in self._roles():
            self._start(role, start)
        for kind in ("pause", "cut_off", "store_outage", "bus_outage", "wipe", "stop"):
            if (every_s := getattr(faults, f"{kind}_s")) is not None:
                loop.world.spawn(self._disturb(every_s, getattr(self, f"_{kind}")), kind)
        try:
            loop.run_until_complete(loop.world.spawn(self._watch(), "watch"))
        except Stuck as stuck:
            self.violate(str(stuck))
        check_end(self)

    def _roles(self) -> Iterator[tuple[str, Start]]:
        yield "client", self._client
        yield "person", self._person
        relays = self._random.choice((0, 1, 1, 2))
        for number in range(1, self._random.randint(1, 3) + 1):
            yield f"runner-{number}", self._runner_with_relay if not relays else self._runner
        for number in range(1, relays + 1):
            yield f"relay-{number}", self._relay
        for number in range(1, self._random.randint(1, 3) + 1):
            yield f"worker-{number}", self._worker
        if self.plans.has_foreign:
            for number in range(1, self._random.randint(1, MOST_RECEIVERS) + 1):
                yield f"service-{number}", self._service
                yield f"receiver-{number}", self._receiver

    async def _watch(self) -> None:
        """Wait until all turns have ended; longer than a while after the last fault is for ever."""
        for second in range(int(self.faults.lasts_s + QUIET_S)):
            if self._has_ended():
                return
            if not self._quiet and second >= self.faults.lasts_s:
                self._calm()
            await asyncio.sleep(1.0)
        turns = [(key, kept.state, kept.opening.waits) for key, kept in self.store._open.items()]
        calls = [(card.turn_id, card) for card in self.store.open_detached()]
        self.violate(f"{QUIET_S:g} s after the last fault these have not ended: {turns} {calls}")

    def _has_ended(self) -> bool:
        store = self.store
        is_begun = all((plan.project, plan.turn_id) in store._turns for plan in self.plans.begun)
        return is_begun and not store._open and not store.open_detached()

    def _calm(self) -> None:
        """From now on nothing goes wrong."""
        self._quiet = True
        self.note("no more faults")
        self.network.heal()
        self.bus.away_until = 0.0
        faults = self.bus.faults
        faults.drop = faults.double = faults.reorder = faults.lost_ack = 0.0
        for process in list(self.processes.values()):
            process.dies_at = None
            self._go_on(process)

    def _broken(self, _loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, (StoreError, BusUnavailable)):
            self.violate(f"{context.get('message')}: {error!r}")

    def _crash(self, operation: str, when: str) -> Fault | None:
        """What goes wrong with the process that has come to this point, if anything."""
        process = PROCESS.get()
        for point in self._crash_points:
            if point.is_hit(process.name, operation, when) and self.counts[point.fault] < point.times:
                self.counts["crashes"] += 1
                self.counts[point.fault] += 1
                self.note(f"{point.fault} {when} {operation}")
                self._strike(point, process)
                return point.fault
        return None

    def _strike(self, point: CrashPoint, process: SimulatedProcess) -> None:
        """What happens to processes and the bus; what becomes of the operation itself is the business of its place."""
        if point.fault in DEADLY:
            for one in [process] if point.role else list(self.processes.values()):
                if not one.is_dead:
                    one.kill()
                    one.on_death()
        if point.fault is Fault.WIPE:
            self._wipe()
        if point.fault is Fault.BROKER_AWAY:
            self.bus.away_until = self.loop.time() + BROKER_AWAY_S
        if point.fault is Fault.PAUSE:
            self._pause_for(process, PAUSE_S)

    # Processes

    def _start(self, role: str, start: Start) -> None:
        self._incarnations[role] += 1
        process = SimulatedProcess(f"{role}.{self._incarnations[role]}", self.loop)
        self.processes[role] = process
        if self.faults.kill_steps is not None and not self._quiet:
            process.dies_at = 1 + int(self._random.expovariate(1 / self.faults.kill_steps))
        process.on_death = lambda: self._died(role, start, process, "killed")
        view = StoreView(self.store, process, self._random, self.network)

        def ended(task: "asyncio.Task[Any]") -> None:
            if not process.is_dead:
                process.kill()
                error = None if task.cancelled() else task.exception()
                if error is not None and not isinstance(error, (StoreUnavailable, BusUnavailable)):
                    self.violate(f"{process.name} broke: {error!r}")
                self._died(role, start, process, f"ended ({error})")

        def begin() -> None:
            for work in start(process, view):
                process.spawn(work, process.name).add_done_callback(ended, context=self.loop.world.context)

        process.context.copy().run(begin)

    def _died(self, role: str, start: Start, process: SimulatedProcess, how: str) -> None:
        self.counts["kills" if how == "killed" else "exits"] += 1
        self.note(f"{process.name} {how} at step {process.steps}")
        at_once = self.faults.same_machine or how != "killed"
        self.store.leases.end(process.name, 0.0 if at_once else self._random.random() * LEASE_S)
        pause_s = 0.1 if self._quiet else self._random.random() * self._random.choice((0.1, 8.0))
        self.loop.call_later(pause_s, self._start, role, start, context=self.loop.world.context)

    def _client(self, process: SimulatedProcess, view: StoreView) -> list[Coroutine[Any, Any, Any]]:
        async def begin() -> None:
            for plan in sorted(self.plans.begun, key=lambda plan: plan.begins_at):
                await asyncio.sleep(max(0.0, self._began + plan.begins_at - self.loop.time()))
                agent = self._agent(view, plan.project, None)
                while True:
                    try:
                        await agent.begin("Do it.", turn_id=plan.turn_id)
                    except StoreUnavailable:
                        await asyncio.sleep(0.5)
                        continue
                    except StoreError:  # it has begun before
                        pass
                    break
            await asyncio.Event().wait()

        return [begin()]

    def _person(self, process: SimulatedProcess, view: StoreView) -> list[Coroutine[Any, Any, Any]]:
        async def answer() -> None:
            while True:
                await asyncio.sleep(1 + self._random.random() * 3)
                try:
                    for card in await view.as_store.approvals(only_open=True):
                        granted = self._random.random() < 0.8
                        await view.as_store.answer(card.id, Approval(granted, "ann"), project=card.project)
                except StoreError:
                    continue

        async def cancel() -> None:
            is_first = process.name.endswith(".1")
            plans = (*self.plans.begun, *self.plans.tasks.values())
            wishes = [(plan.canceled_at, plan) for plan in plans if plan.canceled_at is not None]
            for at, plan in sorted(wishes, key=itemgetter(0)):
                if not (is_first or self._random.random() < 0.3):
                    continue
                await asyncio.sleep(max(0.0, self._began + at - self.loop.time()))
                turn_id = plan.turn_id or self.store.turn_of(plan.question)
                for _ in range(5):
                    try:
                        waits = await cancel_turn(of_project(view.as_store, plan.project), turn_id, self.loop.time())
                    except StoreError:
                        await asyncio.sleep(0.7)
                        continue
                    self.note(f"canceled {plan.project} {turn_id}")
                    if waits:
                        self.must_cancel.add((plan.project, turn_id))
                    break
            await asyncio.Event().wait()

        return [answer(), cancel()]

    def _runner(self, process: SimulatedProcess, view: StoreView) -> list[Coroutine[Any, Any, Any]]:
        return self._runners(view, None)

    def _runner_with_relay(self, process: SimulatedProcess, view: StoreView) -> list[Coroutine[Any, Any, Any]]:
        relay = self._new_relay(view)
        return [*self._runners(view, relay), relay.run()]

    def _runners(self, view: StoreView, relay: Relay | None) -> list[Coroutine[Any, Any, Any]]:
        work: list[Coroutine[Any, Any, Any]] = []
        for project in sorted({plan.project for plan in self.plans.begun}):
            agent = self._agent(view, project, relay)

            @asynccontextmanager
            async def opened(_turn: Turn, agent: Agent = agent) -> AsyncIterator[Agent]:
                yield agent

            runner = TurnRunner(
                of_project(view.as_store, project), opened, poll_s=3.0, clock=self.loop.time, monotonic=self.loop.time
            )
            wake = lambda _, runner=runner: runner.wake()  # noqa: E731
            work += [runner.run_forever(), hear_wakeups(self.bus, wake, durable=f"run-{project}", project=project)]
        return work

    def _relay(self, process: SimulatedProcess, view: StoreView) -> list[Coroutine[Any, Any, Any]]:
        return [self._new_relay(view).run()]

    def _new_relay(self, view: StoreView) -> Relay:
        return Relay(view.as_store, self.bus, poll_s=1.0, pause=pause_after, clock=self.loop.time)

    def _worker(self, process: SimulatedProcess, view: StoreView) -> list[Coroutine[Any, Any, Any]]:
        worker = ToolWorker(
            view.as_store, self.bus, OF_WORKERS, SERVED + THINGS, durable="workers", renew_s=1.0, at_once=2,
            clock=self.loop.time,
        )  # fmt: skip
        self.workers[process.name] = worker
        return [worker.run(drain_s=5.0)]

    def _service(self, process: SimulatedProcess, view: StoreView) -> list[Coroutine[Any, Any, Any]]:
        return [ForeignService(HttpCards(view, self.loop), self.bus, self._journal, self.surroundings).run()]

    def _receiver(self, process: SimulatedProcess, view: StoreView) -> list[Coroutine[Any, Any, Any]]:
        async def find(_project: str, card: CallCard) -> Tool:
            return CALLED[card.call.name]

        receiver = ReportReceiver(
            view.as_store, self.bus, durable="reports", find_tool=find, clock=self.loop.time
        )  # fmt: skip
        return [receiver.run()]

    def _agent(self, view: StoreView, project: str, relay: Relay | None) -> Agent:
        loop = self.loop
        sent = BusDispatcher(of_project(view.as_store, project), relay, limits=_LIMITS, clock=loop.time, queue_s=60.0)
        fails = 0.0 if self._quiet else self.faults.model_fails
        model = PlannedModel(
            project, self.plans, self._random, self.violate, self.network.reach, self._told, fails=fails
        )  # fmt: skip
        agent = Agent(
            model, self._called, store=view.as_store, executor=Router(InProcessExecutor(), bus=sent),
            project=project, grant=GRANT, limits=_LIMITS, suspends=True,
        )  # fmt: skip
        agent.runtime.clock = agent.runtime.monotonic = loop.time
        agent.runtime.detached_lease_s = DETACHED_LEASE_S
        return agent

    def _helper(self, grant: Grant) -> Agent:
        """An agent that is set to work by others, as the process makes it that runs now."""
        return self._agent(self.store.views[PROCESS.get().name], "red", None)

    # Faults

    async def _disturb(self, every_s: float, act: Callable[[], None]) -> None:
        while not self._quiet:
            await asyncio.sleep(self._random.expovariate(1 / every_s))
            if not self._quiet:
                act()

    def _pick(self) -> SimulatedProcess:
        """One of the living, most often one that is at work: others have little to lose."""
        living = [one for one in self.processes.values() if not (one.is_dead or one.is_paused)]
        busy = [one for one in living if self._is_busy(one)]
        return self._random.choice((busy if self._random.random() < 0.8 else living) or living or [self.loop.world])

    def _is_busy(self, process: SimulatedProcess) -> bool:
        worker = self.workers.get(process.name)
        return bool(self.store.views[process.name].runs or (worker is not None and worker.running))

    def _pause(self) -> None:
        process = self._pick()
        if process is self.loop.world:
            return
        self._pause_for(process, self._random.uniform(0.3, 1.0) * self._random.choice((1.0, 9.0, 16.0)))

    def _pause_for(self, process: SimulatedProcess, pause_s: float) -> None:
        self.note(f"{process.name} pauses for {pause_s:.1f} s")
        process.pause()
        self.store.leases.end(process.name, LEASE_S * (1 - self._random.random() / 3))
        self.loop.call_later(pause_s, self._go_on, process, context=self.loop.world.context)

    def _go_on(self, process: SimulatedProcess) -> None:
        if not process.is_dead:
            self.store.leases.renew(process.name)
            if process.is_paused:
                self.note(f"{process.name} goes on")
                process.go_on()

    def _cut_off(self) -> None:
        process, for_s = self._pick(), self._random.random() * 10
        self.note(f"{process.name} cannot reach the store for {for_s:.1f} s")
        self.network.cut_off(process.name, for_s)
        self.store.leases.end(process.name, LEASE_S)
        self.loop.call_later(for_s, self._go_on_if_running, process, context=self.loop.world.context)

    def _store_outage(self) -> None:
        for_s = self._random.random() * 8
        self.note(f"the store is away for {for_s:.1f} s")
        self.network.cut_off("", for_s)
        for process in self.processes.values():
            self.store.leases.end(process.name, LEASE_S)
            back_s = for_s + self._random.random()
            self.loop.call_later(back_s, self._go_on_if_running, process, context=self.loop.world.context)

    def _go_on_if_running(self, process: SimulatedProcess) -> None:
        """Its heartbeat reaches the store again."""
        if not (process.is_dead or process.is_paused or self.network.is_store_away(process.name)):
            self.store.leases.renew(process.name)

    def _bus_outage(self) -> None:
        for_s = self._random.random() * 8
        self.note(f"the bus is away for {for_s:.1f} s")
        self.bus.away_until = self.loop.time() + for_s

    def _wipe(self) -> None:
        self.note("the bus loses everything")
        self.counts["wipes"] += 1
        self.bus.wipe()

    def _stop(self) -> None:
        if self.workers:
            name = self._random.choice(sorted(self.workers))
            self.note(f"{name} is asked to stop")
            self.workers.pop(name).stop()


def pause_after(sent: int) -> float:
    return PAUSES_S[min(sent, len(PAUSES_S) - 1)]


class LoggedErrors(logging.Handler):
    """What the product itself says went wrong inside it."""

    def __init__(self, violate: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._violate = violate

    def emit(self, record: logging.LogRecord) -> None:
        told = f"{record.getMessage()} {record.exc_info[1]!r}" if record.exc_info else record.getMessage()
        self._violate(f"logged: {told}")


@contextmanager
def _hearing(violate: Callable[[str], None]) -> Iterator[None]:
    """Only errors are heard: warnings belong to faults."""
    logger, errors = logging.getLogger("toolwire"), LoggedErrors(violate)
    before = logger.level, logger.propagate
    logger.addHandler(errors)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(errors)
        logger.level, logger.propagate = before


def simulate_point(name: str, seed: int, *, trace: int = EVENTS, is_verbose: bool = False) -> Report:
    """Run one seed, in which a named crash point is struck and nothing else goes wrong."""
    point = CRASH_POINTS[name]
    report = simulate(seed, trace=trace, is_verbose=is_verbose, crash=point, part=point.part)
    return replace(report, point=name)


def simulate(
    seed: int, *, trace: int = EVENTS, is_verbose: bool = False, crash: CrashPoint | None = None, part: str = ""
) -> Report:
    """Run one seed. The verbose tell all that the store is asked. With a `crash` point, nothing else goes wrong.

    With a `part` (see `workload.MIXTURES`) only calls of that part of the protocol are made.
    """
    fleet = SimulatedFleet(seed, trace=trace, is_verbose=is_verbose, crash=crash, part=part)
    try:
        with _hearing(fleet.violate):
            fleet.run()
        return Report(seed, tuple(fleet.violations), tuple(fleet.events), fleet.counts, part)
    finally:
        with _hearing(lambda _: None):
            fleet.loop.dispose()
