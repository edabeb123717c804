"""What is typed or pasted in a chat: one message at a time, of one or of several lines."""

import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from toolwire.cli.terminal.screen import Screen

try:
    import readline

    editing: Any = readline
except ImportError:  # a Python built without it: no history, no editing keys
    editing = None

PROMPT, CONTINUED = "› ", "… "
BLOCK = '"""'
_LONGEST_HISTORY = 1_000
_LONGEST_LINE = 1024 * 1024
_PASTE_S = 0.02  # lines that are there so soon after another were not typed
_MOST_LINES = 20_000

ReadLine = Callable[[str], str | None]


def next_message(screen: Screen) -> str | None:
    """The next message of the conversation, None at its end. Ctrl-C at the prompt only starts a new message.

    A paste is one message. A line that ends with a backslash goes on in the next one, and so do all lines between two
    triple quotes.
    """
    if not sys.stdin.isatty():
        return _message(_piped_line)
    while True:
        try:
            return _message(lambda prompt: _typed_line(screen, prompt))
        except KeyboardInterrupt:
            screen.tell("\n(Ctrl-D or /quit leaves)", "dim")


def _message(read: ReadLine) -> str | None:
    line = read(PROMPT)
    if line is None or "\n" in line:  # a paste may hold anything
        return line
    if line.lstrip().startswith(BLOCK):
        return "\n".join(_block(line.lstrip().removeprefix(BLOCK), read)).strip("\n")
    lines = [line]
    while _goes_on(lines[-1]):
        lines[-1] = lines[-1].rstrip()[:-1]
        more = read(CONTINUED)
        if more is None:
            break
        lines.append(more)
    return "\n".join(lines)


def _goes_on(line: str) -> bool:
    bare = line.rstrip()
    return "\n" not in line and (len(bare) - len(bare.rstrip("\\"))) % 2 == 1


def _block(line: str | None, read: ReadLine) -> Iterator[str]:
    """Lines up to the one that ends with triple quotes."""
    while line is not None:
        if line.rstrip().endswith(BLOCK):
            yield line.rstrip().removesuffix(BLOCK)
            return
        yield line
        line = read(CONTINUED)


def _piped_line(_prompt: str) -> str | None:
    line = sys.stdin.buffer.readline(_LONGEST_LINE).decode("utf-8", "replace")
    return line.rstrip("\r\n") if line else None


def _typed_line(screen: Screen, prompt: str) -> str | None:
    try:
        if sys.stdout.isatty():
            line = input(prompt)
        else:
            screen.err.print(prompt, end="")
            line = input()
    except EOFError:
        screen.tell("")
        return None
    return line if sys.stdout.isatty() and _knows_pastes() else "\n".join([line, *_rest_of_paste()])


def _rest_of_paste() -> Iterator[str]:
    """Where nothing marks a paste: the lines that are there already."""
    for _ in range(_MOST_LINES):
        if not select.select([sys.stdin], [], [], _PASTE_S)[0]:
            return
        try:
            yield input()
        except EOFError:
            return


def _knows_pastes() -> bool:
    """Whether the line editor is told by the terminal where a paste begins and ends. libedit is not."""
    return editing is not None and "libedit" not in (editing.__doc__ or "")


@contextmanager
def line_editing(path: Path) -> Iterator[None]:
    """Editing keys, pastes, and the lines of earlier chats for the arrow keys. Nothing depends on it."""
    if editing is None or not sys.stdin.isatty():
        yield
        return
    if _knows_pastes():
        editing.parse_and_bind("set enable-bracketed-paste on")  # Python turns it off for its own prompt
    with suppress(OSError):
        editing.read_history_file(path)
    editing.set_history_length(_LONGEST_HISTORY)
    try:
        yield
    finally:
        with suppress(OSError):
            path.touch(mode=0o600)
            editing.write_history_file(path)
