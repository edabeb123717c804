"""Sets of tools for a purpose, each made from what its tools touch, for programs that build a toolbox themselves."""

from toolwire.protocol.files import FileOps
from toolwire.protocol.tools import Tool
from toolwire.toolbox.data.paging import Fetch
from toolwire.toolbox.registry import EDITING, PLANNING, ToolDependencies, make_tools, tools_of
from toolwire.toolbox.user.question import Ask
from toolwire.toolbox.user.todos import Todos


def read_only(files: FileOps | None = None) -> tuple[Tool, ...]:
    """Tools that look at files and change nothing, on this machine unless told otherwise."""
    return tools_of(["read_only"], ToolDependencies(files=files))


def editing(files: FileOps | None = None) -> tuple[Tool, ...]:
    """Tools that change files, on this machine unless told otherwise."""
    return make_tools(EDITING, ToolDependencies(files=files))


def planning(todos: Todos | None = None, ask: Ask | None = None) -> tuple[Tool, ...]:
    """Tools with which a model keeps its plan and asks the user."""
    return make_tools(PLANNING, ToolDependencies(todos=todos, ask=ask))


def coding(
    files: FileOps | None = None, *, todos: Todos | None = None, ask: Ask | None = None, fetch: Fetch | None = None
) -> tuple[Tool, ...]:
    """Everything one needs to work on a project, on this machine unless told otherwise."""
    return tools_of(["coding"], ToolDependencies(files=files, todos=todos, ask=ask, fetch=fetch))


def remote(files: FileOps, *, todos: Todos | None = None, ask: Ask | None = None) -> tuple[Tool, ...]:
    """The same on another machine: `files` says which."""
    return coding(files, todos=todos, ask=ask)


def other_names(files: FileOps | None = None) -> tuple[Tool, ...]:
    """Tools under the names by which other agents know them. Each is one of ours, nothing else."""
    return tools_of(["other_names"], ToolDependencies(files=files))
