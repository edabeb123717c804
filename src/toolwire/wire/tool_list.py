"""The tools of one turn as its model sees them: in one order, only ever growing, so that prompt caches hold."""

from collections.abc import Iterable
from dataclasses import dataclass

from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool
from toolwire.protocol.values import changed, quick


@quick
@dataclass(frozen=True, slots=True)
class ToolList:
    """A canonical list: the first tools by name, later ones after them, each as it was first told.

    A tool that goes away stays listed, since every token after a removed definition would have to be read again;
    a call of it is answered with `unavailable`.
    """

    tools: tuple[Tool, ...] = ()
    gone: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tools: Iterable[Tool]) -> "ToolList":
        """The opening list of a turn, whatever order the tools came in."""
        return cls().plus(tools)

    def plus(self, tools: Iterable[Tool]) -> "ToolList":
        """The list with these tools too: new ones at its end, by name; one that had gone away is back."""
        known = {tool.name for tool in self.tools}
        given = {tool.name: tool for tool in tools}
        new = tuple(given[name] for name in sorted(given.keys() - known))
        gone = self.gone - given.keys()
        if not new and gone == self.gone:
            return self
        return ToolList(self.tools + new if new else self.tools, gone)

    def minus(self, names: Iterable[str]) -> "ToolList":
        """The same list after these tools went away."""
        gone = self.gone | (frozenset(names) & {tool.name for tool in self.tools})
        return self if gone == self.gone else changed(self, gone=gone)

    def now(self, tools: Iterable[Tool]) -> "ToolList":
        """The list once exactly these tools are there."""
        there = tuple(tools)
        present = {tool.name for tool in there}
        return self.plus(there).minus(tool.name for tool in self.tools if tool.name not in present)

    def unavailable(self, call: ToolCall) -> ToolResult | None:
        """The answer to a call of a tool that went away; None where the tool is there or was never listed."""
        if call.name not in self.gone:
            return None
        message = f"{call.name} is temporarily unavailable; try again later or go on without it"
        return ToolResult.failed(call, Code.UNAVAILABLE, message)
