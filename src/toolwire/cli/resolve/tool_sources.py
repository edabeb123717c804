"""Where a tool that is not there could come from, for the one who types."""

from difflib import get_close_matches
from typing import TYPE_CHECKING

from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.tools import own_tools_of
from toolwire.toolbox.registry import BUILT_IN, group_of

if TYPE_CHECKING:
    from toolwire.toolbox.skills.choice import Withheld


def withheld_tools(place: ProjectFolder) -> "tuple[Withheld, ...]":
    """The tools of skills that are not offered for reasons of their own."""
    return place.skills.chosen(own_tools_of(place).names).withheld


def where_to_find(place: ProjectFolder, name: str) -> str:
    """A sentence about the skill, the setting or the group that has a tool of this name; empty if none has."""
    if name in own_tools_of(place):
        return f"{name} is left out by tools.include or tools.exclude."
    for each in withheld_tools(place):
        if name in (each.tool.name, f"{each.tool.name}@{each.tool.version}"):
            return f"The skill {each.tool.skill} has a tool {each.tool.name}: {each.reason}"
    if group := group_of(name):
        return f"{name} is in the group {group}: add --tools {group}, or name it in tools.groups."
    near = get_close_matches(name[:40], BUILT_IN, 1, 0.7)
    return f"Did you mean {near[0]}? `toolwire tools list` shows the groups of tools." if near else ""
