"""A collection of tools by exact name. A tool may be given by its name alone, and is then made when it is used."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from toolwire.define.arguments import Checker
from toolwire.define.functions import tool as tool_from
from toolwire.define.nearest import nearest
from toolwire.errors import DefinitionError
from toolwire.protocol.tools import Effect, Tool


class DeferredTool:
    """A tool that is made once, when it is first used. Toolboxes that share it share the tool."""

    __slots__ = ("_make", "_tool", "name")

    def __init__(self, name: str, make: Callable[[], Tool]) -> None:
        self.name = name
        self._make = make
        self._tool: Tool | None = None

    @property
    def tool(self) -> Tool:
        if self._tool is None:
            self._tool = self._make()
        return self._tool

    def with_change(self, change: Callable[[Tool], Tool]) -> "DeferredTool":
        """The same tool with a change that is made when the tool is."""
        return DeferredTool(self.name, lambda: change(self.tool))


class Toolbox:
    """Tools in the order in which they were given, each name once. Never changes; `plus` and `only` give new ones."""

    __slots__ = ("_checkers", "_delegates", "_is_made", "_tools", "get")

    def __init__(self, *tools: Tool | DeferredTool) -> None:
        """Raises `DefinitionError` for a name that occurs twice."""
        self._tools: dict[str, Any] = {}
        self._checkers: dict[str, Checker] = {}
        self._delegates: bool | None = None
        self._is_made = True
        for each in tools:
            if each.name in self._tools:
                raise DefinitionError(f"two tools are named {each.name!r}; give one of them another name=")
            self._tools[each.name] = each
            if isinstance(each, DeferredTool):
                self._is_made = False
        # The tool with exactly this name, or None. Every call comes through here, so this is the dict's own, as soon
        # as all tools are made.
        self.get: Callable[[str], Tool | None] = self._tools.get if self._is_made else self._made

    def _made(self, name: str) -> Tool | None:
        found: Tool | DeferredTool | None = self._tools.get(name)
        if isinstance(found, DeferredTool):
            found = self._tools[name] = found.tool
        return found

    @classmethod
    def of(cls, *anything: "Tool | Toolbox | Callable[..., Any]") -> "Toolbox":
        """A toolbox of tools, plain functions and other toolboxes."""
        return cls(*(each for item in anything for each in _tools(item)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def delegates(self) -> bool:
        """Whether some of these tools set other agents to work."""
        if self._delegates is None:
            self._delegates = any(tool.category == "session" and tool.effect is not Effect.PURE for tool in self)
        return self._delegates

    def checker(self, name: str) -> Checker:
        """The compiled schema of a tool. Raises `KeyError` for an unknown name, `DefinitionError` for a bad schema."""
        found = self._checkers.get(name)
        if found is None:
            if (tool := self.get(name)) is None:
                raise KeyError(name)
            found = self._checkers[name] = Checker(tool)
        return found

    def nearest(self, name: str, among: Iterable[str] | None = None, most: int = 3) -> tuple[str, ...]:
        """The names that may have been meant, closest first."""
        return nearest(name, self._tools if among is None else among, most)

    def plus(self, *anything: "Tool | Toolbox | Callable[..., Any]") -> "Toolbox":
        """These tools and more. Raises `DefinitionError` for a name that is taken."""
        return self._sharing(Toolbox.of(self, *anything))

    def only(self, names: Iterable[str]) -> "Toolbox":
        """The tools with these names, in this toolbox's order; names that are not here are ignored."""
        wanted = frozenset(names)
        return self._sharing(Toolbox(*(each for name, each in self._tools.items() if name in wanted)))

    def map(self, change: Callable[[Tool], Tool]) -> "Toolbox":
        """These tools with a change to each, which leaves them their names."""
        return Toolbox(
            *(
                each.with_change(change) if isinstance(each, DeferredTool) else change(each)
                for each in self._tools.values()
            )
        )

    def _sharing(self, other: "Toolbox") -> "Toolbox":
        other._checkers.update((name, checker) for name, checker in self._checkers.items() if name in other)
        return other

    def __iter__(self) -> Iterator[Tool]:
        """All tools; those that were not used yet are made now."""
        if not self._is_made:
            for name in self._tools:
                self._made(name)
            self._is_made, self.get = True, self._tools.get
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"


def _tools(item: "Tool | Toolbox | Callable[..., Any]") -> Iterable[Tool | DeferredTool]:
    if isinstance(item, Toolbox):
        return item._tools.values()
    if isinstance(item, Tool):
        return (item,)
    return (tool_from(item),)
