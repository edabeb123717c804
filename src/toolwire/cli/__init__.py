"""The entry point for the terminal. Importing it loads no command: `entry.table` finds one when it is invoked.

    entry      the table of commands, their options, exit codes and errors
    help       help pages
    commands   one module a command
    resolve    what the words of a command line stand for: projects, turns, tools, agents
    views      how turns, calls, tools and approvals are shown
    terminal   reading and writing: text, JSON, questions

A package uses those below it; `commands` also uses `entry`, whose table knows commands by name only.
"""

import gc
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

import typer
from typer._completion_classes import completion_init
from typer.core import TyperGroup
from typer.main import get_command

from toolwire import __version__
from toolwire.cli.entry.command import LOOK, Group, let_reader_go, unexpected
from toolwire.cli.entry.exits import Exit
from toolwire.cli.entry.streams import prepare
from toolwire.cli.entry.table import COMMANDS, Stub

_NO_PLUGINS, _PLUGINS = "PYDANTIC_DISABLE_PLUGINS", "pydantic.plugin._loader"

COMPLETES = "_TOOLWIRE_COMPLETE"
"""Set where a shell asks what could come next; see `toolwire completion`."""


def main() -> None:
    """Run the command line given to this process, and end the process with its exit code."""
    prepare()
    _hasten()
    if COMPLETES in os.environ:
        completion_init()
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
    loaded. Pydantic would read the metadata of every installed package to find plugins of its own; what it would do
    that with takes ten milliseconds to load even where no plugins are wanted.
    """
    gc.disable()
    if os.environ.setdefault(_NO_PLUGINS, "true") == "true":
        sys.modules.setdefault(_PLUGINS, _Plugins(_PLUGINS))


class _Plugins(ModuleType):
    """Stands for pydantic's module that finds plugins, and finds none. Whatever else is asked of it is its own."""

    @staticmethod
    def get_plugins() -> tuple[()]:
        return ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        del sys.modules[_PLUGINS]
        return getattr(import_module(_PLUGINS), name)


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
