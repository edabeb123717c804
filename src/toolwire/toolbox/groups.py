"""Sets of tools for a purpose, each made from what its tools touch."""

from collections.abc import Callable, Mapping

from toolwire.protocol.files import FileOps
from toolwire.protocol.tools import Tool
from toolwire.protocol.values import changed, dataclass
from toolwire.toolbox.files import read_tool
from toolwire.toolbox.finding import find_tool, glob_tool, list_tool, stat_tool
from toolwire.toolbox.local_files import LocalFiles
from toolwire.toolbox.paging import Fetch, more_tool
from toolwire.toolbox.patching import apply_patch_tool
from toolwire.toolbox.pictures import image_tool
from toolwire.toolbox.question import Ask, question_tool
from toolwire.toolbox.searching import grep_tool, search_code_tool
from toolwire.toolbox.todos import MemoryTodos, Todos, todoread_tool, todowrite_tool
from toolwire.toolbox.writing import edit_tool, write_tool


@dataclass(frozen=True, slots=True)
class Supplies:
    """What the tools of a group are given. Without `ask` nobody can be asked, without `fetch` nothing pages."""

    files: FileOps
    todos: Todos | None = None
    ask: Ask | None = None
    fetch: Fetch | None = None


def read_only(files: FileOps | None = None) -> tuple[Tool, ...]:
    """Tools that look at files and change nothing, on this machine unless told otherwise."""
    files = files or LocalFiles()
    return (
        read_tool(files),
        list_tool(files),
        glob_tool(files),
        grep_tool(files),
        find_tool(files),
        stat_tool(files),
        search_code_tool(files),
        image_tool(files),
    )


def editing(files: FileOps | None = None) -> tuple[Tool, ...]:
    """Tools that change files, on this machine unless told otherwise."""
    files = files or LocalFiles()
    return write_tool(files), edit_tool(files), apply_patch_tool(files)


def planning(todos: Todos | None = None, ask: Ask | None = None) -> tuple[Tool, ...]:
    """Tools with which a model keeps its plan and asks the user."""
    todos = todos or MemoryTodos()
    return todowrite_tool(todos), todoread_tool(todos), question_tool(ask)


def coding(
    files: FileOps | None = None, *, todos: Todos | None = None, ask: Ask | None = None, fetch: Fetch | None = None
) -> tuple[Tool, ...]:
    """Everything one needs to work on a project, on this machine unless told otherwise."""
    paging = (more_tool(fetch),) if fetch else ()
    return (*read_only(files), *editing(files), *planning(todos, ask), *paging)


def remote(files: FileOps, *, todos: Todos | None = None, ask: Ask | None = None) -> tuple[Tool, ...]:
    """The same on another machine: `files` says which."""
    return coding(files, todos=todos, ask=ask)


def other_names(files: FileOps | None = None) -> tuple[Tool, ...]:
    """Tools under the names by which other agents know them. Each is one of ours, nothing else."""
    files = files or LocalFiles()
    return (
        named(read_tool(files), "read_file"),
        named(write_tool(files), "write_file"),
        named(edit_tool(files), "edit_block"),
        named(list_tool(files), "list_dir"),
        named(search_code_tool(files), "codesearch"),
    )


def named(tool: Tool, name: str) -> Tool:
    """The same tool under another name."""
    return changed(tool, name=name)


GROUPS: Mapping[str, Callable[[Supplies], tuple[Tool, ...]]] = {
    "read_only": lambda given: read_only(given.files),
    "writing": lambda given: editing(given.files),
    "planning": lambda given: planning(given.todos, given.ask),
    "coding": lambda given: coding(given.files, todos=given.todos, ask=given.ask, fetch=given.fetch),
    "other_names": lambda given: other_names(given.files),
}
"""The groups that settings can name."""
