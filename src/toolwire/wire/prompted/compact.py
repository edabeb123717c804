"""The short form of the RCRT standard: a tool is a line that reads like a signature, a call is one small JSON object.

It says what a model needs for a call and no more: about 70 tokens for the standard instead of the seed's 1,300, and
about 30 for each tool instead of 85. What a line leaves out, the tool `tool-show` tells, where it is offered.
"""

from collections.abc import Sequence

from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import Reply
from toolwire.protocol.line_budget import CostedLine, fit_lines, lines_of
from toolwire.protocol.tool_lines import LineDetail
from toolwire.protocol.tools import Delivery, Tool
from toolwire.wire.encode.outbound import CallIds, Json, is_failure, once_per_tool, to_json, words
from toolwire.wire.prompted.messages import prompted_dialect

_ABOUT = """\
# Tools

{tools}

Inputs with ? or = may be left out. To call a tool, write a line {{"tool":"name","input":{{…}}}} and stop; several \
lines run at once. Results come back as lines with "output", or "error". Add "return_to_llm":false if a result is the \
final answer for the user."""

TOKENS_PER_TOOL = 31
MORE_TOKENS = 80
"""All lines together have this budget: 545 tokens for 15 tools, 3,180 for 100."""


def tell_tools(tools: tuple[Tool, ...]) -> str:
    """The tools and how to call them, for the system text."""
    return _ABOUT.format(tools=tool_lines(tools))


def tool_lines(tools: tuple[Tool, ...]) -> str:
    """One line for each tool; together they say as much as the budget allows."""
    lines = _lines(tools)
    budget = TOKENS_PER_TOOL * len(tools) + MORE_TOKENS
    fitting = fit_lines(lines, budget, begin=LineDetail.SHORT) or [each[LineDetail.CALL][0] for each in lines]
    return "\n".join(line if line.endswith("…") else f"{line}." for line in fitting)


@once_per_tool
def _lines(tool: Tool) -> tuple[CostedLine, ...]:
    return lines_of(tool)


def write_reply(reply: Reply, ids: CallIds) -> str:  # noqa: ARG001 -- results go by their order
    """What the model said, then a line for each call."""
    said = [reply.content] if reply.content else []
    return "\n".join([*said, *(to_json(_request(call)).decode() for call in reply.calls)])


def _request(call: ToolCall) -> Json:
    request: Json = {"tool": call.name, "input": call.arguments}
    if call.options is not None and call.options.delivery is Delivery.USER:
        request["return_to_llm"] = False
    if call.options is not None and call.options.config_id:
        request["config_id"] = call.options.config_id
    return request


def write_results(results: Sequence[ToolResult], ids: CallIds) -> str:  # noqa: ARG001 -- results go by their order
    """A line for each result, in the order of the calls."""
    return "\n".join([to_json(_response(result)).decode() for result in results])


def _response(result: ToolResult) -> Json:
    if is_failure(result):
        return {"tool": result.name, "error": words(result)}
    return {"tool": result.name, "output": result.structured if result.structured is not None else words(result)}


DIALECT = prompted_dialect("compact", tell_tools, write_reply, write_results, abridged=True)
