"""Models without tools of their own: the tools are told in the system text, calls and results in ordinary messages."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Message, Note, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.openai_chat import frame as chat_frame
from toolwire.wire.encode.openai_chat import system_message, user_content
from toolwire.wire.encode.outbound import CallIds, Json, to_json
from toolwire.wire.encode.request import Dialect

WriteReply = Callable[[Reply, CallIds], str]
WriteResults = Callable[[Sequence[ToolResult], CallIds], str]
TellTools = Callable[[tuple[Tool, ...]], str]


def prompted_dialect(
    name: str, tell: TellTools, write_reply: WriteReply, write_results: WriteResults, **more: Any
) -> Dialect:
    """A dialect of chat messages that hold nothing but text."""
    return Dialect(
        name,
        encode_tools=more.pop("encode_tools", _no_field),
        encode_message=partial(_encode_message, write_reply, write_results),
        system=system_message,
        tell_tools=lambda system, tools: f"{system}\n\n{tell(tools)}" if system else tell(tools),
        frame=frame,
        **more,
    )


def frame(request: Request, model: str, *, stream: bool = False) -> Json:
    """Every field of a request body but its messages. A server that sees no tools takes no choice of them either."""
    fields = chat_frame(request, model, stream=stream)
    fields.pop("tool_choice", None)
    return fields


def _no_field(tools: Any) -> list[Any]:  # noqa: ARG001 -- the tools are in the system text
    return []


def _encode_message(write_reply: WriteReply, write_results: WriteResults, message: Message, ids: CallIds) -> list[Json]:
    match message:
        case Reply():
            return [{"role": "assistant", "content": write_reply(message, ids)}]
        case ResultsMessage(results):
            return [{"role": "user", "content": write_results(results, ids)}]
        case UserMessage(parts=parts) if parts:
            return [{"role": "user", "content": user_content(message)}]
        case UserMessage(text) | Note(text):
            return [{"role": "user", "content": text}]


def json_in_tags(value: Any) -> str:
    """JSON that cannot end a tag it stands in: every `</` in it is written `<\\/`, which means the same."""
    return to_json(value).decode().replace("</", "<\\/")


def function(tool: Tool) -> Json:
    """A tool as chat templates show it to models."""
    inner = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": inner}
