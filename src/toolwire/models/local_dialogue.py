"""The dialogue that the embedded model's adapter was trained on, as text. Pure, and needs nothing but the nouns.

The runtime and the training render with the same functions, so what the model sees is what it learned. A turn of
the assistant that begins with `@` is calls, one on each line; any other is what people read.

A text in a call that was said after a space is written after a space, which reading takes away again: so the model
copies the very tokens that it read. Most words have one token after a space and several after a quotation mark, and
that is where a small model loses letters.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import Message, Note, Reply, ResultsMessage, UserMessage
from toolwire.protocol.tools import Tool

CONTEXT_TOKENS = 4096
"""What the model reads and writes in one go; the lengths below make a usual turn fit."""

NAME_CHARS = 64
PURPOSE_CHARS = 100
LINE_CHARS = 240
CHOICE_CHARS = 24
MOST_INPUTS = 12
MOST_CHOICES = 10
REQUEST_CHARS = 2000
RESULT_CHARS = 1200
HEARD_CHARS = 8000
MOST_DEPTH = 6

NO_TOOLS = "No tools."
OPENING = "<|im_start|>assistant\n"
CLOSING = "<|im_end|>"

_KINDS = {"integer": "int", "boolean": "bool"}
ABOUT_CHARS = 200
# What the description of an input may say that its name does not: the unit of a number, the format of a text.
_UNITS = frozenset(
    "ms milliseconds seconds minutes hours days weeks months years mg grams kg kilograms tonnes mm cm centimetres"
    " centimeters metres meters km kilometres kilometers miles ml millilitres milliliters litres liters percent celsius"
    " fahrenheit degrees cents euros dollars eur usd gbp bytes kb mb gb pixels watts kwh rpm hz 0-1".split()
)
_FORMATS = {"yyyy-mm-dd": "YYYY-MM-DD", "hh:mm": "HH:MM"}
_STANDARDS = {"date": "YYYY-MM-DD", "time": "HH:MM"}


def render(messages: Sequence[Message], tools: Sequence[Tool]) -> str:
    """The whole dialogue, ending where the model would speak."""
    return "".join(chat_turn(role, text) for role, text in turns(messages, tools)) + OPENING


def turns(messages: Sequence[Message], tools: Sequence[Tool]) -> Iterator[tuple[str, str]]:
    """Who says what: the catalogue as `system`, then the messages as `user`, `assistant` and `tool`."""
    schemas = {tool.name: tool.input_schema for tool in tools}
    yield "system", system_block(tools)
    heard = ""
    for message in messages:
        role, text = _turn(message, schemas, heard)
        if role != "assistant":
            heard = f"{heard}\n{text}"[-HEARD_CHARS:]
        yield role, text


def _turn(message: Message, schemas: Mapping[str, Mapping[str, Any]], heard: str) -> tuple[str, str]:
    match message:
        case UserMessage(text):
            return "user", clip(text, REQUEST_CHARS)
        case Reply(calls=(_, *_) as calls):
            return "assistant", "\n".join(call_line(call, schemas.get(call.name), heard) for call in calls)
        case Reply(content=content):
            return "assistant", content.lstrip("@ \n")
        case ResultsMessage(results):
            return "tool", result_lines(results)
        case Note(text):
            return "tool", f"note: {_indented(clip(text, RESULT_CHARS))}"


def chat_turn(role: str, text: str) -> str:
    """One turn in the model's own chat format. No text can break out of it."""
    return f"<|im_start|>{role}\n{text.replace('<|', '< |')}{CLOSING}\n"


def system_block(tools: Iterable[Tool]) -> str:
    """One line for each tool, in the given order."""
    return "\n".join(map(tool_line, tools)) or NO_TOOLS


def tool_line(tool: Tool) -> str:
    """`name(inputs) — purpose`, for instance `random(min?: int, max?: int) — Draw numbers`.

    An input without a type is a string; one with a question mark may be left out.
    """
    line = f"{_cut(tool.name, NAME_CHARS)}({_inputs(tool.input_schema)})"
    purpose = _cut(tool.description, PURPOSE_CHARS).split(". ", 1)[0].rstrip(".")
    return _cut(f"{line} — {purpose}" if purpose else line, LINE_CHARS)


def call_line(call: ToolCall, schema: Mapping[str, Any] | None = None, heard: str = "") -> str:
    """`@name {arguments}` with the arguments in the order of the schema, spaced as they were heard."""
    order = list((schema or {}).get("properties") or ())
    rank = {key: place for place, key in enumerate(order)}
    arguments = sorted(call.arguments.items(), key=lambda item: rank.get(item[0], len(order)))
    return f"@{call.name} {_json(_spaced(dict(arguments), schema, heard))}"


def result_lines(results: Iterable[ToolResult]) -> str:
    """`name: what came back` for each result; what goes over several lines is indented, so that none can be forged."""
    return "\n".join(f"{_cut(result.name, NAME_CHARS)}: {_indented(_outcome(result))}" for result in results)


def constant(value: Any) -> Any:
    """What stands in a call for a value that can only be this one."""
    return _spaced(value, None, "")


def calls_in(text: str) -> tuple[ToolCall, ...]:
    """The calls of an assistant's turn; none if it is text. A call that cannot be read carries its fault."""
    if not text.startswith("@"):
        return ()
    return tuple(_call(line) for line in text.split("\n") if line.startswith("@"))


def clip(text: str, limit: int) -> str:
    """The text, its middle left out where it is longer than the limit."""
    if len(text) <= limit:
        return text
    half = (limit - 3) // 2
    return f"{text[:half]} … {text[-half:]}"


def _call(line: str) -> ToolCall:
    name, _, written = line[1:].partition(" ")
    try:
        arguments = _unspaced(json.loads(written))
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return ToolCall(
            name, {}, format="local", raw=line, fault="the arguments were cut off before they were complete"
        )
    return ToolCall(name, arguments, format="local", raw=line)


_CLOSED = {"enum", "const", "anyOf", "oneOf", "allOf", "$ref"}


def _spaced(value: Any, schema: Any, heard: str, depth: int = 0) -> Any:
    """The value with a space before every free text that was heard after one, or that begins with one itself."""
    known = schema if isinstance(schema, Mapping) else {}
    match value:
        case str() if value.startswith(" ") or (_is_free(known) and _was_heard(value, heard)):
            return f" {value}"
        case list() if depth < MOST_DEPTH:
            return [_spaced(item, known.get("items"), heard, depth + 1) for item in value]
        case dict() if depth < MOST_DEPTH:
            inner = known.get("properties")
            inputs = inner if isinstance(inner, Mapping) else {}
            return {key: _spaced(item, inputs.get(key), heard, depth + 1) for key, item in value.items()}
    return value


def _unspaced(value: Any) -> Any:
    match value:
        case str():
            return value.removeprefix(" ")
        case list():
            return [_unspaced(item) for item in value]
        case dict():
            return {key: _unspaced(item) for key, item in value.items()}
    return value


def _is_free(schema: Mapping[str, Any]) -> bool:
    return schema.get("type", "string") == "string" and not schema.keys() & _CLOSED


def _was_heard(text: str, heard: str) -> bool:
    """Whether it was said after a space. A digit is one token either way."""
    return not text[:1].isdigit() and f" {text}" in heard if text else False


def _outcome(result: ToolResult) -> str:
    if not result.ok:
        return f"error: {clip(result.error.message if result.error else result.text, RESULT_CHARS)}"
    if isinstance(result.structured, Mapping | list | tuple):
        return clip(_json(result.structured), RESULT_CHARS)
    return clip(result.text, RESULT_CHARS) or "done"


def _indented(text: str) -> str:
    return text.strip().replace("\r", "").replace("\n", "\n  ")


def _inputs(schema: Any, depth: int = 0) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    required = schema.get("required")
    must = set(required) if isinstance(required, list | tuple) else set()
    names = list(properties)
    shown = [_input(name, properties[name], name in must, depth) for name in names[:MOST_INPUTS]]
    return ", ".join([*shown, "…"] if len(names) > MOST_INPUTS else shown)


def _input(name: str, schema: Any, must: bool, depth: int) -> str:
    kind, hint = _kind(schema, depth), _hint(name, schema)
    named = f"{_cut(name, NAME_CHARS)}{'' if must else '?'}"
    told = " ".join(part for part in ("" if kind == "string" else kind, hint) if part)
    return f"{named}: {told}" if told else named


def _hint(name: str, schema: Any) -> str:
    """The unit or format that an input's description tells and its name does not; empty if there is none."""
    if not isinstance(schema, Mapping) or schema.get("type") not in ("string", "integer", "number"):
        return ""
    about = schema.get("description")
    words = (about if isinstance(about, str) else "")[:ABOUT_CHARS].lower().replace("0 to 1", "0-1").split()
    told = (word.strip("()[].,;:'\"") for word in words)
    if schema["type"] == "string":
        found = next(
            (_FORMATS[word] for word in told if word in _FORMATS), _STANDARDS.get(str(schema.get("format")), "")
        )
        return "" if "enum" in schema else found
    unit = next((word for word in told if word in _UNITS), "")
    return "" if unit in name.lower() else unit


def _kind(schema: Any, depth: int) -> str:
    """A type in a word or two; `any` where the schema does not say, or says it too deep."""
    if not isinstance(schema, Mapping) or depth > 2:
        return "any"
    match schema:
        case {"enum": [_, *_] as choices}:
            shown = [_choice(choice) for choice in choices[:MOST_CHOICES]]
            return "|".join([*shown, "…"] if len(choices) > MOST_CHOICES else shown)
        case {"const": constant}:
            return _choice(constant)
        case {"anyOf": [_, *_] as branches} | {"oneOf": [_, *_] as branches}:
            kinds = dict.fromkeys(_kind(branch, depth + 1) for branch in branches[:MOST_CHOICES])
            return "|".join(kind for kind in kinds if kind != "null") or "null"
        case {"type": "array"}:
            return f"[{_kind(schema.get('items', {'type': 'string'}), depth + 1)}]"
        case {"properties": Mapping()}:
            return f"{{{_inputs(schema, depth + 1)}}}"
        case {"type": str(kind)}:
            return _KINDS.get(kind, _cut(kind, CHOICE_CHARS))
        case {"type": [_, *_] as kinds}:
            return "|".join(_KINDS.get(str(kind), _cut(str(kind), CHOICE_CHARS)) for kind in kinds if kind != "null")
    return "any"


def _choice(value: Any) -> str:
    return _cut(value if isinstance(value, str) else _json(value), CHOICE_CHARS)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _cut(text: str, limit: int) -> str:
    """Printable, on one line, and no longer than the limit."""
    kept = text[: 4 * limit]
    spaced = kept if kept.isprintable() else "".join(char if char.isprintable() else " " for char in kept)
    line = " ".join(spaced.split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 1].rstrip()}…"
