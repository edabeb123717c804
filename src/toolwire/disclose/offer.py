"""The tools that a turn offers to its model: those the grant covers, in the toolbox's own order."""

from collections.abc import Iterable

from toolwire.protocol.tools import Grant, Tool


def visible_tools(tools: Iterable[Tool], grant: Grant) -> tuple[Tool, ...]:
    """The tools that this grant may see. Only these can be called from text."""
    return tuple(tool for tool in tools if covers(grant, tool))


def covers(grant: Grant, tool: Tool) -> bool:
    """Whether the grant reaches the tool's tier, holds what it needs, and stands on a platform it runs on."""
    return tool.tier <= grant.tier and tool.needs <= grant.permissions and runs_on(tool, grant.platform)


def runs_on(tool: Tool, platform: str) -> bool:
    """A tool without platforms runs everywhere; a grant without a platform does not restrict."""
    return not tool.platforms or not platform or platform in tool.platforms
