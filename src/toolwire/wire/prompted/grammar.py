"""The form for servers that can hold a model to a JSON Schema: every reply is one object that fits it."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from toolwire.protocol.chat import Reply
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.losses import Loss
from toolwire.wire.encode.outbound import CallIds, Json, once_per_tool, to_json
from toolwire.wire.prompted.messages import prompted_dialect
from toolwire.wire.prompted.rcrt import tool_lines, write_results

_ABOUT = """\
# Tools

You can request these tools, one JSON object a line:
{tools}

Answer with one JSON object: {{"message": what you say to the user, "tool_requests": the tools you need now}}.
Each request is {{"tool": its name, "input": its parameters, "requestId": a new id}}; its result comes under that id.
When you need no tool, tool_requests is [] and message is your answer."""


def tell_tools(tools: tuple[Tool, ...]) -> str:
    """The tools and the object to write, for the system text."""
    return _ABOUT.format(tools=tool_lines(tools))


def reply_schema(tools: Iterable[Tool]) -> Json:
    """The schema of a reply: something said, and requests of these tools with inputs that fit."""
    return _reply_schema([_request_schema(tool) for tool in tools])


def _reply_schema(requests: list[Any]) -> Json:
    return _closed({"message": {"type": "string"}, "tool_requests": {"type": "array", "items": {"anyOf": requests}}})


def losses(tools: Iterable[Tool]) -> tuple[Loss, ...]:
    """The tools whose input is not held to its schema while it is written."""
    return tuple(Loss(tool.name, "refers within its schema; any object is offered") for tool in tools if _refers(tool))


def _request_schema(tool: Tool) -> Json:
    # A reference is a path from the root of its own schema, which here is a place inside another one.
    given: Mapping[str, Any] = {"type": "object"} if _refers(tool) else tool.input_schema
    return _closed({"tool": {"const": tool.name}, "input": given, "requestId": {"type": "string"}})


@once_per_tool
def _written_schemas(tool: Tool) -> orjson.Fragment:
    return orjson.Fragment(to_json(_request_schema(tool)))


def _refers(tool: Tool) -> bool:
    return b'"$ref":' in to_json(tool.input_schema)


def _closed(properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _encode_tools(tools: Iterable[Tool]) -> list[Any]:
    return [reply_schema(tools)]


def _write_tools(tools: Iterable[Tool]) -> list[Any]:
    return [_reply_schema(_written_schemas(tools))]


def _placed(schemas: list[Any]) -> Json:
    (schema,) = schemas
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}}


def write_reply(reply: Reply, ids: CallIds) -> str:
    """The object that the model was held to."""
    requests = [{"tool": call.name, "input": call.arguments, "requestId": ids.claim(call)} for call in reply.calls]
    return to_json({"message": reply.content, "tool_requests": requests}).decode()


DIALECT = prompted_dialect(
    "grammar",
    tell_tools,
    write_reply,
    write_results,
    encode_tools=_encode_tools,
    write_tools=_write_tools,
    place_tools=_placed,
    losses=losses,
    lists_tools_when_off=False,
)
