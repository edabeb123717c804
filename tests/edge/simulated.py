"""A device as the orchestrator sees it: it runs each call once, repeats its reports, and can be told to misbehave."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from toolwire.define.canonical import canonical
from toolwire.edge.link import LastWill, MqttBroker, MqttLink, Pauses
from toolwire.edge.link_contract import Incoming
from toolwire.errors import BusError
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.protocol.calls import Allowed, ToolCall
from toolwire.protocol.context import Context
from toolwire.protocol.tools import Tool
from toolwire.wire.codecs.travelling import read_info, write_tool
from toolwire.wire.mqtt.commands import CommandKind, EdgeCommand, decode_command
from toolwire.wire.mqtt.refusals import RefusedMessage
from toolwire.wire.mqtt.reports import (
    AgentCapabilities,
    AgentMessage,
    AgentState,
    AgentStatus,
    EdgeProgress,
    ProgressKind,
    channel_of,
    encode_agent_message,
    report_to,
)
from toolwire.wire.mqtt.results import write_tool_result
from toolwire.wire.mqtt.signing import Verifier
from toolwire.wire.mqtt.topics import AgentChannel, Topics

TOPICS = Topics()
FAST = Pauses(first=0.02, longest=0.5, stable=1.0)


class SimulatedDevice:
    """One device: `async with SimulatedDevice("pi", port, tools)`. `runs` counts how often each call was run."""

    def __init__(
        self, name: str, port: int, tools: Iterable[Tool] = (), *, slots: int = 4, verifier: Verifier | None = None,
        heartbeat_s: float = 30.0, topics: Topics = TOPICS,
    ) -> None:  # fmt: skip
        self.name = name
        self.tools = {tool.name: tool for tool in tools}
        self.topics = topics
        self.slots = slots
        self.heartbeat_s = heartbeat_s
        self.runs: Counter[str] = Counter()
        self.late: list[str] = []
        self.commands: list[EdgeCommand] = []
        self.kept: dict[str, dict[str, Any]] = {}
        self.mute = self.deaf = False
        self.greeted = asyncio.Event()
        self.change: Callable[[AgentMessage], AgentMessage] = lambda message: message
        self.repeat = 1
        self._verifier = verifier
        self._running: dict[str, asyncio.Task[None]] = {}
        self._newest: dict[str, EdgeCommand] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._executor = InProcessExecutor()
        broker = MqttBroker("127.0.0.1", f"device-{name}", port, keepalive_s=10)
        will = self._encoded(AgentStatus(name, AgentState.OFFLINE, boot="1"))
        topic = topics.of(name, AgentChannel.STATUS)
        self.link = MqttLink(
            broker, self._receive, filters=[topics.of(name, AgentChannel.COMMANDS)],
            will=lambda _: LastWill(topic, will),
            on_connect=self._greet, pauses=FAST,
        )  # fmt: skip

    async def __aenter__(self) -> Self:
        await self.link.__aenter__()
        async with asyncio.timeout(20):
            await self.link.connected.wait()
            await self.greeted.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.link.session and kind is None:
            with suppress(BusError):
                await self.say_state(AgentState.OFFLINE)
        for task in (*self._running.values(), *self._tasks):
            task.cancel()
        await asyncio.gather(*self._running.values(), *self._tasks, return_exceptions=True)
        await self.link.__aexit__(kind, error, trace)

    async def say_state(self, state: AgentState = AgentState.ONLINE) -> None:
        status = AgentStatus(
            self.name, state, "1", self.link.session, self.heartbeat_s, len(self._running), 0, self.slots
        )
        await self.say(status, retain=True)

    async def say(self, message: AgentMessage, *, retain: bool = False) -> None:
        await self.link.publish(
            self.topics.of(self.name, channel_of(message)), self._encoded(self.change(message)), retain=retain
        )

    def _encoded(self, message: AgentMessage) -> bytes:
        return encode_agent_message(message, self.topics, None, canonical)

    async def _greet(self, _session: str) -> None:
        tools = tuple(write_tool(tool) for tool in self.tools.values())
        await self.say(AgentCapabilities(self.name, tools, platform="linux"), retain=True)
        await self.say_state()
        self.greeted.set()

    def _receive(self, message: Incoming) -> None:
        message.acknowledge()
        command = decode_command(
            message.topic, message.data, self.topics, self._verifier, canonical, plain=self._verifier is None
        )
        if isinstance(command, RefusedMessage):
            return
        if command.kind is not CommandKind.PING:
            self.commands.append(command)
        if not self.deaf:
            self._spawn(self._handle(command))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, command: EdgeCommand) -> None:
        key = command.journal_key
        match command.kind:
            case CommandKind.TOOL if key in self.kept:
                self._newest[key] = command
                await self._report(key)
            case CommandKind.TOOL:
                self._newest[key] = command
                if key not in self._running:
                    self._running[key] = asyncio.create_task(self._run(command))
            case CommandKind.CANCEL if key in self._running:
                self._running[key].cancel()
            case CommandKind.PING:
                with suppress(BusError):
                    await self.say(report_to(command, {"status": "success", "result": "pong"}, 0.0))

    async def _run(self, command: EdgeCommand) -> None:
        key, tool = command.journal_key, self.tools[str(command.payload["tool"])]
        self.runs[key] += 1
        if command.deadline is not None and command.deadline < time.time():
            self.late.append(key)
        info = read_info(command.info)
        arguments = command.payload["parameters"]
        allowed = Allowed(ToolCall(tool.name, arguments, info.call_id), tool, arguments, info.timeout_s)
        number = 0

        def report(text: str, fraction: float | None) -> None:
            nonlocal number
            number += 1
            said = EdgeProgress(
                self._newest[key].request_id,
                self.name,
                number,
                ProgressKind.PROGRESS,
                key,
                command.epoch,
                text,
                fraction,
            )
            self._spawn(self._quietly(said))

        def write(text: str, stream: str) -> None:
            nonlocal number
            number += 1
            said = EdgeProgress(
                self._newest[key].request_id, self.name, number, ProgressKind.OUTPUT, key, command.epoch, text,
                stream=stream,
            )  # fmt: skip
            self._spawn(self._quietly(said))

        context = replace(Context.of(info), report=report, write=write)
        try:
            result = await self._executor.execute(allowed, context)
            await asyncio.sleep(0)
            body = write_tool_result(result)
        except asyncio.CancelledError:
            body = {"status": "error", "error": "canceled", "error_type": "canceled", "tool": tool.name}
        self.kept[key] = body
        self._running.pop(key, None)
        await self._report(key)

    async def repeat_report(self, key: str) -> None:
        await self._report(key)

    async def _quietly(self, message: AgentMessage) -> None:
        with suppress(BusError):
            await self.say(message)

    async def _report(self, key: str) -> None:
        if self.mute:
            return
        report = report_to(self._newest[key], self.kept[key], 0.0)
        for _ in range(self.repeat):
            await self._quietly(report)


@contextmanager
def device_beside(name: str, port: int, tools: Iterable[Tool], **more: Any) -> Iterator[SimulatedDevice]:
    """A device in a thread of its own, for tests whose commands are processes."""
    made: list[SimulatedDevice] = []
    there, stop = threading.Event(), threading.Event()

    async def live() -> None:
        async with SimulatedDevice(name, port, tools, **more) as device:
            made.append(device)
            there.set()
            while not stop.is_set():  # noqa: ASYNC110 -- the test sets it in another thread
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=(live(),), daemon=True)
    thread.start()
    try:
        assert there.wait(20)
        yield made[0]
    finally:
        stop.set()
        thread.join(20)
