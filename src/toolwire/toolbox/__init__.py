"""The built-in tools. Each is made by a function that receives what the tool touches.

Names are resolved when they are first used, as those of `toolwire` are: most commands need few of these tools. None of
them may be called like a module in this folder, since loading that module would put it in the place of the name.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from toolwire.lazy import lazy_names
from toolwire.protocol.files import FileOps
from toolwire.protocol.tools import Tool
from toolwire.toolbox import modules

_HOMES = {
    "RemoteFiles": "toolwire.toolbox.remote_files.client",
    "calculator_tool": "toolwire.toolbox.everyday",
    "echo_tool": "toolwire.toolbox.everyday",
    "random_tool": "toolwire.toolbox.everyday",
    "timer_tool": "toolwire.toolbox.everyday",
    "read_tool": "toolwire.toolbox.files.reading",
    "find_tool": "toolwire.toolbox.files.finding",
    "glob_tool": "toolwire.toolbox.files.finding",
    "list_tool": "toolwire.toolbox.files.finding",
    "stat_tool": "toolwire.toolbox.files.finding",
    "coding": "toolwire.toolbox.groups",
    "editing": "toolwire.toolbox.groups",
    "other_names": "toolwire.toolbox.groups",
    "planning": "toolwire.toolbox.groups",
    "read_only": "toolwire.toolbox.groups",
    "remote": "toolwire.toolbox.groups",
    "LocalFiles": "toolwire.toolbox.disk.local_files",
    "from_store": "toolwire.toolbox.data.paging",
    "more_tool": "toolwire.toolbox.data.paging",
    "apply_patch_tool": "toolwire.toolbox.files.patching",
    "image_tool": "toolwire.toolbox.files.images",
    "grep_text_tool": "toolwire.toolbox.data.pipes",
    "pipe": "toolwire.toolbox.data.pipes",
    "question_tool": "toolwire.toolbox.user.question",
    "GROUPS": "toolwire.toolbox.registry",
    "ToolDependencies": "toolwire.toolbox.registry",
    "named": "toolwire.toolbox.registry",
    "tools_of": "toolwire.toolbox.registry",
    "grep_tool": "toolwire.toolbox.files.searching",
    "search_code_tool": "toolwire.toolbox.files.searching",
    "FileTodos": "toolwire.toolbox.user.todos",
    "MemoryTodos": "toolwire.toolbox.user.todos",
    "todoread_tool": "toolwire.toolbox.user.todos",
    "todowrite_tool": "toolwire.toolbox.user.todos",
    "edit_tool": "toolwire.toolbox.files.writing",
    "write_tool": "toolwire.toolbox.files.writing",
}

__all__ = [
    "GROUPS",
    "FileOps",
    "FileTodos",
    "LocalFiles",
    "MemoryTodos",
    "RemoteFiles",
    "ToolDependencies",
    "apply_patch_tool",
    "calculator_tool",
    "coding",
    "echo_tool",
    "edit_tool",
    "editing",
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
    "tools_of",
    "write_tool",
]

if TYPE_CHECKING:
    from toolwire.toolbox.data.paging import from_store as from_store
    from toolwire.toolbox.data.paging import more_tool as more_tool
    from toolwire.toolbox.data.pipes import grep_text_tool as grep_text_tool
    from toolwire.toolbox.data.pipes import pipe as pipe
    from toolwire.toolbox.disk.local_files import LocalFiles as LocalFiles
    from toolwire.toolbox.everyday import calculator_tool as calculator_tool
    from toolwire.toolbox.everyday import echo_tool as echo_tool
    from toolwire.toolbox.everyday import random_tool as random_tool
    from toolwire.toolbox.everyday import timer_tool as timer_tool
    from toolwire.toolbox.files.finding import find_tool as find_tool
    from toolwire.toolbox.files.finding import glob_tool as glob_tool
    from toolwire.toolbox.files.finding import list_tool as list_tool
    from toolwire.toolbox.files.finding import stat_tool as stat_tool
    from toolwire.toolbox.files.images import image_tool as image_tool
    from toolwire.toolbox.files.patching import apply_patch_tool as apply_patch_tool
    from toolwire.toolbox.files.reading import read_tool as read_tool
    from toolwire.toolbox.files.searching import grep_tool as grep_tool
    from toolwire.toolbox.files.searching import search_code_tool as search_code_tool
    from toolwire.toolbox.files.writing import edit_tool as edit_tool
    from toolwire.toolbox.files.writing import write_tool as write_tool
    from toolwire.toolbox.groups import coding as coding
    from toolwire.toolbox.groups import editing as editing
    from toolwire.toolbox.groups import other_names as other_names
    from toolwire.toolbox.groups import planning as planning
    from toolwire.toolbox.groups import read_only as read_only
    from toolwire.toolbox.groups import remote as remote
    from toolwire.toolbox.registry import GROUPS as GROUPS
    from toolwire.toolbox.registry import ToolDependencies as ToolDependencies
    from toolwire.toolbox.registry import named as named
    from toolwire.toolbox.registry import tools_of as tools_of
    from toolwire.toolbox.remote_files.client import RemoteFiles as RemoteFiles
    from toolwire.toolbox.user.question import question_tool as question_tool
    from toolwire.toolbox.user.todos import FileTodos as FileTodos
    from toolwire.toolbox.user.todos import MemoryTodos as MemoryTodos
    from toolwire.toolbox.user.todos import todoread_tool as todoread_tool
    from toolwire.toolbox.user.todos import todowrite_tool as todowrite_tool


def standard(
    *,
    files: FileOps | None = None,
    draw: Callable[[int, int], int] | None = None,
    sleep: Callable[[float], Awaitable[object]] | None = None,
) -> tuple[Tool, ...]:
    """The tools that every agent has, always in this order, on this machine unless told otherwise."""
    everyday = modules.everyday
    return (
        everyday.calculator_tool(),
        everyday.echo_tool(),
        everyday.random_tool(draw),
        everyday.timer_tool(sleep) if sleep else everyday.timer_tool(),
        modules.reading.read_tool(files or modules.local_files.LocalFiles()),
    )


__getattr__ = lazy_names(__name__, globals(), _HOMES)
