"""The built-in tools. Each is made by a function that receives what the tool touches."""

from collections.abc import Awaitable, Callable

from toolwire.protocol.files import FileOps
from toolwire.protocol.tools import Tool
from toolwire.toolbox.everyday import calculator_tool, echo_tool, random_tool, timer_tool
from toolwire.toolbox.far_files import FarFiles
from toolwire.toolbox.files import read_tool
from toolwire.toolbox.finding import find_tool, glob_tool, list_tool, stat_tool
from toolwire.toolbox.groups import GROUPS, Supplies, coding, named, other_names, planning, read_only, remote, writing
from toolwire.toolbox.local_files import LocalFiles
from toolwire.toolbox.paging import from_store, more_tool
from toolwire.toolbox.patching import apply_patch_tool
from toolwire.toolbox.pictures import image_tool
from toolwire.toolbox.pipes import grep_text_tool, pipe
from toolwire.toolbox.question import question_tool
from toolwire.toolbox.searching import grep_tool, search_code_tool
from toolwire.toolbox.todos import FileTodos, MemoryTodos, todoread_tool, todowrite_tool
from toolwire.toolbox.writing import edit_tool, write_tool

__all__ = [
    "GROUPS",
    "FarFiles",
    "FileOps",
    "FileTodos",
    "LocalFiles",
    "MemoryTodos",
    "Supplies",
    "apply_patch_tool",
    "calculator_tool",
    "coding",
    "echo_tool",
    "edit_tool",
    "find_tool",
    "from_store",
    "glob_tool",
    "grep_text_tool",
    "grep_tool",
    "image_tool",
    "list_tool",
    "more_tool",
    "named",
    "other_names",
    "pipe",
    "planning",
    "question_tool",
    "random_tool",
    "read_only",
    "read_tool",
    "remote",
    "search_code_tool",
    "standard",
    "stat_tool",
    "timer_tool",
    "todoread_tool",
    "todowrite_tool",
    "write_tool",
    "writing",
]


def standard(
    *,
    files: FileOps | None = None,
    draw: Callable[[int, int], int] | None = None,
    sleep: Callable[[float], Awaitable[object]] | None = None,
) -> tuple[Tool, ...]:
    """All built-in tools, always in this order, on this machine unless told otherwise."""
    return (
        calculator_tool(),
        echo_tool(),
        random_tool(draw),
        timer_tool(sleep) if sleep else timer_tool(),
        read_tool(files or LocalFiles()),
    )
