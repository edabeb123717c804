"""Sends commands to devices, and hears what they say: one connection of a process, for all of its calls.

A call that was sent is sent again until its report is there: when the connection or the device comes back, and after
growing pauses. The device runs it once and repeats its report. Whatever comes that no call here waits for changes
nothing: it is told to `Unexpected`, which puts it on record.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from toolwire.define.canonical import canonical
from toolwire.edge.link_contract import Link
from toolwire.edge.orchestrator.offered import NO_LIMITS, DeviceLimits, read_device_tools
from toolwire.edge.orchestrator.presence import DeviceRegistry, DeviceState, Presence
from toolwire.errors import BusError, BusUnavailable
from toolwire.record.rows import new_id
from toolwire.wire.mqtt.chunks import ChunkJoiner, is_chunk, read_chunk
from toolwire.wire.mqtt.commands import CommandKind, EdgeCommand, encode_command
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage
from toolwire.wire.mqtt.reports import (
    AgentCapabilities,
    AgentMessage,
    AgentStatus,
    EdgeProgress,
    EdgeReport,
    decode_agent_message,
)
from toolwire.wire.mqtt.signing import Signer, Verifier
from toolwire.wire.mqtt.topics import FROM_AGENT, AgentChannel, Topics

PAUSES_S = (2.0, 5.0, 10.0, 30.0)
"""After the first, the second … time that a command was sent."""

TICK_S = 0.5
ASK_S = 10.0
CANCELED = "canceled"
MOST_ENDED = 10_000
"""So many calls are remembered after their end, so that a report which comes late is known to be one."""

_log = logging.getLogger(__name__)


class PendingCall:
    """A command whose report is awaited. `sent` says that it may have reached its device.

    The report of one that was `given_up` only says that nothing of it is at work any more.
    """

    __slots__ = ("command", "given_up", "heard", "next_at", "on_progress", "report", "sends", "sent")

    def __init__(self, command: EdgeCommand, on_progress: Callable[[EdgeProgress], None]) -> None:
        self.command = command
        self.on_progress = on_progress
        self.report: asyncio.Future[EdgeReport] = asyncio.get_running_loop().create_future()
        self.sent = self.given_up = False
        self.sends = 0
        self.next_at = 0.0
        self.heard = 0


class EndedCall(Struct, frozen=True):
    """A call that no report is awaited of any more; whether its report came, and counts."""

    command: EdgeCommand
    reported: bool


class Unexpected(Protocol):
    """What hears of messages that change nothing. None of these may wait."""

    def late(self, report: EdgeReport, ended: EndedCall | None) -> None:
        """A report came that is not awaited; `ended` is its call, if that was sent from here."""
        ...

    def refused(self, refused: RefusedMessage, about: EdgeCommand | None = None) -> None:
        """A message breaks a rule."""
        ...


class DeviceClient:
    """The devices of one prefix at one broker. Feed it with `receive`; `run` it as a task."""

    def __init__(
        self,
        topics: Topics,
        *,
        signer: Signer | None = None,
        verify: Callable[[str], Verifier | None] = lambda _: None,
        limits: Callable[[str], DeviceLimits] = lambda _: NO_LIMITS,
        is_allowed: Callable[[str], bool] = lambda _: True,
        unexpected: Unexpected | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.link: Link | None = None
        self.topics = topics
        self._signer = signer
        self._verify = verify
        self._limits = limits
        self._is_allowed = is_allowed
        self._unexpected = unexpected
        self._clock = clock
        self.registry = DeviceRegistry()
        self._joiner = ChunkJoiner()
        self._pending: dict[str, PendingCall] = {}
        self._ended: OrderedDict[str, EndedCall] = OrderedDict()
        self._changed = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()
        self._asked: set[str] = set()

    @property
    def filters(self) -> tuple[str, ...]:
        """What to subscribe to. What a broker keeps of all devices comes first."""
        order = (AgentChannel.CAPABILITIES, AgentChannel.STATUS, AgentChannel.PROGRESS, AgentChannel.REPORTS)
        assert set(order) == set(FROM_AGENT)
        return tuple(map(self.topics.of_all, order))

    @property
    def now(self) -> float:
        return self._clock()

    @property
    def key_id(self) -> str:
        """Of the key that signs commands; empty where none does."""
        return self._signer.key_id if self._signer is not None else ""

    @property
    def connected(self) -> bool:
        return self.link is not None and bool(self.link.session)

    # Sending

    def open(self, command: EdgeCommand, on_progress: Callable[[EdgeProgress], None]) -> PendingCall:
        """Await the report of a command, from before it is sent."""
        call = PendingCall(command, on_progress)
        self._pending[command.request_id] = call
        self.registry.note_sent(command.agent_id, 1)
        return call

    def close(self, call: PendingCall) -> None:
        """Wait no more. A report that still comes is late."""
        command = call.command
        if self._pending.pop(command.request_id, None) is None:
            return
        self.registry.note_sent(command.agent_id, -1)
        self._ended[command.request_id] = EndedCall(command, call.report.done() and not call.given_up)
        while len(self._ended) > MOST_ENDED:
            self._ended.popitem(last=False)

    async def send(self, call: PendingCall) -> None:
        """Send a command, or leave that to the connection's return."""
        pause_s = PAUSES_S[min(call.sends, len(PAUSES_S) - 1)]
        call.next_at = self._clock() + pause_s
        with suppress(BusError):
            if self.connected:
                call.sent, call.sends = True, call.sends + 1
                await self.publish(call.command)

    async def publish(self, command: EdgeCommand) -> None:
        """Publish a command as of now. Raises BusError."""
        device = self.registry.device(command.agent_id)
        fresh = replace(command, sent_at=self._clock(), session=device.session if device else "")
        data = encode_command(fresh, self.topics, self._signer, canonical)
        if self.link is None:
            raise BusUnavailable("there is no connection to the broker of the devices")
        await self.link.publish(self.topics.of(command.agent_id, AgentChannel.COMMANDS), data)

    async def ask(self, command: EdgeCommand, within_s: float) -> EdgeReport | None:
        """The report of a command that is no call, such as a ping; None if none comes in this time."""
        call = self.open(command, lambda _: None)
        try:
            async with asyncio.timeout(within_s):
                await self.send(call)
                return await asyncio.shield(call.report)
        except TimeoutError:
            return None
        finally:
            self.close(call)

    def reconnected(self) -> None:
        """The connection is there again: what is awaited is sent once more."""
        for call in self._pending.values():
            call.next_at = 0.0
        for device_id in self._unconfirmed(self._clock()):
            self._spawn(self._greet(device_id))
        self._note_change()

    async def confirm_devices(self, within_s: float) -> None:
        """Wait until each device has answered that the broker had kept as online, or this time is over."""
        end = self._clock() + within_s
        while self._unconfirmed(now := self._clock()) and now < end:
            await self.changes(end - now)

    def _unconfirmed(self, now: float) -> list[str]:
        """The devices that may answer: one that does not accept the key of this side stays silent."""
        return [one.id for one in self.registry.unconfirmed(now) if not one.key_refusal(self.key_id)]

    async def run(self) -> None:
        """Send again what has no report, until canceled."""
        try:
            while True:
                now = self._clock()
                for call in [
                    one
                    for one in self._pending.values()
                    if one.next_at <= now and not one.given_up and self._can_reach(one, now)
                ]:
                    self._spawn(self.send(call))
                await asyncio.sleep(TICK_S)
        finally:
            for task in list(self._sending):
                task.cancel()
            await asyncio.gather(*self._sending, return_exceptions=True)

    def _can_reach(self, call: PendingCall, now: float) -> bool:
        device = self.registry.device(call.command.agent_id)
        return self.connected and device is not None and device.at(now) is not Presence.OFFLINE

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work, name="toolwire-edge-send")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    # Hearing

    async def changes(self, within_s: float) -> None:
        """Wait until something about devices or the connection has changed, or this time is over."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._changed.wait()

    def _note_change(self) -> None:
        self._changed.set()

    def receive(self, topic: str, data: bytes, *, retained: bool = False) -> None:
        """One message, whatever is wrong with it. One that the broker had kept is no sign that its device is there."""
        address = self.topics.parse(topic)
        if isinstance(address, RefusedMessage):
            return
        device_id = address.agent_id
        if not self._is_allowed(device_id):
            return
        if not data:  # what the broker kept was removed
            if address.channel is AgentChannel.CAPABILITIES:
                self.registry.forget(device_id)
                self._note_change()
            return
        message = self._decoded(topic, data, device_id)
        if message is None:
            return
        if isinstance(message, RefusedMessage):
            self._refuse(message)
            return
        self._take(message, retained=retained)

    def _decoded(self, topic: str, data: bytes, device_id: str) -> AgentMessage | RefusedMessage | None:
        if is_chunk(data):
            chunk = read_chunk(data)
            whole = chunk if isinstance(chunk, RefusedMessage) else self._joiner.add(topic, chunk)
            if not isinstance(whole, bytes):
                return whole if whole is None else replace(whole, agent_id=device_id)
            data = whole
        verifier = self._verify(device_id)
        return decode_agent_message(topic, data, self.topics, verifier, canonical, plain=verifier is None)

    def _take(self, message: AgentMessage, *, retained: bool) -> None:
        now = self._clock()
        is_sign_of_life = not retained and isinstance(message, (EdgeProgress, EdgeReport))
        if is_sign_of_life and self.registry.note_seen(message.agent_id, now):
            self._note_change()
        match message:
            case AgentStatus():
                self._take_status(message, now, retained=retained)
            case AgentCapabilities():
                self.registry.note_accepts(message.agent_id, message.accepts)
                if message.partial:
                    self._spawn(self._ask_for_tools(message))
                else:
                    self._take_tools(message.agent_id, message.tools, message.platform)
            case EdgeProgress():
                self._take_progress(message)
            case EdgeReport():
                self._take_report(message)

    def _take_status(self, status: AgentStatus, now: float, *, retained: bool) -> None:
        state = DeviceState(
            Presence(status.state.value), status.boot, status.session, status.running, status.slots or 1,
            status.heartbeat_s or float("inf"),
        )  # fmt: skip
        if self.registry.note_state(status.agent_id, state, now, retained=retained):
            # It tells the device what time it is here, so that a clock that is wrong there does no harm; and the
            # answer shows that the device is there. Before there is a session, `reconnected` does it.
            known = self.registry.device(status.agent_id)
            if self.connected and known is not None and not known.key_refusal(self.key_id):
                self._spawn(self._greet(status.agent_id))
            for call in self._pending.values():
                if call.command.agent_id == status.agent_id and call.sent:
                    call.next_at = 0.0
        device = self.registry.device(status.agent_id)
        if device is not None and not device.tools and device.at(now) is Presence.ONLINE:
            # What it has published before may be kept by another server, behind a leaf node.
            self._spawn(self._ask_for_tools(AgentCapabilities(status.agent_id), patient=True))
        self._note_change()

    def _take_tools(self, device_id: str, listed: Sequence[Any], platform: str) -> None:
        tools, faults = read_device_tools(device_id, listed, self._limits(device_id))
        for fault in faults:
            _log.warning("a tool is not offered: %s", fault)
        self.registry.note_tools(device_id, tools, faults, platform[:100])
        self._note_change()

    async def _ask_for_tools(self, capabilities: AgentCapabilities, *, patient: bool = False) -> None:
        """Ask a device for its tools, which were too many for one message, or have not come."""
        device_id = capabilities.agent_id
        if patient:
            await asyncio.sleep(TICK_S)
            device = self.registry.device(device_id)
            if device is None or device.tools or device_id in self._asked:
                return
        if device_id in self._asked:  # it says so again and again; the answer that is awaited has its tools
            return
        self._asked.add(device_id)
        report = await self.ask(command_for(device_id, CommandKind.TOOLS_LIST, new_id(), {}), ASK_S)
        listed = None if report is None else report.body.get("result")
        self._asked.discard(device_id)
        if isinstance(listed, list):
            self._take_tools(device_id, listed, capabilities.platform)

    async def _greet(self, device_id: str) -> None:
        with suppress(BusError):
            await self.publish(command_for(device_id, CommandKind.PING, new_id(), {}))

    def _take_progress(self, progress: EdgeProgress) -> None:
        call = self._pending.get(progress.request_id)
        if call is None or call.command.agent_id != progress.agent_id or progress.epoch != call.command.epoch:
            return
        if progress.seq > call.heard:  # one that comes again, or out of order, is dropped
            call.heard = progress.seq
            call.on_progress(progress)

    def _take_report(self, report: EdgeReport) -> None:
        call = self._pending.get(report.request_id)
        if call is None:
            if self._unexpected is not None:
                self._unexpected.late(report, self._ended.get(report.request_id))
            return
        if (fault := report_fault(report, call.command)) is not None:
            self._refuse(fault, call.command)
        elif not call.report.done():  # the same one may come several times
            call.report.set_result(report)
            if call.given_up and report.body.get("error_type") != CANCELED and self._unexpected is not None:
                self._unexpected.late(report, EndedCall(call.command, reported=False))

    def _refuse(self, refused: RefusedMessage, about: EdgeCommand | None = None) -> None:
        _log.warning("a message of %s is refused: %s", refused.agent_id or "a device", refused.message)
        if self._unexpected is not None:
            self._unexpected.refused(refused, about)


def report_fault(report: EdgeReport, command: EdgeCommand) -> RefusedMessage | None:
    """Why a report is not the one of a command; None if it is."""
    if report.agent_id != command.agent_id:
        code, why = RefusalCode.WRONG_AGENT, f"{report.agent_id} reports a call of {command.agent_id}"
    elif report.epoch != command.epoch:
        why = f"the report is of epoch {report.epoch}, and the call is in epoch {command.epoch}"
        code = RefusalCode.STALE_EPOCH
    elif report.digest != command.digest or report.record_id != command.record_id:
        code, why = RefusalCode.DIGEST_MISMATCH, "the report is about other arguments, or another call"
    else:
        return None
    return RefusedMessage(code, why, "", command.request_id, report.agent_id, proven=bool(report.key_id))


def command_for(device_id: str, kind: CommandKind, request_id: str, payload: Mapping[str, Any]) -> EdgeCommand:
    """A command that is no call."""
    return EdgeCommand(kind, request_id, device_id, payload)
