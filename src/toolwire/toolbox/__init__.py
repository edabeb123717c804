"""The built-in tools. Each is made by a function that receives what the tool touches."""

from collections.abc import Awaitable, Callable

from toolwire.protocol.files import FileOps
from toolwire.protocol.tools import Tool
from toolwire.toolbox.everyday import calculator_tool, echo_tool, random_tool, timer_tool
from toolwire.toolbox.files import read_tool
from toolwire.toolbox.local_files import LocalFiles

__all__ = [
    "FileOps",
    "LocalFiles",
    "calculator_tool",
    "echo_tool",
    "random_tool",
    "read_tool",
    "standard",
    "timer_tool",
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
