"""Commands, callbacks and wakeups: values, and how they are written to and read from a bus."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from toolwire.protocol.bus import AfterExecution, BusMessage
from toolwire.protocol.outcomes import Status
from toolwire.protocol.subjects import VERSIONS, Subject
from toolwire.wire.utp.fields import (
    ADDRESS,
    CALLBACK_FIELDS,
    CALLBACK_REQUIRED,
    COMMAND_FIELDS,
    COUNT,
    LINEAGE,
    PMO_REQUIRED,
    STATE,
    TOOL_REQUIRED,
    TRACE,
    TYPE_HEADER,
    VERSION_HEADER,
    WAKEUP_FIELDS,
    WAKEUP_REQUIRED,
    Json,
    WireField,
)
from toolwire.wire.utp.reading import ReadMessage, read_message, read_subject
from toolwire.wire.utp.violations import (
    Refusal,
    Violation,
    ViolationCode,
    changed_field,
    conflicting,
    invalid,
)
from toolwire.wire.utp.writing import json_bytes

_ORIGIN = frozenset(one.name for one in (*LINEAGE, *TRACE))

UNCHANGED = ("agent_turn_id", "turn_epoch", "tool_call_id", "after_execution")
"""What a callback must say exactly as its command did; and a repeated callback its `tool_result_card_id`, too."""


class CallOrigin(Struct, frozen=True):
    """Where a call comes from: the turn above its own, and the trace that it belongs to."""

    parent_agent_id: str = ""
    parent_agent_turn_id: str = ""
    parent_step_id: str = ""
    recursion_depth: int = 0
    traceparent: str = ""
    tracestate: str = ""
    parent_traceparent: str = ""


class ToolCommand(Struct, frozen=True):
    """The request to run a call, sent to a tool service or to the PMO. The arguments are on the card that it names."""

    subject: Subject
    agent_id: str
    agent_turn_id: str
    turn_epoch: int
    tool_call_id: str
    after_execution: AfterExecution
    tool_call_card_id: str
    step_id: str = ""
    tool_name: str = ""
    context_box_id: str = ""
    arguments_digest: str = ""
    origin: CallOrigin = CallOrigin()
    extra: Mapping[str, Any] = field(default_factory=dict)
    extra_headers: Mapping[str, str] = field(default_factory=dict)


class ToolCallback(Struct, frozen=True):
    """The report that a call has ended: whose call, how it ended, and on which card its outcome is."""

    subject: Subject
    agent_id: str
    agent_turn_id: str
    turn_epoch: int
    tool_call_id: str
    tool_result_card_id: str
    status: Status
    after_execution: AfterExecution
    step_id: str = ""
    origin: CallOrigin = CallOrigin()
    extra: Mapping[str, Any] = field(default_factory=dict)
    extra_headers: Mapping[str, str] = field(default_factory=dict)


class Wakeup(Struct, frozen=True):
    """The doorbell of an agent: something may be in its inbox. Losing one only delays."""

    subject: Subject
    agent_id: str
    inbox_id: str = ""
    reason: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    origin: CallOrigin = CallOrigin()
    extra: Mapping[str, Any] = field(default_factory=dict)
    extra_headers: Mapping[str, str] = field(default_factory=dict)


def decode_command(message: BusMessage, *, versions: frozenset[str] = VERSIONS) -> ToolCommand | Refusal:
    """The command that a message at `cmd.tool.…` or `cmd.sys.pmo.internal.…` is."""
    subject = read_subject(message.subject, versions)
    if isinstance(subject, Violation):
        return Refusal((subject,))
    if not subject.is_tool_command and not subject.pmo_tool:
        return _misplaced(subject, "cmd.tool.<target> or cmd.sys.pmo.internal.<tool>")
    required = PMO_REQUIRED if subject.pmo_tool else TOOL_REQUIRED
    read = read_message(message, subject, COMMAND_FIELDS, required)
    if isinstance(read, Refusal):
        return read
    if subject.pmo_tool and read.values["tool_name"] != subject.pmo_tool:
        return Refusal((conflicting("tool_name", "the payload", "the subject"),), _known(read))
    return ToolCommand(**_parts(read))


def decode_callback(message: BusMessage, *, versions: frozenset[str] = VERSIONS) -> ToolCallback | Refusal:
    """The callback that a message at `cmd.sys.execution.report` is."""
    subject = read_subject(message.subject, versions)
    if isinstance(subject, Violation):
        return Refusal((subject,))
    if not subject.is_report:
        return _misplaced(subject, "cmd.sys.execution.report")
    read = read_message(message, subject, CALLBACK_FIELDS, CALLBACK_REQUIRED)
    if isinstance(read, Refusal):
        return read
    return ToolCallback(**_parts(read))


def decode_wakeup(message: BusMessage, *, versions: frozenset[str] = VERSIONS) -> Wakeup | Refusal:
    """The wakeup that a message at `cmd.agent.<target>.wakeup` is."""
    subject = read_subject(message.subject, versions)
    if isinstance(subject, Violation):
        return Refusal((subject,))
    if not subject.wakes:
        return _misplaced(subject, "cmd.agent.<target>.wakeup")
    read = read_message(message, subject, WAKEUP_FIELDS, WAKEUP_REQUIRED)
    if isinstance(read, Refusal):
        return read
    return Wakeup(**_parts(read))


def encode_command(
    command: ToolCommand, *, headers_only: bool = False, is_checked: bool = False
) -> BusMessage | Refusal:
    """The message of a command, or why it could not be read; one that `is_checked` has been read before.

    With `headers_only` the identity is left out of the payload, for services that refuse to find it there.
    """
    message = _encode(command, COMMAND_FIELDS, headers_only=headers_only)
    if is_checked or _is_plain(command, COMMAND_FIELDS, TOOL_REQUIRED):
        return message
    return _checked(message, command.extra, decode_command(message, versions=frozenset({command.subject.version})))


def encode_callback(callback: ToolCallback, *, headers_only: bool = False) -> BusMessage | Refusal:
    message = _encode(callback, CALLBACK_FIELDS, headers_only=headers_only)
    return _checked(message, callback.extra, decode_callback(message, versions=frozenset({callback.subject.version})))


def encode_wakeup(wakeup: Wakeup, *, headers_only: bool = False) -> BusMessage | Refusal:
    message = _encode(wakeup, WAKEUP_FIELDS, headers_only=headers_only)
    return _checked(message, wakeup.extra, decode_wakeup(message, versions=frozenset({wakeup.subject.version})))


def callback_of(command: ToolCommand, *, card_id: str, status: Status) -> ToolCallback:
    """The callback to a command. What may not change is taken from the command."""
    return ToolCallback(
        Subject.report(command.subject.project, command.subject.channel),
        command.agent_id,
        command.agent_turn_id,
        command.turn_epoch,
        command.tool_call_id,
        card_id,
        status,
        command.after_execution,
        command.step_id,
        command.origin,
    )


def callback_violations(command: ToolCommand, callback: ToolCallback) -> tuple[Violation, ...]:
    """What a callback says otherwise than its command. A step that it leaves out is not a difference."""
    names = (*UNCHANGED, "agent_id", *(("step_id",) if callback.step_id else ()))
    broken = [name for name in names if getattr(command, name) != getattr(callback, name)]
    asked, told = command.subject, callback.subject
    broken += ["project_id"] if asked.project != told.project else []
    broken += ["channel_id"] if asked.channel != told.channel else []
    return tuple(changed_field(name, "the command") for name in broken)


def repeat_violations(first: ToolCallback, again: ToolCallback) -> tuple[Violation, ...]:
    """What a repeated callback says otherwise than the first one for the same call."""
    names = (*UNCHANGED, "tool_result_card_id")
    return tuple(
        changed_field(name, "the first callback") for name in names if getattr(first, name) != getattr(again, name)
    )


def _item(value: Any, name: str) -> Any:
    return getattr(value.origin if name in _ORIGIN else value, name)


def _parts(read: ReadMessage) -> Json:
    """What a value is made of: the fields that were read, those of its origin together."""
    own = {name: item for name, item in read.values.items() if name not in _ORIGIN}
    origin = CallOrigin(**{name: item for name, item in read.values.items() if name in _ORIGIN})
    more = {"extra": read.extra, "extra_headers": read.extra_headers}
    return {"subject": read.subject, **own, "origin": origin, **more}


def _encode(value: Any, fields: tuple[WireField, ...], *, headers_only: bool) -> BusMessage:
    subject: Subject = value.subject
    # A depth of 0 is written, too: the published implementation refuses calls without one.
    present = [(one, item) for one in fields if (item := _item(value, one.name)) not in ("", {})]
    address = {"project_id": subject.project, "channel_id": subject.channel}
    payload: Json = {**value.extra, **({} if headers_only else address)}
    payload |= {one.name: item for one, item in present if not (one.header and headers_only)}
    headers = {
        TYPE_HEADER: type(value).__name__,
        VERSION_HEADER: subject.version,
        **value.extra_headers,
        **{header: address[name] for name, header in ADDRESS},
        **{one.header: str(item) for one, item in present if one.header},
    }
    return BusMessage(str(subject), _as_json(payload), headers)


def _as_json(payload: Json) -> bytes:
    try:
        return json_bytes(payload)
    except TypeError:  # the check that follows says that it is not JSON
        return b""


def _checked(message: BusMessage, extra: Mapping[str, Any], read: Any) -> BusMessage | Refusal:
    """The message, if its receiver can read it."""
    if isinstance(read, Refusal):
        return read
    if problem := _unsafe_header(message.headers):
        return Refusal((problem,))
    taken = [name for name in extra if name not in read.extra]
    if taken:
        return Refusal(tuple(invalid(name, "is a field of the protocol and cannot be an extra one") for name in taken))
    return message


def _is_plain(command: ToolCommand, fields: tuple[WireField, ...], required: tuple[str, ...]) -> bool:
    """Whether a message can surely be read, as nearly all can: every field holds what it may, and there are no others.

    What such a field holds is short, the same as text, and safe in a header.
    """
    if command.extra or command.extra_headers or not command.subject.is_tool_command:
        return False
    for one in fields:
        item = _item(command, one.name)
        if item == "":
            if one.name in required:
                return False
            continue
        try:
            if one.kind is STATE or one.kind.read(item) != item or (one.kind is COUNT and type(item) is not int):
                return False
        except ValueError:
            return False
    return True


def _unsafe_header(headers: Mapping[str, str]) -> Violation | None:
    for header, text in headers.items():
        if not header.isascii() or not header.isprintable() or ":" in header or " " in header or not header:
            return invalid("headers", f"must have names of visible ASCII without ':', not {header[:40]!r}")
        if not text.isascii() or not text.isprintable() or text != text.strip():
            return invalid(header, "must be visible ASCII on one line, without blanks around it")
    return None


def _misplaced(subject: Subject, right: str) -> Refusal:
    sentence = f"this kind of message goes to {right}, not to {subject}"
    address = {"project_id": subject.project, "channel_id": subject.channel}
    return Refusal((Violation(ViolationCode.BAD_SUBJECT, sentence),), address)


def _known(read: ReadMessage) -> Json:
    return {**read.values, "project_id": read.subject.project, "channel_id": read.subject.channel}
