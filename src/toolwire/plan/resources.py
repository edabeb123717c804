"""Which things a call touches, read from the templates its tool declares."""

import posixpath
from collections.abc import Mapping
from string import Formatter
from typing import Any

from toolwire.protocol.tools import Tool
from toolwire.protocol.values import dataclass

_FORMATTER = Formatter()


@dataclass(frozen=True, slots=True)
class Claim:
    """A resource that a call touches, and whether it changes it."""

    resource: str
    writes: bool

    def conflicts(self, other: "Claim") -> bool:
        """Two claims conflict when they touch one resource and at least one of them writes."""
        return self.resource == other.resource and (self.writes or other.writes)


def claims(tool: Tool, arguments: Mapping[str, Any], root: str = "") -> tuple[Claim, ...]:
    """What a call with these arguments touches; relative file paths are under `root`.

    A resource both read and written is claimed for writing.
    """
    if not tool.reads and not tool.writes:
        return ()
    written = {render(template, tool, arguments, root) for template in tool.writes}
    read = {render(template, tool, arguments, root) for template in tool.reads} - written
    return tuple(Claim(name, writes=True) for name in sorted(written)) + tuple(
        Claim(name, writes=False) for name in sorted(read)
    )


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
