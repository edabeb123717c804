"""Small values to keep in a store."""

from typing import Any

from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import Message, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Turn


def a_turn(turn_id: str = "turn-1", question: str = "How warm is it?", *history: Message, **more: Any) -> Turn:
    return Turn(turn_id, messages=(*history, UserMessage(question)), started_at=1.0, **more)


def a_call(call_id: str = "call-1", name: str = "thermometer", **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments or {"room": "kitchen"}, id=call_id)


def a_card(call: ToolCall | None = None, turn: Turn | None = None, **more: Any) -> CallCard:
    call, turn = call or a_call(), turn or a_turn()
    fields: dict[str, Any] = {"args_digest": repr(sorted(call.arguments.items())), "created_at": 2.0} | more
    fields.setdefault("tool_version", "1")
    return CallCard(f"{turn.id}/{call.id}", turn.id, turn.epoch, call, **fields)


def success(call: ToolCall | None = None, text: str = "21 degrees", **more: Any) -> ToolResult:
    call = call or a_call()
    return ToolResult(call.id, call.name, Status.SUCCESS, (Text(text),), **more)


def failure(call: ToolCall | None = None, code: Code = Code.EXECUTION_FAILED, **more: Any) -> ToolResult:
    return ToolResult.failed(call or a_call(), code, "the sensor is silent", **more)


def a_row(event: str, card: CallCard | None = None, **more: Any) -> AuditRow:
    card = card or a_card()
    return AuditRow(3.0, event, turn_id=card.turn_id, call_id=card.call.id, tool=card.call.name, **more)
