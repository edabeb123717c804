"""The Hermes form, which Qwen, Granite and many others were trained on too: JSON in tags of plain text."""

from collections.abc import Sequence

from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Reply
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.outbound import CallIds, once_per_tool, words
from toolwire.wire.prompted.messages import function, json_in_tags, prompted_dialect

_ABOUT = """\
# Tools

You can call functions. Their definitions, one JSON object a line, are inside <tools></tools>:
<tools>
{tools}
</tools>

To call one, write a JSON object with its name and arguments inside <tool_call></tool_call>, one tag for each call:
<tool_call>
{{"name": "function-name", "arguments": {{"parameter": "value"}}}}
</tool_call>
Then stop: each result comes back inside <tool_response></tool_response>, in the order of the calls."""


def tell_tools(tools: tuple[Tool, ...]) -> str:
    """The definitions and how to call them, for the system text."""
    return _ABOUT.format(tools="\n".join(_definitions(tools)))


@once_per_tool
def _definitions(tool: Tool) -> str:
    return json_in_tags(function(tool))


def write_reply(reply: Reply, ids: CallIds) -> str:  # noqa: ARG001 -- the form knows no ids
    """What the model said, its calls in tags."""
    calls = (json_in_tags({"name": call.name, "arguments": call.arguments}) for call in reply.calls)
    said = [reply.content] if reply.content else []
    return "\n".join([*said, *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)])


def write_results(results: Sequence[ToolResult], ids: CallIds) -> str:  # noqa: ARG001 -- results go by their order
    """One tag per result, with the name of its tool."""
    answers = (json_in_tags({"name": result.name, "content": words(result)}) for result in results)
    return "\n".join(f"<tool_response>\n{answer}\n</tool_response>" for answer in answers)


DIALECT = prompted_dialect("hermes", tell_tools, write_reply, write_results)
