"""The groups of built-in tools that settings can name, each loaded when it is named and given what it touches."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from toolwire.define.nearest import nearest
from toolwire.errors import SettingsError
from toolwire.protocol.tools import Tool
from toolwire.toolbox.paging import Keeper, from_store, more_tool
from toolwire.toolbox.question import Ask

USUAL_ENGINE = "bubblewrap"


@dataclass(frozen=True, slots=True)
class Workplace:
    """What the tools of a group are given: the weakest sandbox, what pages through long results, who can be asked."""

    engine: str = USUAL_ENGINE
    store: Keeper | None = None
    ask: Ask | None = None


def tools_of(groups: Iterable[str], place: Workplace) -> tuple[Tool, ...]:
    """The tools of these groups, each once. Raises SettingsError for a group that does not exist."""
    found: dict[str, Tool] = {}
    for name in groups:
        if name not in OUTFITS:
            near = nearest(name, OUTFITS)
            advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(OUTFITS)}."
            raise SettingsError(f"tools.groups names groups of tools; there is no {name!r}; {advice}")
        for tool in OUTFITS[name](place):
            found.setdefault(tool.name, tool)
    return tuple(found.values())


def _load(name: str) -> Any:
    """A group's own module is loaded when it is asked for: most turns need few of them."""
    return import_module(f"toolwire.toolbox.{name}")


def _read_only(place: Workplace) -> tuple[Tool, ...]:
    tools: tuple[Tool, ...] = _load("groups").read_only()
    return (*tools, *_paging(place))


def _coding(place: Workplace) -> tuple[Tool, ...]:
    todos = _load("todos").MemoryTodos()
    tools: tuple[Tool, ...] = _load("groups").coding(todos=todos, ask=place.ask)
    return (*tools, *_paging(place))


def _paging(place: Workplace) -> tuple[Tool, ...]:
    return (more_tool(from_store(place.store)),) if place.store else ()


def _shell(place: Workplace) -> tuple[Tool, ...]:
    ops = _sandbox(place)
    return (_load("shell").bash_tool(ops), *_load("job_tools").job_tools(_load("jobs").Jobs(ops)), *_paging(place))


def _git(place: Workplace) -> tuple[Tool, ...]:
    tools: tuple[Tool, ...] = _load("git").git(_sandbox(place))
    return tools


def _web(place: Workplace) -> tuple[Tool, ...]:  # noqa: ARG001 -- the web is everywhere
    tools: tuple[Tool, ...] = _load("web").web(search_names=("websearch",))
    return tools


def _data(place: Workplace) -> tuple[Tool, ...]:  # noqa: ARG001 -- it touches nothing
    return (_load("data").json_transform_tool(),)


def _sandbox(place: Workplace) -> Any:
    return import_module("toolwire.execute.sandbox.engines").local_sandbox(floor=place.engine, default=place.engine)


OUTFITS: Mapping[str, Callable[[Workplace], tuple[Tool, ...]]] = {
    "read_only": _read_only,
    "coding": _coding,
    "shell": _shell,
    "git": _git,
    "web": _web,
    "data": _data,
}
