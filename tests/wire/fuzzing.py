"""Malformed model output by the thousand: real samples cut, spliced and bent, and soup made of their markers."""

import random
from typing import Any

from toolwire.wire.text.openers import MARKERS

from .cases import CASES, text_of

TEXTS = [text for case in CASES if (text := text_of(case))]
RESPONSES = [case["response"] for case in CASES if isinstance(case.get("response"), dict)]
STREAMS = [case["chunks"] for case in CASES if case.get("chunks") and isinstance(case["chunks"][0], dict)]
ODD = [
    "\x00",
    "\ud800",
    "\ufeff",
    "\u2028",
    "{",
    "}",
    "[",
    "]",
    '"',
    "'",
    "\\",
    "\\u",
    "<",
    ">",
    "```",
    "\n",
    ",",
    ":",
    "=",
    "(",
    ")",
]
SCRAPS = [
    *MARKERS,
    *ODD,
    '"name": "',
    '"arguments": {',
    "city_time",
    "count_stock",
    "ping_sensor()",
    "NaN",
    "1e999",
    "9" * 500,
]
VALUES: list[Any] = [None, True, 0, -1, 1.5, "", "x", "{", [], {}, [[]], {"a": {}}, "\ud800", 10**30]


def broken_text(dice: random.Random) -> str:
    """One text that no model should write."""
    match dice.randrange(5):
        case 0:
            return "".join(dice.choice(SCRAPS) for _ in range(dice.randrange(1, 40)))
        case 1:
            text = dice.choice(TEXTS)
            return text[dice.randrange(len(text)) :][: dice.randrange(1, len(text) + 1)]
        case 2:
            first, second = dice.choice(TEXTS), dice.choice(TEXTS)
            return first[: dice.randrange(len(first))] + second[dice.randrange(len(second)) :]
        case 3:
            return _bent(dice, dice.choice(TEXTS), 1 + dice.randrange(8))
        case _:
            return _bent(dice, dice.choice(TEXTS) * 2, 30)


def _bent(dice: random.Random, text: str, times: int) -> str:
    characters = list(text[:3000])
    for _ in range(times):
        at = dice.randrange(len(characters) + 1)
        match dice.randrange(3):
            case 0:
                characters[at:at] = [dice.choice(SCRAPS)]
            case 1:
                del characters[at : at + dice.randrange(1, 12)]
            case _:
                characters[at:at] = characters[max(0, at - 20) : at]
        characters = characters or ["x"]
    return "".join(characters)


def broken_response(dice: random.Random) -> Any:
    """One provider's response, or a stream of one, with something wrong in it."""
    whole = dice.choice([*RESPONSES, *STREAMS])
    return _spoiled(dice, whole, 0.04)


def _spoiled(dice: random.Random, value: Any, chance: float) -> Any:
    if dice.random() < chance:
        return dice.choice(VALUES)
    if isinstance(value, dict):
        return {key: _spoiled(dice, item, chance) for key, item in value.items() if dice.random() > chance / 2}
    if isinstance(value, list):
        items = [_spoiled(dice, item, chance) for item in value]
        return items * 2 if dice.random() < chance else items
    return value
