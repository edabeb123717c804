"""The door for the terminal. Importing it loads no command: `table` finds them when they are invoked."""

import gc
import os
import sys
from typing import Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

from toolwire import __version__
from toolwire.cli.door import let_reader_go, unexpected
from toolwire.cli.exits import Exit
from toolwire.cli.help import Group
from toolwire.cli.streams import prepare
from toolwire.cli.table import COMMANDS, LOOK, Stub


def main() -> None:
    """Run the command line given to this process, and end the process with its exit code."""
    prepare()
    _hasten()
    try:
        try:
            program()(prog_name="toolwire")
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(let_reader_go())
    except Exception as error:  # commands answer for themselves; this is for what cannot even be loaded
        sys.exit(unexpected(error))


def _hasten() -> None:
    """Spare the start of a command what only costs time.

    Loading modules makes many objects and hardly any garbage; `command_at` has it looked for again once they are
    loaded. Pydantic would read the metadata of every installed package to find plugins of its own.
    """
    gc.disable()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")


def program() -> TyperGroup:
    """The whole command, with a stub for each subcommand."""
    names = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(**LOOK, cls=Group, no_args_is_help=True, context_settings=names)
    app.callback()(_root)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for name in COMMANDS:
        group.add_command(Stub(name))
    return group


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toolwire {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """One tool call, any model, any machine."""
