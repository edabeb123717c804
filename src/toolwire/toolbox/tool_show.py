"""The tool that tells a model all about another one, where the catalogue told it on one line or not at all."""

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.define.toolbox import Toolbox
from toolwire.disclose.compact import compact_catalogue
from toolwire.disclose.offer import visible_tools
from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool

NAME = "tool-show"
CATALOGUE_TOKENS = 4000


class ToolShowOutput(TypedDict):
    tool: Annotated[
        dict[str, Any] | None,
        Field(description="The whole definition: name, description, input_schema, output_schema, examples and more."),
    ]
    catalogue: Annotated[str, Field(description="Without a name: one line for each tool, in groups.")]
    total: Annotated[int, Field(description="How many tools you can call.")]


def tool_show_tool(toolbox: Callable[[], Toolbox] | None) -> Tool:
    """The tool `tool-show`. `toolbox` gives the tools as they are when it is called."""

    @tool(
        name=NAME,
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category="catalogue",
        polling=True,
        examples=({"name": "random"}, {}),
    )
    def tool_show(context: Context, name: Annotated[str, Field(max_length=200)] = "") -> ToolShowOutput:
        """Show one tool in full: every input with its meaning, its output, examples. Without a name, list all tools.

        Args:
            name: The exact name of the tool.
        """
        if toolbox is None:
            raise ToolFailure("the tools of this agent are not known here", code=Code.UNAVAILABLE)
        tools = toolbox()
        offered = visible_tools(tools, context.grant)
        if not name:
            text = compact_catalogue(offered, budget=CATALOGUE_TOKENS, grouped=True)
            return {"tool": None, "catalogue": text, "total": len(offered)}
        found = next((each for each in offered if each.name == name), None)
        if found is None:
            near = tools.nearest(name, [each.name for each in offered])
            advice = f"did you mean {' or '.join(near)}?" if near else f"call {NAME} without a name to list all"
            raise ToolFailure(f"there is no tool {name!r}; {advice}", code=Code.NOT_FOUND)
        return {"tool": describe_tool(found), "catalogue": "", "total": len(offered)}

    return tool_show


def describe_tool(tool: Tool) -> dict[str, Any]:
    """All that a model can use of a definition."""
    described: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "category": tool.category,
        "version": tool.version,
        "input_schema": dict(tool.input_schema),
        "output_schema": dict(tool.output_schema) if tool.output_schema else None,
        "examples": [dict(example) for example in tool.examples],
        "needs": sorted(tool.needs),
        "requires_confirmation": tool.requires_confirmation,
        "timeout_s": tool.timeout_s,
    }
    return {key: value for key, value in described.items() if value not in (None, "", [], False)}
