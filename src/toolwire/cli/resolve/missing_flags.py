"""Everything that a person must add to a command line so that a tool can be called, told at once."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.tools import tool_dependencies
from toolwire.cli.resolve.resuming import flag_words
from toolwire.define.toolbox import Toolbox
from toolwire.protocol.tools import Grant
from toolwire.toolbox.registry import built_in_tool, deferred_tools, group_of, narrow_groups, tool_names

RULES = frozenset({"exists", "tier", "permissions"})
"""What the flags of a command can cure."""


def missing_flags(place: ProjectFolder, toolbox: Toolbox, grant: Grant, name: str) -> dict[str, Any]:
    """The flags that are missing to call a tool; none where it can be called, or where no group has it.

    None either where devices may have it: what is pasted would run it on this machine.
    """
    tool = toolbox.get(name)
    flags: dict[str, Any] = {}
    if tool is None:
        tool, group = built_in_tool(name), group_of(name)
        if tool is None or not group or place.uses_devices:
            return {}
        flags["--tools"] = ",".join([*place.settings.tools.groups, group])
    if tool.tier > grant.tier:
        flags["--tier"] = tool.tier.name.lower()
    if missing := sorted(tool.needs - grant.permissions):
        flags["--allow"] = missing
    return flags


def missing_sentence(name: str, pairs: Sequence[str], given: Mapping[str, Any], missing: Mapping[str, Any]) -> str:
    """What to type instead: what was given, with what is missing."""
    allowed = [*(given.get("--allow") or []), *missing.get("--allow", [])]
    words = flag_words({**given, **missing, "--allow": allowed})
    return f"To call it, type: {shlex.join(['toolwire', 'call', name, *pairs, *words])}"


def groups_with_tools(place: ProjectFolder) -> dict[str, tuple[str, ...]]:
    """The groups that can be named, less those that only gather others, with the names of their tools."""
    given = tool_dependencies(place)
    named = {group: deferred_tools(tool_names([group]), given) for group in narrow_groups()}
    return {group: tuple(tool.name for tool in found) for group, found in named.items() if found}
