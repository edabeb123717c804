"""The tools of a device, and how one of their calls is decided about and run under the device's own grant."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from toolwire.decide.ladder import Case, decide
from toolwire.define.toolbox import Toolbox
from toolwire.deliver.endings import busy, canceled_result, refusal_result
from toolwire.deliver.told import with_told
from toolwire.deliver.visible import visible_result
from toolwire.errors import Suspended
from toolwire.execute.contract import AbandonsWork, Executor
from toolwire.execute.output_buffer import OutputBuffer
from toolwire.execute.output_buffer import Tell as TellOutput
from toolwire.execute.resources import Busy, Resources
from toolwire.plan.resources import claims, touches
from toolwire.protocol.calls import Allowed, Denied, NeedsApproval, ToolCall, ToolResult
from toolwire.protocol.context import CallInfo, Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Grant
from toolwire.wire.mqtt.commands import LONGEST_NAME, LONGEST_SOURCE, MOST_SOURCES, EdgeCommand, ToolRequest
from toolwire.wire.mqtt.reading import FieldReader
from toolwire.wire.mqtt.refusals import RefusedMessage

Progress = Callable[[str, float | None], None]
_HARMLESS = (Effect.PURE, Effect.IDEMPOTENT)


class DeviceTools:
    """Runs calls. `reveal` puts secrets of the device into a call, `scrub` takes them out of its result.

    The grant is the device's own: nothing that a command says widens it. A call that needs approval runs only if its
    tool is `confirmed` there, or if the device `trusts_approvals` of orchestrators and the command says it has one.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        grant: Grant,
        executor: Executor,
        *,
        name: str,
        trusts_approvals: bool = False,
        reveal: Callable[[Allowed], Allowed] | None = None,
        scrub: Callable[[ToolResult], ToolResult] | None = None,
    ) -> None:
        self.toolbox = toolbox
        self._grant = grant
        self._executor = executor
        self._name = name
        self._trusts_approvals = trusts_approvals
        self._reveal = reveal
        self._scrub = scrub
        self._resources = Resources()

    def is_harmless(self, name: str) -> bool:
        """Whether a call of this tool may run again after a crash."""
        tool = self.toolbox.get(name)
        return tool is not None and (tool.effect in _HARMLESS or tool.journaled)

    def judge(self, call: ToolCall, info: CallInfo, request: ToolRequest) -> Allowed | ToolResult:
        """The call as it may run, or the result that says why it may not."""
        tool = self.toolbox.get(call.name)
        if tool is not None and request.version and tool.version != request.version:
            said = f"{call.name!r} has version {tool.version} on this device, not {request.version}."
            return ToolResult.failed(call, Code.UNAVAILABLE, said)
        decision = decide(Case(call, self.toolbox, self._grant, tainted=bool(info.tainted_by)))
        if isinstance(decision, NeedsApproval) and self._trusts_approvals and info.approved:
            decision = decision.allowed
        match decision:
            case Allowed():
                wanted = decision.timeout_s if request.timeout_s is None else request.timeout_s
                return replace(decision, timeout_s=max(min(wanted, decision.tool.max_timeout_s), 0.001))
            case NeedsApproval(reason=reason):
                said = f"{reason} Its operator can list {call.name!r} in grant.confirmed of the device's file."
                return refusal_result(
                    Denied(call, Code.PERMISSION_DENIED, f"{self._name} refuses: {said}", "confirmation")
                )
            case denied:
                return refusal_result(replace(denied, message=self._denial(denied)))

    def _denial(self, denied: Denied) -> str:
        """Whose refusal it is: what orchestrators grant changes nothing about it."""
        tool, grant, name = self.toolbox.get(denied.call.name), self._grant, denied.call.name
        if tool is None or denied.rule == "arguments":
            return denied.message
        if denied.rule == "permissions":
            missing, listed = ", ".join(sorted(tool.needs - grant.permissions)), ", ".join(sorted(grant.permissions))
            why = f"its capability file does not allow {missing} (agent.capabilities = [{listed}])"
        elif denied.rule == "tier":
            why = f"it needs tier {tool.tier.name.lower()}, and grant.tier of its file is {grant.tier.name.lower()}"
        else:
            return f"{self._name} refuses: {denied.message}"
        return f"{self._name} refuses {name!r}: {why}. Only the operator of that device can change this."

    async def run(
        self, allowed: Allowed, info: CallInfo, progress: Progress, write: TellOutput | None = None
    ) -> ToolResult:
        """The result of an allowed call. Cancellation passes through, after the work of the tool was stopped."""
        context = replace(
            Context.of(replace(info, timeout_s=allowed.timeout_s), progress), grant=self._grant, reveal=self._reveal
        )
        output = OutputBuffer(write, self._clean) if write is not None else None
        if output is not None:
            context = replace(context, write=output.write)
        result = await (self._run_holding(allowed, context) if touches(allowed.tool) else self._run(allowed, context))
        if output is not None:
            output.close()
        if self._scrub is not None:
            result = self._scrub(result)
        if context.told or allowed.tool.untrusted:
            result = with_told(result, allowed, context, self._clean)
        return visible_result(result)

    async def close(self) -> None:
        await self._executor.close()

    async def _run_holding(self, allowed: Allowed, context: Context) -> ToolResult:
        """Run a call that touches something, which stays held while any of its work goes on."""
        call, executor = allowed.call, self._executor
        touched = claims(allowed.tool, allowed.arguments, next(iter(self._grant.roots), ""))
        try:
            async with self._resources.holding(touched, f"{call.name!r} ({call.id})", allowed.timeout_s) as ticket:
                try:
                    return await self._run(allowed, context)
                finally:
                    if isinstance(executor, AbandonsWork):
                        ticket.until = executor.leftover(context.idempotency_key)
        except Busy as held:
            return busy(call, held.resource, held.holder, allowed.timeout_s)

    async def _run(self, allowed: Allowed, context: Context) -> ToolResult:
        try:
            return await self._executor.execute(allowed, context)
        except Suspended as waiting:
            message = f"{allowed.call.name!r} waits for another turn, which no tool of a device can: {waiting}."
            return ToolResult.failed(allowed.call, Code.EXECUTION_FAILED, message)
        except Exception as error:  # secrets that the tool may not have; whatever a tool raises is a result already
            return ToolResult.failed(allowed.call, Code.PERMISSION_DENIED, f"{error}.")

    def _clean(self, text: str) -> str:
        if self._scrub is None:
            return text
        return self._scrub(ToolResult.failed(ToolCall("", {}), Code.EXECUTION_FAILED, text)).text


def call_of(command: EdgeCommand, name: str, arguments: Mapping[str, Any]) -> ToolCall:
    return ToolCall(name, arguments, id=command.journal_key)


def info_of(command: EdgeCommand) -> CallInfo | RefusedMessage:
    """What a tool may know about its call, of what the command says. The grant is not among it."""
    reader = FieldReader(command.info)
    info = CallInfo(
        reader.identifier("call_id") or command.journal_key,
        reader.identifier("turn_id") or command.agent_id,
        command.attempt,
        project=command.project or "default",
        agent=reader.text("agent", LONGEST_NAME) or "agent",
        thread=reader.text("thread", LONGEST_NAME),
        tainted_by=reader.texts("tainted_by", MOST_SOURCES, LONGEST_SOURCE),
        approved=reader.flag("approved") and bool(command.key_id),  # no unsigned message is someone's approval
        record_id=command.record_id,
        epoch=command.epoch,
        step_id=reader.identifier("step_id"),
    )
    return reader.fault or info


def stopped(call: ToolCall, *, begun: bool) -> ToolResult:
    """The result of a call that was canceled."""
    return canceled_result(call, begun=begun)


def interrupted(call: ToolCall) -> ToolResult:
    """The result of a call that a process began and died over."""
    message = (
        f"{call.name!r} was started, but the device stopped before its result was known. It may or may not have taken "
        "effect, and it was not run again. Check before you repeat it."
    )
    return ToolResult.failed(call, Code.OUTCOME_UNKNOWN, message)


def not_started(call: ToolCall) -> ToolResult:
    """The result of a call that waited when the machine went off."""
    message = f"{call.name!r} was not started: the device was switched off while the call waited there."
    return ToolResult.failed(call, Code.UNAVAILABLE, message)
