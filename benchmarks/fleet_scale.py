"""What a fleet carries: how long a call takes, how many there are in a second, and how many turns may wait.

    python -m benchmarks.fleet_scale latency            # one call after the other
    python -m benchmarks.fleet_scale workers            # calls in a second, with 1, 2, 4 and 8 workers
    python -m benchmarks.fleet_scale suspended          # 10,000 turns that wait; the broker is wiped; all finish

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

from tests.bus.servers import NatsServer, running
from tests.postgres_server import PostgresServer, postgres_server

from benchmarks.fleet_process import PROJECT, SUBJECT, open_store, tools
from benchmarks.fleet_storm import LEASE_S
from toolwire import Agent, Grant, Tier, Toolbox
from toolwire.assemble.turn_runner import TurnRunner
from toolwire.bus.nats_connection import NatsServers
from toolwire.bus.nats_jetstream import nats_bus
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.fleet.dispatcher import BusDispatcher
from toolwire.fleet.relay import Relay
from toolwire.fleet.wakeups import hear_wakeups
from toolwire.protocol.chat import Reply, Request
from toolwire.protocol.tools import BusService
from toolwire.protocol.turns import Turn
from toolwire.protocol.values import changed
from toolwire.record.projects import of_project
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import call, says


class OneCall:
    """A model that makes one call and answers."""

    name = "scale:model"
    most_tools = None

    async def ask(self, request: Request, on_delta: object = None) -> Reply:
        asked = any(isinstance(one, Reply) for one in request.messages)
        return says("Done.") if asked else says("", call("pure", number=1))

    async def close(self) -> None:
        """Nothing to let go of."""


class Fleet:
    """A process that runs turns, with the parts of `toolwire run`, and workers as processes of their own."""

    def __init__(self, folder: Path, place: dict[str, str], nats: NatsServer) -> None:
        self.folder = folder
        self.place = place
        self.nats = nats
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_workers(self, number: int) -> None:
        words = [sys.executable, "-m", "benchmarks.fleet_process", "work", str(self.folder), "none"]
        self.workers += [subprocess.Popen(words, stderr=subprocess.DEVNULL) for _ in range(number)]

    def stop_workers(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.workers = []

    @asynccontextmanager
    async def process(self, at_once: int) -> AsyncIterator[tuple[SqliteStore, Agent, TurnRunner]]:
        """The process that runs turns."""
        async with AsyncExitStack() as closing:
            store = await closing.enter_async_context(await open_store(self.place, self.folder))
            view = of_project(store, PROJECT)
            bus = await closing.enter_async_context(nats_bus(NatsServers((self.nats.url,))))
            relay = Relay(view, bus)
            known = Toolbox(*(changed(one, target=BusService(SUBJECT)) for one in tools(self.folder)))
            executor = Router(InProcessExecutor(), bus=BusDispatcher(view, relay))
            agent = Agent(
                OneCall(), known, store=view, executor=executor, project=PROJECT, grant=Grant(tier=Tier.RUN),
                suspends=True,
            )  # fmt: skip

            @asynccontextmanager
            async def again(_: Turn) -> AsyncIterator[Agent]:
                yield agent

            runner = TurnRunner(view, again, at_once=at_once)
            hearing = hear_wakeups(bus, lambda _: runner.wake(), durable="run-storm", project=PROJECT)
            tasks = [asyncio.create_task(work) for work in (relay.run(), runner.run_forever(), hearing)]
            try:
                yield store, agent, runner
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def ended(store: SqliteStore) -> int:
    return (await store.metrics(project=PROJECT))[1].turns


async def until_ended(store: SqliteStore, number: int, within_s: float = 600.0) -> float:
    began = time.perf_counter()
    while (done := await ended(store)) < number:
        if time.perf_counter() - began > within_s:
            raise SystemExit(f"only {done} of {number} turns ended within {within_s:.0f} s")
        await asyncio.sleep(0.02)
    return time.perf_counter() - began


async def latency(fleet: Fleet, turns: int) -> None:
    fleet.start_workers(1)
    async with fleet.process(4) as (store, agent, runner):
        for _ in range(3):
            await agent.begin("Warm up")
            runner.wake()
        await until_ended(store, 3)
        took = []
        for number in range(turns):
            began = time.perf_counter()
            await agent.begin("Question")
            runner.wake()
            while await ended(store) < number + 4:  # noqa: ASYNC110 -- in another process
                await asyncio.sleep(0.0005)
            took.append((time.perf_counter() - began) * 1000)
    took.sort()
    calls = await _call_times(fleet)
    print(f"a turn with one call: p50 {statistics.median(took):.1f} ms, p99 {took[int(len(took) * 0.99)]:.1f} ms")
    print(f"a call, from accepted to its result on record: p50 {statistics.median(calls):.1f} ms")


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


async def throughput(fleet: Fleet, turns: int) -> None:
    done = 0
    for workers in (1, 2, 4, 8):
        async with fleet.process(256) as (store, agent, runner):
            await asyncio.gather(*(agent.begin("Question") for _ in range(turns)))
            fleet.start_workers(workers)
            runner.wake()
            done += turns
            began, cpu = time.perf_counter(), os.times()
            await until_ended(store, done - turns + 1)
            first = time.perf_counter()
            await until_ended(store, done)
            seconds = time.perf_counter() - first
            own = os.times().user + os.times().system - cpu.user - cpu.system
            print(
                f"{workers} workers: {(turns - 1) / seconds:.0f} calls/s ({turns} turns in {seconds:.1f} s after "
                f"{first - began:.1f} s of start; this process used {own / turns * 1000:.2f} ms of CPU a turn)",
                flush=True,
            )
        fleet.stop_workers()


async def suspended(fleet: Fleet, turns: int) -> None:
    async with fleet.process(64) as (store, agent, runner):
        before = _memory()
        for _ in range(turns // 100):
            await asyncio.gather(*(agent.begin("Question") for _ in range(100)))
            runner.wake()
        began = time.perf_counter()
        while await store.turns(state="running", limit=1, project=PROJECT) or await _not_sent(store, turns):
            runner.wake()
            await asyncio.sleep(0.5)
        print(f"{turns} turns wait after {time.perf_counter() - began:.0f} s; memory {before} -> {_memory()} MiB")
    fleet.nats.kill()
    shutil.rmtree(fleet.nats.folder / "jetstream", ignore_errors=True)
    fleet.nats.start()
    print("the broker is wiped and started again")
    began = time.perf_counter()
    async with fleet.process(64) as (store, _, runner):
        fleet.start_workers(2)
        runner.wake()
        await until_ended(store, turns)
        seconds = time.perf_counter() - began
        print(f"all {turns} turns ended {seconds:.0f} s after the restart; memory at most {_memory()} MiB")
    keys = [line.split(" ")[0] for line in (fleet.folder / "ledger").read_text().splitlines()]
    print(f"effects {len(keys)}, doubled {len(keys) - len(set(keys))}")


async def _not_sent(store: SqliteStore, turns: int) -> bool:
    waiting = await store.turns(state="waiting", limit=turns + 1, project=PROJECT)
    return sum(bool(turn.calls) for turn in waiting) < turns


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("latency", "workers", "suspended"))
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    given = parser.parse_args()
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
        (folder / "place.json").write_text(json.dumps({**place, "lease_s": str(LEASE_S)}))
        fleet = Fleet(folder, {**place, "lease_s": str(LEASE_S)}, nats)
        try:
            asyncio.run(work(fleet, given.turns or usual))
        finally:
            fleet.stop_workers()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
