"""What is printed, and where: answers on standard output, everything else on standard error."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO

from toolwire.cli.terminal.json_output import encode_json
from toolwire.cli.terminal.text import clean
from toolwire.lazy import lazy_module

COLORS = {"auto": None, "always": True, "never": False}
_FORCED = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from toolwire.cli.terminal import drawing
else:
    drawing = lazy_module("toolwire.cli.terminal.drawing")


class Screen:
    """The two streams of a command. Text printed here is cleaned first, and never read as markup.

    What draws (colours, tables) is loaded when something is drawn: a line that goes to no terminal needs none of it.
    """

    def __init__(self, wanted: bool | None) -> None:
        self._wanted = wanted
        self._consoles: dict[bool, Console] = {}

    @classmethod
    def of(cls, color: str = "auto", *, no_color: bool = False) -> "Screen":
        """Respects `--no-color`, the setting, NO_COLOR, and streams that are no terminals, in this order."""
        unwanted = no_color or (color == "auto" and os.environ.get("NO_COLOR"))
        return cls(False if unwanted else COLORS[color])

    @property
    def out(self) -> "Console":
        return self._console(stderr=False)

    @property
    def err(self) -> "Console":
        return self._console(stderr=True)

    def _console(self, *, stderr: bool) -> "Console":
        if stderr not in self._consoles:
            self._consoles[stderr] = drawing.console(self._wanted, stderr=stderr)
        return self._consoles[stderr]

    def _is_plain(self, stream: TextIO) -> bool:
        """Whether a line is written as it stands."""
        return self._wanted is None and not stream.isatty() and not any(map(os.environ.get, _FORCED))

    @property
    def animates(self) -> bool:
        """Whether there is someone to show a spinner to."""
        return self.err.file.isatty() and not self.err.is_dumb_terminal and not self.err.no_color

    @property
    def streams(self) -> bool:
        """Whether someone reads the answer as it is written. Forced colours make no terminal of a pipe."""
        return sys.stdout.isatty()

    def json(self, value: Any) -> None:
        """One exact JSON value on standard output."""
        write_json(value, indent=True)

    def say(self, text: str, style: str = "") -> None:
        """A line of the answer."""
        if self._is_plain(sys.stdout):
            sys.stdout.write(f"{clean(text)}\n")
        else:
            self.out.print(drawing.text(clean(text), style), soft_wrap=True)

    def tell(self, text: str, style: str = "") -> None:
        """A line about the work, on standard error."""
        if self._is_plain(sys.stderr):
            sys.stdout.flush()
            sys.stderr.write(f"{clean(text)}\n")
        else:
            self.err.print(drawing.text(clean(text), style), soft_wrap=True)

    def tell_named(self, name: str, text: str) -> None:
        """A line about something with a name, on standard error."""
        self.err.print(drawing.Text.assemble((name, "bold"), " ", clean(text)), soft_wrap=True)

    def prompt(self, text: str) -> None:
        """What is asked, on standard error; the answer is typed behind it."""
        self.err.print(drawing.text(text, "bold"), end="", soft_wrap=True)

    def table(
        self, headings: Sequence[str], rows: "Iterable[Sequence[str | Text]]", *, right: Sequence[str] = ()
    ) -> None:
        """Columns that line up; the last one takes the rest of the line."""
        rows = list(rows)
        if not self.streams:
            self._plain_table(headings, rows)
        elif drawing.narrowest(headings, rows) > self.out.width:
            self._entries(headings, rows)
        else:
            self.out.print(drawing.table(headings, rows, right))

    def _entries(self, headings: Sequence[str], rows: "Sequence[Sequence[str | Text]]") -> None:
        """A table in a terminal that is too narrow for it: all columns stand below the first one, one a line."""
        for first, *others in rows:
            self.out.print(drawing.text(clean(first)) if isinstance(first, str) else first, soft_wrap=True)
            named = zip(headings[1:], others, strict=True)
            self.pairs({f"  {heading}": value for heading, value in named if str(value)})

    def _plain_table(self, headings: Sequence[str], rows: "list[Sequence[str | Text]]") -> None:
        """Without a terminal there is no width: whole values, one row a line."""
        cells = [list(headings), *([" ".join(clean(str(cell)).split()) for cell in row] for row in rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
        for row in cells:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            self.out.print(drawing.text(line.rstrip()), soft_wrap=True)

    def pairs(self, values: "Mapping[str, str | Text]") -> None:
        """Names and what they stand for, one a line; what a value begins anew stands below it, never below a name."""
        width = max(map(len, values), default=0)
        for name, value in values.items():
            shown = (
                drawing.text(clean(value).replace("\n", f"\n{' ' * (width + 2)}")) if isinstance(value, str) else value
            )
            self.out.print(drawing.Text.assemble((f"{name:<{width}}", "dim"), "  ", shown), soft_wrap=True)

    def prose(self, text: str, style: str = "") -> None:
        """Words for people, broken between words where there is a terminal."""
        self.out.print(drawing.text(clean(text), style), soft_wrap=not self.streams)


@contextmanager
def quiet_tools(*, as_json: bool) -> Iterator[None]:
    """With `--json` standard output is for the one JSON value: what tools print goes to standard error."""
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        yield


def write_json(value: Any, *, indent: bool = False, err: bool = False) -> None:
    """JSON as bytes, whatever the terminal's encoding."""
    stream = sys.stderr if err else sys.stdout
    stream.flush()
    stream.buffer.write(encode_json(value, indent=indent) + b"\n")
    stream.flush()
