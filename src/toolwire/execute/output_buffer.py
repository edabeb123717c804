"""Output of a running tool on its way to those who watch: buffered, in whole lines where possible, and bounded."""

import asyncio
import threading
from collections.abc import Callable

Tell = Callable[[str, str, int], None]
"""Told a piece of output, its stream, and how many characters of the call came before it."""

EVERY_S = 0.05
MOST_CHARS = 64 * 1024
"""Of one call. What comes after it is in the result, as far as that has room."""

LONGEST_PIECE = 4 * 1024
LEFT_OUT = "\n[more output is not shown here]\n"


class OutputBuffer:
    """Gathers what one call writes, from any thread, and tells it on the event loop at most twenty times a second.

    Secrets are taken out of whole lines: a line that is not complete is held back, unless it becomes too long.
    """

    def __init__(self, tell: Tell, clean: Callable[[str], str] = str) -> None:
        self._tell_piece = tell
        self._clean = clean
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._pieces: list[tuple[str, str]] = []
        self._is_scheduled = False
        self._told = 0
        self._is_full = False

    def write(self, text: str, stream: str) -> None:
        """Take a piece of output. What is too much is dropped at once, so that memory stays bounded."""
        if not text:
            return
        with self._lock:
            waiting = sum(len(piece) for piece, _ in self._pieces)
            self._pieces.append((text[: max(2 * MOST_CHARS - waiting, 0)], stream))
            if self._is_scheduled:
                return
            self._is_scheduled = True
        self._loop.call_soon_threadsafe(self._flush_soon)

    def close(self) -> None:
        """Tell what is left, before the end of the call is told."""
        self._flush(whole=True)

    def _flush_soon(self) -> None:
        self._loop.call_later(EVERY_S, self._flush)

    def _flush(self, *, whole: bool = False) -> None:
        with self._lock:
            pieces, self._pieces, self._is_scheduled = self._pieces, [], False
        for text, stream in _joined(pieces):
            end = len(text) if whole else _complete(text)
            if end < len(text):
                with self._lock:
                    self._pieces.insert(0, (text[end:], stream))
            if end:
                self._tell(self._clean(text[:end]), stream)

    def _tell(self, text: str, stream: str) -> None:
        room = MOST_CHARS - self._told
        if self._is_full:
            return
        if len(text) > room:
            text, self._is_full = text[:room] + LEFT_OUT, True
        for start in range(0, len(text), LONGEST_PIECE):
            piece = text[start : start + LONGEST_PIECE]
            self._tell_piece(piece, stream, self._told)
            self._told += len(piece)


def _joined(pieces: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Neighbouring pieces of the same stream as one."""
    found: list[tuple[str, str]] = []
    for text, stream in pieces:
        if found and found[-1][1] == stream:
            found[-1] = (found[-1][0] + text, stream)
        else:
            found.append((text, stream))
    return found


def _complete(text: str) -> int:
    """How much of it may be told now: up to the last line's end, or all of a line that is too long."""
    return len(text) if len(text) > LONGEST_PIECE else text.rfind("\n") + 1
