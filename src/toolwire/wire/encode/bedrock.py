"""Amazon Bedrock's Converse, outbound: blocks in alternating user and assistant messages, whatever the model."""

from collections.abc import Iterable
from typing import Any

from toolwire.protocol.calls import Image, Resource, ToolCall, ToolResult
from toolwire.protocol.chat import Reply, Request
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.blocks import BlockWriter, plain_id
from toolwire.wire.encode.outbound import CallIds, Json, images, is_failure, words
from toolwire.wire.encode.request import Dialect
from toolwire.wire.encode.tool_names import alphabet

wire_name = alphabet("A-Za-z0-9_-", "A-Za-z0-9_-", 64)
NOTHING = "(nothing)"
_FORMATS = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}


def encode_tools(tools: Iterable[Tool]) -> list[Json]:
    """The tools as specifications."""
    return [
        {
            "toolSpec": {
                "name": wire_name(tool.name),
                "description": tool.description or tool.name,
                "inputSchema": {"json": tool.input_schema},
            }
        }
        for tool in tools
    ]


def _placed(specifications: list[Any]) -> Json:
    return {"toolConfig": {"tools": specifications}}


def frame(request: Request, model: str = "", *, stream: bool = False) -> Json:  # noqa: ARG001 -- both are in the URL
    """Every field of a request body but its tools and messages. There is no word for "call nothing" here."""
    fields: Json = {}
    if request.system:
        fields["system"] = [{"text": request.system}]
    wanted = {"maxTokens": request.max_tokens, "temperature": request.temperature}
    if config := {name: value for name, value in wanted.items() if value is not None}:
        fields["inferenceConfig"] = config
    return fields


def _carried(reply: Reply) -> list[Json]:
    """The signed reasoning of this very provider; it must precede everything else of its message."""
    if reply.carry is None or reply.carry.get("provider") != "bedrock":
        return []
    return [_reasoning(item) for item in reply.carry.get("items", ())]


def _reasoning(item: Json) -> Json:
    """Whole replies carry the block itself, streamed ones its text and signature."""
    if "reasoningContent" in item:
        return {"reasoningContent": item["reasoningContent"]}
    said = {name: item[name] for name in ("text", "signature") if name in item}
    return {"reasoningContent": {"reasoningText": said}}


def _call(call: ToolCall, ids: CallIds) -> Json:
    return {"toolUse": {"toolUseId": ids.claim(call), "name": wire_name(call.name), "input": call.arguments}}


def _result(result: ToolResult, ids: CallIds) -> Json:
    content = [_text(words(result)), *(shown for image in images(result) if (shown := _shown(image)))]
    status = "error" if is_failure(result) else "success"
    return {"toolResult": {"toolUseId": ids.of(result), "content": content, "status": status}}


def _text(text: str) -> Json:
    return {"text": text}


def _shown(picture: Image | Resource) -> Json | None:
    """A picture as a block; none for one that lies elsewhere or that the API refuses."""
    if isinstance(picture, Resource) or picture.media_type not in _FORMATS:
        return None
    return {"image": {"format": _FORMATS[picture.media_type], "source": {"bytes": picture.data}}}


_BLOCKS = BlockWriter(_text, _shown, _call, _result, _carried)

DIALECT = Dialect(
    "bedrock",
    encode_tools,
    _BLOCKS.encode_message,
    joins_neighbours=True,
    id_fits=plain_id,
    wire_name=wire_name,
    frame=frame,
    place_tools=_placed,
)
