"""The OpenAI Responses dialect, outbound: a list of items, among them the reasoning that the provider gave before."""

from collections.abc import Iterable, Sequence
from typing import Any

from toolwire.protocol.calls import Image, Resource, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Note, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.openai_chat import wire_name
from toolwire.wire.encode.outbound import CallIds, Json, images, to_json, words
from toolwire.wire.encode.pictures import address, written_parts
from toolwire.wire.encode.request import Dialect

REASONING = "reasoning.encrypted_content"


def encode_tools(tools: Iterable[Tool]) -> list[Json]:
    """The tools as function definitions, not strict: a schema that strict mode refuses would refuse the request."""
    return [
        {
            "type": "function",
            "name": wire_name(tool.name),
            "description": tool.description,
            "parameters": tool.input_schema,
            "strict": False,
        }
        for tool in tools
    ]


def encode_message(message: Message, ids: CallIds) -> list[Json]:
    """One message as items: a reply is its reasoning, its text and its calls."""
    match message:
        case Reply():
            return _reply_items(message, ids)
        case ResultsMessage(results):
            return encode_results(results, ids)
        case UserMessage(parts=parts) if parts:
            return [{"role": "user", "content": written_parts(message, _text_part, _image_part)}]
        case UserMessage(text) | Note(text):
            return [{"role": "user", "content": text}]


def encode_results(results: Sequence[ToolResult], ids: CallIds) -> list[Json]:
    """One output item per result, in the order of the calls."""
    return [
        {"type": "function_call_output", "call_id": ids.of(result), "output": _output(result)} for result in results
    ]


def frame(request: Request, model: str, *, stream: bool = False, reasons: bool = False) -> Json:
    """Every field of a request body but its tools and input. The provider keeps nothing: we carry the conversation.

    `reasons` asks a reasoning model for its reasoning in the sealed form that can be carried back; others refuse that.
    """
    fields: Json = {"model": model, "stream": stream, "store": False}
    if reasons:
        fields["include"] = [REASONING]
    if request.system:
        fields["instructions"] = request.system
    if request.max_tokens is not None:
        fields["max_output_tokens"] = request.max_tokens
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if request.tools and request.tools_off:
        fields["tool_choice"] = "none"
    return fields


def _reply_items(reply: Reply, ids: CallIds) -> list[Any]:
    items = _carried(reply)
    if reply.content.strip():
        items.append({"role": "assistant", "content": reply.content})
    items.extend(_call(call, ids) for call in reply.calls)
    return items


def _carried(reply: Reply) -> list[Any]:
    """The sealed reasoning of this very provider. What is not sealed was kept nowhere and would not be found."""
    if reply.carry is None or reply.carry.get("provider") != "openai_responses":
        return []
    sealed = (item for item in reply.carry.get("items", ()) if item.get("encrypted_content"))
    return [item | {"summary": item.get("summary") or []} for item in sealed]  # the API wants a list even when empty


def _call(call: ToolCall, ids: CallIds) -> Json:
    return {
        "type": "function_call",
        "call_id": ids.claim(call),
        "name": wire_name(call.name),
        "arguments": to_json(call.arguments).decode(),
    }


def _output(result: ToolResult) -> Any:
    found = images(result)
    if not found:
        return words(result)
    return [_text_part(words(result)), *map(_image_part, found)]


def _text_part(text: str) -> Json:
    return {"type": "input_text", "text": text}


def _image_part(shown: Image | Resource) -> Json:
    return {"type": "input_image", "image_url": address(shown)}


DIALECT = Dialect(
    "openai_responses",
    encode_tools,
    encode_message,
    wire_name=wire_name,
    frame=frame,
    messages_field="input",
    owner="openai",
)
