"""A thousand devices that come and go, one real broker, and an orchestrator that calls them all the time.

    python -m benchmarks.edge_flapping                                # 1,000 devices for 30 s on Mosquitto
    python -m benchmarks.edge_flapping --broker nats --devices 300
    python -m benchmarks.edge_flapping --kill-broker                  # killed and started again in the middle
    python -m benchmarks.edge_flapping --repeat 5                     # every message five times, in any order

Devices are simulated, in processes of their own: a connection, a journal, and an effect that is written to a file
before its report is sent. Half of the times a device says that it goes, half of the times its connection breaks. What
is counted: how each call ended, effects that happened twice or after their deadline, and how long a command took to
its result where its device stayed online meanwhile.
"""

import argparse
import asyncio
import os
import random
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.bus.servers import free_port
from tests.edge.brokers import AnyBroker, NatsMqtt, running

from toolwire.bus.nats_connection import NatsServers
from toolwire.define.canonical import canonical
from toolwire.edge.link import LastWill, MqttBroker, MqttLink, Pauses
from toolwire.edge.link_contract import Incoming
from toolwire.edge.nats_link import NatsLink
from toolwire.edge.orchestrator.client import DeviceClient
from toolwire.edge.orchestrator.connection import DeviceConnection
from toolwire.edge.orchestrator.executor import EdgeExecutor, EdgeLimits
from toolwire.edge.setup.plan import EdgeFolder, read_broker
from toolwire.edge.setup.texts import nats_config
from toolwire.errors import BusError
from toolwire.protocol.calls import Allowed, ToolCall
from toolwire.protocol.context import Context
from toolwire.protocol.tools import Edge, Effect, Tool
from toolwire.wire.mqtt.commands import CommandKind, EdgeCommand, decode_command
from toolwire.wire.mqtt.refusals import RefusedMessage
from toolwire.wire.mqtt.reports import (
    AgentCapabilities,
    AgentMessage,
    AgentState,
    AgentStatus,
    EdgeReport,
    channel_of,
    encode_agent_message,
    report_to,
)
from toolwire.wire.mqtt.topics import AgentChannel, Topics

TOPICS = Topics("flap")
PRESS = {
    "name": "press", "description": "Press a button.", "effect": "unsafe", "tier": "WALK", "timeout_s": 5,
    "input_schema": {"type": "object", "properties": {"number": {"type": "integer"}}},
}  # fmt: skip
PER_PROCESS = 250


class FlappingDevice:
    """One simulated device. Its journal outlives its connections."""

    def __init__(self, name: str, port: int, ledger: int, repeat: int) -> None:
        self._name = name
        self._ledger = ledger
        self._repeat = repeat
        self._kept: dict[str, dict[str, Any]] = {}
        self._running: set[str] = set()
        self._newest: dict[str, EdgeCommand] = {}
        self._boot = secrets.token_hex(4)
        self._tasks: set[asyncio.Task[None]] = set()
        topic = TOPICS.of(name, AgentChannel.STATUS)
        broker = MqttBroker("127.0.0.1", name, port, keepalive_s=20)
        self.link = MqttLink(
            broker, self._receive, filters=[TOPICS.of(name, AgentChannel.COMMANDS)], on_connect=self._greet,
            will=lambda session: LastWill(topic, self._encoded(self._status(AgentState.OFFLINE, session))),
            pauses=Pauses(0.1, 2.0, 1.0),
        )  # fmt: skip

    async def flap(self, mean_s: float) -> None:
        """Come and go until canceled."""
        while True:
            async with self.link:
                await asyncio.sleep(random.expovariate(1 / mean_s))
                if random.random() < 0.5 and (connection := getattr(self.link, "_connection", None)) is not None:
                    with suppress(OSError, AttributeError):
                        connection._client.socket().shutdown(socket.SHUT_RDWR)
                    await asyncio.sleep(random.expovariate(1 / mean_s))
                with suppress(BusError):
                    await self._say(self._status(AgentState.OFFLINE, self.link.session), retain=True)
            await asyncio.sleep(random.uniform(0.2, 2.0))

    def _status(self, state: AgentState, session: str) -> AgentStatus:
        return AgentStatus(self._name, state, self._boot, session, 30.0, len(self._running), 0, 8)

    def _encoded(self, message: AgentMessage) -> bytes:
        return encode_agent_message(message, TOPICS, None, canonical)

    async def _greet(self, session: str) -> None:
        await self._say(AgentCapabilities(self._name, (PRESS,)), retain=True)
        await self._say(self._status(AgentState.ONLINE, session), retain=True)

    async def _say(self, message: AgentMessage, *, retain: bool = False) -> None:
        topic = TOPICS.of(self._name, channel_of(message))
        for _ in range(self._repeat if isinstance(message, EdgeReport) else 1):
            await self.link.publish(topic, self._encoded(message), retain=retain)

    def _receive(self, message: Incoming) -> None:
        message.acknowledge()
        command = decode_command(message.topic, message.data, TOPICS, None, canonical, plain=True)
        if isinstance(command, RefusedMessage) or command.kind is not CommandKind.TOOL:
            return
        for _ in range(self._repeat):
            self._spawn(self._handle(command))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, command: EdgeCommand) -> None:
        if self._repeat > 1:
            await asyncio.sleep(random.uniform(0, 0.05))
        key = self._newest_key(command)
        if key in self._running:
            return
        if key not in self._kept:
            self._running.add(key)
            self._kept[key] = await self._run(command)
            self._running.discard(key)
        with suppress(BusError):
            await self._say(report_to(self._newest[key], self._kept[key], time.time()))

    def _newest_key(self, command: EdgeCommand) -> str:
        self._newest[command.journal_key] = command
        return command.journal_key

    async def _run(self, command: EdgeCommand) -> dict[str, Any]:
        if command.deadline is not None and time.time() > command.deadline:
            return {"status": "error", "error": "it came too late", "error_type": "timeout", "tool": "press"}
        os.write(self._ledger, f"{command.journal_key} {time.time()} {command.deadline}\n".encode())
        await asyncio.sleep(random.uniform(0.0, 0.02))
        return {"status": "success", "tool": "press", "result": "pressed", "exit_code": 0}


async def serve(names: list[str], port: int, ledger: Path, mean_s: float, repeat: int) -> None:
    """The devices of one process, until it is told to end."""
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    tasks = []
    for name in names:
        tasks.append(asyncio.create_task(FlappingDevice(name, port, file, repeat).flap(mean_s)))
        await asyncio.sleep(0.005)
    parent = os.getppid()
    while not stop.is_set() and os.getppid() == parent:  # noqa: ASYNC110 -- also if the parent was killed
        await asyncio.sleep(0.5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Caller:
    """Calls devices that are online, some at the same time."""

    def __init__(self, client: DeviceClient) -> None:
        self._client = client
        self._executor = EdgeExecutor(client, EdgeLimits(margin_s=10.0, connect_s=10.0))
        self._schema = PRESS["input_schema"]
        self.outcomes: Counter[str] = Counter()
        self.steady_s: list[float] = []
        self.all_s: list[float] = []

    async def call(self, number: int) -> None:
        now = self._client.now
        online = [one for one in self._client.registry.devices() if one.has("press") and one.at(now) == "online"]
        if not online:
            self.outcomes["none is online"] += 1
            return
        chosen = random.choice(online)
        tool = Tool("press", "Press a button.", effect=Effect.UNSAFE, target=Edge(chosen.id, "press"))
        arguments = {"number": number}
        begun = time.perf_counter()
        result = await self._executor.execute(
            Allowed(ToolCall("press", arguments, f"c{number}"), tool, arguments, 5.0), Context(f"c{number}", "turn")
        )
        took = time.perf_counter() - begun
        self.outcomes[str(result.error.code) if result.error else str(result.status)] += 1
        after = self._client.registry.device(chosen.id)
        if result.ok:
            self.all_s.append(took)
            if after is not None and (after.session, after.presence) == (chosen.session, chosen.presence):
                self.steady_s.append(took)


def _online(client: DeviceClient) -> int:
    return sum(one.at(client.now) == "online" for one in client.registry.devices())


async def measure(broker: AnyBroker, options: argparse.Namespace) -> Caller:
    client = DeviceClient(TOPICS)

    def open_link(receive: Any, filters: Any, on_connect: Any) -> Any:
        if isinstance(broker, NatsMqtt):
            return NatsLink(NatsServers((broker.url,)), receive, filters=filters, on_connect=on_connect)
        where = MqttBroker("127.0.0.1", "hub", broker.mqtt_port, clean=True)
        return MqttLink(where, receive, filters=filters, on_connect=on_connect, pauses=Pauses(0.1, 1.0, 1.0))

    async with DeviceConnection(client, open_link) as connection:
        await connection.know_devices(30)
        until = time.monotonic() + 20
        while time.monotonic() < until and _online(client) < options.devices // 2:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        caller, calls = Caller(client), []
        began = time.monotonic()
        kill_at = began + options.seconds / 2 if options.kill_broker else float("inf")
        number = 0
        while time.monotonic() - began < options.seconds:
            if time.monotonic() >= kill_at:
                kill_at = float("inf")
                await asyncio.to_thread(broker.kill)
                await asyncio.sleep(1.0)
                await asyncio.to_thread(broker.start)
            calls.append(asyncio.create_task(caller.call(number)))
            number += 1
            await asyncio.sleep(1 / options.rate)
        done, left = await asyncio.wait(calls, timeout=60)
        caller.outcomes["has not ended"] += len(left)
        for task in done:
            task.result()
    return caller


def show(caller: Caller, ledger: Path) -> int:
    lines = [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
    effects = Counter(line[0] for line in lines)
    twice = sum(1 for count in effects.values() if count > 1)
    late = sum(1 for _, at, deadline in lines if deadline != "None" and float(at) > float(deadline))
    print(f"calls: {dict(caller.outcomes)}")
    print(f"effects: {len(effects)}, twice: {twice}, after their deadline: {late}")
    for label, found in (("device stayed online", caller.steady_s), ("all that succeeded", caller.all_s)):
        if len(found) > 10:
            spread = statistics.quantiles(found, n=1_000)
            shown = ", ".join(f"p{part / 10:g} {spread[part - 1] * 1000:.1f} ms" for part in (500, 950, 990, 999))
            print(f"{label}: {len(found)} calls, {shown}")
    return int(bool(twice or late or caller.outcomes["has not ended"]))


def broker_options(kind: str, folder: Path) -> dict[str, Any]:
    """nats-server as `toolwire edge init --nats` has it. In tests brokers write all of their state after every change,
    and that alone would be measured here.
    """
    if kind == "mosquitto":
        saving = "autosave_on_changes false\nautosave_interval 1800\n"
        return {"more": f"allow_anonymous true\n{saving}max_queued_messages 0\n"}
    port = free_port()
    config = folder / "edge.conf"
    config.write_text(nats_config(EdgeFolder(folder), read_broker(f"mqtt://127.0.0.1:{port}")))
    return {"config": config, "mqtt_port": port}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", choices=("mosquitto", "nats"), default="mosquitto")
    parser.add_argument("--devices", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=50.0, help="calls a second")
    parser.add_argument("--mean-s", type=float, default=20.0, help="how long a device stays, on average")
    parser.add_argument("--repeat", type=int, default=1, help="how often every command and report comes")
    parser.add_argument("--kill-broker", action="store_true")
    parser.add_argument("--serve", nargs=4, metavar=("FROM", "TO", "PORT", "LEDGER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        first, last, port, ledger = options.serve
        names = [f"d{number}" for number in range(int(first), int(last))]
        asyncio.run(serve(names, int(port), Path(ledger), options.mean_s, options.repeat))
        return 0
    with (
        tempfile.TemporaryDirectory() as folder,
        running(options.broker, Path(folder), **broker_options(options.broker, Path(folder))) as broker,
    ):
        ledger = Path(folder) / "ledger"
        own = [sys.executable, "-m", "benchmarks.edge_flapping", "--mean-s", str(options.mean_s)]
        own += ["--repeat", str(options.repeat), "--serve"]
        ends = range(0, options.devices, PER_PROCESS)
        parts = [(start, min(start + PER_PROCESS, options.devices)) for start in ends]
        devices = [subprocess.Popen([*own, str(a), str(b), str(broker.mqtt_port), str(ledger)]) for a, b in parts]
        try:
            caller = asyncio.run(measure(broker, options))
        finally:
            for process in devices:
                process.terminate()
            for process in devices:
                process.wait(30)
        return show(caller, ledger)


if __name__ == "__main__":
    sys.exit(main())
