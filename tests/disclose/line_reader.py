"""Reads lines of the compact catalogue as `toolwire/protocol/tool_lines.py` describes them, and forms calls from them.

It knows nothing of a tool but its line, as a model does.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null|\[\]|\{\}')
_WORD = re.compile(r"[\w.@$-]+")
_RANGE = re.compile(r" (-?[\d.]*?)\.\.(-?[\d.]*)")
_SAMPLES = {"string": "text", "boolean": True, "null": None, "object": {"key": "text"}, "array": [], "any": "text"}


@dataclass(frozen=True)
class Input:
    name: str
    required: bool
    value: Any
    """A value of the type that is shown."""


@dataclass(frozen=True)
class Line:
    name: str
    inputs: tuple[Input, ...]
    more: bool
    outputs: tuple[str, ...]
    purpose: str

    def arguments(self, *, optional: bool) -> dict[str, Any]:
        return {each.name: each.value for each in self.inputs if each.required or optional}


def read_line(text: str) -> Line:
    reader = _Reader(text)
    name = reader.word()
    inputs, more = reader.inputs("(", ")")
    rest = text[reader.place :]
    found = re.fullmatch(r"(?: -> (?P<outputs>[^—]+?))?(?: — (?P<purpose>.+))?", rest)
    assert found, f"{rest!r} behind the inputs of {text!r}"
    outputs = tuple(part for part in (found["outputs"] or "").split(", ") if part not in ("", "…"))
    return Line(name, inputs, more, outputs, found["purpose"] or "")


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def inputs(self, opening: str, closing: str) -> tuple[tuple[Input, ...], bool]:
        self.expect(opening)
        found: list[Input] = []
        more = False
        while not self.skip(closing):
            if self.skip("…"):
                more = True
                self.expect(closing)
                break
            found.append(self.input())
            self.skip(", ")
        return tuple(found), more

    def input(self) -> Input:
        name = self.word()
        if self.skip("="):
            value = self.literal()
            while self.skip("|"):
                assert self.skip("…") or self.literal() is not ...
            return Input(name, False, value)
        required = not self.skip("?")
        self.expect(": ")
        value = self.type()
        if self.skip(" = "):
            value = self.literal()
            required = False
        return Input(name, required, value)

    def type(self) -> Any:
        value = self.kind()
        while self.skip("|"):
            assert self.skip("…") or self.kind() is not ...
        return value

    def kind(self) -> Any:
        if self.skip("array of "):
            return [self.type()]
        if self.text.startswith("{", self.place):
            fields, _ = self.inputs("{", "}")
            return {each.name: each.value for each in fields if each.required}
        if _LITERAL.match(self.text, self.place):
            return self.literal()
        word = self.word()
        if word in ("integer", "number"):
            return self.number()
        return _SAMPLES[word]

    def number(self) -> float:
        found = _RANGE.match(self.text, self.place)
        if found is None:
            return 1
        self.place = found.end()
        low, high = found.groups()
        middle = min(max(1.0, float(low or "-inf")), float(high or "inf"))
        return int(middle) if middle.is_integer() else middle

    def literal(self) -> Any:
        found = _LITERAL.match(self.text, self.place)
        assert found, f"a value at {self.text[self.place : self.place + 20]!r}"
        self.place = found.end()
        return json.loads(found[0])

    def word(self) -> str:
        found = _WORD.match(self.text, self.place)
        assert found, f"a word at {self.text[self.place : self.place + 20]!r}"
        self.place = found.end()
        return found[0]

    def skip(self, words: str) -> bool:
        if not self.text.startswith(words, self.place):
            return False
        self.place += len(words)
        return True

    def expect(self, words: str) -> None:
        assert self.skip(words), f"{words!r} at {self.text[self.place : self.place + 20]!r}"
