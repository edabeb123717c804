"""Writes docs/cli.md: the help of every command, as it is shown, and the table of exit codes."""

from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from toolwire.cli import program
from toolwire.cli.exits import MEANINGS
from toolwire.cli.table import COMMANDS, command_at

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
    root = group.context_class(group, info_name="toolwire", terminal_width=_WIDTH)
    for name, (home, _) in COMMANDS.items():
        command = command_at(home, name)
        parts.append(_section(f"toolwire {name}", command, root))
        if isinstance(command, TyperGroup):
            parent = command.context_class(command, info_name=name, parent=root)
            parts += [_section(f"toolwire {name} {sub}", each, parent) for sub, each in command.commands.items()]
    return "\n".join(parts)


def _exit_codes() -> str:
    rows = [f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(["## Exit codes", "", "| code | meaning |", "|---:|---|", *rows, ""])


def _section(title: str, command: Any, parent: Any) -> str:
    context = command.context_class(command, info_name=title.split()[-1], parent=parent, terminal_width=_WIDTH)
    return f"## {title}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
