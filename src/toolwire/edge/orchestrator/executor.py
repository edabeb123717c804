"""Runs calls on devices, as any executor does.

The call is claimed and closed by the hub of this process. If that dies, the turn goes on elsewhere and sends the call
again, under the same record: the device then repeats its report, or says that it does not know how far it came.
"""

import asyncio
import hashlib
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.define.canonical import digest
from toolwire.define.nearest import nearest
from toolwire.edge.orchestrator.artifacts import fetch_artifact
from toolwire.edge.orchestrator.client import DeviceClient, PendingCall
from toolwire.edge.orchestrator.offered import ADDRESSEE
from toolwire.edge.orchestrator.placements import Placements
from toolwire.edge.orchestrator.presence import CONFIRM_S, Device, Presence
from toolwire.edge.orchestrator.routing import choose
from toolwire.errors import BusError, Suspended
from toolwire.execute.endings import Endings
from toolwire.execute.threads import Left
from toolwire.protocol.calls import Allowed, ErrorText, Text, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import REPEATABLE, Edge, Tool
from toolwire.protocol.waits import Until
from toolwire.record.rows import new_id
from toolwire.wire.codecs.travelling import write_info
from toolwire.wire.mqtt.commands import (
    LONGEST_NAME,
    LONGEST_SOURCE,
    MAX_COMMAND_BYTES,
    MOST_SOURCES,
    CommandKind,
    EdgeCommand,
    ToolRequest,
    tool_payload,
)
from toolwire.wire.mqtt.reports import EdgeProgress, EdgeReport, ProgressKind
from toolwire.wire.mqtt.results import read_tool_result
from toolwire.wire.utp.writing import json_bytes

MARGIN_S = 5.0
"""How much longer than its tool a device may take to say that the time is over."""

GRACE_S = 3.0
"""How long a canceled call is waited for."""

_PLAIN_ID = re.compile(r"[!-~]{1,200}")
_LOOK_S = 1.0
_LONGEST_PAUSE_S = 15.0
_MAY_BE_THERE = (Presence.ONLINE, Presence.UNCONFIRMED)
_NO_BROKER = "the broker of the devices cannot be reached; start it, or correct edge.url"


class EdgeLimits(Struct, frozen=True):
    """How calls of devices are sent.

    A call for a device that is not there fails at once (`queue_s` = 0), or waits so long for it. After `stays_s` of
    that the turn waits and no process does: it is taken up again after `again_s`, and ever later. `margin_s` comes on
    top of the tool's own time.
    """

    queue_s: float = 0.0
    stays_s: float = math.inf
    again_s: float = 1.0
    margin_s: float = MARGIN_S
    grace_s: float = GRACE_S
    connect_s: float = 2.0


@dataclass(frozen=True, slots=True)
class _NotStarted(Exception):
    """Why a call was not sent."""

    code: Code
    reason: str


def record_id(context: Context) -> str:
    """What a device knows a call by: the same whenever it is sent, and another for any other call."""
    whole = f"{context.project}/{context.turn_id}/{context.call_id}"
    return whole if _PLAIN_ID.fullmatch(whole) else hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()


class EdgeExecutor:
    """Runs tools whose target is `Edge`, on the devices that a client knows."""

    notes_begin = True

    def __init__(
        self,
        client: DeviceClient,
        limits: EdgeLimits = EdgeLimits(),  # noqa: B008 -- frozen
        placements: Placements | None = None,
    ) -> None:
        self.client = client
        self._limits = limits
        self._placements = placements
        self._endings = Endings("toolwire-edge-cancel")

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        started = perf_counter()
        try:
            result = await self._execute(allowed, context)
        except _NotStarted as why:
            result = ToolResult.failed(allowed.call, why.code, f"{allowed.call.name!r} was not started: {why.reason}.")
        return replace(result, elapsed_ms=(perf_counter() - started) * 1000)

    def knows_calls(self, tool: Tool) -> bool:
        """A device keeps a journal of its calls."""
        return isinstance(tool.target, Edge)

    def leftover(self, key: str) -> Left | None:
        return self._endings.leftover(key)

    async def close(self) -> None:
        tasks = list(self._endings.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _execute(self, allowed: Allowed, context: Context) -> ToolResult:
        client, target = self.client, allowed.tool.target
        if not isinstance(target, Edge):
            raise _NotStarted(Code.UNAVAILABLE, "its tool does not live on a device")
        if context.trial is not None:
            context.trial.wanted = "It runs on a device, where nothing is tried."
            raise _NotStarted(Code.UNAVAILABLE, "a device cannot try a call without its effects")
        device = await self._reachable(client, target, allowed, context)
        arguments = {name: item for name, item in allowed.arguments.items() if not _is_choice(name, target)}
        command = self._command(client, device, replace(allowed, arguments=arguments), context)
        call = client.open(command, lambda one: _pass_on(one, context))
        context.begins(context.turn_id, context.call_id)
        try:
            async with asyncio.timeout(allowed.timeout_s + self._limits.margin_s):
                await client.send(call)
                report = await asyncio.shield(call.report)
        except TimeoutError:
            self._leave(client, call, context)
            return _unanswered(allowed, device.id, sent=call.sent, heard=bool(call.heard))
        except BaseException:  # most often a cancellation, which is the caller's own word and passes through
            ending = self._leave(client, call, context)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.grace_s):
                    await asyncio.shield(ending)
            raise
        client.close(call)
        await asyncio.sleep(0)  # watchers hear of progress on the loop, before they hear of the end
        return await self._whole(_result(report, allowed, device.id), report, client, device.id)

    async def _whole(self, result: ToolResult, report: EdgeReport, client: DeviceClient, device: str) -> ToolResult:
        """The result with all its words. Those that were too many for a report are fetched from the device."""
        artifact = report.body.get("artifact")
        if not isinstance(artifact, dict):
            return replace(result, handle=None) if result.handle is not None else result
        raw = await fetch_artifact(client, device, artifact)
        if raw is None:  # what the report has of it is better than nothing
            return replace(result, handle=None, truncated=True)
        others = tuple(block for block in result.content if not isinstance(block, (Text, ErrorText)))
        words = raw.decode("utf-8", "replace")
        shown = ErrorText(words, result.error.code) if result.error is not None else Text(words)
        return replace(result, content=(shown, *others), handle=None, truncated=False)

    # Where it goes

    async def _reachable(self, client: DeviceClient, target: Edge, allowed: Allowed, context: Context) -> Device:
        """The device for a call, which is there. Raises _NotStarted."""
        began = client.now
        end = began + max(self._limits.queue_s, 0.0 if client.connected else self._limits.connect_s)
        leaves = self._limits.queue_s > 0 and self._limits.stays_s < math.inf
        while True:
            chosen = _route(client, target, allowed, context)
            left_s = end - client.now
            if isinstance(chosen, Device) and chosen.at(client.now) is Presence.UNCONFIRMED:
                left_s = CONFIRM_S  # it answers, or is offline soon
            elif isinstance(chosen, Device) and client.connected:
                if self._placements is None or not _is_chosen(client, target, allowed):
                    return chosen
                target = Edge(await self._placements.keep(context, chosen.id), target.tool)
                continue
            if left_s <= 0 or (isinstance(chosen, _NotStarted) and chosen.code is Code.PERMISSION_DENIED):
                raise chosen if isinstance(chosen, _NotStarted) else _NotStarted(Code.UNAVAILABLE, _NO_BROKER)
            if leaves and self._placements is not None and isinstance(chosen, _NotStarted):
                end = await self._placements.keep_end(context, end)
                left_s = self._before_leaving(client.now, began, end, target.tool or allowed.tool.name)
            await client.changes(max(min(left_s, _LOOK_S), 0.0))

    def _before_leaving(self, now: float, began: float, end: float, tool: str) -> float:
        """How long this process may still wait for a device. Raises Suspended when the turn is to do so."""
        leaves_at = began + self._limits.stays_s
        if now < leaves_at or now >= end:
            return min(leaves_at, end) - now
        waited_s = now - (end - self._limits.queue_s)
        pause_s = max(self._limits.again_s, min(waited_s / 4, _LONGEST_PAUSE_S))
        raise Suspended("", (Until(min(end, now + pause_s), f"a device with {tool}"),))

    def _command(self, client: DeviceClient, device: Device, allowed: Allowed, context: Context) -> EdgeCommand:
        target = allowed.tool.target
        assert isinstance(target, Edge)
        request = ToolRequest(target.tool or allowed.tool.name, allowed.arguments, allowed.timeout_s)
        payload = tool_payload(request)
        if _size(payload) > MAX_COMMAND_BYTES // 2:
            raise _NotStarted(Code.INVALID_PARAMS, f"its arguments are larger than {MAX_COMMAND_BYTES // 2:,} bytes")
        return EdgeCommand(
            CommandKind.TOOL, new_id(), device.id, payload, record_id(context), context.project[:LONGEST_NAME],
            context.epoch, context.attempt, deadline=client.now + allowed.timeout_s,
            digest=digest(dict(allowed.arguments)), info=_about(context),
        )  # fmt: skip

    # Calls that are given up

    def _leave(self, client: DeviceClient, call: PendingCall, context: Context) -> "asyncio.Task[None]":
        """Have the device stop a call. What it touches is free when the device says that it has, or in a while."""
        call.given_up = True
        if not call.sent:
            client.close(call)
        return self._endings.wait_for(context.idempotency_key, self._stop(client, call))

    async def _stop(self, client: DeviceClient, call: PendingCall) -> None:
        if not call.sent:
            return
        command = call.command
        stop = replace(
            command, kind=CommandKind.CANCEL, request_id=new_id(), info={}, deadline=None,
            payload={"record_id": command.record_id, "request_id": command.request_id},
        )  # fmt: skip
        try:
            with suppress(BusError, TimeoutError):
                async with asyncio.timeout(self._limits.margin_s):
                    await client.publish(stop)
                    await asyncio.shield(call.report)
        finally:
            client.close(call)


def _size(payload: dict[str, Any]) -> int:
    """Bytes of a payload as it travels. Raises _NotStarted for text that no JSON can carry."""
    try:
        return len(json_bytes(payload))
    except TypeError as wrong:
        raise _NotStarted(Code.INVALID_PARAMS, f"its arguments cannot be sent as JSON ({wrong})") from None


def _about(context: Context) -> dict[str, Any]:
    """What a tool on a device may know about its call. What the caller may do is not the device's business.

    Devices refuse what is longer than they read, and a call must not fail by the length of a name.
    """
    said = {name: value for name, value in write_info(context.info).items() if value not in ("", None)}
    said.pop("grant", None)
    for name in ("call_id", "turn_id", "step_id"):
        if name in said and not _PLAIN_ID.fullmatch(str(said[name])):
            del said[name]
    for name in ("agent", "thread"):
        if name in said:
            said[name] = str(said[name])[:LONGEST_NAME]
    if "tainted_by" in said:  # that there is one counts on the device, and not how many
        said["tainted_by"] = [str(one)[:LONGEST_SOURCE] for one in said["tainted_by"]][:MOST_SOURCES]
    return said


def _is_choice(name: str, target: Edge) -> bool:
    """Whether an argument names the device, and is none of the tool's own."""
    return name == ADDRESSEE and not target.device


def _is_chosen(client: DeviceClient, target: Edge, allowed: Allowed) -> bool:
    """Whether the router picks a device for a call that must not run on two of them."""
    if target.device or allowed.arguments.get(ADDRESSEE) or allowed.tool.effect in REPEATABLE:
        return False
    return len(client.registry.with_tool(target.tool or allowed.tool.name)) > 1


def _route(client: DeviceClient, target: Edge, allowed: Allowed, context: Context) -> Device | _NotStarted:
    """The device for a call: the one that is named, else one that has the tool and is there, or may be."""
    known, now, tool = client.registry, client.now, target.tool or allowed.tool.name
    named = target.device or allowed.arguments.get(ADDRESSEE) or ""
    able = known.with_tool(tool)
    if named:
        device = next((one for one in able if one.id == named), None)
        if device is None:
            near = nearest(str(named), [one.id for one in able])
            hint = f"; did you mean {near[0]}?" if near else ""
            return _NotStarted(Code.NOT_FOUND, f"no device {str(named)[:64]!r} has the tool {tool!r}{hint}")
        if refusal := device.key_refusal(client.key_id):
            return _NotStarted(Code.PERMISSION_DENIED, refusal)
        return device if device.at(now) in _MAY_BE_THERE else _NotStarted(Code.UNAVAILABLE, _absence(device, now))
    refusals = [refusal for one in able if (refusal := one.key_refusal(client.key_id))]
    if refusals and len(refusals) == len(able):
        return _NotStarted(Code.PERMISSION_DENIED, refusals[0])
    obeying = [one for one in able if not one.key_refusal(client.key_id)]
    there = {one.id: one for one in obeying if one.at(now) in _MAY_BE_THERE}
    key = context.thread or context.turn_id
    chosen = choose(key, list(there), known.load, lambda one: there[one].slots)
    if chosen:
        return there[chosen]
    said = f"none of the {len(able)} devices with it is online" if able else "no device offers it any more"
    return _NotStarted(Code.UNAVAILABLE, said)


def _absence(device: Device, now: float) -> str:
    match device.at(now):
        case Presence.DRAINING:
            return f"the device {device.id} is draining and takes no more calls"
        case Presence.UNKNOWN:
            return f"the device {device.id} has never been online"
    if device.claimed_at is not None:
        return (
            f"the device {device.id} does not answer: the broker kept that it was online, and nothing has come from "
            "it since. If its agent runs, look whether its file accepts the key of edge.signing_key"
        )
    since = f", last seen {now - device.seen_at:.0f} s ago" if device.seen_at else ""
    return f"the device {device.id} is offline{since}"


def _pass_on(progress: EdgeProgress, context: Context) -> None:
    if progress.kind is ProgressKind.OUTPUT:
        context.output(progress.text, "stderr" if progress.stream == "stderr" else "stdout")
    elif progress.kind is ProgressKind.PROGRESS:
        fraction = progress.fraction
        context.progress(progress.text[:1_000], fraction if fraction is not None and fraction <= 1 else None)


def _result(report: EdgeReport, allowed: Allowed, device: str) -> ToolResult:
    result = read_tool_result(report.body, allowed.call)
    if isinstance(result, str):
        return _lost(allowed, f"the device {device} sent an unexpected report ({result})")
    return result


def _unanswered(allowed: Allowed, device: str, *, sent: bool, heard: bool) -> ToolResult:
    call = allowed.call
    hint = "" if heard else " If it is online, look whether its file accepts the key of edge.signing_key."
    if not sent:
        message = f"{call.name!r} was not started: the broker could not be reached in time."
        return ToolResult.failed(call, Code.UNAVAILABLE, message)
    if allowed.tool.effect in REPEATABLE:
        limit = f"{allowed.timeout_s:g} s"
        message = f"{call.name!r} did not finish within {limit}, and the device {device} does not answer.{hint}"
        return ToolResult.failed(call, Code.TIMEOUT, message)
    return _lost(allowed, f"the device {device} did not answer within {allowed.timeout_s:g} s", hint)


def _lost(allowed: Allowed, reason: str, hint: str = "") -> ToolResult:
    """The result of a call that was sent, and whose own result never came."""
    doubt = "It may or may not have taken effect. Check before you repeat it."
    message = f"{allowed.call.name!r} was sent, but {reason}. {doubt}{hint}"
    return ToolResult.failed(allowed.call, Code.OUTCOME_UNKNOWN, message)
