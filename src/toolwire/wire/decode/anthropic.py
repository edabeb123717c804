"""Anthropic Messages: what a client of that API sends, as our nouns."""

from collections.abc import Mapping
from typing import Any

from toolwire.protocol.calls import Block, Image, Text
from toolwire.protocol.tools import Tool
from toolwire.wire.decode.fields import BadField, objects, required_text, text
from toolwire.wire.decode.openai_chat import function
from toolwire.wire.decode.transcript import Transcript
from toolwire.wire.encode.pictures import picture

FIELDS = frozenset({"model", "messages", "tools", "stream", "max_tokens", "temperature", "system"})


def read_system(body: Mapping[str, Any], said: Transcript) -> str:
    system = body.get("system")
    if not isinstance(system, list):
        return text(system, "system")
    return "\n\n".join(_texts(objects(system, "system"), "system", said))


def read_messages(body: Mapping[str, Any], said: Transcript) -> None:
    """Messages of alternating roles; results stand in the user's, before any words of that message."""
    messages = objects(body.get("messages"), "messages")
    if not messages:
        raise BadField("messages", "must be a non-empty list")
    for at, message in enumerate(messages):
        where = f"messages[{at}].content"
        blocks = _blocks(message.get("content"), where)
        match message.get("role"):
            case "user":
                _user(blocks, where, said)
            case "assistant":
                said.end_reply()
                said.reply()
                for index, block in enumerate(blocks):
                    _assistant_block(block, f"{where}[{index}]", said)
            case "system":
                said.note("\n\n".join(_texts(blocks, where, said)))
            case _:
                raise BadField(f"messages[{at}].role", "must be user or assistant")


def _blocks(content: Any, where: str) -> list[Mapping[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content, where)


def _user(blocks: list[Mapping[str, Any]], where: str, said: Transcript) -> None:
    rest = []
    for at, block in enumerate(blocks):
        if block.get("type") == "tool_result":
            inner = f"{where}[{at}]"
            alias = required_text(block.get("tool_use_id"), f"{inner}.tool_use_id")
            said.result(alias, _result(block, inner, said), failed=block.get("is_error") is True)
        else:
            rest.append(block)
    if rest:
        said.user(_parts(rest, where, said))


def _result(block: Mapping[str, Any], where: str, said: Transcript) -> tuple[Block, ...]:
    inner = f"{where}.content"
    return tuple(_parts(_blocks(block.get("content"), inner), inner, said))


def _parts(blocks: list[Mapping[str, Any]], where: str, said: Transcript) -> list[Block]:
    """What can be kept of some blocks: texts and pictures."""
    found: list[Block] = []
    for at, block in enumerate(blocks):
        match block:
            case {"type": "image", "source": {"type": "url", "url": str(url)}}:
                found.append(picture(url))
            case {"type": "image", "source": {"data": str(data), "media_type": str(media_type)}}:
                found.append(Image(data, media_type))
            case _ if block.get("type", "text") == "text":
                found.append(Text(text(block.get("text"), f"{where}[{at}].text")))
            case _:
                said.lose(f"{where}[{at}]", f"{_kind(block)} was left out")
    return found


def _texts(blocks: list[Mapping[str, Any]], where: str, said: Transcript) -> list[str]:
    texts = []
    for at, block in enumerate(blocks):
        if block.get("type", "text") == "text":
            texts.append(text(block.get("text"), f"{where}[{at}].text"))
        else:
            said.lose(f"{where}[{at}]", f"{_kind(block)} was left out")
    return texts


def _kind(block: Mapping[str, Any]) -> str:
    kind = str(block.get("type"))[:40]
    return {"image": "an image", "document": "a document"}.get(kind, f"a block of type {kind!r}")


def _assistant_block(block: Mapping[str, Any], where: str, said: Transcript) -> None:
    reply = said.reply()
    match block.get("type"):
        case "text":
            reply.content.append(text(block.get("text"), f"{where}.text"))
        case "thinking":
            reply.keep("anthropic", block)
            reply.reasoning.append(text(block.get("thinking"), f"{where}.thinking"))
        case "redacted_thinking":
            reply.keep("anthropic", block)
        case "tool_use":
            alias = text(block.get("id"), f"{where}.id") or None
            said.call(where, required_text(block.get("name"), f"{where}.name"), block.get("input"), alias, block)
        case _:
            said.lose(where, f"{_kind(block)} was left out")


def read_tools(body: Mapping[str, Any]) -> tuple[list[Tool], list[Mapping[str, Any]]]:
    """The client's tools, and the tools that only the provider itself could run."""
    tools, foreign = [], []
    for at, entry in enumerate(objects(body.get("tools"), "tools")):
        if entry.get("type") in (None, "custom"):
            tools.append(function(entry, f"tools[{at}]", "input_schema"))
        else:
            foreign.append(entry)
    return tools, foreign


def may_not_call(body: Mapping[str, Any]) -> bool:
    choice = body.get("tool_choice")
    return isinstance(choice, Mapping) and choice.get("type") == "none"
