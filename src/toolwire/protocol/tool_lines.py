"""A tool on one line, for models and people: what it is called, needs, gives, and is for.

    random(min?: integer = 1, max?: integer = 100) -> numbers — Draw numbers

reads like a signature. Whatever a definition contains, a line stays one line of bounded length. The grammar, which
`tests/disclose/test_line_grammar.py` reads back:

    line    = name "(" [input {", " input}] [", …"] ")" [" -> " output {", " output} [", …"]] [" — " purpose]
    input   = name ["?"] ": " type [" = " default] | name "=" default {"|" literal}
    type    = kind {"|" kind}
    kind    = "string" | "integer" [range] | "number" [range] | "boolean" | "null" | "object" | "array" | "any"
            | "array of " type | "{" input {", " input} [", …"] "}" | literal
    range   = " " [number] ".." [number]

A question mark, or a value behind `=`, says that an input may be left out. `…` stands for more of those.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

from toolwire.protocol.tools import Tool

LINE_CHARS = 240
NAME_CHARS = 64
PURPOSE_CHARS, TIGHT_PURPOSE_CHARS = 120, 60
DEFAULT_CHARS = 24
MOST_INPUTS, MOST_OPTIONAL_FIELDS = 12, 4
MOST_CHOICES = 6
MOST_OUTPUTS, TIGHT_OUTPUTS = 6, 4
_DEEPEST = 3
_MORE = "…"


class LineDetail(IntEnum):
    """How much a line says. Required inputs with their types are always there.

    FULL has every type and default, SHORT a default in place of its type, TIGHT a shorter purpose and fewer outputs,
    REQUIRED no optional inputs, BRIEF no outputs either, and CALL no purpose.
    """

    FULL = 0
    SHORT = 1
    TIGHT = 2
    REQUIRED = 3
    BRIEF = 4
    CALL = 5

    @property
    def purpose_chars(self) -> int:
        return PURPOSE_CHARS if self < LineDetail.TIGHT else TIGHT_PURPOSE_CHARS if self < LineDetail.CALL else 0

    @property
    def outputs(self) -> int:
        return MOST_OUTPUTS if self < LineDetail.TIGHT else TIGHT_OUTPUTS if self < LineDetail.BRIEF else 0


def tool_line(tool: Tool, detail: LineDetail = LineDetail.FULL, *, line_chars: int = LINE_CHARS) -> str:
    """The line of a tool. Where it would be too long, optional inputs are left out first, then words of the purpose."""
    outputs = _outputs(tool.output_schema, detail.outputs)
    end = f") -> {outputs}" if outputs else ")"
    purpose = _purpose(tool.description, detail.purpose_chars)
    said = f" — {purpose}" if purpose else ""
    line = ""
    for shown in _Inputs(tool.input_schema, detail).shortened():
        line = f"{cut(tool.name, NAME_CHARS)}({shown}{end}"
        if len(line) + len(said) <= line_chars:
            break
    return cut(line + said, line_chars)


class _Inputs:
    """The inputs of one tool, at one level of detail."""

    def __init__(self, schema: Mapping[str, Any], detail: LineDetail) -> None:
        self._root = schema
        self._detail = detail

    def shortened(self) -> Iterator[str]:
        """All of them, then without the last optional one, and so on."""
        required, optional, more = self._parts(self._root, 0)
        for most in range(len(optional), -1, -1):
            yield ", ".join([*required, *optional[:most], *([_MORE] if more or most < len(optional) else [])])

    def _parts(self, schema: Mapping[str, Any], depth: int) -> tuple[list[str], list[str], bool]:
        """What an object needs, what it may have, and whether it has more than is shown."""
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return [], [], False
        listed = schema.get("required")
        must = set(filter(_is_text, listed)) if isinstance(listed, list) else set()
        needed = [name for name in properties if name in must]
        others = [name for name in properties if name not in must]
        names = (needed + others)[:MOST_INPUTS]
        if depth:
            names = needed[:MOST_INPUTS] or others[:MOST_OPTIONAL_FIELDS]
        elif self._detail >= LineDetail.REQUIRED:
            names = [name for name in names if name in must]
        shown = {name: self._input(name, properties[name], name in must, depth) for name in names}
        return (
            [shown[name] for name in names if name in must],
            [shown[name] for name in names if name not in must],
            len(names) < len(properties),
        )

    def _input(self, name: str, schema: Any, must: bool, depth: int) -> str:
        label = cut(name, NAME_CHARS)
        if must:
            return f"{label}: {self._kind(schema, depth)}"
        given = schema.get("default") if isinstance(schema, Mapping) else None
        if self._detail is LineDetail.FULL:
            default = "" if given is None else f" = {_value(given)}"
            return f"{label}?: {self._kind(schema, depth)}{default}"
        if given is None or isinstance(given, (list, dict)):
            return f"{label}?: {self._kind(_without_bounds(schema), depth).removesuffix('|null')}"
        return f"{label}={'|'.join(dict.fromkeys([_value(given), *_choices(schema)]))}"

    def _kind(self, schema: Any, depth: int = 0) -> str:
        """A type in a word or two; `any` where the schema does not say, or says it too deep."""
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return "any"
        match schema:
            case {"const": constant}:
                return _value(constant)
            case {"enum": [_, *_]}:
                return "|".join(_choices(schema))
            case {"anyOf": [_, *_] as branches} | {"oneOf": [_, *_] as branches}:
                return "|".join(dict.fromkeys(self._kind(branch, depth + 1) for branch in branches[:MOST_CHOICES]))
            case {"type": "array"}:
                return f"array of {self._kind(schema.get('items'), depth + 1)}" if "items" in schema else "array"
            case {"type": "object", "properties": {}}:
                return self._object(schema, depth)
            case {"type": "integer" | "number" as kind}:
                return f"{kind}{_range(schema)}"
            case {"type": str(kind)}:
                return cut(kind, DEFAULT_CHARS)
            case {"type": [_, *_] as kinds}:
                return "|".join(cut(str(kind), DEFAULT_CHARS) for kind in kinds[:MOST_CHOICES])
            case {"$ref": str(reference)}:
                meant = self._definition(reference)
                return self._kind(meant, depth + 1) if meant is not None else _last_word(reference)
        return "any"

    def _object(self, schema: Mapping[str, Any], depth: int) -> str:
        """What an object needs, in braces, or else some of what it may have; its full definition tells the rest."""
        required, optional, more = self._parts(schema, depth + 1)
        fields = [*required, *optional]
        return f"{{{', '.join([*fields, *([_MORE] if more else [])])}}}" if fields else "object"

    def _definition(self, reference: str) -> Any:
        """What a reference within the schema means, or None."""
        value: Any = self._root
        if not reference.startswith("#/") or len(reference) > LINE_CHARS:
            return None
        for step in reference[2:].split("/"):
            value = value.get(step) if isinstance(value, Mapping) else None
        return value


def _without_bounds(schema: Any) -> Any:
    """The schema of a number, alone or as one of several, without its bounds."""
    if not isinstance(schema, Mapping):
        return schema
    plain = {key: value for key, value in schema.items() if key not in ("minimum", "maximum")}
    if isinstance(branches := schema.get("anyOf"), list):
        plain["anyOf"] = [_without_bounds(branch) for branch in branches[:MOST_CHOICES]]
    return plain


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _range(schema: Mapping[str, Any]) -> str:
    """The bounds of a number, where it has any."""
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = [_value(bound) if isinstance(bound, (int, float)) else "" for bound in (low, high)]
    return f" {'..'.join(bounds)}" if any(bounds) else ""


def _last_word(reference: str) -> str:
    return cut(reference.rsplit("/", 1)[-1], DEFAULT_CHARS)


def _choices(schema: Mapping[str, Any]) -> list[str]:
    listed = schema.get("enum")
    choices: Sequence[Any] = listed if isinstance(listed, list) else ()
    shown = [_value(choice) for choice in choices[:MOST_CHOICES]]
    return [*shown, _MORE] if len(choices) > MOST_CHOICES else shown


def _outputs(schema: Mapping[str, Any] | None, most: int) -> str:
    properties = schema.get("properties") if schema else None
    if not isinstance(properties, Mapping) or not most:
        return ""
    names = [cut(name, NAME_CHARS) for name in properties]
    return ", ".join([*names[:most], _MORE] if len(names) > most else names)


def _purpose(description: str, most: int) -> str:
    """The first sentence, on one line, or as many whole words of it as there may be characters."""
    line = cut(description, PURPOSE_CHARS).split(". ", 1)[0].rstrip(".")
    if len(line) <= most:
        return line
    return f"{line[: most - 1].rpartition(' ')[0].rstrip(',;:')}{_MORE}" if most else ""


def _value(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False, default=str), DEFAULT_CHARS)


def cut(text: str, limit: int) -> str:
    """Printable, on one line, and no longer than the limit."""
    spaced = "".join(char if char.isprintable() else " " for char in text[: 4 * limit])
    line = " ".join(spaced.split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 1].rstrip()}{_MORE}"
