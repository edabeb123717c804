"""Runs the calls of a device, each once: from its command to its report.

A call is in the journal before it begins and its result is there before it is reported. Calls run side by side, each in
a task of its own, so one that hangs holds up neither the others nor the heartbeat.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from toolwire.define.canonical import digest
from toolwire.edge.device.clock import SenderClocks
from toolwire.edge.device.config import AgentLimits
from toolwire.edge.device.counts import CallCounts
from toolwire.edge.device.journal import CallJournal, CallState, JournalRow, Opening, is_same_call
from toolwire.edge.device.reporting import ProgressSender, Reporter, body_of, stored_command
from toolwire.edge.device.toolset import DeviceTools, call_of, info_of, interrupted, not_started, stopped
from toolwire.errors import StoreUnavailable
from toolwire.protocol.calls import Allowed, ToolCall, ToolResult
from toolwire.protocol.context import CallInfo
from toolwire.protocol.outcomes import Code
from toolwire.wire.mqtt.commands import EdgeCommand, ToolRequest, read_stored_command, read_tool_request
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage
from toolwire.wire.mqtt.reports import refusal_body
from toolwire.wire.mqtt.results import write_tool_result

_log = logging.getLogger(__name__)
_ANY_CALL = ""
_MOST_UNWRITTEN = 10_000


class _RunningCall:
    """A call that this process has accepted and not finished."""

    def __init__(self, command: EdgeCommand, call: ToolCall) -> None:
        self.command = command
        self.call = call
        self.task: asyncio.Task[None] | None = None
        self.progress: ProgressSender | None = None
        self.begun = self.canceled = self.entered = False


class CallPool:
    """The calls of one device."""

    def __init__(
        self,
        tools: DeviceTools,
        journal: CallJournal,
        reporter: Reporter,
        clocks: SenderClocks,
        limits: AgentLimits,
        *,
        age: Callable[[], float],
        keep_s: float,
        on_load: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.tools = tools
        self.counts = CallCounts()
        self._journal = journal
        self._reporter = reporter
        self._clocks = clocks
        self._limits = limits
        self._age = age
        self._keep_s = keep_s
        self._on_load = on_load
        self._clock = clock
        self._slots = asyncio.Semaphore(limits.slots)
        self._running: dict[str, _RunningCall] = {}
        self._at_work = 0
        self._unwritten: dict[str, RefusedMessage] = {}  # refusals that are not in the journal
        self.takes_calls = True

    @property
    def running(self) -> int:
        return self._at_work

    @property
    def queued(self) -> int:
        return len(self._running) - self._at_work

    async def accept(self, command: EdgeCommand, acknowledge: Callable[[], None]) -> RefusedMessage | None:
        """Take a command: run its call if it is new, else report what came of it. Acknowledged once it is kept."""
        request = read_tool_request(_tool_payload(command))
        info = info_of(command)
        if isinstance(request, RefusedMessage) or isinstance(info, RefusedMessage):
            return (
                request if isinstance(request, RefusedMessage) else info if isinstance(info, RefusedMessage) else None
            )
        if command.digest and command.digest != digest(request.parameters):
            return RefusedMessage(RefusalCode.DIGEST_MISMATCH, "digest is not that of the parameters", "digest")
        row = _new_row(command, request, harmless=self.tools.is_harmless(request.tool))
        try:
            return await self._take(command, row, request, info, acknowledge)
        except StoreUnavailable as lost:
            return await self._without_journal(row, lost)

    def kept_until(self, command: EdgeCommand) -> float:
        """Until when the journal remembers a command: never for less time than that may still begin something."""
        left = self._clocks.seconds_left(command)
        return self._age() + max(self._keep_s, left if isinstance(left, float) else 0.0)

    async def cancel(self, command: EdgeCommand) -> bool:
        """Stop a call; its own report says how it ended. One whose command has not come yet will not run."""
        key, request_id = command.payload.get("record_id"), command.payload.get("request_id")
        key = key if isinstance(key, str) and key else command.record_id or request_id
        if not isinstance(key, str) or not key:
            return False
        for running in self._running.values():
            if running.call.id == key or running.command.journal_key == key or running.command.request_id == request_id:
                running.canceled = True
                if running.task is not None and running.entered:  # else it looks itself, before it begins
                    running.task.cancel()
                return True
        result = stopped(ToolCall("", {}, id=key), begun=False)
        body = orjson.dumps(write_tool_result(result))
        row = JournalRow(key, _ANY_CALL, 0, CallState.FINISHED, False, stored_command(command), body)
        opening = await self._journal.accept(row, self.kept_until(command))
        if opening.before is None:
            await self._journal.set_delivered(key)
        return opening.before is None or opening.before.body is None

    async def resume_unfinished(self, *, is_same_boot: bool) -> None:
        """Take up the calls of a process that is gone: run again what does no harm, report the rest as unknown.

        After the machine itself was off, nothing runs: many devices cannot tell for how long that was.
        """
        for row in await self._journal.unfinished():
            command = read_stored_command(row.command)
            request, info = read_tool_request(_tool_payload(command)), info_of(command)
            if isinstance(request, RefusedMessage) or isinstance(
                info, RefusedMessage
            ):  # it was accepted, so it cannot be
                continue
            call = call_of(command, request.tool, request.parameters)
            running = self._running[row.key] = _RunningCall(command, call)
            judged: Allowed | ToolResult
            if row.state is CallState.ACCEPTED and not is_same_boot:
                judged = not_started(call)
            elif row.state is CallState.ACCEPTED or (row.harmless and is_same_boot):
                judged = self._judge_anew(command, call, info, request)
            else:
                judged = interrupted(call)
            self._set_to_work(running, row, judged, info)

    async def stop(self, within_s: float) -> None:
        """Let calls finish for so long, then cancel them."""
        self.takes_calls = False
        tasks = [one.task for one in self._running.values() if one.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)
        for running in list(self._running.values()):
            if running.task is not None and not running.task.done():
                running.canceled = True
                running.task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # One call

    async def _take(
        self,
        command: EdgeCommand,
        row: JournalRow,
        request: ToolRequest,
        info: CallInfo,
        acknowledge: Callable[[], None],
    ) -> RefusedMessage | None:
        if row.key not in self._running and (stop := await self._stops(command, row)):
            return stop if stop.code is not RefusalCode.BUSY else await self._keep_refusal(row, command, stop)
        call = call_of(command, request.tool, request.parameters)
        if row.key in self._running:
            return await self._repeat(row, command, acknowledge)
        running = self._running[row.key] = _RunningCall(command, call)
        try:
            return await self._begin(running, row, request, info, acknowledge)
        finally:
            if running.task is None:
                del self._running[row.key]

    async def _without_journal(self, row: JournalRow, lost: StoreUnavailable) -> RefusedMessage | None:
        """The journal cannot be written: refuse a call that it does not have, and remember that in this process.

        Where it cannot be read either, nothing is said and nothing acknowledged: the call may have run before.
        """
        _log.error("a command could not be written down: %s", lost)
        if row.key in self._running:  # its own report answers
            return None
        with suppress(StoreUnavailable):
            if (before := await self._journal.find(row.key)) is not None:
                if (fault := _repetition_fault(row, before)) is not None:
                    return fault
                return await self._tell_result(before, row.command)
            while len(self._unwritten) >= _MOST_UNWRITTEN:
                del self._unwritten[next(iter(self._unwritten))]
            said = f"the call was not started: {lost}"
            return self._unwritten.setdefault(row.key, RefusedMessage(RefusalCode.BUSY, said))
        return None

    async def _tell_result(self, kept: JournalRow, command: bytes) -> RefusedMessage | None:
        if kept.body is not None:
            told = JournalRow(kept.key, kept.digest, kept.epoch, kept.state, kept.harmless, command, kept.body)
            await self._reporter.deliver(told)
        return None

    async def _stops(self, command: EdgeCommand, row: JournalRow) -> RefusedMessage | None:
        """Why a command must not start a call; one that the journal knows is never stopped here."""
        if (told := self._unwritten.get(row.key)) is not None:
            return told
        left = self._clocks.seconds_left(command)
        if (
            isinstance(left, float)
            and self.takes_calls
            and len(self._running) < self._limits.slots + self._limits.queue
        ):
            return None
        if await self._journal.find(row.key) is not None:
            return None
        if isinstance(left, RefusedMessage):
            return left
        why = "takes no more calls" if not self.takes_calls else f"has {len(self._running)} calls already"
        return RefusedMessage(RefusalCode.BUSY, f"the call was not started: this device {why}; try again later")

    async def _keep_refusal(self, row: JournalRow, command: EdgeCommand, stop: RefusedMessage) -> RefusedMessage | None:
        """Write down that a call was refused: its sender is told so, and its command may come again later."""
        body = orjson.dumps(refusal_body(stop, str(_tool_payload(command)["tool"])))
        refused = JournalRow(row.key, row.digest, row.epoch, CallState.FINISHED, row.harmless, row.command, body)
        opening = await self._journal.accept(refused, self.kept_until(command))
        self._unwritten.pop(row.key, None)
        if opening.before is not None:  # the same command came twice, and the other one was taken meanwhile
            return None if row.key in self._running else await self._answer_known(row, opening)
        await self._journal.set_delivered(row.key)
        return stop

    async def _begin(
        self,
        running: _RunningCall,
        row: JournalRow,
        request: ToolRequest,
        info: CallInfo,
        acknowledge: Callable[[], None],
    ) -> RefusedMessage | None:
        judged = self.tools.judge(running.call, info, request)
        if isinstance(judged, Allowed) and len(self._running) <= self._limits.slots:
            row = _in_state(row, CallState.STARTED)
        opening = await self._journal.accept(row, self.kept_until(running.command))
        acknowledge()
        if opening.before is not None:
            return await self._answer_known(row, opening)
        self._set_to_work(running, row, judged, info)
        return None

    async def _repeat(
        self, row: JournalRow, command: EdgeCommand, acknowledge: Callable[[], None]
    ) -> RefusedMessage | None:
        """A command whose call is at work: its report will answer the newest command."""
        opening = await self._journal.accept(row, self.kept_until(command))
        acknowledge()
        running = self._running.get(row.key)
        if opening.before is None or opening.before.body is not None or running is None:
            return await self._answer_known(row, opening)
        if (fault := _repetition_fault(row, opening.before)) is not None:
            return fault
        running.command = command
        if running.progress is not None:
            await running.progress.accepted()
        return None

    async def _answer_known(self, row: JournalRow, opening: Opening) -> RefusedMessage | None:
        """Report again about a call that has ended."""
        before = opening.before
        if before is not None and (fault := _repetition_fault(row, before)) is not None:
            return fault
        kept = await self._journal.find(row.key)
        if kept is not None and kept.body is None and self._is_lost(row.key):
            kept = await self._give_up(kept)
        if kept is not None and kept.body is not None:
            await self._reporter.deliver(kept)
        return None

    def _is_lost(self, key: str) -> bool:
        """Whether no task sees to a call that the journal has as open: its result could not be written down."""
        running = self._running.get(key)
        return running is None or running.task is None

    async def _give_up(self, row: JournalRow) -> JournalRow | None:
        """Write down that it is not known what came of a call."""
        name = str(read_stored_command(row.command).payload.get("tool", ""))
        body = orjson.dumps(write_tool_result(interrupted(ToolCall(name, {}, id=row.key))))
        await self._journal.finish(row.key, body)
        return await self._journal.find(row.key)

    def _set_to_work(
        self, running: _RunningCall, row: JournalRow, judged: Allowed | ToolResult, info: CallInfo
    ) -> None:
        work = self._see_through(running, row, judged, info)
        running.task = asyncio.create_task(work, name="toolwire-edge-call")

    def _judge_anew(
        self, command: EdgeCommand, call: ToolCall, info: CallInfo, request: ToolRequest
    ) -> Allowed | ToolResult:
        left = self._clocks.seconds_left(command)
        if isinstance(left, RefusedMessage):
            return ToolResult.failed(call, left.result_code, f"{left.message}.")
        return self.tools.judge(call, info, request)

    async def _see_through(
        self, running: _RunningCall, row: JournalRow, judged: Allowed | ToolResult, info: CallInfo
    ) -> None:
        """From the decision to the report. Whatever happens, the call ends with one result in the journal."""
        running.entered = True
        try:
            if running.canceled:
                judged = stopped(running.call, begun=False)
            result = judged if isinstance(judged, ToolResult) else await self._run(running, row, judged, info)
        except asyncio.CancelledError:
            if not running.canceled:  # the process ends at once, as in a crash
                raise
            result = stopped(running.call, begun=running.begun)
        except StoreUnavailable as lost:
            result = ToolResult.failed(running.call, Code.UNAVAILABLE, f"The call was not started: {lost}.")
        finally:
            if running.progress is not None:
                running.progress.close()
        self.counts.add(result, self._clock())
        try:
            await self._finish(running, row, result)
        except StoreUnavailable as lost:
            _log.error("the result of %s is not kept: %s", row.key, lost)
            await self._reporter.answer(running.command, write_tool_result(result))
        finally:
            self._running.pop(row.key, None)

    async def _run(self, running: _RunningCall, row: JournalRow, allowed: Allowed, info: CallInfo) -> ToolResult:
        async with self._slots:
            self._at_work += 1
            self._on_load()
            try:
                if row.state is not CallState.STARTED:
                    left = self._clocks.seconds_left(running.command)
                    if isinstance(left, RefusedMessage):
                        return ToolResult.failed(running.call, left.result_code, f"{left.message}.")
                    await self._journal.start(row.key, harmless=row.harmless)
                running.begun = True
                running.progress = ProgressSender(self._reporter, lambda: running.command)
                result = await self.tools.run(allowed, info, running.progress.report, running.progress.write)
                await running.progress.flush()
                return result
            finally:
                self._at_work -= 1
                self._on_load()

    async def _finish(self, running: _RunningCall, row: JournalRow, result: ToolResult) -> None:
        body = await body_of(result, self._journal, self._limits.inline_bytes, self._age() + self._keep_s)
        await self._journal.finish(row.key, body)
        command = stored_command(running.command)
        await self._reporter.deliver(JournalRow(row.key, row.digest, row.epoch, row.state, row.harmless, command, body))


def _tool_payload(command: EdgeCommand) -> Mapping[str, Any]:
    """What to run. `execute` says `action` and `params` where `tool` says `tool` and `parameters`."""
    payload = command.payload
    if "tool" in payload or "action" not in payload:
        return payload
    return {**payload, "tool": payload["action"], "parameters": payload.get("parameters", payload.get("params"))}


def _new_row(command: EdgeCommand, request: ToolRequest, *, harmless: bool) -> JournalRow:
    about = digest([request.tool, request.parameters])
    return JournalRow(command.journal_key, about, command.epoch, CallState.ACCEPTED, harmless, stored_command(command))


def _in_state(row: JournalRow, state: CallState) -> JournalRow:
    return JournalRow(row.key, row.digest, row.epoch, state, row.harmless, row.command, row.body)


def _repetition_fault(row: JournalRow, before: JournalRow) -> RefusedMessage | None:
    """Why a command may not speak for the call that has its id."""
    if not is_same_call(row, before):
        said = "another call with this id is in the journal; give each call an id of its own"
        return RefusedMessage(RefusalCode.DIGEST_MISMATCH, said, "record_id")
    if row.epoch < before.epoch:
        return RefusedMessage(RefusalCode.STALE_EPOCH, f"epoch {row.epoch} is older than {before.epoch}", "epoch")
    return None
