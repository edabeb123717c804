"""What kept values weigh in memory.

Python cannot say cheaply what an object weighs. These are estimates of the right order: text counts by its characters,
everything around it by a fixed amount.
"""

from typing import Any

from toolwire.protocol.calls import Block, ToolResult
from toolwire.protocol.chat import Message, Note, Reply, ResultsMessage
from toolwire.protocol.records import CallCard

ROW = 512
_ITEM, _MESSAGE, _CARD = 64, 512, 1024


def weigh(value: Any) -> int:
    """About how many bytes a plain value takes."""
    kind = type(value)
    if kind is str or kind is bytes:
        return _ITEM + len(value)
    if kind is dict:
        return _ITEM + sum(_ITEM + len(key) + weigh(item) for key, item in value.items())
    if kind is list or kind is tuple:
        return _ITEM + sum(map(weigh, value))
    return _ITEM // 2


def weigh_result(result: ToolResult) -> int:
    shown = sum(map(_weigh_block, result.content))
    return _MESSAGE + shown + len(result.stderr) + (0 if result.structured is None else weigh(result.structured))


def weigh_card(card: CallCard) -> int:
    call = card.call
    raw = len(call.raw) if isinstance(call.raw, str) else 0
    return _CARD + raw + weigh(call.arguments) + (weigh_result(card.result) if card.result else 0)


def weigh_message(message: Message) -> int:
    match message:
        case Reply():
            words = len(message.content) + len(message.reasoning)
            return _MESSAGE * (1 + len(message.calls)) + words + weigh(message.carry)
        case ResultsMessage(results):
            return _MESSAGE + sum(map(weigh_result, results))
        case Note(text):
            return _MESSAGE + len(text)
    return _MESSAGE + len(message.text) + sum(map(_weigh_block, message.parts))


def _weigh_block(block: Block) -> int:
    return _ITEM + len(getattr(block, "text", "")) + len(getattr(block, "data", ""))
