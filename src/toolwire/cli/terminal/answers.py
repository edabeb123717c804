"""Reading answers at a terminal: only what was typed after the question was shown can be an answer."""

import asyncio
import os
import select
import sys
from contextlib import suppress
from typing import Any

import typer

try:
    import termios

    control: Any = termios
except ImportError:  # not a Unix system: nothing is known about what was typed before
    control = None

_MOST_LINES = 64


def someone_is_there() -> bool:
    """Whether questions can be asked and answered here."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def discard_typed_ahead() -> str:
    """Throw away what was typed so far and not read. Returns the complete lines of it, so that they can be shown."""
    if control is None or not sys.stdin.isatty():
        return ""
    handle = sys.stdin.fileno()
    lines: list[bytes] = []
    while len(lines) < _MOST_LINES and select.select([handle], [], [], 0)[0]:
        lines.append(os.read(handle, 65_536))
        if not lines[-1]:
            break
    with suppress(control.error):  # the terminal is gone
        control.tcflush(handle, control.TCIFLUSH)
    return b"".join(lines).decode("utf-8", "replace").strip()


def confirmed(question: str) -> bool:
    """Whether the person at the terminal says yes, after the question was shown. Enter, or its end, is a no."""
    while True:
        discard_typed_ahead()
        typer.echo(f"{question} [y/N]: ", nl=False, err=True)
        match sys.stdin.readline().strip().lower():
            case "y" | "yes":
                return True
            case "" | "n" | "no":
                return False
        typer.echo("Answer y or n.", err=True)


async def terminal_line() -> str | None:
    """One line from the terminal, None at its end. Waits without a thread, so that Ctrl-C can end the wait."""
    loop, handle = asyncio.get_running_loop(), sys.stdin.fileno()
    answer: asyncio.Future[bytes] = loop.create_future()

    def ready() -> None:
        if not answer.done():
            answer.set_result(os.read(handle, 65_536))

    loop.add_reader(handle, ready)
    try:
        line = await answer
    finally:
        loop.remove_reader(handle)
    return line.decode("utf-8", "replace").rstrip("\r\n") if line else None
