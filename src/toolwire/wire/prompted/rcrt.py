"""The RCRT envelope: a reply is one JSON object that says something and requests tools, each request with its id."""

from collections.abc import Sequence
from typing import Any

from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import Reply
from toolwire.protocol.tools import Delivery, Tool
from toolwire.wire.encode.outbound import CallIds, Json, is_failure, once_per_tool, to_json, words
from toolwire.wire.prompted.messages import prompted_dialect

_ABOUT = """\
# Tools

You can request these tools, one JSON object a line:
{tools}

Answer with nothing but one JSON object of exactly this shape:
{{"action":"create","breadcrumb":{{"schema_name":"agent.response.v1","title":"Response","tags":["agent:response"],\
"context":{{"message":"what you say to the user","tool_requests":[{{"tool":"tool-name","input":{{}},\
"requestId":"tool-name-1","return_to_llm":true}}]}}}}}}
- tool: a name from the list, written exactly so; input: its parameters, {{}} if it has none.
- requestId: a new id for each request; its result comes back under this id as a tool.response.v1 object.
- return_to_llm: true if you need the result to go on (to reason about it, to handle an error, for a next step); \
false if it is the final answer and goes straight to the user. An error always comes back to you.
- config_id: only where a tool's configuration was named to you; otherwise leave it out.
- Several requests of one answer run at the same time, and their results come back together. \
With "dependencies":["requestId"] a request waits until those of the same answer have succeeded.
- Without anything to request, tool_requests is []."""


def tell_tools(tools: tuple[Tool, ...]) -> str:
    """The tools and the envelope, for the system text."""
    return _ABOUT.format(tools=tool_lines(tools))


def tool_lines(tools: tuple[Tool, ...]) -> str:
    """One line of JSON for each tool."""
    return "\n".join(_lines(tools))


@once_per_tool
def _lines(tool: Tool) -> str:
    line = {"tool": tool.name, "description": tool.description, "input_schema": tool.input_schema}
    return to_json(line).decode()


def write_reply(reply: Reply, ids: CallIds) -> str:
    """The whole envelope, also for an answer without requests."""
    crumb = {
        "schema_name": "agent.response.v1",
        "title": "Response",
        "tags": ["agent:response"],
        "context": {"message": reply.content, "tool_requests": [_request(call, ids) for call in reply.calls]},
    }
    return to_json({"action": "create", "breadcrumb": crumb}).decode()


def _request(call: ToolCall, ids: CallIds) -> Json:
    options = call.options
    returns = options is None or options.delivery is not Delivery.USER
    request: Json = {
        "tool": call.name, "input": call.arguments, "requestId": ids.claim(call), "return_to_llm": returns,
    }  # fmt: skip
    if options is not None and options.config_id:
        request["config_id"] = options.config_id
    if options is not None and options.dependencies:
        request["dependencies"] = list(options.dependencies)
    return request


def write_results(results: Sequence[ToolResult], ids: CallIds) -> str:
    """One `tool.response.v1` object a line, in the order of the requests."""
    return "\n".join([to_json(response(result, ids)).decode() for result in results])


def _write_tagged(results: Sequence[ToolResult], ids: CallIds) -> str:
    """The same with the tags under which the standard keeps responses."""
    return "\n".join([to_json(_tagged(response(result, ids))).decode() for result in results])


def _tagged(response: Json) -> Json:
    tags = ["tool:response", f"request:{response['context']['request_id']}"]
    return {"schema_name": response["schema_name"], "tags": tags, "context": response["context"]}


def response(result: ToolResult, ids: CallIds) -> Json:
    """A result as a response. Its output is an object, even where the tool said only words."""
    context: Json = {"request_id": ids.of(result), "tool": result.name, "status": "success", "output": _output(result)}
    if is_failure(result):
        context |= {"status": "error", "output": None, "error": words(result)}
    return {"schema_name": "tool.response.v1", "context": context}


def _output(result: ToolResult) -> Any:
    return result.structured if isinstance(result.structured, dict) else {"result": words(result)}


DIALECT = prompted_dialect("rcrt", tell_tools, write_reply, _write_tagged)
