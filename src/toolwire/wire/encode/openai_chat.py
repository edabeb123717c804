"""The OpenAI chat completions dialect, outbound: tools, messages and results as that API wants them."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from toolwire.protocol.calls import Image, Resource, Text, ToolResult
from toolwire.protocol.chat import Message, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.tools import Tool
from toolwire.wire.encode import strict_schema
from toolwire.wire.encode.outbound import CallIds, Json, images, once_per_tool, to_json, words
from toolwire.wire.encode.pictures import address, written_parts
from toolwire.wire.encode.request import Dialect
from toolwire.wire.encode.tool_names import WireName, alphabet

wire_name = alphabet("A-Za-z0-9_-", "A-Za-z0-9_-", 64)


def encode_tools(tools: Iterable[Tool], name_of: WireName = wire_name) -> list[Json]:
    """The tools as function definitions."""
    return [
        {
            "type": "function",
            "function": {
                "name": name_of(tool.name),
                "description": tool.description,
                "parameters": tool.input_schema,
            },
        }
        for tool in tools
    ]


@once_per_tool
def encode_tools_strictly(tool: Tool) -> Json:
    """The same for strict mode, in which the provider itself holds the model to the schema."""
    function = {
        "name": wire_name(tool.name),
        "description": tool.description,
        "parameters": strict_schema.fit(tool.input_schema)[0],
        "strict": True,
    }
    return {"type": "function", "function": function}


def encode_message(message: Message, ids: CallIds) -> list[Json]:
    """One message as the API's messages; a set of results is one `tool` message for each."""
    if isinstance(message, Reply):
        return [_assistant(message, ids)]
    if isinstance(message, ResultsMessage):
        return encode_results(message.results, ids)
    if isinstance(message, UserMessage) and message.parts:
        return [{"role": "user", "content": user_content(message)}]
    return [{"role": "user", "content": message.text}]


def user_content(message: UserMessage) -> list[Json]:
    """What a user said and showed, part by part."""
    return written_parts(message, _text_part, _image_part)


def encode_results(results: Sequence[ToolResult], ids: CallIds) -> list[Json]:
    """One `tool` message per result; images follow in a user message, since `tool` messages hold only text."""
    answers: list[Json] = []
    shown: list[Json] = []
    for result in results:
        answers.append({"role": "tool", "tool_call_id": ids.of(result), "content": words(result)})
        if len(result.content) != 1 or type(result.content[0]) is not Text:  # as it nearly always is
            shown += _image_parts(result)
    if shown:
        answers.append({"role": "user", "content": shown})
    return answers


def frame(request: Request, model: str, *, stream: bool = False, limit_field: str = "max_tokens") -> Json:
    """Every field of a request body but its tools and messages."""
    fields: Json = {"model": model, "stream": stream}
    if request.max_tokens is not None:
        fields[limit_field] = request.max_tokens
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if request.tools and request.tools_off:
        fields["tool_choice"] = "none"
    return fields


def _assistant(reply: Reply, ids: CallIds) -> Json:
    if not reply.calls:
        return {"role": "assistant", "content": reply.content}
    calls: list[Json] = []
    for call in reply.calls:  # mostly one, for which a comprehension costs more than the loop
        function = {"name": wire_name(call.name), "arguments": to_json(call.arguments).decode()}
        calls.append({"id": ids.claim(call), "type": "function", "function": function})
    return {"role": "assistant", "content": reply.content or None, "tool_calls": calls}


def _image_parts(result: ToolResult) -> list[Json]:
    shown = images(result)
    return [_text_part(f"Shown by {result.name}:"), *map(_image_part, shown)] if shown else []


def _text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def _image_part(shown: Image | Resource) -> Json:
    return {"type": "image_url", "image_url": {"url": address(shown)}}


def system_message(text: str) -> Json:
    return {"role": "system", "content": text}


DIALECT = Dialect(
    "openai", encode_tools, encode_message, system=system_message, wire_name=wire_name, frame=frame, owner="openai"
)
STRICT = replace(DIALECT, name="openai_strict", encode_tools=encode_tools_strictly, losses=strict_schema.losses)
