"""`toolwire serve`: the gateway in front of a server or of the embedded model."""

import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

import typer

from toolwire.agent import run_sync
from toolwire.assemble.models import choice_for
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.stores import require_own_state, store_of
from toolwire.cli.exits import Exit
from toolwire.cli.here import here
from toolwire.cli.options import Model, Project
from toolwire.cli.streams import LineFormatter
from toolwire.cli.text import on_one_line
from toolwire.errors import SettingsError
from toolwire.models.registry import open_model
from toolwire.protocol.chat import ChatModel
from toolwire.record.contract import Store

PORT = 8787
_PARTS = ("app", "approvals", "log", "server", "settings")


def serve(
    upstream: Annotated[
        str | None, typer.Option("--upstream", metavar="URL", help="The server that answers: http://127.0.0.1:11434.")
    ] = None,
    upstream_dialect: Annotated[
        str, typer.Option("--upstream-dialect", metavar="NAME", help="What it speaks: auto, openai, anthropic, ollama.")
    ] = "auto",
    model: Model = None,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", help="The port; 0 takes a free one.")] = PORT,
    key_env: Annotated[
        str | None, typer.Option("--key-env", metavar="NAME", help="Variable with the key for the upstream.")
    ] = None,
    token_env: Annotated[
        list[str] | None,
        typer.Option("--token-env", metavar="NAME", help="Variable with a token that clients must show. Repeatable."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Another name by which clients reach it. Repeatable."),
    ] = None,
    project: Project = "default",
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Log JSON lines.")] = False,
) -> Exit:
    """Serve chat APIs in front of a model server, with tool calls that leaked into text made whole.

    Put the printed address into any OpenAI or Anthropic client. Give --upstream for a server, or --model for a
    model that toolwire asks itself, such as local:smollm2.
    """
    parts = _parts()
    settings = parts["settings"]
    if (upstream is None) == (model is None):
        raise SettingsError(
            "give either --upstream URL or --model PROVIDER:NAME, e.g. --upstream http://127.0.0.1:11434"
        )
    tokens = tuple(_variable(name) for name in token_env or ())
    names = frozenset(name.lower() for name in allow_host or ())
    access = settings.Access(host, tokens, names, tuple(token_env or ()))
    key = _variable(key_env) if key_env else ""
    behind = settings.Upstream.at(upstream, upstream_dialect, key) if upstream else None
    asked = _asked(model, key) if model else None
    sock = parts["server"].listen(host, port)
    desk = parts["approvals"].Desk(*_desk(here(project=project), token_env)) if token_env else None
    app = parts["app"].make_app(behind, asked, access=access, log=_logger(parts["log"], as_json=json_logs), desk=desk)
    address = parts["server"].address_of(sock)
    asks = behind.url if behind else model
    typer.echo(f"Put {address}/v1 into your client ({address} for Anthropic's); it asks {asks}. Ctrl-C ends it.")
    sys.stdout.flush()
    _log_lines(as_json=json_logs)
    parts["server"].serve_until_stopped(app, sock)
    return Exit.DONE


def _parts() -> dict[str, ModuleType]:
    """The gateway's modules. Raises SettingsError when the extra that they need is missing."""
    try:
        return {name: import_module(f"toolwire.gateway.{name}") for name in _PARTS}
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] in ("starlette", "uvicorn"):
            raise SettingsError(f"serving needs an extra: pip install 'toolwire[serve]' ({missing})") from None
        raise


def _asked(model: str, key: str) -> ChatModel:
    """The model, at the address and in the formats that its profile gives it."""
    choice = choice_for(here(), model)
    return open_model(
        choice.model, base_url=choice.url, api_key=key or None, key_variable=choice.api_key_env, wish=choice.tools
    )


def _desk(place: ProjectFolder, tokens: list[str]) -> tuple[Any, frozenset[str]]:
    """How the project's store is opened, and who may answer its questions. Raises SettingsError."""
    people = frozenset(place.settings.approval.people)
    if unknown := sorted(people.difference(tokens)):
        raise SettingsError(f"approval.people names {unknown[0]}; give it as --token-env too, or leave it out")
    if place.has_home:
        run_sync(require_own_state(place))

    @asynccontextmanager
    async def open_store() -> AsyncIterator[Store | None]:
        if not place.store_exists:
            yield None
            return
        async with store_of(place) as store:
            yield store

    return open_store, people


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise SettingsError(f"the variable {name} is not set, or empty")
    return value


def _logger(log: ModuleType, *, as_json: bool) -> Callable[[Any], None]:
    line = log.as_json if as_json else log.as_text

    def write(entry: Any) -> None:
        typer.echo(on_one_line(line(entry)), err=True)

    return write


def _log_lines(*, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(as_json=as_json))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
