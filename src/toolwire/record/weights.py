"""What kept values weigh in memory.

Python cannot say cheaply what an object weighs. These are estimates of the right order: text counts by its characters,
everything around it by a fixed amount.
"""

from collections.abc import Collection
from operator import length_hint
from typing import Any

from toolwire.protocol.calls import Block, Text, ToolResult
from toolwire.protocol.chat import Message, Note, Reply, ResultsMessage
from toolwire.protocol.records import CallCard

ROW = 512
_ITEM, _MESSAGE, _CARD = 64, 512, 1024
_PAIR = 2 * _ITEM
_USUAL = _CARD + _MESSAGE + 4 * _ITEM  # a call and its result of one text, without what is written in them
_FLAT = frozenset({str, int, float, bool, type(None)})


def weigh(value: Any) -> int:
    """About how many bytes a plain value takes, however deep it is."""
    weight, left = 0, [value]
    for one in left:  # grows while it is walked through
        kind = type(one)
        if kind is str or kind is bytes:
            weight += _ITEM + len(one)
        elif kind is dict:
            weight += 2 * _ITEM * (1 + len(one))
            items = one.values()
            if _FLAT.issuperset(map(type, items)):  # texts have a length, numbers none
                weight += sum(map(length_hint, items))
            else:
                left += items
        elif kind is list or kind is tuple:
            weight += _ITEM
            left += one
        else:
            weight += _ITEM // 2
    return weight


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


def weigh_cards(cards: Collection[CallCard]) -> int:
    """What the ended calls of a turn weigh together, without bodies that are kept for them.

    Every turn passes here, so the usual calls (flat arguments, a result of one text) are weighed in place.
    """
    weight = 0
    for card in cards:
        result, values = card.result, card.call.arguments.values()
        if result is None or len(content := result.content) != 1 or type(only := content[0]) is not Text:
            weight += weigh_card(card)
            continue
        # A value beside a text is what that text says, so each text counts twice.
        usual = _USUAL + _PAIR * len(values) + 2 * (len(only.text) + len(result.stderr))
        for value in values:
            if type(value) is str:
                usual += len(value)
            elif type(value) not in _FLAT:
                usual = weigh_card(card)
                break
        weight += usual
    return weight


def weigh_replies(said: Collection[Reply | Note]) -> int:
    """What the model and the user said in a turn weighs together, in the same way."""
    weight = 0
    for one in said:
        if type(one) is Reply and not one.carry:
            # A turn has about as many calls as replies, and the cards of the calls count for themselves.
            weight += 2 * _MESSAGE + len(one.content) + len(one.reasoning)
        else:
            weight += weigh_message(one)
    return weight


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
