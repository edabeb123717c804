"""The first part of a call's journey: it is judged, gets its card, and the audit log a row about the decision."""

from collections.abc import Sequence

from msgspec.structs import replace

from toolwire.decide.ladder import Case, Clearance, decide, too_many
from toolwire.define.canonical import digest, sorted_json
from toolwire.deliver.endings import refusal_result
from toolwire.deliver.secrets import NO_SECRETS, Secret, Secrets
from toolwire.deliver.url_passwords import has_url_password, withhold
from toolwire.hub.calls import Accepted
from toolwire.hub.services import Services
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.calls import Allowed, Decision, Denied, NeedsApproval, ToolCall
from toolwire.protocol.chat import Reply, untrusted_sources
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.tools import ENDS_TURN, REPEATABLE, USUAL, Agreement, Effect, InProcess, Tool
from toolwire.protocol.turns import Turn, TurnKind

_MOST_PASSWORDS = 256
# An enum's member is looked up anew each time it is named, and so is a function of a class.
_DETACH, _SUSPEND, _UNSAFE = AfterExecution.DETACH, AfterExecution.SUSPEND, Effect.UNSAFE
_row_about = AuditRow.about
_NOT_ALONE = "{name!r} ends the turn, so it must be the only call of its step. Call it alone, after the other results."


def judge(services: Services, turn: Turn, calls: Sequence[ToolCall], names: frozenset[str] | None) -> list[Accepted]:
    """Decide about calls and make their cards. `names` are the tools that were offered; None if any may be called."""
    judged = []
    most, cleared = turn.limits.calls_per_step, services.clearance
    if cleared is None or cleared.grant is not turn.grant or cleared.toolbox is not services.toolbox:
        cleared = services.clearance = Clearance(services.toolbox, turn.grant)
    read = untrusted_sources(turn.messages) if turn.tainted else ()
    alone = len(calls) == 1
    for place, call in enumerate(calls):
        decision: Decision | None = None
        data = sorted_json(call.arguments)  # written once, for the look at them and for their digest
        if not turn.tainted and place < most:
            decision = cleared.allow(call, names, turn.calls + place, data)
        if decision is None:
            decision = decide(
                Case(call, services.toolbox, turn.grant, names, turn.calls, place, most, turn.tainted, read)
            )
        if not alone and type(decision) is Allowed and decision.tool.category == ENDS_TURN:
            decision = Denied(call, Code.INVALID_PARAMS, _NOT_ALONE.format(name=call.name), "alone")
        judged.append(Accepted(_card_of(services, turn, call, decision, alone, data), decision))
    return judged


def judge_again(services: Services, turn: Turn, call: ToolCall) -> Decision:
    """The decision about an accepted call with other arguments."""
    heed_password(services, call)
    read = untrusted_sources(turn.messages) if turn.tainted else ()
    return decide(Case(call, services.toolbox, turn.grant, None, turn.calls, tainted=turn.tainted, read=read))


def refuse_rest(services: Services, turn: Turn, call: ToolCall, left_out: int) -> Accepted:
    """The last call of a reply that has too many, refused for itself and all that were left out."""
    decision = too_many(call, turn.limits.calls_per_step, left_out)
    return Accepted(_card_of(services, turn, call, decision, False), decision)


def _card_of(
    services: Services, turn: Turn, call: ToolCall, decision: Decision, alone: bool, data: bytes | None = None
) -> CallCard:
    """A call that is alone and runs in this process starts at once, so its card is opened as claimed: one write less.

    So is one of several that may run twice: should it never begin, it is simply run later. Any other is claimed by the
    process that runs it, so that a call which was never delivered has surely not begun.
    """
    attempt, result, agreed = 0, None, USUAL
    effect, version = _UNSAFE, ""
    if type(decision) is Allowed:
        tool: Tool | None = (known := decision.tool)
        if (alone or known.effect in REPEATABLE) and type(known.target) is InProcess:
            attempt = 0 if known.after_execution is _DETACH else 1
    else:
        tool = services.toolbox.get(call.name)
        if type(decision) is Denied:
            result = refusal_result(decision)
    if tool is not None:
        effect, version = tool.effect, tool.version
        if result is None and (tool.after_execution is not _SUSPEND or tool.controls_turn or not attempt):
            agreed = _agreement(turn, tool)
    record_id = services.new_id()
    return CallCard(
        record_id, turn.id, turn.epoch, call, digest(call.arguments, data), turn.project, turn.agent,
        effect, version, services.clock(), attempt, result, record_id if attempt else "", "", None,
        turn.iterations if turn.pending else turn.iterations + 1, agreed,
    )  # fmt: skip


def _agreement(turn: Turn, tool: Tool) -> Agreement:
    """What is agreed about a call. A turn that is a single call has nothing else to go on with than its result."""
    agreed = tool.agreement
    return agreed if agreed is USUAL or turn.kind is not TurnKind.CALL else USUAL


def decision_row(one: Accepted) -> AuditRow:
    """What the audit log says about the decision, which was made when the card was."""
    at = one.card.created_at
    match one.decision:
        case Allowed():
            return _row_about(one.card, "allowed", at)
        case NeedsApproval(tries=True):
            return AuditRow.about(one.card, "allowed", at, rule="trial")
        case NeedsApproval(reason=reason):
            return AuditRow.about(one.card, "awaiting_approval", at, rule="confirmation", detail={"reason": reason})
        case Denied(rule=rule, left_out=left_out):
            also = {"left_out": left_out} if left_out else None
            return AuditRow.about(one.card, "denied", at, rule=rule, result=one.card.result, detail=also)


def as_kept(one: Accepted, kept: CallCard) -> Accepted:
    """The call as the store has kept it: refused, if the day has no room for it."""
    if kept.result is None or one.card.result is not None or kept.result.error is None:
        return one
    denied = Denied(kept.call, Code.PERMISSION_DENIED, kept.result.error.message, "budget")
    return Accepted(kept, denied)


# Passwords in addresses


def withhold_passwords(services: Services, reply: Reply) -> Reply:
    """The reply as it is kept, without passwords in the addresses of its calls."""
    for call in reply.calls:
        if has_url_password(call.arguments):
            heed_password(services, call)
            return replace(reply, calls=tuple([withhold_password(services, each) for each in reply.calls]))
    return reply


def heed_password(services: Services, call: ToolCall) -> None:
    """From the first call with a password in an address on, or with what stands for one, calls are looked through.

    Another process may have withheld it, and then it is not known here.
    """
    if services.secrets is NO_SECRETS and has_url_password(call.arguments):
        services.secrets = Secrets({})


def withhold_password(services: Services, call: ToolCall) -> ToolCall:
    """The call with a placeholder for a password in an address, which stays in this process as a secret."""
    if not has_url_password(call.arguments):
        return call
    arguments, found = withhold(call.arguments, call.name, services.seal)
    if not found:
        return call
    held = {one.name: Secret(one.value, frozenset({call.name}), anywhere=True) for one in found}
    services.secrets = services.secrets.plus(held, _MOST_PASSWORDS)
    return replace(call, arguments=arguments, raw=None)
