"""`toolwire worker`: run tools for agents in other processes, over a Unix socket or over the bus."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from msgspec.structs import replace

from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.served_projects import OpenOnce, ServedProjects, is_own_setting
from toolwire.assemble.services import (
    address_of,
    require_name_for_bus,
    require_tools,
    safe_address,
    subject_of,
    token_of,
)
from toolwire.assemble.state_ownership import require_own
from toolwire.assemble.stores import store_of
from toolwire.assemble.telemetry import observed_executor, serving_metrics, start_metrics
from toolwire.assemble.tools import tool_dependencies, toolbox_of
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import (
    AllProjects,
    Groups,
    Home,
    MetricsPort,
    Project,
    ProjectAtOnce,
    Projects,
    fleet_flags,
)
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.text import quantity
from toolwire.define.nearest import nearest
from toolwire.define.toolbox import Toolbox
from toolwire.deliver.secrets import NO_SECRETS
from toolwire.errors import BrokerNotReady, SettingsError
from toolwire.event_loop import run_on_new_loop
from toolwire.execute.service_host import DRAIN_S, ServiceHost
from toolwire.lazy import lazy_module
from toolwire.protocol.subjects import TargetSubject
from toolwire.record.projects import of_project
from toolwire.settings import ServiceSettings

if TYPE_CHECKING:
    from toolwire.assemble import buses
    from toolwire.bus.contract import Bus
    from toolwire.fleet import fair_share, relay
    from toolwire.fleet import worker as fleet_worker
else:
    # A worker at a socket needs no bus.
    buses = lazy_module("toolwire.assemble.buses")
    fair_share = lazy_module("toolwire.fleet.fair_share")
    relay = lazy_module("toolwire.fleet.relay")
    fleet_worker = lazy_module("toolwire.fleet.worker")

AT_ONCE = 16
_LOOK_AGAIN_S = 1.0
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
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", help="How many calls from the bus run at the same time.", min=1)
    ] = AT_ONCE,
    projects: Projects = None,
    all_projects: AllProjects = False,
    project_at_once: ProjectAtOnce = None,
    drain: Annotated[
        float, typer.Option("--drain", metavar="SECONDS", help="How long running calls may go on at the end.", min=0)
    ] = DRAIN_S,
    metrics_port: MetricsPort = None,
    project: Project = "default",
    home: Home = None,
) -> Exit:
    """Run tools of this project, or of several, for agents in other processes.

    A service with via = bus gets its calls from a broker: any number of workers on any number of machines share them,
    with the store of the project as the record. Any other is one worker on this machine, at a Unix socket. A worker
    puts its own secrets in place, and takes them out of results. With --projects or --all-projects it takes the calls
    of several projects in turn, each with its own folder and settings beneath fleet.folder. Ctrl-C or SIGTERM ends it:
    it takes no more calls, and those that run may finish.
    """
    flags = {"tools.groups": tools, "store.home": home, "telemetry.metrics_port": metrics_port}
    flags |= fleet_flags(projects, all_projects=all_projects, at_once=project_at_once)
    place = current_project(flags, project=project)
    start_metrics(place)
    service = _service(place, name, socket, token_env)
    if service.via == "bus":
        run_on_new_loop(_serve_bus(ServedProjects(place, flags), name or "", service, at_once, drain))
        return Exit.DONE
    if projects is not None or all_projects:
        raise SettingsError("a worker at a socket serves one project; leave out --projects, or set via = bus")
    if name is not None and socket is None:
        safe_address(place, name, service)
    run_on_new_loop(_serve(place, name or "worker", service, drain))
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
    if said.get("via") == "bus" and (socket is not None or token_env is not None):
        raise SettingsError(f"services.{name}.via = bus: leave out --socket and --token-env")
    own = None if socket is None else str(place.cwd / socket)
    said |= {key: value for key, value in (("socket", own), ("token_env", token_env)) if value is not None}
    service = ServiceSettings(**said)
    if service.via == "bus":
        return service
    if len(os.fsencode(address_of(place, name or "worker", service))) > _LONGEST_ADDRESS:
        raise SettingsError(f"the path of a socket has at most {_LONGEST_ADDRESS} bytes; choose a shorter one")
    return service


async def _serve(place: ProjectFolder, name: str, service: ServiceSettings, drain_s: float) -> None:
    address, token = address_of(place, name, service), token_of(place, name, service)
    secrets = place.settings.secrets(place.environ)
    if Path(address).is_relative_to(place.home):
        await require_own(place.home, place.environ, named=place.names_home, store=False)
        Path(address).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with AsyncExitStack() as closing:
        toolbox = _toolbox(place, name, service, closing)
        host = ServiceHost(
            toolbox,
            token=token,
            executor=observed_executor(place, toolbox),
            drain_s=drain_s,
            reveal=None if secrets is NO_SECRETS else secrets.revealed,
            scrub=None if secrets is NO_SECRETS else secrets.scrubbed,
        )
        try:
            await closing.enter_async_context(host.listening(address))
        except OSError as error:
            raise SettingsError(f"cannot listen at {address}: {error.strerror or error}") from None
        stopped = asyncio.Event()
        _stop_on_signals(stopped.set)
        _say_running(toolbox, f"for callers at {address}", closing.enter_context(serving_metrics(place)))
        await stopped.wait()


async def _serve_bus(
    served: ServedProjects, name: str, service: ServiceSettings, at_once: int, drain_s: float
) -> None:  # fmt: skip
    place = served.own
    place.uses_bus()
    require_name_for_bus(place)
    filled = TargetSubject.parse(subject_of(name)).filter
    stopping, workers, relays = asyncio.Event(), list[fleet_worker.ToolWorker](), []
    async with store_of(place) as store, AsyncExitStack() as closing:
        own = _project_tools(place, name, service, closing)
        fleet = place.settings.fleet
        shared = FleetParts.of(served, name, service, own, at_once, closing) if served.is_shared else None
        _stop_on_signals(partial(_stop_all, stopping, workers))
        bus: Bus | None = None
        for link in served.links():
            if bus is None or served.has_keys:
                bus = await _open_bus(link, name, stopping, closing)
            if bus is None:
                return
            view = store.whole if served.serves_all else of_project(store, link.name)
            worker = fleet_worker.ToolWorker(
                view,
                bus,
                own.toolbox,
                filled.replace("*", link.name, 1),
                durable=f"workers-{name}" if served.serves_all else f"worker-{link.name}-{name}",
                executor=own.executor,
                secrets=own.secrets,
                environment=own.environment,
                at_once=at_once,
                slots=shared.slots if shared else None,
                of_project=shared.of_project if shared else None,
            )
            workers.append(worker)
            relays.append(relay.Relay(view, bus, window=fleet.window).run())
        metrics = closing.enter_context(serving_metrics(place, store, bus))
        of = f" of {served.shown}" if served.is_shared else ""
        where = filled.replace("*", place.name, 1) if not served.is_shared else filled
        _say_running(own.toolbox, f"for calls{of} at {where}", metrics)
        left = await _run_all(workers, relays, drain_s)
        if left:
            typer.echo(f"Gave up {quantity(left, 'call')} after {drain_s:g} s; other workers find out.", err=True)


async def _open_bus(
    link: ProjectFolder, name: str, stopping: asyncio.Event, closing: AsyncExitStack
) -> "Bus | None":  # fmt: skip
    """The bus of a project, once its streams are there: a worker may start first. None where it is to stop before."""
    told = False
    while not stopping.is_set():
        try:
            return await closing.enter_async_context(buses.open_bus(link, name=f"toolwire worker {name}"))
        except BrokerNotReady as waits:
            if not told:
                typer.echo(f"Waiting: {waits}", err=True)
            told = True
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    await stopping.wait()
    return None


def _stop_all(stopping: asyncio.Event, workers: "list[fleet_worker.ToolWorker]") -> None:
    stopping.set()
    for worker in workers:
        worker.stop()


async def _run_all(
    workers: "list[fleet_worker.ToolWorker]", relays: list[Coroutine[Any, Any, None]], drain_s: float
) -> int:
    """Serve until all have stopped; how many calls were given up."""
    sending = [asyncio.create_task(one, name="toolwire-relay") for one in relays]
    serving = [asyncio.create_task(worker.run(drain_s), name="toolwire-worker") for worker in workers]
    try:
        return sum(await asyncio.gather(*serving))
    finally:
        for task in (*serving, *sending):
            task.cancel()
        await asyncio.gather(*serving, *sending, return_exceptions=True)


class FleetParts(NamedTuple):
    """What the workers of several projects share: the slots for their calls, and what each project's are run with."""

    slots: "fair_share.FairSlots"
    of_project: "Callable[[str], Awaitable[fleet_worker.ProjectTools]]"

    @classmethod
    def of(
        cls,
        served: ServedProjects,
        name: str,
        service: ServiceSettings,
        own: "fleet_worker.ProjectTools",
        at_once: int,
        closing: AsyncExitStack,
    ) -> "FleetParts":
        async def make(project: str, closing: AsyncExitStack) -> "fleet_worker.ProjectTools":
            if project == served.own.name:
                return own
            place = served.open(project)
            said = place.settings.services.get(name, service)
            tools = _project_tools(place, name, said, closing)
            is_own = is_own_setting(place, place.cwd, f"services.{name}.environment")
            return tools if is_own else replace(tools, environment={})

        slots = fair_share.FairSlots.shared(at_once, served.own.settings.fleet.at_once)
        return cls(slots, OpenOnce(make, closing).get)


def _project_tools(
    place: ProjectFolder, name: str, service: ServiceSettings, closing: AsyncExitStack
) -> "fleet_worker.ProjectTools":
    """What the calls of one project are run with. Raises SettingsError."""
    toolbox = _toolbox(place, name, service, closing)
    return fleet_worker.ProjectTools(
        toolbox,
        observed_executor(place, toolbox),
        place.settings.secrets(place.environ),
        {name: place.environ[name] for name in service.environment if name in place.environ},
    )


def _toolbox(place: ProjectFolder, name: str, service: ServiceSettings, closing: AsyncExitStack) -> Toolbox:
    """The tools that a worker runs, with all that they hold, closed at the end. Raises SettingsError."""
    toolbox = toolbox_of(place, replace(tool_dependencies(place), closing=closing), is_worker=True)
    require_tools(f"services.{name}.tools", service.tools, {tool.name: tool for tool in toolbox})
    return toolbox.only(service.tools) if service.tools else toolbox


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """The first signal asks the worker to stop; a second one ends it at once."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def first() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        stop()

    for number in numbers:
        loop.add_signal_handler(number, first)


def _say_running(toolbox: Toolbox, where: str, metrics: str) -> None:
    told = f" Metrics: {metrics} ." if metrics else ""
    typer.echo(f"Running {quantity(len(toolbox.names), 'tool')} {where}.{told} Ctrl-C ends it.")
    sys.stdout.flush()
