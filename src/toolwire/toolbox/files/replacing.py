"""Exact replacement in a text, and what to say when the text to replace is not there, or there more than once."""

from typing import NamedTuple

from toolwire.errors import ToolFailure
from toolwire.protocol.outcomes import Code
from toolwire.toolbox.files.granted_paths import wrong

_AROUND = 3
_LONGEST_SHOWN = 2000
_MOST_PLACES = 5
_LINES_COMPARED = 20_000


class Replacement(NamedTuple):
    """The new text, how many places changed, and the first of them."""

    text: str
    replacements: int
    first_line: int
    around: str


def replace_text(path: str, text: str, old: str, new: str, *, replace_all: bool = False) -> Replacement:
    """The text with `old` replaced. Raises ToolFailure, which says what to do."""
    if old == new:
        raise wrong("old_text and new_text are the same, so nothing would change")
    if old not in text and "\r\n" in text and "\r" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    count = text.count(old)
    if count == 0:
        raise ToolFailure(_absent(path, text, old), code=Code.INVALID_PARAMS)
    if count > 1 and not replace_all:
        raise wrong(
            f"old_text occurs {count} times in {path!r}, at lines {_lines(text, old)}. "
            "Give more of the text around the one you mean, or set replace_all."
        )
    at = text.index(old)
    after = text.replace(old, new)
    first = text.count("\n", 0, at) + 1
    return Replacement(after, count, first, _around(after, first, new.count("\n")))


def _around(text: str, line: int, more: int) -> str:
    """The lines around a change; found from its own place, so that a long file costs no more than one pass."""
    lines = text.split("\n")
    shown = "\n".join(lines[max(line - 1 - _AROUND, 0) : line + more + _AROUND])
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"


def _lines(text: str, old: str) -> str:
    places: list[str] = []
    at, line, passed = text.find(old), 1, 0
    while at >= 0 and len(places) < _MOST_PLACES:
        line += text.count("\n", passed, at)
        passed = at
        places.append(str(line))
        at = text.find(old, at + len(old))
    return ", ".join(places) + (", …" if at >= 0 else "")


def _absent(path: str, text: str, old: str) -> str:
    """Why the text was perhaps not found: other white space, or characters that cannot be seen."""
    advice = "Read the file and give the text exactly as it is there."
    first = next((line for line in old.split("\n") if line.strip()), "")
    wanted = _bare(first)
    for number, line in enumerate(text.split("\n")[:_LINES_COMPARED], 1):
        if wanted and wanted == _bare(line) and line != first:
            return (
                f"old_text does not occur in {path!r}. Line {number} differs from it only in white space or "
                f"invisible characters: {line[:200]!r}. {advice}"
            )
    return f"old_text does not occur in {path!r}. {advice}"


def _bare(line: str) -> str:
    return "".join(char for char in line if char.isprintable() and not char.isspace())
