"""Cards of a call and of its result: what a message points to.

A card is `card_id`, `project_id`, `type`, `content`, `metadata` and some more; the identity of the call is in the
metadata. Whatever else a card says is kept as it is.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.outcomes import Code, Status
from toolwire.wire.utp.fields import (
    AFTER,
    COUNT,
    IDENTIFIER,
    NAME,
    OBJECT,
    REASON,
    SHA256,
    Json,
    Kind,
    WireField,
)
from toolwire.wire.utp.messages import ToolCallback, ToolCommand
from toolwire.wire.utp.outcome import CardError, CardOutcome, read_outcome, write_outcome
from toolwire.wire.utp.reading import read_object
from toolwire.wire.utp.violations import Refusal, Violation, ViolationCode, changed_field, invalid, missing
from toolwire.wire.utp.writing import json_bytes

MAX_CARD_BYTES = 4 * 1024 * 1024
"""What is larger is kept as an artifact, and the card says where."""

CALL_TYPE, RESULT_TYPE = "tool.call", "tool.result"
ROLE = "tool"

HEAD_FIELDS = (
    WireField("card_id", IDENTIFIER, about="The card."),
    WireField("project_id", IDENTIFIER, about="The project that the card belongs to."),
    WireField("author_id", IDENTIFIER, about="The agent or service that wrote the card."),
    WireField("created_at", REASON, about="When it was written, as RFC 3339."),
)
CALL_METADATA = (
    WireField("agent_turn_id", IDENTIFIER, about="The turn that makes the call."),
    WireField("tool_call_id", IDENTIFIER, about="The call, unique in its turn."),
    WireField("step_id", IDENTIFIER, about="The step of the turn."),
    WireField("turn_epoch", COUNT, about="The epoch of the turn when the call was accepted."),
    WireField("arguments_digest", SHA256, about="SHA-256 of the canonical arguments (RFC 8785)."),
    WireField("deadline", REASON, about="When the call must have ended, as RFC 3339."),
)
CALL_CONTENT = (
    WireField("tool_name", NAME, about="The tool."),
    WireField("arguments", OBJECT, about="The arguments. Secrets are not among them."),
    WireField("target_subject", REASON, about="Where the command was sent."),
    WireField("after_execution", AFTER, about="What the turn does about the call."),
)
RESULT_METADATA = (*CALL_METADATA[:4], WireField("function_name", NAME, about="The tool."))
CALL_REQUIRED = ("card_id", "project_id", "agent_turn_id", "tool_call_id", "tool_name", "arguments")
RESULT_REQUIRED = ("card_id", "project_id", "agent_turn_id", "tool_call_id")


class ToolCallCard(Struct, frozen=True):
    """The card of type `tool.call`: which tool, with which arguments, for which call."""

    card_id: str
    project_id: str
    agent_turn_id: str
    tool_call_id: str
    tool_name: str
    arguments: Mapping[str, Any]
    step_id: str = ""
    turn_epoch: int = 0
    arguments_digest: str = ""
    deadline: str = ""
    target_subject: str = ""
    after_execution: AfterExecution | None = None
    author_id: str = ""
    created_at: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    extra_content: Mapping[str, Any] = field(default_factory=dict)
    extra_metadata: Mapping[str, Any] = field(default_factory=dict)


class ToolResultCard(Struct, frozen=True):
    """The card of type `tool.result`: how the call ended. See `outcome` for how its content is read."""

    card_id: str
    project_id: str
    agent_turn_id: str
    tool_call_id: str
    status: Status
    result: Any = None
    error: CardError | None = None
    after_execution: AfterExecution | None = None
    function_name: str = ""
    step_id: str = ""
    turn_epoch: int = 0
    author_id: str = ""
    created_at: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    extra_content: Mapping[str, Any] = field(default_factory=dict)
    extra_metadata: Mapping[str, Any] = field(default_factory=dict)


def decode_call_card(data: bytes) -> ToolCallCard | Refusal:
    """The call card that bytes are, or why they are none."""
    opened = _open(data, CALL_TYPE)
    if isinstance(opened, Refusal):
        return opened
    head, content, metadata = opened
    found = _Fields()
    rest = found.take(head, HEAD_FIELDS)
    extra_content = found.take(content, CALL_CONTENT)
    extra_content.pop("status", None)
    extra_metadata = found.take(metadata, CALL_METADATA)
    if (refusal := found.refusal(CALL_REQUIRED)) is not None:
        return refusal
    return ToolCallCard(**found.values, extra=rest, extra_content=extra_content, extra_metadata=extra_metadata)


def decode_result_card(data: bytes) -> ToolResultCard | Refusal:
    """The result card that bytes are, or why they are none.

    Only a card that cannot be told whose it is is refused: what is wrong with its content is a failed result.
    """
    opened = _open(data, RESULT_TYPE)
    if isinstance(opened, Refusal):
        return opened
    head, content, metadata = opened
    found = _Fields()
    rest = found.take(head, HEAD_FIELDS)
    extra_metadata = found.take(metadata, RESULT_METADATA)
    extra_metadata.pop("role", None)
    outcome, extra_content = read_outcome(content)
    if (refusal := found.refusal(RESULT_REQUIRED)) is not None:
        return refusal
    return ToolResultCard(
        **found.values,
        status=outcome.status,
        result=outcome.result,
        error=outcome.error,
        after_execution=outcome.after_execution,
        extra=rest,
        extra_content=extra_content,
        extra_metadata=extra_metadata,
    )


def encode_call_card(card: ToolCallCard) -> bytes | Refusal:
    """The bytes of a call card, or why they could not be read again."""
    content: Json = {**card.extra_content, **_present(card, CALL_CONTENT), "status": "called"}
    content["arguments"] = card.arguments
    whole = _close(card, CALL_TYPE, content, {**card.extra_metadata, **_present(card, CALL_METADATA)})
    return _written(whole, decode_call_card)


def encode_result_card(card: ToolResultCard) -> bytes | Refusal:
    """The bytes of a result card, with its error in both places of the protocol.

    A result that is not JSON, or too large, becomes a failed one that says so: the call has ended, whatever it
    returned. So only a card with a wrong identity is refused.
    """
    data = _encode_result(card, CardOutcome(card.status, card.result, card.error, card.after_execution))
    if isinstance(data, bytes) or not _is_content(data):
        return data
    code = "result_too_large" if data.violations[0].code is ViolationCode.TOO_LARGE else "result_not_serializable"
    error = CardError(code, f"The result was left out: {data.violations[0].message}.", kind=Code.INVALID_OUTPUT)
    return _encode_result(card, CardOutcome(Status.FAILED, None, card.error or error, card.after_execution))


def _encode_result(card: ToolResultCard, outcome: CardOutcome) -> bytes | Refusal:
    content = {**card.extra_content, **write_outcome(outcome)}
    metadata = {**card.extra_metadata, **_present(card, RESULT_METADATA), "role": ROLE}
    return _written(_close(card, RESULT_TYPE, content, metadata), decode_result_card)


def _is_content(refusal: Refusal) -> bool:
    return refusal.violations[0].code in (ViolationCode.TOO_LARGE, ViolationCode.NOT_JSON)


def call_card_violations(command: ToolCommand, card: ToolCallCard) -> tuple[Violation, ...]:
    """Where a command and the card that it points to do not belong together."""
    pairs = [
        ("tool_call_card_id", command.tool_call_card_id, card.card_id),
        ("project_id", command.subject.project, card.project_id),
        ("agent_turn_id", command.agent_turn_id, card.agent_turn_id),
        ("tool_call_id", command.tool_call_id, card.tool_call_id),
        ("step_id", command.step_id, card.step_id),
        ("tool_name", command.tool_name, card.tool_name),
        ("arguments_digest", command.arguments_digest, card.arguments_digest),
    ]
    if card.after_execution is not None:
        pairs.append(("after_execution", command.after_execution, card.after_execution))
    return _differences(pairs, "the card of the call")


def result_card_violations(callback: ToolCallback, card: ToolResultCard) -> tuple[Violation, ...]:
    """Where a callback and the card that it points to do not belong together.

    How the call ended is what the card says: a callback only routes.
    """
    pairs = [
        ("tool_result_card_id", callback.tool_result_card_id, card.card_id),
        ("project_id", callback.subject.project, card.project_id),
        ("agent_turn_id", callback.agent_turn_id, card.agent_turn_id),
        ("tool_call_id", callback.tool_call_id, card.tool_call_id),
        ("step_id", callback.step_id, card.step_id),
    ]
    if card.after_execution is not None:
        pairs.append(("after_execution", callback.after_execution, card.after_execution))
    return _differences(pairs, "the card of the result")


def _differences(pairs: list[tuple[str, str, str]], since: str) -> tuple[Violation, ...]:
    """Ids are needed on both sides; of what may be left out, only what both say can differ."""
    always = {"tool_call_card_id", "tool_result_card_id", "project_id", "agent_turn_id", "tool_call_id"}
    return tuple(
        changed_field(name, since) for name, one, other in pairs if one != other and (name in always or (one and other))
    )


class _Fields:
    """The fields of a card as far as they were read."""

    def __init__(self) -> None:
        self.values: Json = {}
        self._violations: list[Violation] = []

    def take(self, part: Mapping[str, Any], fields: tuple[WireField, ...]) -> Json:
        """Read these fields; what else there is comes back."""
        rest = dict(part)
        for one in fields:
            value = rest.pop(one.name, None)
            if value is not None:
                self._read(one.name, one.kind, value)
        return rest

    def refusal(self, required: tuple[str, ...]) -> Refusal | None:
        broken = {one.field for one in self._violations}
        absent = [name for name in required if name not in self.values and name not in broken]
        violations = (*self._violations, *(missing(name, "this card") for name in absent))
        return Refusal(violations, self.values) if violations else None

    def _read(self, name: str, kind: Kind, value: Any) -> None:
        try:
            self.values[name] = kind.read(value)
        except ValueError as wrong:
            self._violations.append(invalid(name, str(wrong)))


def _open(data: bytes, kind: str) -> tuple[Json, Json, Json] | Refusal:
    whole = read_object(data, MAX_CARD_BYTES, "the card")
    if isinstance(whole, Violation):
        return Refusal((whole,))
    head = dict(whole)
    if (written := head.pop("type", None)) != kind:
        return Refusal((invalid("type", f"must be {kind} here, not {str(written)[:40]!r}"),))
    content, metadata = head.pop("content", None), head.pop("metadata", None)
    if isinstance(content, dict) and isinstance(metadata, dict):
        return head, content, metadata
    parts = {"content": content, "metadata": metadata}
    return Refusal(
        tuple(invalid(name, "must be a JSON object") for name, part in parts.items() if not isinstance(part, dict))
    )


def _present(card: Any, fields: tuple[WireField, ...]) -> Json:
    return {one.name: item for one in fields if (item := getattr(card, one.name)) not in ("", None)}


def _close(card: Any, kind: str, content: Json, metadata: Json) -> Json:
    return {**card.extra, **_present(card, HEAD_FIELDS), "type": kind, "content": content, "metadata": metadata}


def _written(whole: Json, decode: Any) -> bytes | Refusal:
    try:
        data = json_bytes(whole)
    except TypeError as wrong:
        return Refusal((Violation(ViolationCode.NOT_JSON, f"the card cannot be written as JSON ({wrong})"),))
    read = decode(data)
    return read if isinstance(read, Refusal) else data
