"""What is typed or pasted in a chat: one message at a time, of one or of several lines."""

import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from toolwire.cli.terminal.input import control
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
_PASTES_MARKED, _PASTES_UNMARKED = "\x1b[?2004h", "\x1b[?2004l"
_CURSOR_SHOWN = "\x1b[?25h"

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
        with _stoppable():
            yield
    finally:
        with suppress(OSError):
            path.touch(mode=0o600)
            editing.write_history_file(path)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ctrl-Z hands the terminal back as it was; after `fg` the prompt stands there again with what was typed.

    Python keeps the line editor from seeing signals, so it would go on with a terminal that the shell has reset: keys
    that edit do nothing, and every word is shown twice.
    """
    if control is None:
        yield
        return
    usual = control.tcgetattr(sys.stdin)

    def stop(*_: Any) -> None:
        edited = control.tcgetattr(sys.stdin)
        is_editing = edited != usual
        sys.stdout.write(_PASTES_UNMARKED + _CURSOR_SHOWN if is_editing else _CURSOR_SHOWN)
        sys.stdout.flush()
        control.tcsetattr(sys.stdin, control.TCSADRAIN, usual)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # returns after `fg`
        signal.signal(signal.SIGTSTP, stop)
        control.tcsetattr(sys.stdin, control.TCSADRAIN, edited)
        if is_editing:
            _show_line_again()

    before = signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)


def _show_line_again() -> None:
    """The prompt and what was typed after it, on a new line. The module for it offers no way to do so itself."""
    if _knows_pastes():
        sys.stdout.write(_PASTES_MARKED)
        sys.stdout.flush()
    try:
        library = ctypes.CDLL(getattr(editing, "__file__", None))
        library.rl_on_new_line()
        library.rl_forced_update_display()
    except (OSError, AttributeError):  # another line editor: its own idea of the cursor is kept
        sys.stdout.write(PROMPT + editing.get_line_buffer())
        sys.stdout.flush()
