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
    group = group_of(name)
    if place.uses_devices:
        return " ".join(filter(None, (_no_device(place, name), _runs_here(name, group))))
    if group:
        return f"{name} is in the group {group}: add --tools {group}, or name it in tools.groups."
    near = get_close_matches(name[:40], BUILT_IN, 1, 0.7)
    return f"Did you mean {near[0]}? `toolwire tools list` shows the groups of tools." if near else ""


def _no_device(place: ProjectFolder, name: str) -> str:
    """Why no device has a tool. Its devices may be those that it is wanted from."""
    known = place.known_devices[0] if place.known_devices else ()
    if known:
        return f"None of the {len(known)} known devices offers {name}; toolwire edge list shows what each has."
    return f"No device is known: the broker at {place.settings.edge.url} has none, or cannot be reached."


def _runs_here(name: str, group: str) -> str:
    """How a tool would run on this machine instead. Those about a device are not meant for it."""
    if not group or group == "device":
        return ""
    return f"{name} is also in the group {group}, whose tools run on this machine: add --tools {group} for that."
