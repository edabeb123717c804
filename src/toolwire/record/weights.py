"""What kept values weigh in memory.

Python cannot say cheaply what an object weighs. These are estimates of the right order: text counts by its characters,
everything around it by a fixed amount.
"""

from operator import length_hint
from typing import Any

from toolwire.protocol.calls import Block, Text, ToolResult
from toolwire.protocol.chat import Message, Note, Reply, ResultsMessage
from toolwire.protocol.records import CallCard

ROW = 512
_ITEM, _MESSAGE, _CARD = 64, 512, 1024
_FLAT = frozenset({str, int, float, bool, type(None)})


def weigh(value: Any) -> int:
    """About how many bytes a plain value takes."""
    kind = type(value)
    if kind is str or kind is bytes:
        return _ITEM + len(value)
    if kind is dict:
        weight, items = 2 * _ITEM * (1 + len(value)), value.values()
        if _FLAT.issuperset(map(type, items)):  # as the arguments of most calls are: texts have a length, numbers none
            return weight + sum(map(length_hint, items))
        return weight + sum(map(weigh, items))
    if kind is list or kind is tuple:
        return _ITEM + sum(map(weigh, value))
    return _ITEM // 2


def weigh_result(result: ToolResult) -> int:
    content = result.content
    if len(content) == 1 and type(content[0]) is Text and not result.handle:
        # Nearly every result is one text, and a value beside it is what that text says: so it weighs about the same.
        weight = _ITEM + len(content[0].text)
        return _MESSAGE + len(result.stderr) + (weight if result.structured is None else 2 * weight)
    weight = _MESSAGE + len(result.stderr) + sum(map(_weigh_block, content))
    return weight if result.structured is None else weight + weigh(result.structured)


def weigh_card(card: CallCard) -> int:
    call, result = card.call, card.result
    # Arguments are not larger than the text that they were read from.
    weight = _CARD + (2 * len(call.raw) if type(call.raw) is str and call.raw else weigh(call.arguments))
    return weight if result is None else weight + weigh_result(result)


def weigh_message(message: Message) -> int:
    match message:
        case Reply():
            weight = _MESSAGE * (1 + len(message.calls)) + len(message.content) + len(message.reasoning)
            return weight + weigh(message.carry) if message.carry else weight
        case ResultsMessage(results):
            return _MESSAGE + sum(map(weigh_result, results))
        case Note(text):
            return _MESSAGE + len(text)
    return _MESSAGE + len(message.text) + sum(map(_weigh_block, message.parts))


def _weigh_block(block: Block) -> int:
    return _ITEM + len(getattr(block, "text", "")) + len(getattr(block, "data", ""))
