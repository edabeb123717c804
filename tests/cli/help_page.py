"""Writes docs/cli.md: the help of every command, as it is shown, and the table of exit codes.

Also writes the same help as data, from which `toolwire COMMAND --help` shows it without loading the command.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from typer._click.formatting import HelpFormatter
from typer.core import TyperGroup

from toolwire.cli import program
from toolwire.cli.entry.exits import MEANINGS
from toolwire.cli.entry.program import COMMANDS, command_at

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
_WIDTH = 80

_OPENING = """\
# Command line

Generated from the commands themselves. Answers go to standard output, everything else to standard error; with
`--json` standard output carries exact JSON and nothing else, also when a command fails. Settings come from
`toolwire.toml`, `TOOLWIRE_*` variables and flags (see [settings](settings.md)).
"""


def page() -> str:
    """The whole page."""
    group = program()
    parts = [_OPENING, _exit_codes(), _section("toolwire", group, None)]
    return "\n".join(
        [*parts, *(_section(context.command_path, context.command, context.parent) for context in contexts())]
    )


def contexts() -> Iterator[Any]:
    """A context for each command, and after it those for the commands in it."""
    group = program()
    root = group.context_class(group, info_name="toolwire", terminal_width=_WIDTH)
    for name, (home, _) in COMMANDS.items():
        command = command_at(home, name)
        context = command.context_class(command, info_name=name, parent=root)
        yield context
        if isinstance(command, TyperGroup):
            for sub, each in command.commands.items():
                yield each.context_class(each, info_name=sub, parent=context)


def data() -> str:
    """Every command's help as the steps that write it."""
    pages = {}
    for context in contexts():
        recorder = _Recorder()
        context.command.format_help(context, recorder)
        pages[context.command_path] = recorder.steps
    return json.dumps(pages, indent=1, ensure_ascii=False) + "\n"


class _Recorder(HelpFormatter):
    """Notes what is written, to be written at another width later."""

    def __init__(self) -> None:
        super().__init__(width=_WIDTH)
        self.steps: list[list[Any]] = []

    def indent(self) -> None:
        self.steps.append(["indent"])

    def dedent(self) -> None:
        self.steps.append(["dedent"])

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self.steps.append(["write_usage", prog, args, prefix])

    def write_heading(self, heading: str) -> None:
        self.steps.append(["write_heading", heading])

    def write_paragraph(self) -> None:
        self.steps.append(["write_paragraph"])

    def write_text(self, text: str) -> None:
        self.steps.append(["write_text", text])

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        self.steps.append(["write_dl", list(rows), col_max, col_spacing])


def _exit_codes() -> str:
    rows = [f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(["## Exit codes", "", "| code | meaning |", "|---:|---|", *rows, ""])


def _section(title: str, command: Any, parent: Any) -> str:
    context = command.context_class(command, info_name=title.split()[-1], parent=parent, terminal_width=_WIDTH)
    return f"## {title}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
