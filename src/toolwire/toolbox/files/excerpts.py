"""A part of a text file, read as a stream: only as much as is asked for is ever held."""

import codecs
from typing import BinaryIO, NamedTuple

from msgspec import Struct

BLOCK = 64 * 1024
LONGEST_LINE = 4000
LARGEST_TEXT = 256 * 1024
FARTHEST = 256 * 1024 * 1024
COUNTED = 16 * 1024 * 1024
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class NotText(ValueError):
    """The file cannot be shown as text; the message says why, as the end of a sentence about it."""


class PastTheEnd(ValueError):
    """The file has fewer lines than the first one that was asked for."""

    def __init__(self, total_lines: int) -> None:
        super().__init__(f"has only {total_lines} lines")


class Excerpt(Struct, frozen=True):
    """Lines of a file. `total_lines` is None where the end is far off; `notes` say what is not as in the file."""

    text: str
    first_line: int
    last_line: int
    total_lines: int | None
    truncated: bool = False
    notes: tuple[str, ...] = ()


class _Taken(NamedTuple):
    lines: list[str]
    cut: list[int]
    broken: bool


def read_excerpt(file: BinaryIO, first_line: int, lines: int) -> Excerpt:
    """Lines `first_line` and on, at most `lines` of them. Raises NotText, PastTheEnd, OSError."""
    head = file.read(BLOCK)
    _refuse_binary(head)
    start = _start_of(file, first_line)
    file.seek(start or len(codecs.BOM_UTF8) * head.startswith(codecs.BOM_UTF8))
    taken = _take(file, first_line, lines)
    last_line = first_line + len(taken.lines) - 1
    if not taken.lines and first_line > 1:
        raise PastTheEnd(last_line)
    left = _lines_left(file)
    total = None if left is None else last_line + left
    notes = _notes(taken, None if left == 0 else last_line + 1)
    return Excerpt("".join(taken.lines), first_line, last_line, total, left != 0 or bool(taken.cut), notes)


def _notes(taken: _Taken, following: int | None) -> tuple[str, ...]:
    notes = [f"Line {line} was cut." for line in taken.cut]
    if taken.broken:
        notes.append("Bytes that are not UTF-8 are shown as \ufffd.")
    if following is not None:
        notes.append(f"There is more: continue with offset={following}.")
    return tuple(notes)


def _refuse_binary(block: bytes) -> None:
    if block.startswith(_UTF16):
        raise NotText("is UTF-16 text; only UTF-8 text is read")
    if b"\0" in block:
        raise NotText("is a binary file, not text")


def _start_of(file: BinaryIO, line: int) -> int:
    """Where a line begins, in bytes."""
    start, passed, block = file.seek(0), 0, b"\n"
    while passed < line - 1:
        unfinished = not block.endswith(b"\n")
        if not (block := file.read(BLOCK)):
            raise PastTheEnd(passed + unfinished)
        count = block.count(b"\n")
        if passed + count >= line - 1:
            return start + _end_of(block, line - 1 - passed)
        passed += count
        start += len(block)
        if start > FARTHEST:
            raise NotText(f"is read up to {FARTHEST // 2**20} MiB only, and that line lies further on")
    return start


def _end_of(block: bytes, line: int) -> int:
    at = 0
    for _ in range(line):
        at = block.index(b"\n", at) + 1
    return at


def _take(file: BinaryIO, first_line: int, lines: int) -> _Taken:
    taken: list[str] = []
    cut: list[int] = []
    room, broken = LARGEST_TEXT, False
    while len(taken) < lines and room > 0 and (line := file.readline(LONGEST_LINE)):
        if b"\0" in line:
            raise NotText("has binary data among these lines")
        whole = line.endswith(b"\n") or len(line) < LONGEST_LINE
        text, strange = _decoded(line, whole)
        if not whole and (length := _skip_line(file)):
            cut.append(first_line + len(taken))
            text += f"… [cut: {length} more bytes in this line]\n"
        taken.append(text)
        broken |= strange
        room -= len(text)
    return _Taken(taken, cut, broken)


def _decoded(line: bytes, whole: bool) -> tuple[str, bool]:
    """The text of a line, and whether it has broken bytes. A character that cutting broke is left out."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(line, final=whole), False
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace"), True


def _skip_line(file: BinaryIO) -> int:
    length = 0
    while piece := file.readline(BLOCK):
        length += len(piece.rstrip(b"\n"))
        if piece.endswith(b"\n"):
            break
        if length > FARTHEST:
            raise NotText(f"has a line of more than {FARTHEST // 2**20} MiB")
    return length


def _lines_left(file: BinaryIO) -> int | None:
    """How many lines follow; None if that would take long to count."""
    lines, size, block = 0, 0, b"\n"
    while following := file.read(BLOCK):
        block = following
        lines += block.count(b"\n")
        size += len(block)
        if size > COUNTED:
            return None
    return lines + (not block.endswith(b"\n"))
