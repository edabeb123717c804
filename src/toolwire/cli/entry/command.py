"""Where a command meets the world: its answer becomes an exit code, and an exception becomes one sentence."""

import json
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer
from typer._coercion import RuntimeParam, build_runtime_param
from typer.core import TyperCommand, TyperGroup

from toolwire.cli.entry.exits import Exit, exit_for
from toolwire.cli.entry.streams import NO_ROOM
from toolwire.cli.help.layout import help_page
from toolwire.cli.terminal.text import clean
from toolwire.errors import ToolwireError
from toolwire.protocol.obeyed import OWN_STATE
from toolwire.record.ownership import open_home

LOOK: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
"""What every group of commands is made with."""

ERRORS_LOG = "errors.log"
RESUME = "--resume"
_LARGEST_LOG = 1_000_000
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_UNCHECKED_TYPES = (str, list[str], bool)
"""Typer checks every value with pydantic, and loading that takes as long as typer itself; these need no check."""


class CliCommand(TyperCommand):
    """A command that returns its exit code, and never shows a traceback."""

    def get_params(self, ctx: Any) -> list[Any]:
        return skip_checks(super().get_params(ctx))

    def get_help(self, ctx: Any) -> str:
        return help_page(ctx, ctx.command_path, super().get_help)

    def get_short_help_str(self, limit: int = 0) -> str:  # noqa: ARG002 -- lines are wrapped, so none is cut off
        return super().get_short_help_str(sys.maxsize)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_split_resume(args)))

    def invoke(self, ctx: Any) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except ToolwireError as error:
            code = exit_for(error)
            _report(str(error), code, as_json=_wants_json(ctx))
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise
        except BrokenPipeError:
            code = drop_output()
        except KeyboardInterrupt as interrupt:
            code = Exit.INTERRUPTED
            _report(str(interrupt) or "Interrupted.", code, as_json=_wants_json(ctx))
        except Exception as error:
            code = report_internal_error(error, ctx.params.get("home"), as_json=_wants_json(ctx))
        raise typer.Exit(code or Exit.DONE)


class Group(TyperGroup):
    """A command with commands of its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        return skip_checks(super().get_params(ctx))

    def get_help(self, ctx: Any) -> str:
        return help_page(ctx, ctx.command_path, super().get_help)


class Interrupted(KeyboardInterrupt):
    """The person at the terminal pressed Ctrl-C; the text says how to go on."""


def drop_output() -> Exit:
    """Drop what is still buffered for a reader that went away, so that the interpreter ends without a complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return Exit.READER_GONE


def _report_full_disk(error: OSError) -> Exit:
    """The disk behind the output is full: what could not be written there is told where it can still be read."""
    drop_output()
    what = f"the output could not be written ({error.strerror}); free some space there, or send it elsewhere"
    _report(what, Exit.FAILED, as_json=False)
    return Exit.FAILED


def report_internal_error(error: Exception, home: str | None = None, *, as_json: bool = False) -> Exit:
    """Our own fault: one sentence here, the traceback in the error log. Not so where the output finds no room."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return _report_full_disk(error)
    _report(_log_traceback(error, home), Exit.UNEXPECTED, as_json=as_json)
    return Exit.UNEXPECTED


def nearest_home(given: str | None) -> Path:
    """The folder for the error log, found without reading settings, since those may be what is broken."""
    if given or (given := os.environ.get("TOOLWIRE_STORE__HOME")):
        return Path(given).expanduser()
    here = Path.cwd()
    return next((at / OWN_STATE for at in (here, *here.parents) if (at / OWN_STATE).is_dir()), here / OWN_STATE)


def _split_resume(args: list[str]) -> Iterator[str]:
    """`--resume=ID` as the flag and the id that may follow it, since a flag cannot have a value only sometimes."""
    words = args[: args.index("--")] if "--" in args else args
    for word in words:
        flag, equals, value = word.partition("=")
        yield from (flag, value) if equals and flag == RESUME else (word,)
    yield from args[len(words) :]


def _wants_json(ctx: Any) -> bool:
    return bool(ctx.params.get("as_json"))


def _report(message: str, code: Exit, *, as_json: bool) -> None:
    if as_json:
        body = {"error": {"kind": code.name.lower(), "message": message, "exit_code": int(code)}}
        sys.stdout.write(json.dumps(body) + "\n")
        sys.stdout.flush()
    if code is not Exit.INTERRUPTED:
        message = f"Error: {message}"
    elif sys.stderr.isatty():
        message = f"\n{message}"  # the terminal shows ^C, which ends no line
    typer.echo(clean(message), err=True)


def _log_traceback(error: Exception, home: str | None) -> str:
    """Write the traceback where it can be found later, and give the sentence for now."""
    what = f"{type(error).__name__}: {error}"[:300]
    path = nearest_home(home) / ERRORS_LOG
    text = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {' '.join(sys.argv[1:2])}\n"
    try:
        _append(path, text + "".join(traceback.format_exception(error)))
    except OSError:
        return f"Internal error, please report it ({what})."
    return f"Internal error, please report it ({what}). The details are in {path}."


def _append(path: Path, text: str) -> None:
    """Add to a log in a state folder, and through no link. Raises OSError, also where the folder is not the user's."""
    folder = open_home(path.parent)
    try:
        descriptor = os.open(path.name, _APPEND, 0o600, dir_fd=folder)
    finally:
        os.close(folder)
    with open(descriptor, "a", encoding="utf-8", errors="backslashreplace") as log:  # noqa: PTH123
        if os.fstat(descriptor).st_size > _LARGEST_LOG:
            os.ftruncate(descriptor, 0)
        log.write(text)


class _Unchecked(RuntimeParam):
    """Text as it was typed. Typer refuses what is not text (bytes that are not UTF-8)."""

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        words = value if isinstance(value, (list, tuple)) else (value,)
        try:
            for word in words:
                str(word).encode()
        except UnicodeEncodeError:
            return build_runtime_param(param.type_descriptor).coerce(value, param, ctx)
        return value


def skip_checks(params: Iterable[Any]) -> list[Any]:
    """The same parameters, of which those that are text or switches check nothing."""
    found = list(params)
    for param in found:
        told = param.type_descriptor
        if param._runtime_param is None and told.annotation in _UNCHECKED_TYPES and told.parameter_info.parser is None:
            param._runtime_param = _Unchecked(told.parameter_info, told.annotation)
    return found
