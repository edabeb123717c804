"""What draws on a terminal: consoles, styled text and tables. Loaded by `Screen` when something is drawn."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from toolwire.cli.terminal.text import clean

__all__ = ["Group", "Text", "_Console", "console", "table", "text"]

_NARROWEST = 40
_READABLE = 12
_GAP = 2


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The command decides what becomes of a reader that went away."""
        self.quiet = True
        raise BrokenPipeError


def console(wanted: bool | None, *, stderr: bool) -> Console:
    """A console on one of the standard streams; without colours where they are not `wanted`, by itself where None."""
    plain: dict[str, Any] = {"color_system": None, "no_color": True} if wanted is False else {}
    made = _Console(stderr=stderr, markup=False, highlight=False, emoji=False, force_terminal=wanted or None, **plain)
    if made.width < _NARROWEST:
        made.width = _NARROWEST
    return made


def text(words: str, style: str = "") -> Text:
    """Words in one style."""
    return Text(words, style)


def narrowest(headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> int:
    """How wide a table has to be so that no word of it is broken, but for long ones in its last column."""
    first, *others = zip(headings, *(map(str, row) for row in rows), strict=True)
    words = [max(len(word) for cell in column for word in cell.split()) for column in others]
    last = [min(words.pop(), _READABLE)] if words else []
    return max(map(len, first)) + sum(_GAP + width for width in words + last)


def table(headings: Sequence[str], rows: Iterable[Sequence[str | Text]], right: Sequence[str]) -> Table:
    """Columns that line up; the last one takes the rest of the line."""
    made = Table(box=None, padding=(0, _GAP, 0, 0), header_style="dim", pad_edge=False)
    for heading in headings:
        # Names stay whole, so that they can be copied; the last column takes what is left of the line.
        whole = heading == headings[0] and len(headings) > 1
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row))
    return made
