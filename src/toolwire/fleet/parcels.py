"""What is kept about a call that is sent: its command, its card, and all that a worker needs to run it. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.define.canonical import digest
from toolwire.define.service_arguments import FilledArguments, fill_arguments
from toolwire.errors import StoreError
from toolwire.hub.calls import end_with_call
from toolwire.protocol.bus import AfterExecution, BusMessage
from toolwire.protocol.calls import Allowed
from toolwire.protocol.context import Context
from toolwire.protocol.records import CallCard, Dispatch
from toolwire.protocol.subjects import BadSubject, Subject, TargetSubject, check_token
from toolwire.protocol.tools import BusService
from toolwire.protocol.turns import Turn
from toolwire.record.contract import Ends
from toolwire.wire.codecs.faithful import dump, load
from toolwire.wire.codecs.travelling import write_allowed
from toolwire.wire.utp.cards import ToolCallCard
from toolwire.wire.utp.messages import CallOrigin, ToolCommand, Wakeup, encode_command, encode_wakeup
from toolwire.wire.utp.violations import Refusal

NO_ORIGIN = CallOrigin()
CHANNEL = "public"
"""The channel of calls whose turn names none."""
_LATEST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
"""No date is later."""


class Parcel(Struct, frozen=True):
    """A call on its way. `allowed` is the call as `wire.codecs.travelling` writes it, with all arguments filled in.

    `environment` names the variables of the worker from which arguments come that are on no card. A call that
    `ends_turn` is a turn by itself: the process that writes down its result ends the turn with it. For one that
    has a `note_key`, the process that sent it waits, for as long as it takes: what comes with this key is from
    one who can read the store.
    """

    subject: Subject
    agent: str
    after_execution: AfterExecution
    allowed: Mapping[str, Any]
    digest: str
    applied: Mapping[str, Any]
    environment: Mapping[str, str]
    result_chars: int
    envelope: bool
    origin: CallOrigin = CallOrigin()
    ends_turn: bool = False
    note_key: str = ""

    @property
    def arguments(self) -> Mapping[str, Any]:
        arguments: Mapping[str, Any] = self.allowed["arguments"]
        return arguments


def pack(
    allowed: Allowed,
    context: Context,
    *,
    channel: str = CHANNEL,
    result_chars: int,
    envelope: bool,
    origin: CallOrigin,
    note_key: str = "",
) -> Parcel:
    """A call of a tool behind the bus. Raises BadSubject and HiddenArgument."""
    target = allowed.tool.target
    assert isinstance(target, BusService)
    subject = TargetSubject.parse(target.subject).fill(context.project, channel)
    filled = _filled(target, allowed, context, channel, origin)
    travels = write_allowed(replace(allowed, arguments=filled.arguments), context.info)
    return Parcel(
        subject, context.agent, target.after_execution, travels, digest(dict(filled.arguments)), filled.metadata,
        target.environment, result_chars, envelope, origin, context.ends_turn, note_key,
    )  # fmt: skip


def _filled(
    target: BusService, allowed: Allowed, context: Context, channel: str, origin: CallOrigin
) -> FilledArguments:
    variables: dict[str, str | int] = {
        "project_id": context.project,
        "channel_id": channel,
        "agent_id": context.agent,
        "agent_turn_id": context.turn_id,
        "tool_call_id": context.call_id,
        "turn_epoch": context.epoch,
        "step_id": context.step_id,
        "parent_step_id": origin.parent_step_id,
        "trace_id": origin.traceparent.split("-")[1] if origin.traceparent else "",
    }
    return fill_arguments(target, allowed.arguments, variables)


def write_parcel(parcel: Parcel) -> str:
    """As JSON, for the store."""
    origin = {name: value for name in CallOrigin.__struct_fields__ if (value := getattr(parcel.origin, name))}
    return dump(
        {
            "agent": parcel.agent,
            "after_execution": parcel.after_execution.value,
            "allowed": dict(parcel.allowed),
            "digest": parcel.digest,
            "applied": dict(parcel.applied),
            "environment": dict(parcel.environment),
            "result_chars": parcel.result_chars,
            "envelope": parcel.envelope,
            "origin": origin,
            **{name: value for name in ("ends_turn", "note_key") if (value := getattr(parcel, name))},
        }
    )


def read_parcel(dispatch: Dispatch) -> Parcel:
    """Raises StoreError: the store was written by another version, or damaged."""
    try:
        kept = load(dispatch.message)
        return Parcel(
            Subject.parse(dispatch.subject),
            kept["agent"],
            AfterExecution(kept["after_execution"]),
            kept["allowed"],
            kept["digest"],
            kept["applied"],
            kept["environment"],
            int(kept["result_chars"]),
            bool(kept["envelope"]),
            CallOrigin(**kept["origin"]),
            bool(kept.get("ends_turn", False)),
            kept.get("note_key", ""),
        )
    except (KeyError, TypeError, ValueError) as wrong:
        reason = f"{type(wrong).__name__}: {wrong}"
        raise StoreError(f"how call {dispatch.call_id!r} was sent cannot be read ({reason})") from None


def command_of(parcel: Parcel, dispatch: Dispatch, card: CallCard, step_id: str = "") -> ToolCommand:
    """The command that is sent: who calls, and which card to read. A card may not know its step yet."""
    return ToolCommand(
        parcel.subject,
        parcel.agent,
        dispatch.turn_id,
        dispatch.epoch,
        dispatch.call_id,
        parcel.after_execution,
        dispatch.card_id or card.record_id,
        tool_name=card.call.name,
        step_id=step_id or card.step_id,
        arguments_digest=parcel.digest,
        origin=parcel.origin,
    )


def command_message(
    parcel: Parcel, dispatch: Dispatch, card: CallCard, *, step_id: str = "", is_checked: bool = False
) -> BusMessage | Refusal:
    return encode_command(command_of(parcel, dispatch, card, step_id), is_checked=is_checked)


def call_card(parcel: Parcel, dispatch: Dispatch, card: CallCard) -> ToolCallCard:
    """The card of type `tool.call` that the command points to."""
    return ToolCallCard(
        card.record_id,
        dispatch.project,
        dispatch.turn_id,
        dispatch.call_id,
        card.call.name,
        parcel.arguments,
        step_id=card.step_id,
        turn_epoch=dispatch.epoch,
        arguments_digest=parcel.digest,
        deadline=_deadline(parcel, dispatch),
        target_subject=dispatch.subject,
        after_execution=parcel.after_execution,
        author_id=parcel.agent,
        extra_metadata=parcel.applied,
    )


def turn_end(parcel: Parcel, card: CallCard) -> Ends | None:
    """How the turn of a call ends with its result, where it does."""
    if not parcel.ends_turn:
        return None
    return partial(end_with_call, Turn(card.turn_id, card.project, card.agent, "", card.epoch))


def _deadline(parcel: Parcel, dispatch: Dispatch) -> str:
    """When the call must have ended at the latest: begun just before it would be given up, with all its time."""
    at = min(dispatch.expires_at + float(parcel.allowed["timeout_s"]), _LATEST)
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def agent_token(agent: str) -> str:
    """An agent in a subject: its name, or the digest of one that could mean more than itself there."""
    try:
        return check_token(agent, "the name of an agent")
    except BadSubject:
        return f"agent-{digest(agent)[:32]}"


def wakeup_message(card: CallCard, channel: str, origin: CallOrigin = NO_ORIGIN) -> BusMessage | Refusal:
    """The doorbell of the processes that run an agent's turns: one of its calls has a result."""
    return encode_wakeup(
        Wakeup(
            Subject.wakeup(card.project, channel, agent_token(card.agent)),
            card.agent,
            reason="tool_result",
            metadata={"agent_turn_id": card.turn_id, "tool_call_id": card.call.id},
            origin=origin,
        )
    )
