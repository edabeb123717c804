"""Every command: its name, where it lives, and one line about it. A command's module is imported when it is invoked."""

import gc
from importlib import import_module
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand
from typer.main import get_command

from toolwire.cli.entry.command import LOOK, CliCommand
from toolwire.cli.help.layout import help_page
from toolwire.cli.help.stored_pages import page_for, write_page

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


class Stub(TyperCommand):
    """Stands for a command in the list of commands; turns into the real one when it is invoked."""

    def __init__(self, name: str) -> None:
        self.home, line = COMMANDS[name]
        super().__init__(name, help=line, short_help=line, rich_markup_mode=None)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **more: Any) -> Any:
        if path := page_for(self.name or "", args):
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
        gc.enable()
    if isinstance(found, typer.Typer):
        return get_command(found)
    alone = typer.Typer(**LOOK)
    alone.command(name, cls=CliCommand)(found)
    return get_command(alone)
