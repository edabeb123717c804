"""Slips of a small model in the calls it writes, put right. Pure.

The embedded model copies names and paths from the conversation letter by letter, and now and then loses one. A word
that nobody said, close to one that somebody did say, is such a slip. So is a bracket that was left open at the end of
what was copied, and a time in the wrong unit.
"""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from toolwire.models.local_units import converted
from toolwire.protocol.calls import ToolCall

LIKENESS = 0.75
SHORTEST = 4
LONGEST = 64
MOST_WORDS = 300
MOST_DEPTH = 4

_EDGES = "\"'`.,;:!?()[]{}<>“”‘’«»…"


def mended(call: ToolCall, schema: Mapping[str, Any], heard: str) -> ToolCall:
    """The call with free text put right by what was heard; choices, numbers and words that were said stay."""
    known = _Heard(heard)
    return replace(call, arguments={key: _value(key, value, schema, known, 0) for key, value in call.arguments.items()})


class _Heard:
    """What was said, and the words it is made of."""

    def __init__(self, text: str) -> None:
        self.text = text.lower()
        pieces = (piece.strip(_EDGES) for piece in text.split()[-MOST_WORDS:])
        self.words = [piece for piece in dict.fromkeys(pieces) if SHORTEST - 1 <= len(piece) <= LONGEST]

    def word(self, piece: str) -> str:
        core = piece.strip(_EDGES)
        if not SHORTEST <= len(core) <= LONGEST or core.lower() in self.text:
            return piece
        close = get_close_matches(core, self.words, n=1, cutoff=LIKENESS)
        # Another number is never a slip of the pen: it may be what was computed.
        return piece.replace(core, close[0]) if close and _digits(close[0]) == _digits(core) else piece

    def closing(self, text: str) -> str:
        """The brackets that a text said once leaves open, and that were closed right after it."""
        start = self.text.find(low := text.lower())
        if not low or self.text.find(low, start + 1) >= 0:
            return ""
        needed = _open(text)
        after = self.text[start + len(low) : start + len(low) + len(needed)]
        same = next((place for place, pair in enumerate(zip(after, needed, strict=False)) if pair[0] != pair[1]), None)
        return after[: len(after) if same is None else same]


_PAIRS = {"(": ")", "[": "]", "{": "}"}


def _open(text: str) -> str:
    """The closing brackets that the text lacks, the innermost first; none if it closes what it never opened."""
    lacking: list[str] = []
    for char in text:
        if char in _PAIRS:
            lacking.append(_PAIRS[char])
        elif char in ")]}" and (not lacking or lacking.pop() != char):
            return ""
    return "".join(reversed(lacking))


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _value(key: str, value: Any, schema: Any, known: _Heard, depth: int) -> Any:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    inner = properties.get(key) if isinstance(properties, Mapping) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and isinstance(inner, Mapping):
        return converted(value, key, inner, known.text)
    return _put_right(value, inner, known, depth)


def _put_right(value: Any, schema: Any, known: _Heard, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > MOST_DEPTH:
        return value
    match schema, value:
        case {"type": "string"}, str() if not schema.keys() & {"enum", "const", "pattern", "format"}:
            return _text(value, known)
        case {"type": "array", "items": items}, list():
            return [_put_right(item, items, known, depth + 1) for item in value]
        case {"properties": Mapping()}, dict():
            return {key: _value(key, item, schema, known, depth + 1) for key, item in value.items()}
    return value


def _text(text: str, known: _Heard) -> str:
    if text.lower() in known.text:
        return text + known.closing(text)
    if text.count(" ") > MOST_WORDS:
        return text
    return " ".join(known.word(piece) for piece in text.split(" "))
