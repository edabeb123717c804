"""A collection of tools by exact name."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from toolwire.define.arguments import Checker
from toolwire.define.functions import tool as tool_from
from toolwire.define.nearest import nearest
from toolwire.errors import DefinitionError
from toolwire.protocol.tools import Effect, Tool


class Toolbox:
    """Tools in the order in which they were given, each name once. Never changes; `plus` and `only` give new ones."""

    __slots__ = ("_checkers", "_tools", "get")

    def __init__(self, *tools: Tool) -> None:
        """Raises `DefinitionError` for a name that occurs twice."""
        self._tools: dict[str, Tool] = {}
        self._checkers: dict[str, Checker] = {}
        for each in tools:
            if each.name in self._tools:
                raise DefinitionError(f"two tools are named {each.name!r}; give one of them another name=")
            self._tools[each.name] = each
        # The tool with exactly this name, or None. Every call comes through here, so this is the dict's own.
        self.get: Callable[[str], Tool | None] = self._tools.get

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
        return any(tool.category == "session" and tool.effect is not Effect.PURE for tool in self)

    def checker(self, name: str) -> Checker:
        """The compiled schema of a tool. Raises `KeyError` for an unknown name, `DefinitionError` for a bad schema."""
        found = self._checkers.get(name)
        if found is None:
            found = self._checkers[name] = Checker(self._tools[name])
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
        return self._sharing(Toolbox(*(each for each in self if each.name in wanted)))

    def _sharing(self, other: "Toolbox") -> "Toolbox":
        other._checkers.update((name, checker) for name, checker in self._checkers.items() if name in other)
        return other

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"


def _tools(item: "Tool | Toolbox | Callable[..., Any]") -> Iterable[Tool]:
    if isinstance(item, Toolbox):
        return item
    if isinstance(item, Tool):
        return (item,)
    return (tool_from(item),)
