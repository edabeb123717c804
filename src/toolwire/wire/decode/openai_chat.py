"""OpenAI chat completions: what a client of that API sends, as our nouns."""

from collections.abc import Mapping
from typing import Any

from toolwire.protocol.calls import Block, Text
from toolwire.protocol.tools import Tool
from toolwire.wire.decode.fields import BadField, objects, required_text, text
from toolwire.wire.decode.transcript import Transcript
from toolwire.wire.encode.pictures import is_picture, picture

FIELDS = frozenset({"model", "messages", "tools", "functions", "stream", "max_tokens", "max_completion_tokens",
                    "temperature"})  # fmt: skip
_SYSTEM = ("system", "developer")
_SEEN = {
    "image_url": "an image",
    "input_image": "an image",
    "input_audio": "a sound",
    "file": "a file",
    "input_file": "a file",
}


def read_system(body: Mapping[str, Any], said: Transcript) -> str:
    """The system text: every system message before the first other one."""
    texts = []
    for at, message in enumerate(objects(body.get("messages"), "messages")):
        if message.get("role") not in _SYSTEM:
            break
        texts.append(content(message.get("content"), f"messages[{at}].content", said))
    return "\n\n".join(texts)


def read_messages(body: Mapping[str, Any], said: Transcript) -> None:
    """Every message after the opening system text; a later system message is a note."""
    messages = objects(body.get("messages"), "messages")
    if not messages:
        raise BadField("messages", "must be a non-empty list")
    opening = True
    for at, message in enumerate(messages):
        opening = opening and message.get("role") in _SYSTEM
        if not opening:
            _read(message, f"messages[{at}]", said)


def _read(message: Mapping[str, Any], where: str, said: Transcript) -> None:
    match message.get("role"):
        case "user":
            said.user(parts(message.get("content"), f"{where}.content", said))
        case "assistant":
            _assistant(message, where, said)
        case "tool":
            alias = required_text(message.get("tool_call_id"), f"{where}.tool_call_id")
            name = text(message.get("name"), f"{where}.name")
            said.result(alias, _result(message, where, said), failed=False, name=name)
        case "function":
            name = required_text(message.get("name"), f"{where}.name")
            said.result(name, _result(message, where, said), failed=False, name=name)
        case "system" | "developer":
            said.note(content(message.get("content"), f"{where}.content", said))
        case _:
            raise BadField(f"{where}.role", "must be system, developer, user, assistant or tool")


def _assistant(message: Mapping[str, Any], where: str, said: Transcript) -> None:
    said.end_reply()
    reply = said.reply()
    reply.content.append(content(message.get("content"), f"{where}.content", said))
    for field in ("reasoning_content", "reasoning"):
        if isinstance(thought := message.get(field), str) and thought:
            reply.reasoning.append(thought)
            break
    for at, call in enumerate(objects(message.get("tool_calls"), f"{where}.tool_calls")):
        _call(call, f"{where}.tool_calls[{at}]", said)
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        name = required_text(legacy.get("name"), f"{where}.function_call.name")
        said.call(f"{where}.function_call", name, legacy.get("arguments"), None, legacy)


def _call(call: Mapping[str, Any], where: str, said: Transcript) -> None:
    match call:
        case {"custom": Mapping() as inner}:
            written: Any = {"input": inner.get("input")}
        case {"function": Mapping() as inner}:
            written = inner.get("arguments")
        case _:
            raise BadField(f"{where}.function", "must be an object")
    alias = text(call.get("id"), f"{where}.id") or None
    said.call(where, required_text(inner.get("name"), f"{where}.function.name"), written, alias, call)


def _result(message: Mapping[str, Any], where: str, said: Transcript) -> tuple[Block, ...]:
    found = parts(message.get("content"), f"{where}.content", said)
    return tuple(found) if any(map(is_picture, found)) else (Text(_joined(found)),)


def content(value: Any, where: str, said: Transcript) -> str:
    """The text of a message in which nothing but text can be kept."""
    found = parts(value, where, said)
    for at, part in enumerate(found):
        if is_picture(part):
            said.lose(f"{where}[{at}]", "an image was left out")
    return _joined(found)


def _joined(found: list[Block]) -> str:
    return "\n\n".join(part.text for part in found if isinstance(part, Text))


def parts(value: Any, where: str, said: Transcript) -> list[Block]:
    """What a message says and shows: a string, or a list of parts of which texts and pictures can be kept."""
    if not isinstance(value, list):
        return [Text(text(value, where))]
    found: list[Block] = []
    for at, part in enumerate(value):
        match part:
            case str():
                found.append(Text(part))
            case {"type": "text" | "input_text" | "output_text", "text": str(words)}:
                found.append(Text(words))
            case {"type": "refusal", "refusal": str(words)}:
                found.append(Text(words))
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                found.append(picture(url))
            case {"type": "image_url" | "input_image", "image_url": str(url)}:
                found.append(picture(url))
            case Mapping():
                kind = str(part.get("type"))[:40]
                said.lose(f"{where}[{at}]", f"{_SEEN.get(kind, f'a part of type {kind!r}')} was left out")
            case _:
                raise BadField(f"{where}[{at}]", "must be an object")
    return found


def read_tools(body: Mapping[str, Any]) -> tuple[list[Tool], list[Mapping[str, Any]]]:
    """The client's functions as tools, and the tools that only the provider itself could run."""
    tools, foreign = [], []
    for at, entry in enumerate(objects(body.get("tools"), "tools")):
        inner = entry.get("function")
        if entry.get("type", "function") == "function" and isinstance(inner, Mapping):
            tools.append(function(inner, f"tools[{at}].function"))
        else:
            foreign.append(entry)
    for at, entry in enumerate(objects(body.get("functions"), "functions")):
        tools.append(function(entry, f"functions[{at}]"))
    return tools, foreign


def function(entry: Mapping[str, Any], where: str, schema_field: str = "parameters") -> Tool:
    """One definition of a function. Without a schema it takes no arguments."""
    schema = entry.get(schema_field)
    if schema is not None and not isinstance(schema, Mapping):
        raise BadField(f"{where}.{schema_field}", "must be a JSON Schema object")
    description = text(entry.get("description"), f"{where}.description")
    return Tool(
        required_text(entry.get("name"), f"{where}.name"), description, schema or {"type": "object", "properties": {}}
    )


def may_not_call(body: Mapping[str, Any]) -> bool:
    return body.get("tool_choice") == "none" or body.get("function_call") == "none"
