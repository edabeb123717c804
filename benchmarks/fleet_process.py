"""A process of the fleet that `fleet_storm` kills: it runs turns, or it runs their calls."""

import asyncio
import ctypes
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from toolwire import Agent, Context, Effect, Grant, Tier, Toolbox, tool
from toolwire.assemble.turn_runner import TurnRunner
from toolwire.bus.contract import Bus
from toolwire.bus.nats_connection import NatsServers
from toolwire.bus.nats_jetstream import nats_bus
from toolwire.errors import BusError, StoreError
from toolwire.event_loop import run_on_new_loop
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.fleet.arrivals import Arrivals
from toolwire.fleet.dispatcher import STAYS_S, BusDispatcher
from toolwire.fleet.relay import Relay
from toolwire.fleet.wakeups import hear_woken_turns
from toolwire.fleet.worker import ToolWorker
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Delta, Reply, Request
from toolwire.protocol.tools import BusService, Tool
from toolwire.protocol.turns import Turn
from toolwire.record.postgres import PostgresStore
from toolwire.record.projects import of_project
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import says

PROJECT = "storm"
STEPS = 3
KINDS = ("pure", "idempotent", "unsafe", "slow")
"""What the model of the storm calls."""

WAITS_S = 0.25
AT_ONCE = 32
SUBJECT = "cg.v1r4.{project_id}.{channel_id}.cmd.tool.storm"
_RETRY_S = 0.2
_DIE_WITH_PARENT = 1


class StormModel:
    """Calls tools for some steps, then answers. All of that follows from the conversation: any process may ask it."""

    name = "storm:model"
    most_tools = None

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        steps = [one for one in request.messages if isinstance(one, Reply)]
        if len(steps) >= STEPS:
            return says("Done.")
        chance = random.Random(f"{request.conversation}/{len(steps)}")
        kinds = [chance.choice(KINDS) for _ in range(chance.randint(1, 3))]
        return says("", *(ToolCall(kind, {"number": place}) for place, kind in enumerate(kinds)))

    async def close(self) -> None:
        """Nothing to let go of."""


def tools(folder: Path) -> list[Tool]:
    """Tools that write into a ledger outside of toolwire what they do."""
    ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(context: Context, kind: str) -> str:
        os.write(ledger, f"{context.idempotency_key} {kind}\n".encode())
        return "done"

    @tool(effect=Effect.PURE, tier=Tier.WALK)
    async def pure(number: int, context: Context) -> str:
        """Read."""
        return write(context, f"pure {number}")

    @tool(effect=Effect.IDEMPOTENT, tier=Tier.WALK)
    async def idempotent(number: int, context: Context) -> str:
        """Set."""
        return write(context, f"idempotent {number}")

    @tool(effect=Effect.UNSAFE, tier=Tier.WALK)
    async def unsafe(number: int, context: Context) -> str:
        """Pay."""
        return write(context, f"unsafe {number}")

    @tool(effect=Effect.UNSAFE, tier=Tier.WALK)
    async def slow(number: int, context: Context) -> str:
        """Pay, and take a while."""
        said = write(context, f"slow {number}")
        await asyncio.sleep(0.02)
        return said

    @tool(effect=Effect.IDEMPOTENT, tier=Tier.WALK)
    async def waits(number: int, context: Context) -> str:
        """Set, where that takes a while."""
        await asyncio.sleep(WAITS_S)
        return write(context, f"waits {number}")

    return [pure, idempotent, unsafe, slow, waits]


async def open_store(place: dict[str, str], folder: Path) -> SqliteStore:
    while True:
        try:
            if place["kind"] == "sqlite":
                return await SqliteStore.at(folder / "home")
            home = folder / "home"
            return await PostgresStore.on(place["postgres"], home, schema="storm", lease_s=float(place["lease_s"]))
        except StoreError:
            await asyncio.sleep(_RETRY_S)


def agent(store: SqliteStore, known: Toolbox, relay: Relay, arrivals: Arrivals | None = None) -> Agent:
    view = of_project(store, PROJECT)
    executor = Router(InProcessExecutor(), bus=BusDispatcher(view, relay, stays_s=STAYS_S, arrivals=arrivals))
    return Agent(
        StormModel(), known, store=view, executor=executor, project=PROJECT, grant=Grant(tier=Tier.RUN), suspends=True
    )


async def run_turns(store: SqliteStore, bus: Bus, known: list[Tool], relay: Relay) -> None:
    far = Toolbox(*(replace(one, target=BusService(SUBJECT)) for one in known))
    arrivals = Arrivals()

    @asynccontextmanager
    async def again(_: Turn) -> AsyncIterator[Agent]:
        yield agent(store, far, relay, arrivals)

    runner = TurnRunner(of_project(store, PROJECT), again, at_once=32, poll_s=0.5, staying=arrivals.staying)
    async with AsyncExitStack() as closing:
        await closing.enter_async_context(arrivals.listening(bus, PROJECT))
        closing.enter_context(arrivals.telling(relay.note_result))
        await asyncio.gather(
            runner.run_forever(), hear_woken_turns(bus, runner.wake_turn, durable="run-storm", project=PROJECT)
        )


def _worker(control: str) -> type[ToolWorker]:
    """The worker, with one guard taken away where a control wants that."""
    if control != "blind":
        return ToolWorker

    class Blind(ToolWorker):
        """Runs whatever comes, without a claim."""

        async def _claim_and_run(self, delivered: Any, command: Any, parcel: Any, dispatch: Any, card: Any) -> None:
            await self._run(replace(card, attempt=1), parcel)
            await super()._claim_and_run(delivered, command, parcel, dispatch, card)

    return Blind


async def work(store: SqliteStore, bus: Bus, known: list[Tool], control: str, at_once: int) -> None:
    subject = f"cg.v1r4.{PROJECT}.*.cmd.tool.storm"
    await _worker(control)(store, bus, known, subject, durable="worker-storm", at_once=at_once).run()


def _pause(control: str) -> Callable[[int], float]:
    if control == "silent":
        return lambda _: 1e6
    return lambda sent: min(1.0 * (sent + 1), 5.0)


async def main(role: str, folder: Path, control: str) -> None:
    place = json.loads((folder / "place.json").read_text())
    store = await open_store(place, folder)
    known = tools(folder)
    while True:
        try:
            async with nats_bus(NatsServers((place["nats"],))) as bus:
                relay = Relay(of_project(store, PROJECT), bus, poll_s=0.5, pause=_pause(control))
                at_once = int(place.get("at_once", AT_ONCE))
                serving = (
                    run_turns(store, bus, known, relay)
                    if role == "turns"
                    else work(store, bus, known, control, at_once)
                )
                await asyncio.gather(serving, relay.run())
        except (BusError, StoreError) as error:
            print(role, error, file=sys.stderr)
            await asyncio.sleep(_RETRY_S)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    run_on_new_loop(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
