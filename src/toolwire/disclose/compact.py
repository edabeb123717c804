"""The compact catalogue: one line for each tool, with what it needs and gives. Pure.

A line reads like a signature, for instance `random(min?: integer = 1, max?: integer = 100) -> numbers — Draw numbers`.
Whatever a definition contains, a line stays one line of bounded length.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolwire.protocol.tools import Tool

LINE_CHARS = 240
NAME_CHARS = 64
PURPOSE_CHARS = 120
DEFAULT_CHARS = 24
MOST_INPUTS = 12
MOST_CHOICES = 6
MOST_OUTPUTS = 6


def compact_catalogue(tools: Iterable[Tool], *, line_chars: int = LINE_CHARS) -> str:
    """One line for each tool, in the given order."""
    return "\n".join(compact_line(tool, line_chars=line_chars) for tool in tools)


def compact_line(tool: Tool, *, line_chars: int = LINE_CHARS) -> str:
    """`name(inputs with types) -> outputs — purpose`; an input that may be left out has a question mark."""
    outputs = _outputs(tool.output_schema)
    arrow = f" -> {outputs}" if outputs else ""
    purpose = _purpose(tool.description)
    line = f"{_cut(tool.name, NAME_CHARS)}({_inputs(tool.input_schema)}){arrow}"
    return _cut(f"{line} — {purpose}" if purpose else line, line_chars)


def _inputs(schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    required = schema.get("required")
    must = set(required) if isinstance(required, list) else set()
    names = sorted(properties, key=lambda name: name not in must)
    shown = [_input(name, properties[name], name in must) for name in names[:MOST_INPUTS]]
    return ", ".join([*shown, "…"] if len(names) > MOST_INPUTS else shown)


def _input(name: str, schema: Any, must: bool) -> str:
    given = schema.get("default") if isinstance(schema, Mapping) else None
    default = f" = {_cut(_json(given), DEFAULT_CHARS)}" if given is not None and not must else ""
    return f"{_cut(name, NAME_CHARS)}{'' if must else '?'}: {_kind(schema)}{default}"


def _kind(schema: Any, depth: int = 0) -> str:
    """A type in a word or two; `any` where the schema does not say, or says it too deep."""
    if not isinstance(schema, Mapping) or depth > 3:
        return "any"
    match schema:
        case {"const": constant}:
            return _cut(_json(constant), DEFAULT_CHARS)
        case {"enum": [_, *_] as choices}:
            shown = [_cut(_json(choice), DEFAULT_CHARS) for choice in choices[:MOST_CHOICES]]
            return "|".join([*shown, "…"] if len(choices) > MOST_CHOICES else shown)
        case {"anyOf": [_, *_] as branches} | {"oneOf": [_, *_] as branches}:
            return "|".join(dict.fromkeys(_kind(branch, depth + 1) for branch in branches[:MOST_CHOICES]))
        case {"type": "array"}:
            return f"array of {_kind(schema.get('items'), depth + 1)}" if "items" in schema else "array"
        case {"type": str(kind)}:
            return _cut(kind, DEFAULT_CHARS)
        case {"type": [_, *_] as kinds}:
            return "|".join(_cut(str(kind), DEFAULT_CHARS) for kind in kinds[:MOST_CHOICES])
        case {"$ref": str(reference)}:
            return _cut(reference.rsplit("/", 1)[-1], DEFAULT_CHARS)
    return "any"


def _outputs(schema: Mapping[str, Any] | None) -> str:
    properties = schema.get("properties") if schema else None
    if not isinstance(properties, Mapping):
        return ""
    names = [_cut(name, NAME_CHARS) for name in properties]
    return ", ".join([*names[:MOST_OUTPUTS], "…"] if len(names) > MOST_OUTPUTS else names)


def _purpose(description: str) -> str:
    """The first sentence, on one line."""
    line = _cut(description, PURPOSE_CHARS)
    return line.split(". ", 1)[0].rstrip(".")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str, limit: int) -> str:
    """Printable, on one line, and no longer than the limit."""
    spaced = "".join(char if char.isprintable() else " " for char in text[: 4 * limit])
    line = " ".join(spaced.split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 1].rstrip()}…"
