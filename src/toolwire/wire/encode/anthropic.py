"""The Anthropic Messages dialect, outbound: blocks in alternating user and assistant messages, the system apart."""

from collections.abc import Iterable
from typing import Any

from toolwire.protocol.calls import Image, Resource, ToolCall, ToolResult
from toolwire.protocol.chat import Reply, Request
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.blocks import BlockWriter, plain_id
from toolwire.wire.encode.outbound import CallIds, Json, images, is_failure, words
from toolwire.wire.encode.pictures import is_on_the_web
from toolwire.wire.encode.request import Dialect
from toolwire.wire.encode.tool_names import alphabet

SHOWN_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
wire_name = alphabet("A-Za-z0-9_-", "A-Za-z0-9_-", 64)


def encode_tools(tools: Iterable[Tool]) -> list[Json]:
    """The tools with their input schemas."""
    return [
        {"name": wire_name(tool.name), "description": tool.description, "input_schema": tool.input_schema}
        for tool in tools
    ]


def frame(request: Request, model: str, *, stream: bool = False, max_tokens: int = 8192) -> Json:
    """Every field of a request body but its tools and messages. `max_tokens` holds where the request sets none."""
    fields: Json = {"model": model, "max_tokens": request.max_tokens or max_tokens, "stream": stream}
    if request.system:
        # The mark lets the provider reuse tools and system text, which come before every message, for later requests.
        fields["system"] = [_text(request.system) | {"cache_control": {"type": "ephemeral"}}]
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if request.tools and request.tools_off:
        fields["tool_choice"] = {"type": "none"}
    return fields


def _carried(reply: Reply) -> list[Any]:
    """The signed thinking of this very provider; it must precede everything else of its message."""
    if reply.carry is None or reply.carry.get("provider") != "anthropic":
        return []
    return list(reply.carry.get("items", ()))


def _call(call: ToolCall, ids: CallIds) -> Json:
    return {"type": "tool_use", "id": ids.claim(call), "name": wire_name(call.name), "input": call.arguments}


def _result(result: ToolResult, ids: CallIds) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": ids.of(result), "content": words(result)}
    if is_failure(result):
        return block | {"is_error": True}  # such a block may hold nothing but text
    if pictures := [shown for image in images(result) if (shown := _shown(image))]:
        block["content"] = [_text(words(result)), *pictures]
    return block


def _shown(picture: Image | Resource) -> Json | None:
    """A picture as a block; none for a kind that the API refuses."""
    if isinstance(picture, Resource):
        return {"type": "image", "source": {"type": "url", "url": picture.uri}} if is_on_the_web(picture) else None
    if picture.media_type not in SHOWN_IMAGES:
        return None
    return {"type": "image", "source": {"type": "base64", "media_type": picture.media_type, "data": picture.data}}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


_BLOCKS = BlockWriter(_text, _shown, _call, _result, _carried)

DIALECT = Dialect(
    "anthropic", encode_tools, _BLOCKS.encode_message,
    joins_neighbours=True, id_fits=plain_id, wire_name=wire_name, frame=frame,
)  # fmt: skip
