"""Which things a call touches, read from the templates its tool declares."""

import posixpath
from collections.abc import Mapping
from string import Formatter
from typing import Any

from msgspec import Struct

from toolwire.protocol.tools import Effect, Tool

_FORMATTER = Formatter()


SHARED = "shared:"
"""How the name of a resource begins whose lock holds over all processes that share the store."""


class LockClaim(Struct, frozen=True):
    """A resource that a call touches, and whether it changes it; or a place among at most so many calls."""

    resource: str
    writes: bool
    most: int | None = None

    @property
    def is_shared(self) -> bool:
        """Whether other processes have to be asked."""
        return self.most is not None or self.resource.startswith(SHARED)

    def conflicts(self, other: "LockClaim") -> bool:
        """Two claims conflict when they touch one resource and at least one of them writes."""
        return self.resource == other.resource and (self.writes or other.writes)


def claims(tool: Tool, arguments: Mapping[str, Any], root: str = "") -> tuple[LockClaim, ...]:
    """What a call with these arguments touches; relative file paths are under `root`.

    A resource both read and written is claimed for writing. A tool with a limit of calls `in_flight` claims a place.
    """
    if not touches(tool):
        return ()
    places = () if tool.in_flight is None else (LockClaim(f"tool:{tool.name}", writes=False, most=tool.in_flight),)
    written = {render(template, tool, arguments, root) for template in tool.writes}
    read = {render(template, tool, arguments, root) for template in tool.reads} - written
    return (
        *(LockClaim(name, writes=True) for name in sorted(written)),
        *(LockClaim(name, writes=False) for name in sorted(read)),
        *places,
    )


def agent_place(agent: str, most: int | None, tool: Tool) -> tuple[LockClaim, ...]:
    """A place among at most so many calls of an agent.

    A call that sets an agent to work takes none: it only waits, and the agent that it waits for may be the same one.
    """
    if most is None or (tool.category == "session" and tool.effect is not Effect.PURE):
        return ()
    return (LockClaim(f"agent:{agent}", writes=False, most=most),)


def touches(tool: Tool) -> bool:
    """Whether calls of a tool may have to wait for each other."""
    return bool(tool.reads or tool.writes or tool.in_flight)


def render(template: str, tool: Tool, arguments: Mapping[str, Any], root: str = "") -> str:
    """Fill `file:{path}` from the arguments, or from the schema's defaults; file paths are written in one way."""
    defaults = tool.input_schema.get("properties", {})
    filled = "".join(
        literal + ("" if name is None else str(arguments.get(name, _default(defaults, name))))
        for literal, name, _, _ in _FORMATTER.parse(template)
    )
    kind, colon, path = filled.partition(":")
    return f"{kind}:{posixpath.normpath(posixpath.join(root, path))}" if kind == "file" and colon else filled


def _default(properties: Mapping[str, Any], name: str) -> Any:
    schema = properties.get(name)
    return schema.get("default", "") if isinstance(schema, Mapping) else ""
