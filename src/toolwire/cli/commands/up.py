"""`toolwire up`: the whole system on one machine, for development."""

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.services import require_name_for_bus, subject_of
from toolwire.cli.commands.serve import upstream_or_model
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import MOST_STREAM_MB, Home, NoColor, Project
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean
from toolwire.errors import BusUnavailable, SettingsError
from toolwire.lazy import lazy_module
from toolwire.record.projects import DEFAULT

if TYPE_CHECKING:
    from toolwire.assemble import embedded_nats, supervisor
    from toolwire.bus import nats_permissions
else:
    # Loaded with the extra for NATS, which may be missing.
    embedded_nats = lazy_module("toolwire.assemble.embedded_nats")
    supervisor = lazy_module("toolwire.assemble.supervisor")
    nats_permissions = lazy_module("toolwire.bus.nats_permissions")

_HIGHEST_PORT = 61_000
_NAME_WIDTH = 14
_LOG_LINES = 5


def up(
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", help="Workers of each service with via = bus.", min=1, max=64)
    ] = 1,
    serve: Annotated[bool, typer.Option("--serve", help="Start the gateway too, as [serve] says.")] = False,
    port: Annotated[
        int,
        typer.Option(
            "--port", metavar="PORT", help="Port of the broker; 0 takes a free one.", min=0, max=_HIGHEST_PORT
        ),
    ] = 0,
    stream_mb: Annotated[
        int, typer.Option("--stream-mb", metavar="MB", help="Room for each stream.", min=1, max=MOST_STREAM_MB)
    ] = 64,
    project: Project = "default",
    home: Home = None,
    no_color: NoColor = False,
) -> Exit:
    """Start the whole system on this machine, for development: a NATS server, workers, and what continues turns.

    Each service of the settings with via = bus gets workers. What ends is started again, after a pause that grows.
    Ctrl-C or SIGTERM stops all of it, with time to finish for calls that run; a second one ends it at once. The
    server listens on 127.0.0.1, and its files lie in the state folder.
    """
    place = current_project({"store.home": home}, project=project)
    if not place.settings.store.lasts:
        raise SettingsError("store.kind = memory is not shared by processes; choose sqlite or a server")
    require_name_for_bus(place)
    for service in _services(place):
        subject_of(service)
    if serve:
        upstream_or_model(place.settings)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    try:
        run_sync(_up(place, screen, port, stream_mb, home, workers, serve=serve))
    except ImportError as missing:
        raise SettingsError(f"NATS needs an extra: pip install 'toolwire[nats]' ({missing})") from None
    return Exit.DONE


async def _up(
    place: ProjectFolder, screen: Screen, port: int, stream_mb: int, home: str | None, workers: int, *, serve: bool
) -> None:
    def tell(name: str, line: str) -> None:
        screen.tell(f"{time.strftime('%H:%M:%S')} {name:<{_NAME_WIDTH}} {clean(line)}")

    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with embedded_nats.embedded_nats(place, port, stream_mb) as broker, supervisor.Supervisor(tell) as children:
        starting = asyncio.ensure_future(_start(place, screen, broker, children, home, workers, serve=serve))
        stopping = asyncio.ensure_future(stopped.wait())
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await stopped.wait()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, children.kill)
            for task in (starting, stopping):
                task.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)


async def _start(
    place: ProjectFolder,
    screen: Screen,
    broker: "embedded_nats.EmbeddedNats",
    children: "supervisor.Supervisor",
    home: str | None,
    workers: int,
    *,
    serve: bool,
) -> None:
    try:
        await children.keep(broker.program)
        await broker.make_streams()
    except (supervisor.ChildEnded, OSError) as wrong:
        raise BusUnavailable(f"{wrong}\n{_last_lines(broker)}") from None
    for program in _programs(place, broker, home, workers, serve=serve):
        await children.keep(program)
    if not _services(place):
        screen.tell(
            "No service has via = bus, so there is no worker. Add one to toolwire.toml: [services.NAME]", "yellow"
        )
    own = {**broker.environ(nats_permissions.NatsRole.ORCHESTRATOR), **_home(place, home)}
    said = " ".join(f"{name}={shlex.quote(value)}" for name, value in own.items() if value != "none")
    flags = "" if place.name == DEFAULT else f", with --project {place.name}"
    screen.tell(f"Everything is started. Ctrl-C stops it. For commands in another terminal{flags}:", "green")
    screen.say(f"export {said}")
    sys.stdout.flush()


def _programs(
    place: ProjectFolder, broker: "embedded_nats.EmbeddedNats", home: str | None, workers: int, *, serve: bool
) -> Iterator["supervisor.ChildProgram"]:
    """What runs beside the broker: runner, workers, and the gateway where it is wanted."""
    roles = nats_permissions.NatsRole
    shared = ["--project", place.name]

    def program(name: str, role: "nats_permissions.NatsRole", *words: str) -> "supervisor.ChildProgram":
        environ = {**os.environ, **broker.environ(role), **_home(place, home), "PYTHONUNBUFFERED": "1"}
        by = signal.SIGINT if name == "run" else signal.SIGTERM  # a runner gives its turns back on Ctrl-C
        return supervisor.ChildProgram(name, [sys.executable, "-m", "toolwire", *words], environ, stops_by=by)

    yield program("run", roles.ORCHESTRATOR, "run", *shared)
    for service in _services(place):
        for number in range(1, workers + 1):
            name = f"worker {service}" + (f" {number}" if workers > 1 else "")
            yield program(name, roles.WORKER, "worker", service, *shared)
    if serve:
        yield program("serve", roles.ORCHESTRATOR, "serve", *shared)


def _home(place: ProjectFolder, home: str | None) -> dict[str, str]:
    """The state folder of a flag as a variable, which every command takes."""
    return {"TOOLWIRE_STORE__HOME": str(place.home)} if home else {}


def _services(place: ProjectFolder) -> list[str]:
    return [name for name, one in place.settings.services.items() if one.via == "bus"]


def _last_lines(broker: "embedded_nats.EmbeddedNats") -> str:
    try:
        lines = broker.log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_LOG_LINES:])
