"""What is printed, and where: answers on standard output, everything else on standard error."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolwire.cli.plain import encoded
from toolwire.cli.text import clean

COLORS = {"auto": None, "always": True, "never": False}
_NARROWEST = 40


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The door decides what becomes of a reader that went away."""
        self.quiet = True
        raise BrokenPipeError


@dataclass(frozen=True, slots=True)
class Screen:
    """The two streams of a command. Text printed here is cleaned first, and never read as markup."""

    out: Console
    err: Console

    @classmethod
    def of(cls, color: str = "auto", *, no_color: bool = False) -> "Screen":
        """Respects `--no-color`, the setting, NO_COLOR, and streams that are no terminals, in this order."""
        return cls(*(_console(color, no_color, stderr=stderr) for stderr in (False, True)))

    @property
    def animates(self) -> bool:
        """Whether there is someone to show a spinner to."""
        return self.err.file.isatty() and not self.err.is_dumb_terminal and not self.err.no_color

    @property
    def streams(self) -> bool:
        """Whether someone reads the answer as it is written. Forced colours make no terminal of a pipe."""
        return self.out.file.isatty()

    def json(self, value: Any) -> None:
        """One exact JSON value on standard output."""
        write_json(value, indent=True)

    def say(self, text: str, style: str = "") -> None:
        """A line of the answer."""
        self.out.print(Text(clean(text), style), soft_wrap=True)

    def tell(self, text: str, style: str = "") -> None:
        """A line about the work, on standard error."""
        self.err.print(Text(clean(text), style), soft_wrap=True)

    def table(
        self, headings: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Sequence[str] = ()
    ) -> None:
        """Columns that line up; the last one takes the rest of the line."""
        if not self.streams:
            self._plain_table(headings, list(rows))
            return
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for heading in headings:
            table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row))
        self.out.print(table)

    def _plain_table(self, headings: Sequence[str], rows: list[Sequence[str | Text]]) -> None:
        """Without a terminal there is no width: whole values, one row a line."""
        cells = [list(headings), *([" ".join(clean(str(cell)).split()) for cell in row] for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
        for row in cells:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.out.print(Text(line.rstrip()), soft_wrap=True)

    def pairs(self, values: Mapping[str, str | Text]) -> None:
        """Names and what they stand for, one a line; what a value begins anew stands below it, never below a name."""
        width = max(map(len, values), default=0)
        for name, value in values.items():
            shown = value if isinstance(value, Text) else Text(clean(value).replace("\n", f"\n{' ' * (width + 2)}"))
            self.out.print(Text.assemble((f"{name:<{width}}", "dim"), "  ", shown), soft_wrap=True)

    def prose(self, text: str, style: str = "") -> None:
        """Words for people, broken between words where there is a terminal."""
        self.out.print(Text(clean(text), style), soft_wrap=not self.streams)


@contextmanager
def tools_kept_quiet(*, as_json: bool) -> Iterator[None]:
    """With `--json` standard output is for the one JSON value: what tools print goes to standard error."""
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        yield


def write_json(value: Any, *, indent: bool = False, err: bool = False) -> None:
    """JSON as bytes, whatever the terminal's encoding."""
    stream = sys.stderr if err else sys.stdout
    stream.flush()
    stream.buffer.write(encoded(value, indent=indent) + b"\n")
    stream.flush()


def _console(color: str, no_color: bool, *, stderr: bool) -> Console:
    unwanted = no_color or (color == "auto" and os.environ.get("NO_COLOR"))
    wanted = False if unwanted else COLORS[color]
    plain: dict[str, Any] = {"color_system": None, "no_color": True} if wanted is False else {}
    console = _Console(
        stderr=stderr, markup=False, highlight=False, emoji=False, force_terminal=wanted or None, **plain
    )
    if console.width < _NARROWEST:
        console.width = _NARROWEST
    return console
