"""The program: its table of commands, and the whole run of one command line.

A command's module is imported when the command is invoked.
"""

import gc
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, NoReturn

import typer
from typer._completion_classes import completion_init
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from toolwire import __version__
from toolwire.cli.entry.command import LOOK, CliCommand, Group, drop_output, report_internal_error
from toolwire.cli.entry.exits import Exit
from toolwire.cli.entry.streams import prepare
from toolwire.cli.help.layout import help_page
from toolwire.cli.help.stored_pages import ASKS_FOR_HELP, page_for, write_page

COMMANDS: dict[str, tuple[str, str]] = {
    "ask": ("toolwire.cli.commands.ask:ask", "Answer a question with a model and tools."),
    "chat": ("toolwire.cli.commands.chat:chat", "Talk with a model that can use tools."),
    "call": ("toolwire.cli.commands.call:call", "Run one tool call (validated, authorised, recorded) without a model."),
    "preflight": (
        "toolwire.cli.commands.call:preflight",
        "List everything that stands in the way of a call; nothing runs.",
    ),
    "explain": ("toolwire.cli.commands.explain:explain", "Tell why a call may run, or what became of one on record."),
    "approvals": ("toolwire.cli.commands.approvals:approvals", "List what people were asked about calls."),
    "approve": (
        "toolwire.cli.commands.approvals:approve",
        "Answer what a turn waits for: yes, no, or yes with other arguments.",
    ),
    "run": ("toolwire.cli.commands.run:run", "Continue turns as soon as what they wait for has come."),
    "workflow": ("toolwire.cli.commands.workflow:workflow", "Run, check or draw a workflow of tool calls."),
    "schedule": ("toolwire.cli.commands.schedule:schedule", "Let something happen at certain times."),
    "tools": ("toolwire.cli.commands.tools:tools", "Show the catalogue, one tool in full, or a conformance report."),
    "parse": (
        "toolwire.cli.commands.parse:parse",
        "Read any model output into content, reasoning, calls and problems.",
    ),
    "serve": (
        "toolwire.cli.commands.serve:serve",
        "Serve OpenAI- and Anthropic-compatible APIs; repair a model's tool calls.",
    ),
    "worker": ("toolwire.cli.commands.worker:worker", "Run tools of this project for agents in other processes."),
    "edge": ("toolwire.cli.commands.edge:edge", "Run tools on devices, over MQTT."),
    "registry": (
        "toolwire.cli.commands.registry:registry",
        "Register tools of services that get their calls over a bus.",
    ),
    "records": ("toolwire.cli.commands.records:records", "Keep, change and find records that agents and people share."),
    "up": ("toolwire.cli.commands.up:up", "Start the whole system on this machine, for development."),
    "nats": ("toolwire.cli.commands.nats:nats", "Set up NATS servers for workers and runners, and check them."),
    "conformance": (
        "toolwire.cli.commands.conformance:conformance",
        "Test a tool service of any language against the protocol.",
    ),
    "trust": ("toolwire.cli.commands.trust:trust", "Trust a project's settings file: its tools, grant and addresses."),
    "release": ("toolwire.cli.commands.release:release", "List or release what commands made and toolwire held back."),
    "status": (
        "toolwire.cli.commands.status:status",
        "Show the settings in force, the store, and the health of tools.",
    ),
    "metrics": ("toolwire.cli.commands.metrics:metrics", "Show what tools and turns have done so far, in numbers."),
    "logs": ("toolwire.cli.commands.logs:logs", "Show the audit log."),
    "audit": ("toolwire.cli.commands.audit:audit", "Check that the audit log is whole, or sign how far it has come."),
    "store": ("toolwire.cli.commands.store:store", "Prune, shrink or copy the record."),
    "docs": ("toolwire.cli.commands.docs:docs", "Show the documentation that comes with this version."),
    "completion": (
        "toolwire.cli.commands.completion:completion",
        "Print the script that completes words in a shell.",
    ),
    "doctor": (
        "toolwire.cli.commands.doctor:doctor",
        "Check what works on this machine, and what to do about the rest.",
    ),
}

_NO_PLUGINS, _PLUGINS = "PYDANTIC_DISABLE_PLUGINS", "pydantic.plugin._loader"

_NEW_OBJECTS = 5_000
"""How many objects may be new before garbage is looked for; Python's own figure is 700, and 2,000 from 3.13 on."""

COMPLETES = "_TOOLWIRE_COMPLETE"
"""Set where a shell asks what could come next; see `toolwire completion`."""


def main() -> None:
    """Run the command line given to this process, and end the process with its exit code."""
    prepare()
    _speed_up_start()
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
        sys.exit(drop_output())
    except Exception as error:  # commands answer for themselves; this is for what cannot even be loaded
        sys.exit(report_internal_error(error))


def _speed_up_start() -> None:
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


class Stub(TyperCommand):
    """Stands for a command in the list of commands; turns into the real one when it is invoked."""

    def __init__(self, name: str) -> None:
        self.home, line = COMMANDS[name]
        super().__init__(name, help=line, short_help=line, rich_markup_mode=None)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **more: Any) -> Any:
        if args and args[-1] in ASKS_FOR_HELP and (path := page_for(self.name or "", args)):
            self._show_help(path, parent)
        return command_at(self.home, self.name or "").make_context(info_name, args, parent, **more)

    def _show_help(self, path: str, parent: Any) -> NoReturn:
        ctx = self.context_class(self, info_name=self.name, parent=parent)
        typer.echo(help_page(ctx, path, lambda wide: write_page(path, wide.make_formatter())))
        raise typer.Exit


def command_at(home: str, name: str) -> Any:
    """The real command: a function, or a Typer with commands of its own, found by its dotted name."""
    module, _, attribute = home.partition(":")
    found = getattr(import_module(module), attribute)
    if not gc.isenabled():
        gc.freeze()  # what was loaded stays until the end
        gc.set_threshold(_NEW_OBJECTS)  # of the modules that are loaded later hardly anything is garbage, too
        gc.enable()
    if isinstance(found, typer.Typer):
        return get_command(found)
    alone = typer.Typer(**LOOK)
    alone.command(name, cls=CliCommand)(found)
    return get_command(alone)
