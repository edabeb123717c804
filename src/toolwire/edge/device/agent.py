"""The agent on a device: it connects, says what it offers, and obeys commands that it can believe."""

import asyncio
import base64
import logging
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

from msgspec.structs import replace

from toolwire.define.canonical import canonical
from toolwire.define.toolbox import Toolbox
from toolwire.edge.device.calls import CallPool
from toolwire.edge.device.clock import SenderClocks, machine_boot, steady_s
from toolwire.edge.device.config import DeviceConfig
from toolwire.edge.device.journal import CallJournal, CallState, JournalRow
from toolwire.edge.device.logged import MOST_LOGGED, logged_rows
from toolwire.edge.device.memory import release_memory
from toolwire.edge.device.reporting import Reporter, stored_command
from toolwire.edge.device.toolset import DeviceTools
from toolwire.edge.keys import PrivateKey, PublicKeys
from toolwire.edge.link import LastWill, MqttBroker, MqttLink
from toolwire.edge.link_contract import Incoming
from toolwire.errors import BusError, StoreUnavailable, ToolwireError
from toolwire.wire.codecs.travelling import write_tool
from toolwire.wire.mqtt.commands import CommandKind, EdgeCommand, decode_command
from toolwire.wire.mqtt.reading import FieldReader
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage
from toolwire.wire.mqtt.reports import UNSIGNED, AgentCapabilities, AgentState, AgentStatus, refusal_body
from toolwire.wire.mqtt.topics import AgentChannel

_log = logging.getLogger(__name__)

Body = dict[str, Any]
InstallSkill = Callable[[Mapping[str, Any]], Awaitable[Body]]

GREETING_S = 2.0
"""How long commands of unknown age are held after a connection, until an orchestrator has greeted the device."""

_PRUNE_S = 600.0
_RENEW_S = 5.0
_LATE = frozenset({RefusalCode.EXPIRED, RefusalCode.STALE})
_LOAD_PAUSE_S = 0.5
_MOST_HANDLED = 10_000
_LARGEST_PIECE = 1 << 20
_ONCE = frozenset({CommandKind.SHUTDOWN, CommandKind.DRAIN, CommandKind.UPDATE_STRATEGY, CommandKind.INSTALL_SKILL})
"""Commands that change the agent itself: each is obeyed once, however often it comes."""


class EdgeAgent:
    """`await EdgeAgent(config, broker, tools, key, accepted).run()` serves until it is told to stop."""

    def __init__(
        self,
        config: DeviceConfig,
        broker: MqttBroker,
        tools: DeviceTools,
        key: PrivateKey,
        accepted: PublicKeys,
        *,
        install_skill: InstallSkill | None = None,
        refresh_tools: Callable[[Toolbox], Toolbox | None] | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = steady_s,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        self._config = config
        self._tools = tools
        self._accepted = accepted
        self._install_skill = install_skill
        self._refresh_tools = refresh_tools
        self._clock = clock
        self._steady = steady
        self._on_ready = on_ready
        self._boot = secrets.token_hex(8)
        self._started = steady()
        self._age_before = 0.0
        self._renewed = -_RENEW_S
        self._state = AgentState.ONLINE
        self._stopping = asyncio.Event()
        self._greeted = asyncio.Event()
        self._load_is_told, self._has_worked = True, False
        self._handling: set[asyncio.Task[None]] = set()
        self._clocks = SenderClocks(steady, clock, max_age_s=config.limits.max_age_s)
        self._journal = CallJournal(config.journal)
        filters = [config.topics.of(config.name, AgentChannel.COMMANDS)]
        self._link = MqttLink(broker, self._receive, filters=filters, will=self._last_will, on_connect=self._greet)
        self._reporter = Reporter(
            self._link, self._journal, config.topics, key, max_message_bytes=broker.max_message_bytes, clock=clock
        )
        self._pool = CallPool(
            tools, self._journal, self._reporter, self._clocks, config.limits, age=self._age, keep_s=config.keep_s,
            on_load=self._note_load,
            clock=clock,
        )  # fmt: skip

    def stop(self) -> None:
        """Take no more calls, let those that run finish, and end."""
        self._stopping.set()

    async def run(self) -> None:
        """Raises StoreUnavailable where the journal cannot be used."""
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._tools.close)
            await closing.enter_async_context(self._journal)
            self._age_before = float(await self._journal.fact("age_s") or 0.0)
            is_same_boot = await self._journal.fact("machine_boot") in (None, machine_boot())
            await self._pool.resume_unfinished(is_same_boot=is_same_boot)
            await self._journal.set_fact("machine_boot", machine_boot())
            self._clocks.machine_was_off = not is_same_boot or bool(await self._journal.fact("machine_was_off"))
            await self._journal.set_fact("machine_was_off", self._clocks.machine_was_off)
            await closing.enter_async_context(self._link)
            heartbeat = asyncio.create_task(self._beat(), name="toolwire-edge-heartbeat")
            try:
                await self._stopping.wait()
            finally:
                heartbeat.cancel()
                await self._leave()

    # The connection

    def _last_will(self, session: str) -> LastWill:
        return LastWill(*self._reporter.encode(self._status(AgentState.OFFLINE, session)))

    async def _greet(self, session: str) -> None:
        """Say what is offered and what has ended meanwhile."""
        self._greeted.clear()
        self._clocks.begin_session(session)
        asyncio.get_running_loop().call_later(GREETING_S, self._greeted.set)
        await self._reporter.publish(self._capabilities(), retain=True)
        await self._reporter.publish(self._status(self._state, session), retain=True)
        if self._on_ready is not None:
            self._on_ready()
        await self._reporter.deliver_all()
        release_memory()  # of what was read and compiled at the start

    def _status(self, state: AgentState, session: str) -> AgentStatus:
        pool = self._pool
        return AgentStatus(
            self._config.name, state, self._boot, session, self._config.heartbeat_s, pool.running, pool.queued,
            self._config.limits.slots, self._clock(),
        )  # fmt: skip

    def _note_load(self) -> None:
        """Have the load told soon: once for all calls that begin and end meanwhile."""
        self._has_worked = True
        if self._load_is_told and not self._stopping.is_set():
            self._load_is_told = False
            asyncio.get_running_loop().call_later(_LOAD_PAUSE_S, self._tell_load)

    def _tell_load(self) -> None:
        self._load_is_told = True
        if self._link.session and not self._stopping.is_set():
            self._spawn(self._publish_status())

    async def _publish_status(self) -> None:
        with suppress(BusError):
            await self._reporter.publish(self._status(self._state, self._session), retain=True)

    @property
    def _session(self) -> str:
        """What commands repeat that were sent after it was told; empty without a connection."""
        return self._clocks.session if self._link.session else ""

    async def _renew_session(self) -> None:
        """Have orchestrators greet this device anew: one of them may have set its clock back since they did."""
        if self._link.session and self._steady() - self._renewed >= _RENEW_S:
            self._renewed = self._steady()
            self._clocks.begin_session(secrets.token_hex(8))
            await self._publish_status()

    def _capabilities(self) -> AgentCapabilities:
        config, tools = self._config, tuple(map(write_tool, self._tools.toolbox))
        offer = AgentCapabilities(
            config.name, tools, config.capabilities, config.labels, sys.platform, "1", self._boot, config.summary,
            accepts=(*self._accepted.by_id, *([UNSIGNED] if config.allow_plain else [])),
        )  # fmt: skip
        fits = len(self._reporter.encode(offer)[1]) <= self._reporter.most_bytes
        return offer if fits else replace(offer, tools=(), partial=True)

    async def _look_at_skills(self) -> None:
        """Offer the tools of the skills as they are now, where something about them has changed."""
        if self._refresh_tools is None:
            return
        try:
            toolbox = await asyncio.to_thread(self._refresh_tools, self._tools.toolbox)
        except ToolwireError as wrong:
            _log.warning("the tools stay as they are: %s", wrong)
            return
        if toolbox is not None:
            self._tools.toolbox = toolbox
            with suppress(BusError):
                await self._reporter.publish(self._capabilities(), retain=True)

    async def _beat(self) -> None:
        """Say again and again that the device is there, and forget what is over."""
        pruned = self._steady()
        while True:
            await asyncio.sleep(self._config.heartbeat_s)
            await self._look_at_skills()
            await self._publish_status()
            if self._has_worked and not self._pool.running:
                self._has_worked = False
                release_memory()
            with suppress(StoreUnavailable):
                await self._journal.set_fact("age_s", self._age())
                if self._clocks.machine_was_off and self._clocks.confirms_own():
                    self._clocks.machine_was_off = False
                    await self._journal.set_fact("machine_was_off", False)
                if self._steady() - pruned >= _PRUNE_S:
                    pruned = self._steady()
                    await self._journal.prune(self._age())

    async def _leave(self) -> None:
        self._state = AgentState.DRAINING
        await self._pool.stop(self._config.limits.drain_s)
        if self._handling:
            await asyncio.wait(self._handling, timeout=1.0)
        with suppress(BusError):
            await self._reporter.publish(self._status(AgentState.OFFLINE, self._link.session), retain=True)
        with suppress(StoreUnavailable):
            await self._journal.set_fact("age_s", self._age())

    def _age(self) -> float:
        """Seconds in which agents were at work with this journal."""
        return self._age_before + self._steady() - self._started

    # Commands

    def _receive(self, incoming: Incoming) -> None:
        config = self._config
        command = decode_command(
            incoming.topic, incoming.data, config.topics, self._accepted, canonical, plain=config.allow_plain
        )
        if incoming.retained:
            said = "a retained command may be of any age; publish commands without the flag retain"
            command = RefusedMessage(RefusalCode.RETAINED, said)
        if isinstance(command, RefusedMessage):
            incoming.acknowledge()
            self._spawn(self._refuse(command))
            return
        self._clocks.hear(command)
        if self._clocks.knows(command):
            self._greeted.set()
        if len(self._handling) >= _MOST_HANDLED:
            return  # it is not acknowledged, so the broker sends it again
        self._spawn(self._handle(command, incoming.acknowledge))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work, name="toolwire-edge-command")
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)

    async def _handle(self, command: EdgeCommand, acknowledge: Callable[[], None]) -> None:
        try:
            if command.key_id and not self._clocks.knows(command):
                await self._greeted.wait()
            if command.kind in (CommandKind.TOOL, CommandKind.EXECUTE):
                refused = await self._pool.accept(command, acknowledge)
            else:
                refused = await self._control(command)
                acknowledge()
        except StoreUnavailable as lost:
            refused = RefusedMessage(RefusalCode.BUSY, f"the command was not started: {lost}")
        if refused is not None:
            acknowledge()
            await self._refuse(replace(refused, proven=True), command)
            if refused.code in _LATE and self._clocks.is_of_session(command):
                await self._renew_session()

    async def _refuse(self, refused: RefusedMessage, command: EdgeCommand | None = None) -> None:
        """Put a refusal on record, and report it where the message was really one for this device.

        An unsigned or forged message gets no report: it could name the request of another call, which would end by it.
        """
        _log.warning("refused a command: %s: %s", refused.code.value, refused.message)
        detail = {"message": refused.message, "request_id": refused.request_id, "field": refused.field}
        if command is not None:
            detail |= {"request_id": command.request_id, "command": command.kind.value}
        with suppress(StoreUnavailable):
            await self._journal.note_event(self._clock(), refused.code.value, detail)
        if command is None and refused.proven and refused.request_id:
            command = EdgeCommand(CommandKind.TOOL, refused.request_id, self._config.name)
        if command is not None:
            tool = command.payload.get("tool")
            await self._reporter.answer(command, refusal_body(refused, tool if isinstance(tool, str) else ""))

    async def _control(self, command: EdgeCommand) -> RefusedMessage | None:
        """Obey a command that runs no tool, unless the operator has named one for it."""
        left = self._clocks.seconds_left(command)
        if isinstance(left, RefusedMessage):
            return left
        if (hook := self._config.hooks.get(command.kind.value)) is not None:
            payload = {"tool": hook, "parameters": dict(command.payload)}
            return await self._pool.accept(replace(command, payload=payload), _nothing)
        if command.kind in _ONCE and await self._is_repeated(command):
            body: Body | RefusedMessage = {"status": "success", "repeated": True}
        else:
            body = await self._obey(command)
        if isinstance(body, RefusedMessage):
            return body
        await self._reporter.answer(command, body)
        return None

    async def _is_repeated(self, command: EdgeCommand) -> bool:
        key = f"{command.kind.value}:{command.journal_key}"
        row = JournalRow(key, "", command.epoch, CallState.FINISHED, False, stored_command(command), b"{}")
        opening = await self._journal.accept(row, self._pool.kept_until(command))
        await self._journal.set_delivered(key)
        return opening.before is not None

    async def _obey(self, command: EdgeCommand) -> Body | RefusedMessage:
        match command.kind:
            case CommandKind.PING:
                return {"status": "success", "result": "pong", "boot": self._boot, "at": self._clock()}
            case CommandKind.TOOLS_LIST:
                return {"status": "success", "result": list(map(write_tool, self._tools.toolbox))}
            case CommandKind.GET_METRICS:
                return {"status": "success", "result": await self._metrics()}
            case CommandKind.UPDATE_STRATEGY:
                await self._journal.set_fact("strategy", dict(command.payload))
                return {"status": "success", "result": "kept"}
            case CommandKind.CANCEL:
                found = await self._pool.cancel(command)
                return {"status": "success", "result": "canceled" if found else "there is no such call"}
            case CommandKind.DRAIN:
                return await self._drain(command)
            case CommandKind.FETCH:
                return await self._fetch(command)
            case CommandKind.INSTALL_SKILL if self._install_skill is not None:
                body = await self._install_skill(command.payload)
                await self._look_at_skills()
                return body
            case CommandKind.LOGS:
                most = min(FieldReader(command.payload).count("most", 50), MOST_LOGGED)
                return {"status": "success", "result": await logged_rows(self._journal, most)}
            case CommandKind.SHUTDOWN:
                asyncio.get_running_loop().call_soon(self._stopping.set)
                return {"status": "success", "result": "stopping"}
        said = f"this device does not accept {command.kind.value!r}; its operator can allow it"
        return RefusedMessage(RefusalCode.NOT_ALLOWED, said, "command")

    async def _metrics(self) -> Body:
        load = {"running": self._pool.running, "queued": self._pool.queued, "slots": self._config.limits.slots}
        up_s = round(self._steady() - self._started, 3)
        more = {"uptime_s": up_s, "boot": self._boot, "strategy": await self._journal.fact("strategy")}
        return {**self._pool.counts.report(), "load": load, **more}

    async def _drain(self, command: EdgeCommand) -> Body:
        """Take no more calls, or take them again."""
        resumes = command.payload.get("resume") is True
        self._state = AgentState.ONLINE if resumes else AgentState.DRAINING
        self._pool.takes_calls = resumes
        await self._publish_status()
        return {"status": "success", "result": self._state.value}

    async def _fetch(self, command: EdgeCommand) -> Body | RefusedMessage:
        reader = FieldReader(command.payload)
        name, offset = reader.identifier("artifact", required=True), reader.count("offset")
        length = min(reader.count("length", _LARGEST_PIECE), _LARGEST_PIECE)
        if reader.fault is not None:
            return reader.fault
        found = await self._journal.read_artifact(name, offset, length)
        if found is None:
            return {"status": "error", "error": f"there is no artifact {name[:80]!r} here", "error_type": "not_found"}
        data, size = found
        return {"status": "success", "data": base64.b64encode(data).decode(), "offset": offset, "size": size}


def _nothing() -> None:
    """There is no message to acknowledge."""
