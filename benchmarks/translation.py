"""Writing a request of 50 tools and 40 messages: at first, and when only the newest two messages are new.

At first the encoder is new too; for the newest messages one encoder serves a hundred conversations, as it does in use.

The floor translates the same conversation, kept as plain OpenAI values, to Anthropic's form by hand, all of it.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import orjson
from msgspec.structs import replace

from benchmarks.cpu import cpu_us, cpu_us_after
from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Status
from toolwire.protocol.tools import Tool
from toolwire.wire.encode import openai_chat
from toolwire.wire.encode.request import Dialect, RequestEncoder, encode_conversation
from toolwire.wire.formats.registry import DIALECTS

Json = dict[str, Any]
Frame = Callable[[Request, str], Json]
BRIEFLY = ("openai", "anthropic", "grammar")  # where it only matters that the benchmark runs
CONVERSATIONS = 128  # more than are prepared at a time
_numbers = count()
SYSTEM = "You watch a fleet. " * 20


def figures(seconds: float) -> dict[str, float]:
    tools, messages = _tools(50), _messages(40)
    whole = Request(messages, tools, SYSTEM, "bench")
    plain = openai_chat.encode_tools(tools), encode_conversation(openai_chat.DIALECT, messages, "", None)
    found = {"floor": cpu_us(lambda: orjson.dumps(_by_hand(*plain)), seconds)}
    names = DIALECTS if seconds else BRIEFLY
    for name in names:
        dialect = DIALECTS[name]
        found[f"{name}_cold"] = cpu_us(partial(_cold, dialect, dialect.frame, whole), seconds)
        encoder = RequestEncoder(dialect, conversations=CONVERSATIONS)
        found[f"{name}_newest"] = cpu_us_after(partial(_grown, encoder, dialect.frame, whole), seconds)
    for kind in ("cold", "newest"):
        found[f"slowest_{kind}"] = max(found[f"{name}_{kind}"] for name in names)
    return found


def _cold(dialect: Dialect, frame: Frame, request: Request) -> bytes:
    return RequestEncoder(dialect).encode(request, frame(request, "model"))


def _grown(encoder: RequestEncoder, frame: Frame, whole: Request) -> Callable[[], bytes]:
    """A conversation of which all but the newest messages are written, about to write them."""
    named = replace(whole, conversation=f"conversation {next(_numbers)}")
    shorter = replace(named, messages=whole.messages[:-2])
    encoder.encode(shorter, frame(shorter, "model"))
    return lambda: encoder.encode(named, frame(named, "model"))


def _tools(number: int) -> tuple[Tool, ...]:
    field = {"type": "string", "description": "One of the values that the service knows."}
    properties = dict.fromkeys(("region", "metric", "since", "until", "unit"), field)
    schema = {"type": "object", "properties": properties, "required": ["metric"], "additionalProperties": False}
    return tuple(Tool(f"query_service_{n}", f"Ask service {n} for a metric over time.", schema) for n in range(number))


def _messages(number: int) -> tuple[Message, ...]:
    messages: list[Message] = [UserMessage("How did the fleet do last week?")]
    for step in range(number // 2):
        arguments = {"metric": "load", "since": f"day {step}"}
        call = ToolCall("query_service_1", arguments, id=f"c{step}", alias=f"call_{step}")
        messages.append(Reply("Looking at the next day.", calls=(call,)))
        messages.append(ResultsMessage((ToolResult(call.id, call.name, Status.SUCCESS, (Text("0.42 " * 60),)),)))
    return tuple(messages[:number])


def _by_hand(tools: list[Json], messages: list[Json]) -> Json:
    functions = [tool["function"] for tool in tools]
    named = [
        {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]} for one in functions
    ]
    return {"model": "m", "system": SYSTEM, "tools": named, "messages": [_message_by_hand(each) for each in messages]}


def _message_by_hand(message: Json) -> Json:
    if message["role"] == "tool":
        block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return {"role": "user", "content": [block]}
    content: list[Json] = [{"type": "text", "text": message["content"]}] if message["content"] else []
    for call in message.get("tool_calls", ()):
        arguments = orjson.loads(call["function"]["arguments"])
        content.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
    return {"role": message["role"], "content": content}
