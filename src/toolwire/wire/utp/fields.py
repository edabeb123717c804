"""The fields of messages and cards: their names in payloads and headers, what each may hold, and its JSON Schema."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.checked import describe_value
from toolwire.protocol.outcomes import Status

Json = dict[str, Any]

LONGEST_ID = 200
LARGEST_COUNT = 2**53 - 1
"""The largest integer that every JSON library reads exactly."""

TOOL_NAME = r"[A-Za-z_][A-Za-z0-9_.-]{0,127}"
ID = rf"[!-~]{{1,{LONGEST_ID}}}"
DIGEST = r"[0-9a-f]{64}"
TRACEPARENT = r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"
TRACESTATE = r"[ -~]{1,512}"
_COUNT = re.compile("0|[1-9][0-9]{0,15}")


class Kind(Struct, frozen=True):
    """What a field may hold. `read(value)` gives the value as it is meant, and raises ValueError that says why not."""

    read: Callable[[Any], Any]
    schema: Json
    from_text: Callable[[str], Any] = str


def _text(pattern: str, words: str) -> Kind:
    expression = re.compile(pattern)

    def read(value: Any) -> str:
        if isinstance(value, str) and expression.fullmatch(value):
            return value
        raise ValueError(f"must be {words}, not {describe_value(value)}")

    return Kind(read, {"type": "string", "pattern": f"^(?:{pattern})$"})


def _read_count(value: Any) -> int:
    """A whole number. JSON has one kind of number, so `3.0` is the 3 that some libraries write."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_COUNT:
        raise ValueError(f"must be a whole number from 0 to {LARGEST_COUNT}, not {describe_value(value)}")
    return value


def _count_from_text(text: str) -> Any:
    return int(text) if _COUNT.fullmatch(text) else text


def _choice(kind: type[AfterExecution] | type[Status]) -> Kind:
    names = [member.value for member in kind]

    def read(value: Any) -> AfterExecution | Status:
        if isinstance(value, str) and value in names:
            return kind(value)
        raise ValueError(f"must be one of {', '.join(names)}, not {describe_value(value)}")

    return Kind(read, {"type": "string", "enum": names})


def _read_object(value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError(f"must be a JSON object, not {describe_value(value)}")


IDENTIFIER = _text(ID, f"1 to {LONGEST_ID} visible ASCII characters")
NAME = _text(TOOL_NAME, "1 to 128 letters, digits, '_', '.' or '-', starting with a letter or '_'")
SHA256 = _text(DIGEST, "a SHA-256 in 64 small hexadecimal digits")
COUNT = Kind(_read_count, {"type": "integer", "minimum": 0, "maximum": LARGEST_COUNT}, _count_from_text)
AFTER = _choice(AfterExecution)
STATUS = _choice(Status)
OBJECT = Kind(_read_object, {"type": "object"})
PARENT = _text(TRACEPARENT, "a W3C traceparent")
STATE = _text(TRACESTATE, "a W3C tracestate")
REASON = _text(r"[^\x00-\x1f\x7f]{0,500}", "a line of at most 500 characters")


class WireField(Struct, frozen=True):
    """One field, by its name in the payload and in values here. `header` is where it stands too, if anywhere.

    A field that is only `traced` serves observers: a wrong one is left out, and never refuses a message.
    """

    name: str
    kind: Kind
    header: str = ""
    about: str = ""
    traced: bool = False


IDENTITY = (
    WireField("agent_id", IDENTIFIER, "CG-Agent-Id", "The agent whose turn makes the call."),
    WireField("agent_turn_id", IDENTIFIER, "CG-Turn-Id", "The turn that makes the call."),
    WireField(
        "turn_epoch", COUNT, "CG-Turn-Epoch", "The epoch of the turn; an older one is stale and changes nothing."
    ),
    WireField("step_id", IDENTIFIER, "CG-Step-Id", "The step of the turn: one reply of the model."),
    WireField("tool_call_id", IDENTIFIER, "CG-Tool-Call-Id", "The call, unique in its turn."),
)
LINEAGE = (
    WireField("parent_agent_id", IDENTIFIER, "CG-Parent-Agent-Id", "The agent that started this one."),
    WireField("parent_agent_turn_id", IDENTIFIER, "CG-Parent-Turn-Id", "The turn that started this one."),
    WireField("parent_step_id", IDENTIFIER, "CG-Parent-Step-Id", "The step that started this turn."),
    WireField("recursion_depth", COUNT, "CG-Recursion-Depth", "How many turns lie above this one."),
)
TRACE = (
    WireField("traceparent", PARENT, "traceparent", "The W3C trace context.", traced=True),
    WireField("tracestate", STATE, "tracestate", "The W3C trace state.", traced=True),
    WireField(
        "parent_traceparent", PARENT, "CG-Parent-Traceparent", "The trace context of the parent turn.", traced=True
    ),
)
AFTER_EXECUTION = WireField("after_execution", AFTER, about="What the turn does about the call.")
COMMAND_FIELDS = (
    *IDENTITY,
    AFTER_EXECUTION,
    WireField("tool_call_card_id", IDENTIFIER, about="The card of type tool.call that holds the arguments."),
    WireField("tool_name", NAME, about="The tool, for logs and audit."),
    WireField("context_box_id", IDENTIFIER, about="A box of cards that the tool may read as context."),
    WireField("arguments_digest", SHA256, about="SHA-256 of the canonical arguments (RFC 8785) on the card."),
    *LINEAGE,
    *TRACE,
)
CALLBACK_FIELDS = (
    *IDENTITY,
    AFTER_EXECUTION,
    WireField("tool_result_card_id", IDENTIFIER, about="The card of type tool.result that holds the outcome."),
    WireField("status", STATUS, about="How the call ended."),
    *LINEAGE,
    *TRACE,
)
WAKEUP_FIELDS = (
    IDENTITY[0],
    WireField("inbox_id", IDENTIFIER, about="The row of the inbox that is new."),
    WireField("reason", REASON, about="Why the agent is woken, for logs."),
    WireField("metadata", OBJECT, about="Anything, for logs."),
    *TRACE,
)

TOOL_REQUIRED = (
    "agent_id", "agent_turn_id", "turn_epoch", "tool_call_id", "after_execution", "tool_call_card_id",
)  # fmt: skip
PMO_REQUIRED = (*TOOL_REQUIRED, "step_id", "tool_name")
CALLBACK_REQUIRED = (
    "tool_call_id", "agent_turn_id", "turn_epoch", "agent_id", "tool_result_card_id", "status", "after_execution",
)  # fmt: skip
WAKEUP_REQUIRED = ("agent_id",)

BANNED = frozenset(("args", "arguments", "result"))
"""What would carry content past the cards; no message may have it."""

ADDRESS = (("project_id", "CG-Project-Id"), ("channel_id", "CG-Channel-Id"))
"""What the subject says, and what payload and headers may say again."""

VERSION_HEADER = "CG-Version"
TYPE_HEADER = "CG-Msg-Type"


def by_header(fields: Iterable[WireField]) -> dict[str, str]:
    """The names of the fields by their headers in small letters, with those of the address."""
    names = {one.header.lower(): one.name for one in fields if one.header}
    return names | {header.lower(): name for name, header in ADDRESS}
