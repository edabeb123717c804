"""OpenAI Responses: what a client of that API sends, as our nouns. Items in a row that a model said are one reply."""

from collections.abc import Mapping
from typing import Any

from toolwire.protocol.calls import Block
from toolwire.protocol.tools import Tool
from toolwire.wire.decode.fields import BadField, objects, required_text, text
from toolwire.wire.decode.openai_chat import content, function, parts
from toolwire.wire.decode.transcript import Transcript

FIELDS = frozenset({"model", "input", "instructions", "tools", "stream", "max_output_tokens", "temperature"})
_SYSTEM = ("system", "developer")


def read_system(body: Mapping[str, Any], said: Transcript) -> str:
    """The instructions, and every system message at the beginning of the input."""
    texts = [text(body.get("instructions"), "instructions")]
    for at, item in enumerate(_items(body)):
        if item.get("role") not in _SYSTEM:
            break
        texts.append(content(item.get("content"), f"input[{at}].content", said))
    return "\n\n".join(filter(None, texts))


def read_messages(body: Mapping[str, Any], said: Transcript) -> None:
    if body.get("previous_response_id"):
        said.lose("previous_response_id", "earlier messages are kept by another server and cannot be read here")
    items = _items(body)
    if not items:
        raise BadField("input", "must be a text or a non-empty list")
    opening = True
    for at, item in enumerate(items):
        opening = opening and item.get("role") in _SYSTEM
        if not opening:
            _read(item, f"input[{at}]", said)


def _items(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = body.get("input")
    return [{"role": "user", "content": given}] if isinstance(given, str) else objects(given, "input")


def _read(item: Mapping[str, Any], where: str, said: Transcript) -> None:
    kind = item.get("type", "message" if "role" in item else None)
    match kind:
        case "message":
            _message(item, where, said)
        case "function_call" | "custom_tool_call":
            alias = text(item.get("call_id") or item.get("id"), f"{where}.call_id") or None
            written = item.get("arguments") if kind == "function_call" else {"input": item.get("input")}
            said.call(where, required_text(item.get("name"), f"{where}.name"), written, alias, item)
        case "function_call_output" | "custom_tool_call_output":
            alias = required_text(item.get("call_id"), f"{where}.call_id")
            said.result(alias, _output(item.get("output"), f"{where}.output", said), failed=False)
        case "reasoning":
            _reasoning(item, said)
        case _:
            said.lose(where, f"an item of type {str(kind)[:40]!r} was left out")


def _message(item: Mapping[str, Any], where: str, said: Transcript) -> None:
    given, field = item.get("content"), f"{where}.content"
    match item.get("role"):
        case "user":
            said.user(parts(given, field, said))
        case "assistant":
            said.reply().content.append(content(given, field, said))
        case "system" | "developer":
            said.note(content(given, field, said))
        case _:
            raise BadField(f"{where}.role", "must be user, assistant, system or developer")


def _reasoning(item: Mapping[str, Any], said: Transcript) -> None:
    reply = said.reply()
    reply.keep("openai_responses", item)
    for field in ("summary", "content"):
        parts = item.get(field)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                reply.reasoning.append(part["text"])


def _output(output: Any, where: str, said: Transcript) -> tuple[Block, ...]:
    """The output of a function: a text, or parts of it."""
    return tuple(parts(output, where, said))


def read_tools(body: Mapping[str, Any]) -> tuple[list[Tool], list[Mapping[str, Any]]]:
    """The client's functions as tools, and the tools that only the provider itself could run."""
    tools, foreign = [], []
    for at, entry in enumerate(objects(body.get("tools"), "tools")):
        if entry.get("type") == "function":
            tools.append(function(entry, f"tools[{at}]"))
        else:
            foreign.append(entry)
    return tools, foreign


def may_not_call(body: Mapping[str, Any]) -> bool:
    return body.get("tool_choice") == "none"
