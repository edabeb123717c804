"""`toolwire worker`: run tools for agents in other processes, over a Unix socket."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.services import address_of, require_tools, safe_address, token_of
from toolwire.assemble.state_ownership import require_own
from toolwire.assemble.tools import tool_dependencies, toolbox_of
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import Groups
from toolwire.cli.resolve.project import current_project
from toolwire.define.nearest import nearest
from toolwire.deliver.secrets import NO_SECRETS
from toolwire.errors import SettingsError
from toolwire.execute.service_host import DRAIN_S, ServiceHost
from toolwire.settings import ServiceSettings

_LONGEST_ADDRESS = 107  # bytes, as the kernel has it


def worker(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A service of the settings: [services.NAME].")
    ] = None,
    socket: Annotated[
        str | None, typer.Option("--socket", metavar="PATH", help="Where to listen, in place of what a service says.")
    ] = None,
    token_env: Annotated[
        str | None, typer.Option("--token-env", metavar="NAME", help="Variable with a token that callers must show.")
    ] = None,
    tools: Groups = None,
    drain: Annotated[
        float, typer.Option("--drain", metavar="SECONDS", help="How long running calls may go on at the end.", min=0)
    ] = DRAIN_S,
) -> Exit:
    """Run tools of this project for agents in other processes on this machine.

    An agent sends calls here where its settings say so: [services.NAME] with this socket. The worker puts its own
    secrets in place, and takes them out of results. Ctrl-C or SIGTERM ends it: it takes no more calls, and those that
    run may finish.
    """
    place = current_project({"tools.groups": tools})
    service = _service(place, name, socket, token_env)
    if name is not None and socket is None:
        safe_address(place, name, service)
    run_sync(_serve(place, name or "worker", service, drain))
    return Exit.DONE


def _service(place: ProjectFolder, name: str | None, socket: str | None, token_env: str | None) -> ServiceSettings:
    """What a worker is to serve, by settings and flags. Raises SettingsError."""
    known = place.settings.services
    if name is not None and name not in known:
        near = nearest(name, known)
        advice = f"did you mean {' or '.join(near)}?" if near else "add it to toolwire.toml, or give --socket alone"
        raise SettingsError(f"there is no section [services.{name[:80]}]; {advice}")
    if name is None and socket is None:
        raise SettingsError("name a service of the settings, or give --socket PATH")
    said = {} if name is None else dict(known[name])
    own = None if socket is None else str(place.cwd / socket)
    said |= {key: value for key, value in (("socket", own), ("token_env", token_env)) if value is not None}
    service = ServiceSettings(**said)
    if len(os.fsencode(address_of(place, service))) > _LONGEST_ADDRESS:
        raise SettingsError(f"the path of a socket has at most {_LONGEST_ADDRESS} bytes; choose a shorter one")
    return service


async def _serve(place: ProjectFolder, name: str, service: ServiceSettings, drain_s: float) -> None:
    address, token = address_of(place, service), token_of(place, name, service)
    secrets = place.settings.secrets(place.environ)
    if Path(address).is_relative_to(place.home):
        await require_own(place.home, place.environ, named=place.names_home, store=False)
        Path(address).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    stopped = asyncio.Event()
    async with AsyncExitStack() as closing:
        toolbox = toolbox_of(place, replace(tool_dependencies(place), closing=closing), is_worker=True)
        require_tools(f"services.{name}.tools", service.tools, {tool.name: tool for tool in toolbox})
        host = ServiceHost(
            toolbox.only(service.tools) if service.tools else toolbox,
            token=token,
            drain_s=drain_s,
            reveal=None if secrets is NO_SECRETS else secrets.revealed,
            scrub=None if secrets is NO_SECRETS else secrets.scrubbed,
        )
        try:
            await closing.enter_async_context(host.listening(address))
        except OSError as error:
            raise SettingsError(f"cannot listen at {address}: {error.strerror or error}") from None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        typer.echo(f"Running {len(host.host.tools)} tools for callers at {address}. Ctrl-C ends it.")
        sys.stdout.flush()
        await stopped.wait()
        for number in (signal.SIGINT, signal.SIGTERM):  # a second one ends it at once
            loop.remove_signal_handler(number)
