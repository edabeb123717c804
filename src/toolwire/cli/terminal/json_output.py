"""Our values as plain JSON: what `--json` prints. Field names are those of the nouns."""

import json
import math
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from toolwire.cli.terminal.text import clean_json
from toolwire.protocol.calls import Image, Resource, Text, ToolCall, ToolResult
from toolwire.protocol.chat import Reply, ResultsMessage, UserMessage, untrusted_sources
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import Turn

_DEEPEST = 100
_WIDEST_INTEGER = 13_000  # bits; Python writes no decimal number of more than 4,300 digits


def encode_json(value: Any, *, indent: bool = False) -> bytes:
    """Strict JSON in UTF-8, with escapes only for what UTF-8 cannot carry, and what a terminal would not just show."""
    tree = plain(value)
    spacing: dict[str, Any] = {"indent": 2} if indent else {"separators": (",", ":")}
    return clean_json(json.dumps(tree, ensure_ascii=False, allow_nan=False, **spacing)).encode()


def plain(value: Any, depth: int = 0) -> Any:
    """Dictionaries, lists, text and numbers. What JSON cannot say is written as text."""
    if depth > _DEEPEST:
        return "…"
    match value:
        case None | bool() | str() if not isinstance(value, Enum):
            return value
        case IntEnum():
            return value.name.lower()
        case Enum():
            return value.value
        case int():
            return value if value.bit_length() < _WIDEST_INTEGER else hex(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {str(key): plain(inner, depth + 1) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner, depth + 1) for inner in value]
        case set() | frozenset():
            return sorted(str(inner) for inner in value)
        case Struct():
            return {name: plain(given, depth + 1) for name, given in asdict(value).items()}
        case _:
            return str(value)


def result_object(result: ToolResult) -> dict[str, Any]:
    """A result as `toolwire call --json` prints it."""
    body: dict[str, Any] = plain(result)
    body["content"] = [
        {"type": _BLOCKS.get(type(block), "error"), **plain(block), "source": plain(source)}
        for block, source in zip(result.content, result.sources, strict=True)
    ]
    return {"ok": result.ok, "text": result.text, **body}


_BLOCKS: dict[type, str] = {Text: "text", Image: "image", Resource: "resource"}


def call_object(call: ToolCall) -> dict[str, Any]:
    """A call without what its provider sent along."""
    body: dict[str, Any] = plain(call)
    del body["raw"]
    return body


def reply_object(reply: Reply) -> dict[str, Any]:
    """A reply as `toolwire parse` prints it."""
    return {
        "content": reply.content,
        "reasoning": reply.reasoning,
        "calls": [call_object(call) for call in reply.calls],
        "problems": plain(reply.problems),
        "finish_reason": reply.finish_reason,
        "model": reply.model,
        "usage": plain(reply.usage),
    }


def tool_object(tool: Tool) -> dict[str, Any]:
    """A tool without what only this process can use."""
    body: dict[str, Any] = plain(tool)
    for name in ("validator", "target"):
        del body[name]
    return body


def turn_object(turn: Turn) -> dict[str, Any]:
    """What came of a turn, as `toolwire ask --json` prints it."""
    assert turn.ending is not None
    return {
        "turn_id": turn.id,
        "thread": turn.thread,
        "question": turn.question,
        "answer": turn.ending.answer,
        "reason": turn.ending.reason.value,
        "status": turn.ending.status.value,
        "value": plain(turn.ending.value),
        "model": turn.model,
        "iterations": turn.iterations,
        "calls": _calls_of(turn),
        "untrusted": plain(untrusted_sources(turn.messages)),
        "usage": plain(turn.usage),
    }


def _calls_of(turn: Turn) -> list[dict[str, Any]]:
    """The calls of this turn (not of its thread's history) with their results."""
    opened = max(place for place, message in enumerate(turn.messages) if isinstance(message, UserMessage))
    said = turn.messages[opened:]
    results = {result.call_id: result for each in said if isinstance(each, ResultsMessage) for result in each.results}
    calls = [call for each in said if isinstance(each, Reply) for call in each.calls]
    return [{**call_object(c), "result": result_object(results[c.id]) if c.id in results else None} for c in calls]
