"""What a command reads: a file, piped input, or answers at the terminal.

Of a file or a pipe it is never more than a command can hold. At the terminal only what was typed after the question was
shown can be an answer.
"""

import codecs
import os
import select
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from toolwire.errors import SettingsError
from toolwire.lazy import lazy_pattern

try:
    import termios

    control: Any = termios
except ImportError:  # not a Unix system: nothing is known about what was typed before
    control = None

LARGEST_INPUT = 64 * 1024 * 1024
FIRST_BYTE_S = 3.0
"""How long a pipe may stay silent before it is taken for one that a parent process left open and never writes to."""

_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_UNREADABLE = lazy_pattern("[\x01-\x07\x0b\x0e-\x1a\x1c-\x1f\ufffd]")
_UNREADABLE_SHARE = 0.3
_ALWAYS_FORGIVEN = 8  # a short text of another encoding is not binary data yet
_MOST_LINES = 64


class SilentInput(Exception):
    """Standard input is an open pipe to which nothing was written."""


def read_bytes(file: str, most: int = LARGEST_INPUT) -> bytes:
    """The content of a file, or of standard input for `-`. Raises SettingsError that says what is wrong."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(most + 1)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > most:
        raise SettingsError(
            f"{'standard input' if file == '-' else file} is larger than {most // 1024:,} KiB; send a part of it"
        )
    return data


def read_piped(most: int, *, patient: bool = False) -> bytes:
    """What was piped into this process; empty at a terminal and for a device such as /dev/null.

    Raises SettingsError for too much, and SilentInput for a pipe that stays silent, unless the caller is `patient`.
    """
    try:
        handle = sys.stdin.fileno()
        mode = os.fstat(handle).st_mode
        if patient:
            return read_bytes("-", most)
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            if not select.select([handle], [], [], FIRST_BYTE_S)[0]:
                raise SilentInput
        elif not stat.S_ISREG(mode):
            return b""
    except (OSError, ValueError, AttributeError):  # closed, or not a real stream
        return b""
    return read_bytes("-", most)


def decode_text(data: bytes, name: str = "standard input") -> str:
    """Text of any common encoding. Raises SettingsError for what is not text."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    text = data.decode("utf-8", "replace")
    most = max(_ALWAYS_FORGIVEN, len(text) * _UNREADABLE_SHARE)
    if "\0" in text or len(_UNREADABLE.findall(text)) > most:
        raise SettingsError(f"{name} is binary data, not text; convert it first, e.g. with strings, pdftotext or xxd")
    return text


def user_is_present() -> bool:
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


def confirm(question: str) -> bool:
    """Whether the person at the terminal says yes, after the question was shown. Enter, or its end, is a no."""
    while True:
        discard_typed_ahead()
        typer.echo(f"{question} [y/N]: ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            typer.echo(err=True)  # Ctrl-D ends no line, and what comes next begins one
        match line.strip().lower():
            case "y" | "yes":
                return True
            case "" | "n" | "no":
                return False
        typer.echo("Answer y or n.", err=True)
