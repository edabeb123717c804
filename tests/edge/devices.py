"""Devices under test, and an orchestrator that speaks to them over a real broker."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from tests.edge.brokers import AnyBroker
from toolwire.assemble.edge_device import open_device
from toolwire.define.canonical import canonical
from toolwire.edge.device.agent import EdgeAgent
from toolwire.edge.device.config import read_config
from toolwire.edge.keys import PrivateKey
from toolwire.edge.link import MqttBroker, MqttLink
from toolwire.edge.link_contract import Incoming
from toolwire.wire.mqtt.chunks import Chunk, ChunkJoiner, is_chunk, read_chunk
from toolwire.wire.mqtt.commands import CommandKind, EdgeCommand, encode_command
from toolwire.wire.mqtt.refusals import RefusedMessage
from toolwire.wire.mqtt.reports import (
    AgentCapabilities,
    AgentMessage,
    AgentState,
    AgentStatus,
    EdgeProgress,
    EdgeReport,
    decode_agent_message,
)
from toolwire.wire.mqtt.topics import FROM_AGENT, AgentChannel, Topics

WAIT_S = 30.0
PROGRAM = Path(sys.executable).parent / "toolwire"

TOOLS = '''
import asyncio
from pathlib import Path

from toolwire import Context, Effect, tool

LOG = Path(__file__).parent / "effects"


def note(word):
    with LOG.open("a") as log:
        log.write(word + "\\n")


@tool(effect=Effect.UNSAFE)
async def press(button: str) -> str:
    """Press a button, which must not be pressed twice."""
    note(button)
    return f"pressed {button}"


@tool(effect=Effect.PURE)
async def look(at: str) -> str:
    """Look at something."""
    note(at)
    return f"saw {at}"


@tool(effect=Effect.UNSAFE)
async def hang(name: str) -> str:
    """Take for ever."""
    note(name)
    await asyncio.sleep(3600)
    return name


@tool(effect=Effect.PURE)
async def linger(name: str) -> str:
    """Look for ever, the first time."""
    note(name)
    if LOG.read_text().split().count(name) < 2:
        await asyncio.sleep(3600)
    return f"saw {name}"


@tool(effect=Effect.PURE)
async def large(size: int) -> str:
    """Say much."""
    return "".join(f"{number:09d}\\n" for number in range(size // 10))


@tool(effect=Effect.UNSAFE, needs={"danger"})
async def forbidden() -> str:
    """What this device does not allow."""
    note("forbidden")
    return "done"


@tool(effect=Effect.UNSAFE, requires_confirmation=True)
async def confirm_me() -> str:
    """What needs approval."""
    note("confirmed")
    return "done"


@tool(effect=Effect.PURE)
async def steps(context: Context) -> str:
    """Tell how far it is."""
    context.progress("half", 0.5)
    await asyncio.sleep(0.01)
    return "done"


TOOLS = [press, look, hang, linger, large, forbidden, confirm_me, steps]
'''


class Device:
    """The folder of a device: its file, its key, its tools and what they did."""

    def __init__(self, folder: Path, broker: AnyBroker, orchestrators: list[PrivateKey], more: str = "") -> None:
        self.folder = folder
        self.name = f"pi-{uuid4().hex[:12]}"
        self.key = PrivateKey.generate()
        self.config = folder / "edge.toml"
        folder.mkdir(exist_ok=True)
        (folder / "edge_tools.py").write_text(TOOLS.lstrip())
        private = folder / "device.pem"
        private.touch(0o600)
        private.write_bytes(self.key.pem)
        listed = ", ".join(f'"{key.public}"' for key in orchestrators)
        extra = more if "[keys]" in more else f'[keys]\nprivate = "device.pem"\norchestrators = [{listed}]\n{more}'
        self.config.write_text(
            f'[agent]\nname = "{self.name}"\ncapabilities = ["file_read"]\n'
            f'[broker]\nurl = "mqtt://127.0.0.1:{broker.mqtt_port}"\n'
            f'[tools]\nmodules = ["edge_tools:TOOLS"]\ntimeout_ms = 20000\n{extra}'
        )

    @property
    def effects(self) -> list[str]:
        log = self.folder / "effects"
        return log.read_text().split() if log.exists() else []

    def agent(self, **more: Any) -> EdgeAgent:
        return open_device(read_config(self.config), os.environ, **more)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[EdgeAgent]:
        """Its agent, in this process, online."""
        for name in [name for name in sys.modules if name == "edge_tools"]:
            del sys.modules[name]  # each device has its own
        ready = asyncio.Event()
        agent = self.agent(on_ready=ready.set)
        task = asyncio.create_task(agent.run())
        try:
            async with asyncio.timeout(WAIT_S):
                waiting = asyncio.create_task(ready.wait())
                await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            if task.done():
                await task
            yield agent
        finally:
            agent.stop()
            async with asyncio.timeout(WAIT_S):
                await asyncio.wait((task,))
            with suppress(asyncio.CancelledError):
                task.result()

    def start(self) -> "subprocess.Popen[bytes]":
        """`toolwire edge run`, as a process of its own that can be killed."""
        command = [str(PROGRAM), "edge", "run", "--config", str(self.config)]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)


class Orchestrator:
    """Sends commands and collects what comes from a device."""

    def __init__(self, broker: AnyBroker, agent: str, key: PrivateKey | None = None, prefix: str = "evoclaw") -> None:
        self.key = key or PrivateKey.generate()
        self.topics = Topics(prefix)
        self.agent = agent
        self.reports: list[EdgeReport] = []
        self.progress: list[EdgeProgress] = []
        self.refused: list[RefusedMessage] = []
        self.status: AgentStatus | None = None
        self.capabilities: AgentCapabilities | None = None
        self.raw: list[tuple[str, bytes]] = []
        self._came = asyncio.Event()
        self._joiner = ChunkJoiner()
        self._numbers = count(1)
        settings = MqttBroker("127.0.0.1", f"o-{uuid4().hex}", port=broker.mqtt_port, max_message_bytes=1 << 22)
        filters = [self.topics.of(agent, channel) for channel in FROM_AGENT]
        self.link = MqttLink(settings, self._receive, filters=filters)

    async def __aenter__(self) -> Self:
        await self.link.__aenter__()
        async with asyncio.timeout(WAIT_S):
            await self.link.connected.wait()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.link.__aexit__(None, None, None)

    def _receive(self, incoming: Incoming) -> None:
        incoming.acknowledge()
        data: bytes | RefusedMessage | None = incoming.data
        self.raw.append((incoming.topic, incoming.data))
        if is_chunk(incoming.data):
            chunk = read_chunk(incoming.data)
            assert isinstance(chunk, Chunk)
            data = self._joiner.add(incoming.topic, chunk)
        if isinstance(data, bytes):
            self._take(decode_agent_message(incoming.topic, data, self.topics, None, canonical))
        self._came.set()

    def _take(self, message: AgentMessage | RefusedMessage) -> None:
        match message:
            case EdgeReport():
                self.reports.append(message)
            case EdgeProgress():
                self.progress.append(message)
            case AgentStatus():
                self.status = message
            case AgentCapabilities():
                self.capabilities = message
            case RefusedMessage():
                self.refused.append(message)

    def command(self, kind: CommandKind, payload: Mapping[str, Any] | None = None, **more: Any) -> EdgeCommand:
        now = time.time()
        session = self.status.session if self.status else ""
        fields: dict[str, Any] = {"sent_at": now, "session": session, "deadline": now + 30} | more
        request_id = fields.pop("request_id", f"r{next(self._numbers)}-{uuid4().hex[:8]}")
        return EdgeCommand(kind, request_id, self.agent, payload or {}, **fields)

    def tool(self, name: str, parameters: Mapping[str, Any] | None = None, **more: Any) -> EdgeCommand:
        timeout_ms = more.pop("timeout_ms", 20_000)
        payload = {"tool": name, "parameters": dict(parameters or {}), "timeout_ms": timeout_ms}
        more.setdefault("record_id", uuid4().hex)
        return self.command(CommandKind.TOOL, payload, **more)

    async def send(self, command: EdgeCommand, *, key: PrivateKey | None = None, retain: bool = False) -> EdgeCommand:
        data = encode_command(command, self.topics, key or self.key, canonical)
        await self.send_raw(data, retain=retain)
        return command

    async def send_raw(self, data: bytes, *, retain: bool = False) -> None:
        await self.link.publish(self.topics.of(self.agent, AgentChannel.COMMANDS), data, retain=retain)

    async def report_on(self, command: EdgeCommand) -> EdgeReport:
        """The report that answers this very command."""
        await self.until(lambda: any(one.request_id == command.request_id for one in self.reports))
        return next(one for one in self.reports if one.request_id == command.request_id)

    async def ask(self, command: EdgeCommand) -> EdgeReport:
        return await self.report_on(await self.send(command))

    async def settled(self) -> None:
        """Wait until the device has handled all that was sent before."""
        await self.ask(self.command(CommandKind.PING))

    async def until(self, come: Any) -> None:
        async with asyncio.timeout(WAIT_S):
            while not come():
                self._came.clear()
                await self._came.wait()

    async def until_state(self, state: AgentState) -> None:
        await self.until(lambda: self.status is not None and self.status.state is state)


@asynccontextmanager
async def pair(folder: Path, broker: AnyBroker, more: str = "") -> AsyncIterator[tuple[Device, Orchestrator]]:
    """A device that runs in this process, and its orchestrator, which knows its session."""
    key = PrivateKey.generate()
    device = Device(folder, broker, [key], more)
    async with Orchestrator(broker, device.name, key) as orchestrator, device.running():
        await orchestrator.until_state(AgentState.ONLINE)
        yield device, orchestrator
