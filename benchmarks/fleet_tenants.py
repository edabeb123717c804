"""How much a project that floods delays the others: a thousand projects on one fleet, PostgreSQL and NATS.

    python -m benchmarks.fleet_tenants                       # 1,000 projects, 10,000 calls of one of them queued
    python -m benchmarks.fleet_tenants --unfair              # the control: first come, first served

The other projects make calls at a steady rate, each of another project than the one before. How long one takes is what
the audit log says: from when it was allowed until its result is on record. The same is measured twice in one run, first
without the flood. PostgreSQL and the broker commit to the disk.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from msgspec.structs import replace
from tests.bus.servers import running
from tests.postgres_server import postgres_server

from benchmarks.fleet_process import open_store
from benchmarks.fleet_storm import LEASE_S
from toolwire import Agent, Effect, Grant, Tier, Toolbox, tool
from toolwire.bus.nats_connection import NatsServers
from toolwire.bus.nats_jetstream import nats_bus
from toolwire.errors import Suspended
from toolwire.event_loop import run_on_new_loop
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.fleet.dispatcher import BusDispatcher
from toolwire.fleet.fair_share import FairSlots
from toolwire.fleet.relay import Relay
from toolwire.fleet.worker import ToolWorker
from toolwire.protocol.tools import BusService, Tool
from toolwire.record.projects import of_project
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import ScriptedModel

FLOOD = "flood"
SUBJECT = "cg.v1r4.{project_id}.{channel_id}.cmd.tool.tenants"
ALL = "cg.v1r4.*.*.cmd.tool.tenants"
UNLIMITED = 1_000_000


def work_tool(took_s: float) -> Tool:
    @tool(effect=Effect.PURE, tier=Tier.WALK)
    async def work() -> str:
        """Take a while."""
        await asyncio.sleep(took_s)
        return "done"

    return work


async def serve(folder: Path) -> None:
    """A worker of all projects, as a process of its own."""
    place = json.loads((folder / "place.json").read_text())
    at_once = int(place["at_once"])
    slots = FairSlots(at_once) if place["unfair"] else FairSlots.shared(at_once)
    async with await open_store(place, folder) as store, nats_bus(NatsServers((place["nats"],))) as bus:
        worker = ToolWorker(
            store,
            bus,
            [work_tool(float(place["took_s"]))],
            ALL,
            durable="workers-tenants",
            at_once=at_once,
            slots=slots,
        )
        await worker.run()


class Callers:
    """The process in which projects make calls, which others run."""

    def __init__(self, store: SqliteStore, relay: Relay, took_s: float) -> None:
        self._store = store
        self._relay = relay
        self._tools = Toolbox(replace(work_tool(took_s), target=BusService(SUBJECT)))

    async def call(self, project: str) -> None:
        view = of_project(self._store, project)
        executor = Router(InProcessExecutor(), bus=BusDispatcher(view, self._relay))
        agent = Agent(
            ScriptedModel(), self._tools, store=view, executor=executor, project=project, grant=Grant(tier=Tier.RUN),
            suspends=True,
        )  # fmt: skip
        try:
            await agent.call("work", {})
        except Suspended:
            return

    async def call_steadily(self, projects: list[str], rate: float, number: int) -> None:
        """So many calls in a second, whatever becomes of them."""
        loop = asyncio.get_running_loop()
        began, calls = loop.time(), []
        for place in range(number):
            await asyncio.sleep(max(0.0, began + place / rate - loop.time()))
            calls.append(asyncio.create_task(self.call(projects[place % len(projects)])))
        await asyncio.gather(*calls)

    async def times(self, projects: list[str], since: float) -> list[float]:
        """How long each call took that was made since then."""
        took = []
        for project in projects:
            began: dict[str, float] = {}
            for row in await self._store.audit_log(limit=1_000, project=project):
                if row.event == "allowed" and row.at >= since:
                    began[row.turn_id] = row.at
                elif row.event == "finished" and row.turn_id in began:
                    took.append((row.at - began[row.turn_id]) * 1_000)
        return sorted(took)

    async def ended(self, project: str) -> int:
        return sum(one.success for one in (await self._store.metrics(project=project))[0])


def shown(name: str, took: list[float], wanted: int) -> str:
    p50, p99 = took[len(took) // 2], took[min(int(len(took) * 0.99), len(took) - 1)]
    return f"{name}: {len(took)} of {wanted} calls, p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {took[-1]:.0f} ms"


async def measure(folder: Path, place: dict[str, str], given: argparse.Namespace) -> None:
    projects = [f"project-{number}" for number in range(given.projects - 1)]
    async with AsyncExitStack() as closing:
        store = await closing.enter_async_context(await open_store(place, folder))
        bus = await closing.enter_async_context(nats_bus(NatsServers((place["nats"],))))
        relay = Relay(store, bus, window=UNLIMITED) if given.unfair else Relay(store, bus)
        callers = Callers(store, relay, given.took_s)
        relaying = asyncio.create_task(relay.run())
        workers = closing.enter_context(Workers(folder))
        workers.start()
        await callers.call_steadily(projects[-20:], given.rate, 40)  # everything has run once
        quiet = await measured(callers, projects, given)
        print(shown("without the flood", quiet, given.calls), flush=True)
        workers.stop()
        began = time.perf_counter()
        for _ in range(given.flood // 100):
            await asyncio.gather(*(callers.call(FLOOD) for _ in range(100)))
        print(f"{given.flood} calls of one project are queued after {time.perf_counter() - began:.0f} s", flush=True)
        workers.start()
        while (before := await callers.ended(FLOOD)) < 50:  # noqa: ASYNC110 -- another process is at it
            await asyncio.sleep(0.05)
        began = time.perf_counter()
        flooded = await measured(callers, projects, given)
        after = await callers.ended(FLOOD)
        print(shown("with the flood", flooded, given.calls))
        rate = (after - before) / (time.perf_counter() - began)
        print(f"the flood went on meanwhile: {after - before} calls, {rate:.0f}/s; {given.flood - after} were left")
        p99 = [took[int(len(took) * 0.99)] for took in (quiet, flooded)]
        print(f"p99 with / without the flood: {p99[1] / p99[0]:.2f}")
        relaying.cancel()
        await asyncio.gather(relaying, return_exceptions=True)


async def measured(callers: Callers, projects: list[str], given: argparse.Namespace) -> list[float]:
    since = time.time()
    await callers.call_steadily(projects, given.rate, given.calls)
    end = time.perf_counter() + 60.0
    while len(took := await callers.times(projects, since)) < given.calls and time.perf_counter() < end:  # noqa: ASYNC110
        await asyncio.sleep(1.0)
    return took


class Workers:
    """The worker, as long as the block lasts."""

    def __init__(self, folder: Path) -> None:
        self._words = [sys.executable, "-m", "benchmarks.fleet_tenants", "--worker", str(folder)]
        self._running: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._running = subprocess.Popen(self._words)

    def stop(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", type=int, default=1_000)
    parser.add_argument("--flood", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=400, help="of the other projects, in each of both parts")
    parser.add_argument("--rate", type=float, default=15.0, help="of these calls, in a second")
    parser.add_argument("--took-s", type=float, default=0.1, help="how long a tool takes")
    parser.add_argument("--at-once", type=int, default=16, help="slots of the worker")
    parser.add_argument("--unfair", action="store_true")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its servers end with it
    if given.worker is not None:
        run_on_new_loop(serve(given.worker))
        return 0
    with tempfile.TemporaryDirectory(prefix="toolwire-tenants-") as name, ExitStack() as servers:
        folder = Path(name)
        (folder / "nats").mkdir()
        nats = servers.enter_context(running(folder / "nats"))
        postgres = servers.enter_context(postgres_server(durable=True))
        place = {"kind": "postgres", "postgres": postgres.url, "nats": nats.url, "lease_s": str(LEASE_S)}
        own = {"at_once": given.at_once, "took_s": given.took_s, "unfair": given.unfair}
        (folder / "place.json").write_text(json.dumps({**place, **own}))
        run_on_new_loop(measure(folder, place, given))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
