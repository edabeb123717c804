"""What a fleet carries: how long a call takes, how many there are in a second, and how many turns may wait.

    python -m benchmarks.fleet_scale latency            # one call after the other
    python -m benchmarks.fleet_scale workers            # calls in a second, with 1, 2, 4 and 8 workers
    python -m benchmarks.fleet_scale suspended          # 10,000 turns that wait; the broker is wiped; all finish

`workers` keeps 64 calls in flight from one process (`--in-flight`, `--callers`), of four kinds:

- `calls`: `Agent.call`, one durable call from its submission to its result with the caller. Nearest to a workflow with
  one step;
- `turns`: questions whose model makes one call and answers, from the question to the answer;
- `steps`: questions whose model makes 32 calls at once and answers; calls are counted, 64 of them are in flight;
- `waits`: `Agent.call` of a tool that waits for 250 ms, as most real tools do for something, with 320 calls in flight.
  A worker runs 32 at once, so more workers make more of them until something else is the limit.

PostgreSQL commits to the disk here (fsync on), as in operation, and so does the broker (`sync_interval: always`).
"""

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

from msgspec.structs import replace
from tests.bus.servers import NatsServer, running
from tests.postgres_server import PostgresServer, postgres_server

from benchmarks.fleet_process import AT_ONCE, PROJECT, SUBJECT, open_store, tools
from benchmarks.fleet_storm import LEASE_S
from toolwire import Agent, Grant, Tier, Toolbox
from toolwire.assemble.turn_runner import RanTurn, TurnRunner
from toolwire.bus.nats_connection import NatsServers
from toolwire.bus.nats_jetstream import nats_bus
from toolwire.event_loop import run_on_new_loop
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.fleet.arrivals import Arrivals
from toolwire.fleet.dispatcher import STAYS_S, BusDispatcher
from toolwire.fleet.relay import Relay
from toolwire.fleet.wakeups import hear_woken_turns
from toolwire.protocol.chat import Reply, Request
from toolwire.protocol.tools import BusService
from toolwire.protocol.turns import Limits, Turn
from toolwire.record.projects import of_project
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import call, says

STEP = 32
KINDS = ("calls", "turns", "steps", "waits")
IN_FLIGHT = {"waits": 10 * AT_ONCE}
USUAL_IN_FLIGHT = 64


class SomeCalls:
    """A model that makes some calls at once and answers."""

    name = "scale:model"
    most_tools = None

    def __init__(self, calls: int = 1) -> None:
        self._calls = calls

    async def ask(self, request: Request, on_delta: object = None) -> Reply:
        asked = any(isinstance(one, Reply) for one in request.messages)
        return says("Done.") if asked else says("", *(call("pure", number=number) for number in range(self._calls)))

    async def close(self) -> None:
        """Nothing to let go of."""


class Fleet:
    """A process that runs turns, with the parts of `toolwire run`, and workers as processes of their own."""

    def __init__(self, folder: Path, place: dict[str, str], nats: NatsServer | None = None) -> None:
        self.folder = folder
        self.place = place
        self._nats = nats
        self.workers: list[subprocess.Popen[bytes]] = []
        self.postgres_pid = self.nats_pid = 0
        self.ended = 0

    @property
    def nats(self) -> NatsServer:
        assert self._nats is not None
        return self._nats

    def _count(self, ran: RanTurn) -> None:
        self.ended += ran.state == "ended"

    def start_workers(self, number: int) -> None:
        words = [sys.executable, "-m", "benchmarks.fleet_process", "work", str(self.folder), "none"]
        self.workers += [subprocess.Popen(words, stderr=subprocess.DEVNULL) for _ in range(number)]

    def cpu_s(self) -> dict[str, float]:
        """How much CPU time each kind of process has used so far."""
        processes = {"workers": [one.pid for one in self.workers]}
        for name, parent in (("postgres", self.postgres_pid), ("nats", self.nats_pid)):
            processes[name] = [parent, *_children(parent)] if parent else []
        return {name: sum(map(_cpu_s, pids)) for name, pids in processes.items()}

    def stop_workers(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.workers = []

    @asynccontextmanager
    async def process(
        self, at_once: int, *, stays: bool = False, calls: int = 1
    ) -> AsyncIterator[tuple[SqliteStore, Agent, TurnRunner]]:
        """A process that runs turns. One that `stays` has a user who waits for each of them."""
        async with AsyncExitStack() as closing:
            store = await closing.enter_async_context(await open_store(self.place, self.folder))
            view = of_project(store, PROJECT)
            bus = await closing.enter_async_context(nats_bus(NatsServers((self.place["nats"],))))
            relay, arrivals = Relay(view, bus), Arrivals()
            await closing.enter_async_context(arrivals.listening(bus, PROJECT))
            closing.enter_context(arrivals.telling(relay.note_result))
            known = Toolbox(*(replace(one, target=BusService(SUBJECT)) for one in tools(self.folder)))
            sending = BusDispatcher(view, relay, stays=stays, stays_s=STAYS_S, arrivals=arrivals)
            agent = Agent(
                SomeCalls(calls), known, store=view, executor=Router(InProcessExecutor(), bus=sending),
                project=PROJECT, grant=Grant(tier=Tier.RUN), suspends=True, limits=Limits(calls_per_step=STEP),
            )  # fmt: skip

            @asynccontextmanager
            async def again(_: Turn) -> AsyncIterator[Agent]:
                yield agent

            runner = TurnRunner(view, again, at_once=at_once, tell=self._count, staying=arrivals.staying)
            work = [relay.run()]
            if not stays:
                work += [
                    runner.run_forever(),
                    hear_woken_turns(bus, runner.wake_turn, durable="run-storm", project=PROJECT),
                ]
            tasks = [asyncio.create_task(one) for one in work]
            try:
                yield store, agent, runner
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def until_ended(fleet: Fleet, number: int, within_s: float = 600.0) -> dict[float, float]:
    """When so much of all turns had ended: half of them, and all."""
    began, reached = time.perf_counter(), dict[float, float]()
    while 1.0 not in reached:
        passed = time.perf_counter() - began
        reached.update({part: passed for part in (0.5, 1.0) if part not in reached and fleet.ended >= part * number})
        if passed > within_s:
            raise SystemExit(f"only {fleet.ended} of {number} turns ended within {within_s:.0f} s")
        await asyncio.sleep(0.1)
    return reached


async def latency(fleet: Fleet, calls: int, _: argparse.Namespace) -> None:
    fleet.start_workers(1)
    async with fleet.process(4, stays=True) as (_store, agent, _runner):
        for _number in range(5):
            await agent.call("pure", {"number": 1})
        took = []
        for number in range(calls):
            began = time.perf_counter()
            await agent.call("pure", {"number": number})
            took.append((time.perf_counter() - began) * 1000)
    took.sort()
    times = await _call_times(fleet)
    print(
        f"one call after the other, from its submission to its result with the caller: p50 "
        f"{statistics.median(took):.2f} ms, p99 {took[int(len(took) * 0.99)]:.2f} ms"
    )
    print(f"a call, from accepted to its result on record: p50 {statistics.median(times):.2f} ms")


async def _call_times(fleet: Fleet) -> list[float]:
    async with await open_store(fleet.place, fleet.folder) as store:
        rows = await store.audit_log(limit=100_000, project=PROJECT)
    began: dict[str, float] = {}
    took = []
    for row in rows:
        if row.event == "allowed":
            began[row.turn_id] = row.at
        elif row.event == "finished" and row.turn_id in began:
            took.append((row.at - began[row.turn_id]) * 1000)
    return took


async def throughput(fleet: Fleet, calls: int, given: argparse.Namespace) -> None:
    for workers in given.workers:
        fleet.start_workers(workers)
        await _call_all(fleet, "calls", 2 * workers, 2 * workers)  # until they work
        for kind in given.kinds:
            in_flight = given.in_flight or IN_FLIGHT.get(kind, USUAL_IN_FLIGHT)
            began, cpu = time.perf_counter(), fleet.cpu_s()
            callers = [
                await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "benchmarks.fleet_scale", "call", "--folder", str(fleet.folder), "--kinds",
                    kind, "--in-flight", str(in_flight // given.callers), "--turns", str(calls // given.callers),
                    stdout=subprocess.PIPE,
                )
                for _ in range(given.callers)
            ]  # fmt: skip
            said = [json.loads((await caller.communicate())[0]) for caller in callers]
            spent = {name: (after - cpu.get(name, 0.0)) * 1000 for name, after in fleet.cpu_s().items()}
            seconds = max(one["ended"] for one in said) - min(one["began"] for one in said)
            done = sum(one["calls"] for one in said)
            spent["callers"] = sum(one["cpu_s"] for one in said) * 1000
            costs = ", ".join(f"{name} {ms / done:.2f}" for name, ms in spent.items())
            print(
                f"{workers} workers, {kind}, {in_flight} calls in flight from {given.callers} processes: "
                f"{done / seconds:.0f} calls/s ({done} in {seconds:.1f} s of {time.perf_counter() - began:.1f}; ms of "
                f"CPU a call: {costs})",
                flush=True,
            )
        fleet.stop_workers()


async def call_for(fleet: Fleet, calls: int, given: argparse.Namespace) -> None:
    """What a caller does: it keeps calls in flight."""
    print(json.dumps(await _call_all(fleet, given.kinds[0], calls, given.in_flight)))


async def _call_all(fleet: Fleet, kind: str, calls: int, in_flight: int) -> dict[str, float]:
    """Make so many calls of a kind, so many of them at the same time."""
    at_once = STEP if kind == "steps" else 1
    left = iter(range(calls // at_once))
    async with fleet.process(64, stays=True, calls=at_once) as (_, agent, _runner):
        await agent.call("pure", {"number": 0})
        began, cpu = time.time(), time.process_time()
        called = {"calls": "pure", "waits": "waits"}.get(kind)

        async def make() -> None:
            for number in left:
                if called is not None:
                    await agent.call(called, {"number": number})
                else:
                    await agent.ask("Question")

        await asyncio.gather(*(make() for _ in range(max(in_flight // at_once, 1))))
        done = calls // at_once * at_once
        return {"began": began, "ended": time.time(), "cpu_s": time.process_time() - cpu, "calls": done}


async def suspended(fleet: Fleet, turns: int, _: argparse.Namespace) -> None:
    await suspend_turns(fleet, turns)
    fleet.nats.kill()
    shutil.rmtree(fleet.nats.folder / "jetstream", ignore_errors=True)
    fleet.nats.start()
    fleet.nats_pid = fleet.nats._process.pid if fleet.nats._process else 0
    print("the broker is wiped and started again")
    await resume_turns(fleet, turns)


async def suspend_turns(fleet: Fleet, turns: int) -> None:
    """So many turns wait for the result of a call, and no worker has run one of them."""
    async with fleet.process(64) as (store, agent, runner):
        before = _memory()
        for _some in range(turns // 100):
            await asyncio.gather(*(agent.begin("Question") for _ in range(100)))
            runner.wake()
        began = time.perf_counter()
        while await store.turns(state="running", limit=1, project=PROJECT) or await _not_sent(store, turns):
            runner.wake()
            await asyncio.sleep(2.0)
        print(f"{turns} turns wait after {time.perf_counter() - began:.0f} s; memory {before} -> {_memory()} MiB")


async def resume_turns(fleet: Fleet, turns: int) -> None:
    """A new process and two workers begin with what the store holds: all calls are sent, run, and their turns end."""
    began, cpu, own = time.perf_counter(), fleet.cpu_s(), time.process_time()
    async with fleet.process(64) as (_store, _agent, runner):
        fleet.start_workers(2)
        runner.wake()
        done_s = await until_ended(fleet, turns)
        print(
            f"all {turns} turns ended {time.perf_counter() - began:.0f} s after the restart; half of them after "
            f"{done_s[0.5]:.0f} s; memory at most {_memory()} MiB"
        )
        spent = {name: after - cpu.get(name, 0.0) for name, after in fleet.cpu_s().items()}
        spent["orchestrator"] = time.process_time() - own
        costs = ", ".join(f"{name} {seconds * 1000 / turns:.2f}" for name, seconds in spent.items())
        print(f"ms of CPU a turn: {costs}")
    keys = [line.split(" ")[0] for line in (fleet.folder / "ledger").read_text().splitlines()]
    print(f"effects {len(keys)}, doubled {len(keys) - len(set(keys))}")


async def _not_sent(store: SqliteStore, turns: int) -> bool:
    waiting = await store.turns(state="waiting", limit=turns + 1, project=PROJECT)
    return sum(bool(turn.calls) for turn in waiting) < turns


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _children(parent: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _cpu_s(pid: int) -> float:
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("latency", "workers", "suspended", "call"))
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--in-flight", type=int, default=0)
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.what == "call":
        place = json.loads((given.folder / "place.json").read_text())
        run_on_new_loop(call_for(Fleet(given.folder, place), given.turns, given))
        return 0
    work, usual = {"latency": (latency, 200), "workers": (throughput, 2_000), "suspended": (suspended, 10_000)}[
        given.what
    ]
    random.seed(1)
    with tempfile.TemporaryDirectory(prefix="toolwire-scale-") as name, ExitStack() as servers:
        folder = Path(name)
        (folder / "nats").mkdir()
        nats = servers.enter_context(running(folder / "nats"))
        postgres: PostgresServer | None = None
        if given.store == "postgres":
            postgres = servers.enter_context(postgres_server(durable=True))
        place = {"kind": given.store, "postgres": postgres.url if postgres else "", "nats": nats.url}
        place["lease_s"] = str(LEASE_S)
        (folder / "place.json").write_text(json.dumps(place))
        fleet = Fleet(folder, place, nats)
        fleet.nats_pid = nats._process.pid if nats._process else 0
        fleet.postgres_pid = postgres._process.pid if postgres and postgres._process else 0
        try:
            run_on_new_loop(work(fleet, given.turns or usual, given))
        finally:
            fleet.stop_workers()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
