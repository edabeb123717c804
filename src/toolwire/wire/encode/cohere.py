"""Cohere's chat API, version 2, outbound: what a model said before its calls is its plan."""

from collections.abc import Iterable, Sequence

from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import Message, Note, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.openai_chat import encode_tools as function_tools
from toolwire.wire.encode.openai_chat import system_message, user_content
from toolwire.wire.encode.outbound import CallIds, Json, to_json, words
from toolwire.wire.encode.request import Dialect
from toolwire.wire.encode.tool_names import alphabet

wire_name = alphabet("A-Za-z_", "A-Za-z0-9_", 64)
NOTHING = "(nothing)"


def encode_tools(tools: Iterable[Tool]) -> list[Json]:
    """The tools as function definitions, under the names that Cohere takes."""
    return function_tools(tools, wire_name)


def encode_message(message: Message, ids: CallIds) -> list[Json]:
    """One message as the API's messages. A reply without anything in it is left out: empty content is refused."""
    match message:
        case Reply():
            return _assistant(message, ids)
        case ResultsMessage(results):
            return encode_results(results, ids)
        case UserMessage(parts=parts) if parts:
            return [{"role": "user", "content": user_content(message)}]
        case UserMessage(text) | Note(text):
            return [{"role": "user", "content": text if text.strip() else NOTHING}]


def encode_results(results: Sequence[ToolResult], ids: CallIds) -> list[Json]:
    """One `tool` message per result; pictures are named, not shown."""
    return [{"role": "tool", "tool_call_id": ids.of(result), "content": words(result)} for result in results]


def frame(request: Request, model: str, *, stream: bool = False) -> Json:
    """Every field of a request body but its tools and messages."""
    fields: Json = {"model": model, "stream": stream}
    if request.max_tokens is not None:
        fields["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if request.tools and request.tools_off:
        fields["tool_choice"] = "NONE"
    return fields


def _assistant(reply: Reply, ids: CallIds) -> list[Json]:
    message: Json = {"role": "assistant"}
    if reply.calls:
        message["tool_calls"] = [_call(call, ids) for call in reply.calls]
        if reply.content.strip():
            message["tool_plan"] = reply.content
        return [message]
    return [message | {"content": reply.content}] if reply.content.strip() else []


def _call(call: ToolCall, ids: CallIds) -> Json:
    function = {"name": wire_name(call.name), "arguments": to_json(call.arguments).decode()}
    return {"id": ids.claim(call), "type": "function", "function": function}


DIALECT = Dialect("cohere", encode_tools, encode_message, system=system_message, wire_name=wire_name, frame=frame)
