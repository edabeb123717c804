"""Slips of a small model in the calls it writes, put right. Pure.

The embedded model copies names and paths from the conversation letter by letter, and now and then loses one. A word
that was not said, close to one that was, is such a slip. So is a bracket or a quote that was lost on the
way, and an amount in the wrong unit.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from toolwire.models.local_units import convert_units
from toolwire.protocol.calls import ToolCall

LIKENESS = 0.75
SHORTEST = 4
LONGEST = 64
MOST_WORDS = 300
MOST_DEPTH = 4
MOST_CHARS = 20_000

_EDGES = "\"'`.,;:!?()[]{}<>“”‘’«»…"


def repair_text(call: ToolCall, schema: Mapping[str, Any], heard: str) -> ToolCall:
    """The call with free text put right by what was heard; choices, numbers and words that were said stay."""
    known = _Utterance(heard)
    return replace(call, arguments={key: _value(key, value, schema, known, 0) for key, value in call.arguments.items()})


class _Utterance:
    """What was said, and the words it is made of."""

    def __init__(self, text: str) -> None:
        self.given = text[-MOST_CHARS:]
        self.text = _low(self.given)
        pieces = (piece.strip(_EDGES) for piece in text.split()[-MOST_WORDS:])
        self.words = [piece for piece in dict.fromkeys(pieces) if SHORTEST - 1 <= len(piece) <= LONGEST]

    @cached_property
    def letters(self) -> tuple[str, list[int]]:
        """What was said without brackets, quotes and spaces, and where each letter stood."""
        return _bare(self.text), [place for place, char in enumerate(self.text) if char not in _LOOSE]

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
        return _closed(text, self.text[start + len(low) :])

    def restored(self, text: str) -> str:
        """What was said where the text differs from it in nothing but brackets, quotes and spaces; else the text."""
        bare, (said, places) = _bare(text), self.letters
        start = said.find(bare)
        if len(bare) < SHORTEST or start < 0 or said.find(bare, start + 1) >= 0:
            return text
        first, last = places[start], places[start + len(bare) - 1] + 1
        while text[:1] in _OPENING and first > 0 and self.text[first - 1] in _OPENING:
            first -= 1
        span = self.given[first:last]
        return span + _closed(span, self.text[last:])


_PAIRS = {"(": ")", "[": "]", "{": "}"}
_QUOTES = "\"'`"
_OPENING = "([{" + _QUOTES
_LOOSE = frozenset("()[]{} \n" + _QUOTES)


def _low(text: str) -> str:
    """The text in small letters, each in the place it had: a few letters have small ones that are longer."""
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)


def _bare(text: str) -> str:
    return "".join(char for char in _low(text) if char not in _LOOSE)


def _closed(text: str, after: str) -> str:
    """What closes the brackets and quotes that the text leaves open, as far as `after` begins with it."""
    needed = _open(text)
    same = next(
        (place for place, pair in enumerate(zip(after, needed, strict=False)) if pair[0] != pair[1]), len(needed)
    )
    return after[:same]


def _open(text: str) -> str:
    """What would close the text, the innermost first; nothing if it closes what it never opened."""
    lacking: list[str] = []
    for place, char in enumerate(text):
        if lacking and char == lacking[-1]:
            lacking.pop()
        elif char in _PAIRS:
            lacking.append(_PAIRS[char])
        elif char in _QUOTES and not text[place - 1 : place].isalnum():
            lacking.append(char)
        elif char in ")]}":
            return ""
    return "".join(reversed(lacking))


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _value(key: str, value: Any, schema: Any, known: _Utterance, depth: int) -> Any:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    inner = properties.get(key) if isinstance(properties, Mapping) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and isinstance(inner, Mapping):
        return convert_units(value, key, inner, known.text)
    return _put_right(value, inner, known, depth)


def _put_right(value: Any, schema: Any, known: _Utterance, depth: int) -> Any:
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


def _text(text: str, known: _Utterance) -> str:
    if text.lower() in known.text:
        return text + known.closing(text)
    if text.count(" ") > MOST_WORDS:
        return text
    restored = known.restored(text)
    return restored if restored != text else " ".join(known.word(piece) for piece in text.split(" "))
