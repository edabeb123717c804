"""Ollama's own /api/chat dialect, outbound: arguments are objects and a result names its tool."""

from collections.abc import Sequence

from toolwire.protocol.calls import Image, ToolCall, ToolResult, in_words
from toolwire.protocol.chat import Message, Note, Reply, Request, ResultsMessage, UserMessage
from toolwire.wire.encode.openai_chat import encode_tools, system_message, wire_name
from toolwire.wire.encode.outbound import CallIds, Json, images, words
from toolwire.wire.encode.request import Dialect


def encode_message(message: Message, ids: CallIds) -> list[Json]:
    """One message as the API's messages."""
    match message:
        case Reply():
            return [_assistant(message, ids)]
        case ResultsMessage(results):
            return encode_results(results, ids)
        case UserMessage(parts=parts) if parts:
            return [_shown(message)]
        case UserMessage(text) | Note(text):
            return [{"role": "user", "content": text}]


def _shown(message: UserMessage) -> Json:
    """What a user said, and beside it the pictures; one that lies elsewhere is named in the text."""
    pictures = [part.data for part in message.parts if isinstance(part, Image)]
    said = [in_words(part) for part in message.parts if not isinstance(part, Image)]
    return {"role": "user", "content": "\n\n".join(said)} | ({"images": pictures} if pictures else {})


def encode_results(results: Sequence[ToolResult], ids: CallIds) -> list[Json]:
    """One `tool` message per result; images follow in a user message, where vision models look for them."""
    answers: list[Json] = [
        {"role": "tool", "tool_name": wire_name(result.name), "tool_call_id": ids.of(result), "content": words(result)}
        for result in results
    ]
    shown = [image.data for result in results for image in images(result)]
    return [*answers, {"role": "user", "content": "Shown by the tools:", "images": shown}] if shown else answers


def frame(request: Request, model: str, *, stream: bool = False, context_tokens: int | None = None) -> Json:
    """Every field of a request body but its tools and messages."""
    wanted = {
        "num_ctx": context_tokens,
        "num_predict": request.max_tokens,
        "temperature": request.temperature,
    }
    options = {name: value for name, value in wanted.items() if value is not None}
    return {"model": model, "stream": stream} | ({"options": options} if options else {})


def _assistant(reply: Reply, ids: CallIds) -> Json:
    message: Json = {"role": "assistant", "content": reply.content}
    if reply.calls:
        message["tool_calls"] = [_call(call, ids) for call in reply.calls]
    return message


def _call(call: ToolCall, ids: CallIds) -> Json:
    return {"id": ids.claim(call), "function": {"name": wire_name(call.name), "arguments": call.arguments}}


DIALECT = Dialect(
    "ollama",
    encode_tools,
    encode_message,
    system=system_message,
    lists_tools_when_off=False,
    wire_name=wire_name,
    frame=frame,
)
