"""The crash points of calls on a device: a process that runs `EdgeAgent`, and runners that call its tools over MQTT."""

import asyncio
import json
import os
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import patch

from msgspec.structs import replace

from tests.crash_sweep.fleet import LEDGER, FileLedger, Member, Pace, Place, hearing, in_context, until_ended
from tests.crash_sweep.striking import LATE_S, Striker, StruckBus, StruckStore
from tests.edge.brokers import Mosquitto
from tests.edge.devices import Device
from tests.edge.simulated import FAST
from tests.simulation.crash_points import CRASH_POINTS, CrashPoint, Fault
from tests.simulation.lossy_bus import COPIES
from tests.simulation.virtual_loop import PROCESS
from tests.simulation.workload import CALLED, FAR, TOOLS, Key, Plans
from toolwire import Agent, Grant, Tier
from toolwire.assemble.edge_device import broker_of
from toolwire.define.toolbox import Toolbox
from toolwire.edge.device import agent as device_agent
from toolwire.edge.device.config import read_config
from toolwire.edge.device.journal import CallJournal, JournalRow, Opening
from toolwire.edge.device.toolset import DeviceTools
from toolwire.edge.keys import PrivateKey, PublicKeys
from toolwire.edge.link import MqttBroker, MqttLink
from toolwire.edge.link_contract import ACKNOWLEDGE_S
from toolwire.edge.orchestrator.client import DeviceClient
from toolwire.edge.orchestrator.connection import DeviceConnection
from toolwire.edge.orchestrator.executor import EdgeExecutor, EdgeLimits
from toolwire.edge.orchestrator.placements import StoredPlacements
from toolwire.edge.orchestrator.unexpected import UnexpectedReports
from toolwire.errors import BusUnavailable
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.tools import Edge
from toolwire.wire.mqtt.topics import Topics

_P = CrashPoint
_SENT, _REPORTED = ("runner", "command", "before"), ("device", "report", "before")
_LIMITS = EdgeLimits(queue_s=45.0, stays_s=0.5, again_s=0.2, margin_s=10.0, grace_s=0.5)
_OF_TURNS = ("append_reply", "begin", "request_approval", "resume", "ask model", "end")

DEVICE_POINTS = {
    **{name: one for name, one in CRASH_POINTS.items() if one.operation in _OF_TURNS and one.part == "workers"},
    "C9 the call is to be sent to a device": _P(*_SENT),
    "C10 the command is published, and its runner dies": _P("runner", "command", "after"),
    "C11 published, and the runner hears that it may not be": _P("runner", "command", "after", fault=Fault.FAIL),
    "C12 the broker confirms a command for a device, and loses it": _P(*_SENT, "send_commands_once", fault=Fault.LOSE),
    "C12 the broker loses all it has while a device receives": _P("device", "accept", "before", fault=Fault.WIPE),
    "C13 the broker of the devices is away": _P(*_SENT, times=1, fault=Fault.BROKER_AWAY),
    "C16 received, before it is in the journal": _P("device", "accept", "before"),
    "C17 a command for a device comes five times": _P(*_SENT, fault=Fault.REPEAT),
    "C21 in the journal, before the tool begins": _P("device", "accept", "after"),
    "C22 the tool has begun, before its effect": _P("device", "take effect", "before"),
    "C23 during the run, after its effect": _P("device", "take effect", "after", "run_again_what_a_device_began"),
    "C25 a device is paused with a result": _P("device", "finish", "before", fault=Fault.PAUSE),
    "C26 the effect is done, and the journal does not know": _P(
        "device", "finish", "before", "run_again_what_a_device_began"
    ),
    "C26 the report has come, and is not kept": _P("runner", "close", "before", "take_no_heed_of_the_journal"),
    "C29 the result is kept, and its runner does not hear of it": _P("runner", "close", "after"),
    "C30 reported, and the journal does not know": _P("device", "report", "after"),
    "C31 a report comes late": _P(*_REPORTED, fault=Fault.DELAY),
    "C32 the result is in the journal, before its report": _P("device", "finish", "after"),
    "C33 a report comes five times": _P(*_REPORTED, fault=Fault.REPEAT),
    "the broker confirms a report, and loses it": _P(*_REPORTED, fault=Fault.LOSE),
    "C45 runners and device at once": _P("", "accept", "after", times=1),
}


@dataclass(frozen=True, slots=True)
class DevicePlace(Place):
    """With the folder of a device, its broker's port, and the key of those who call it."""

    device: Any = None
    port: int = 0
    key: Any = None


def device_place(place: Place, broker: Mosquitto) -> DevicePlace:
    key = PrivateKey.generate()
    device = Device(place.folder / "device", broker, [key])
    return DevicePlace(
        place.folder, place.points, place.plans, place.seed, device=device, port=broker.mqtt_port, key=key
    )


def calls_device(plans: Plans) -> bool:
    """Whether turns that nobody cancels call tools of a device with effects, in several steps."""
    steps = [step for plan in plans.begun if plan.canceled_at is None for step in plan.steps]
    return sum(any(one.name in ("put", "book", "pay", "send") for one in step) for step in steps) > 1


class StruckLink(MqttLink):
    """A link that tells of commands and reports sent."""

    striker: ClassVar[Striker]

    async def publish(self, topic: str, data: bytes, *, retain: bool = False, timeout_s: float = ACKNOWLEDGE_S) -> None:
        operation = _operation(topic, data)
        match self.striker.reach(operation, "before"):
            case Fault.LOSE:
                return
            case Fault.DELAY:
                asyncio.get_running_loop().call_later(LATE_S, self._send_late, topic, data)
                return
            case Fault.REPEAT:
                for _ in range(COPIES - 1):
                    await super().publish(topic, data, retain=retain, timeout_s=timeout_s)
        await super().publish(topic, data, retain=retain, timeout_s=timeout_s)
        if self.striker.reach(operation, "after") is Fault.FAIL:
            raise BusUnavailable("the broker did not confirm")

    def _send_late(self, topic: str, data: bytes) -> None:
        self._late = asyncio.ensure_future(super().publish(topic, data))


def _operation(topic: str, data: bytes) -> str:
    if topic.endswith("/commands"):
        return "command" if json.loads(data).get("command") == "tool" else "say"
    return "report" if topic.endswith("/reports") and b'"pong"' not in data else "say"


class StruckJournal(CallJournal):
    """A journal that tells of calls that are written down."""

    striker: ClassVar[Striker]

    async def accept(self, row: JournalRow, kept_until: float) -> Opening:
        self.striker.reach("accept", "before")
        opening = await super().accept(row, kept_until)
        self.striker.reach("accept", "after")
        return opening

    async def finish(self, key: str, body: bytes, *, durable: bool = False) -> None:
        self.striker.reach("finish", "before")
        await super().finish(key, body, durable=durable)
        self.striker.reach("finish", "after")


class _Ledger(FileLedger):
    """One that tells of effects on the device."""

    def __init__(self, path: Path, striker: Striker) -> None:
        super().__init__(path)
        self._striker = striker

    def take_effect(self, name: str, number: int, key: Key, told: str) -> None:
        self._striker.reach("take effect", "before")
        super().take_effect(name, number, key, told)
        self._striker.reach("take effect", "after")


class _Tools(DeviceTools):
    """Tools that know their process: what comes from the broker is read by a thread that does not."""

    process: Any

    async def run(self, *args: Any, **more: Any) -> ToolResult:
        PROCESS.set(self.process)
        return await super().run(*args, **more)


async def serve_part(place: DevicePlace, names: list[str], incarnation: int) -> None:
    """Be the device, or one of those who call it."""
    [name] = names
    await (serve_device(place, incarnation) if name == "device-1" else serve_caller(place, name, incarnation))


async def serve_device(place: DevicePlace, incarnation: int) -> None:
    """Be the device."""
    striker = Striker(place.folder, place.points, "device-1")
    random = Random(f"{place.seed} device {incarnation}")
    surroundings = Pace(cast("Any", _Ledger(place.folder / LEDGER, striker)), random, {}, cast("Any", None))
    clock = SimpleNamespace(surroundings=surroundings, time=time.time)
    StruckJournal.striker = StruckLink.striker = striker
    config = read_config(place.device.config)
    tools = _Tools(
        Toolbox.of(*(TOOLS[name] for name in FAR)), Grant(tier=Tier.RUN, confirmed=frozenset({"*"})),
        InProcessExecutor(), name=config.name,
    )  # fmt: skip
    tools.process = SimpleNamespace(name="device-1", loop=clock, is_dead=False, is_paused=False)
    link = lambda *args, **more: StruckLink(*args, pauses=FAST, **more)  # noqa: E731
    with (
        hearing(place.violate),
        patch.object(device_agent, "CallJournal", StruckJournal),
        patch.object(device_agent, "MqttLink", link),
    ):
        accepted = PublicKeys([place.key.public])
        agent = device_agent.EdgeAgent(config, broker_of(config.broker), tools, place.device.key, accepted)
        await until_ended([asyncio.create_task(agent.run())], place, "device-1")


class Caller(Member):
    """A runner whose tools are on the device; or the client, or the person."""

    executor: EdgeExecutor | None = None

    def _agent(self, project: str, _relay: object) -> Agent:
        place = cast("DevicePlace", self.place)
        far = {name: replace(one, target=Edge(place.device.name)) for name, one in TOOLS.items() if name in FAR}
        called = Toolbox.of(*(far.get(name, one) for name, one in CALLED.items()))
        router = Router(InProcessExecutor(), edge=self.executor) if self.executor else Router(InProcessExecutor())
        return self.made_of(project, called, router)

    def _runner(self) -> list[Coroutine[Any, Any, Any]]:
        return [runner.run_forever() for _, runner in self.runners(None)]


async def serve_caller(place: DevicePlace, name: str, incarnation: int) -> None:
    async with AsyncExitStack() as closing:
        closing.enter_context(hearing(place.violate))
        store = await place.open_store(name)
        closing.push_async_callback(store.close_store)
        striker = Striker(place.folder, place.points, name)
        random = Random(f"{place.seed} {name} {incarnation}")
        view = StruckStore(store, striker)
        member = Caller(place, name, view, cast("StruckBus", None), random)
        if name.startswith("runner"):
            member.executor = await _connected(place, name, view, striker, closing)
        await until_ended(in_context(member), place, name)


async def _connected(
    place: DevicePlace, name: str, view: StruckStore, striker: Striker, closing: AsyncExitStack
) -> EdgeExecutor:
    StruckLink.striker = striker
    unexpected = UnexpectedReports(view.as_store, "default", grace_s=0.0)
    known = PublicKeys([place.device.key.public])
    client = DeviceClient(Topics("evoclaw"), signer=place.key, verify=lambda _: known, unexpected=unexpected)

    def open_link(receive: Any, filters: Any, on_connect: Any) -> Any:
        where = MqttBroker("127.0.0.1", f"{name}-{os.getpid()}", place.port, clean=True)
        return StruckLink(where, receive, filters=filters, on_connect=on_connect, pauses=FAST)

    connection = await closing.enter_async_context(DeviceConnection(client, open_link, unexpected))
    await connection.know_devices(5.0)
    return EdgeExecutor(client, _LIMITS, StoredPlacements(view.as_store))
