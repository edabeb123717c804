"""Grammars (GBNF) that hold a small model to arguments that fit a schema. Pure.

What a schema says beyond types, names, enums and bounds on numbers of items is left to the check that every call
meets anyway: an unknown or too deep schema makes the grammar looser, never wrong and never an error.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from toolwire.models.local_dialogue import constant as constant_in_call
from toolwire.protocol.tools import Tool

MAX_DEPTH = 6
MAX_RULES = 400
MAX_CHOICES = 64
MAX_CALLS = 8
MAX_COUNT = 12
STRING_LENGTH = 300

_NUMERAL = re.compile(r"\d{1,40}(?:\.\d{1,40})?")

_JSON_RULES = {
    "value": 'object | array | string | number | "true" | "false" | "null"',
    "object": '"{" (string ": " value (", " string ": " value){0,8})? "}"',
    "array": '"[" (value (", " value){0,8})? "]"',
    "string": f'"\\"" char{{0,{STRING_LENGTH}}} "\\""',
    "char": r'[^"\\\x00-\x1F\x7F] | "\\" ["\\/bfnrt]',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,14})',
    "number": 'integer ("." [0-9]{1,10})?',
}


def literal(text: str) -> str:
    """The text as a GBNF literal that matches exactly it."""
    return '"' + "".join(_literal_char(char) for char in text) + '"'


def _literal_char(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    return f"\\x{ord(char):02X}" if ord(char) < 256 else f"\\U{ord(char):08X}"


def one_of(texts: Iterable[str]) -> str:
    return " | ".join(literal(text) for text in texts)


def json_grammar(schema: Mapping[str, Any]) -> str:
    """A grammar for one JSON value that fits the schema of a tool's arguments."""
    grammar = _Grammar()
    return grammar.text(grammar.arguments(schema))


def dialogue_grammar(tools: Iterable[Tool], known: str | None = None) -> str:
    """A grammar for one turn of the model: calls that fit the schemas of these tools, one on each line, or words.

    With `known`, the text of what was said so far, the words hold no other numbers than it does.
    """
    grammar = _Grammar()
    calls = [f"{literal(f'@{tool.name} ')} {grammar.arguments(tool.input_schema)}" for tool in tools]
    words = _words(known)
    if not calls:
        return f"root ::= words\n{words}"
    grammar.rules["call"] = " | ".join(calls)
    return grammar.text(f'call ("\\n" call){{0,{MAX_CALLS - 1}}} | words') + words


def _words(known: str | None) -> str:
    """Rules for free text that cannot be taken for a call."""
    numerals = [] if known is None else list(dict.fromkeys(_NUMERAL.findall(known)))
    if known is None or len(numerals) > MAX_CHOICES:
        return "words ::= [^@ \\n] .*\n"
    counts = [str(number) for number in range(MAX_COUNT + 1)]
    rules = "words ::= (numeral | [^@ \\n0-9] [^0-9]* numeral?) rest?\nrest ::= [^0-9]+ (numeral rest?)?\n"
    return f"{rules}numeral ::= {one_of(dict.fromkeys([*numerals, *counts]))}\n"


class _Grammar:
    """Collects the rules of one grammar."""

    def __init__(self) -> None:
        self.schema: Mapping[str, Any] = {}
        self.rules: dict[str, str] = dict(_JSON_RULES)
        self.count = 0
        self.most = MAX_RULES

    def arguments(self, schema: Mapping[str, Any]) -> str:
        """An expression for the arguments of a tool, whose schema may take as many rules as any other's."""
        self.schema = {"type": "object", **schema}
        self.most = self.count + MAX_RULES
        return self._value(self.schema, 0)

    def text(self, root: str) -> str:
        return "\n".join([f"root ::= {root}", *(f"{name} ::= {body}" for name, body in self.rules.items())]) + "\n"

    def _rule(self, body: str) -> str:
        self.count += 1
        name = f"r{self.count}"
        self.rules[name] = body
        return name

    def _value(self, schema: Any, depth: int) -> str:
        """An expression for any schema; `value` where it says nothing that a grammar can hold."""
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or self.count > self.most:
            return "value"
        match schema:
            case {"const": constant}:
                return literal(_dumped(constant_in_call(constant)))
            case {"enum": [_, *_] as options}:
                return self._rule(one_of(_dumped(constant_in_call(option)) for option in options[:MAX_CHOICES]))
            case {"$ref": str(reference)}:
                return self._value(_resolve(self.schema, reference), depth + 1)
            case {"anyOf": [_, *_] as options} | {"oneOf": [_, *_] as options}:
                return self._rule(" | ".join(self._value(option, depth + 1) for option in options[:MAX_CHOICES]))
            case {"allOf": [only]}:
                return self._value(only, depth + 1)
            case {"type": [_, *_] as kinds}:
                return self._rule(" | ".join(self._kind(kind, schema, depth) for kind in kinds[:8]))
            case {"type": kind}:
                return self._kind(kind, schema, depth)
            case {"properties": Mapping()}:
                return self._object(schema, depth)
        return "value"

    def _kind(self, kind: Any, schema: Mapping[str, Any], depth: int) -> str:
        match kind:
            case "string":
                return "string"
            case "integer" | "number":
                return str(kind)
            case "boolean":
                return '("true" | "false")'
            case "null":
                return '"null"'
            case "array":
                return self._array(schema, depth)
            case "object":
                return self._object(schema, depth)
        return "value"

    def _array(self, schema: Mapping[str, Any], depth: int) -> str:
        item = self._value(schema.get("items"), depth + 1)
        least, most = _count(schema.get("minItems"), 0), _count(schema.get("maxItems"), 16)
        more = f'(", " {item}){{{max(least - 1, 0)},{max(most - 1, least - 1, 0)}}}'
        inside = f"{item} {more}" if least else f"({item} {more})?"
        return self._rule(f'"[" {inside if most else ""} "]"')

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return '"{}"' if depth == 0 else "object"
        required = schema.get("required")
        must = {key for key in required if key in properties} if isinstance(required, list) else set()
        if len(must) > MAX_CHOICES:
            return "object"
        spare = [key for key in properties if key not in must][: MAX_CHOICES - len(must)]
        kept = [key for key in properties if key in must or key in spare]
        pairs = [(key, f"{literal(_dumped(key) + ': ')} {self._value(properties[key], depth + 1)}") for key in kept]
        return self._rule(f'"{{" {self._members(pairs, must)} "}}"')

    def _members(self, pairs: list[tuple[str, str]], must: set[str]) -> str:
        """Members in the order of the schema; one that is not required may be left out."""
        rest, opening = '""', '""'
        for key, pair in reversed(pairs):
            following = rest
            rest = self._rule(f'", " {pair} {following}' if key in must else f'(", " {pair})? {following}')
            opening = self._rule(f"{pair} {following}" if key in must else f"{pair} {following} | {opening}")
        return opening


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False) if _is_json(value) else "null"


def _is_json(value: Any) -> bool:
    return isinstance(value, str | int | float | bool | None | list | dict) and value == value


def _count(value: Any, default: int) -> int:
    return min(value, 64) if isinstance(value, int) and value >= 0 else default


def _resolve(schema: Mapping[str, Any], reference: str) -> Any:
    """What a local reference (`#/$defs/Name`) points at, or None."""
    here: Any = schema
    for step in reference.removeprefix("#/").split("/")[:8]:
        here = here.get(step) if isinstance(here, Mapping) else None
    return here
