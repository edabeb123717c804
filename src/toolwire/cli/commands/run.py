"""`toolwire run`: take up turns that can go on, as soon as what they wait for has come."""

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire.agent import Agent, run_sync
from toolwire.assemble.agents import open_agent_of
from toolwire.assemble.devices import holding_devices
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.served_projects import ServedProjects
from toolwire.assemble.stores import store_of
from toolwire.assemble.telemetry import serving_metrics, start_metrics, telemetry_of, tell_end
from toolwire.assemble.turn_runner import AT_ONCE, RanTurn, TurnRunner
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.ids import find_turn_id
from toolwire.cli.resolve.options import (
    AllProjects,
    AsJson,
    Home,
    MetricsPort,
    NoColor,
    Project,
    ProjectAtOnce,
    Projects,
    complete_interrupted_turn,
    fleet_flags,
)
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.identity import system_user
from toolwire.cli.terminal.screen import Screen, quiet_tools, write_json
from toolwire.cli.terminal.text import one_line
from toolwire.cli.views.result import show_result
from toolwire.errors import NotFound, SettingsError
from toolwire.event_loop import run_on_new_loop
from toolwire.hub.canceling import cancel_turn
from toolwire.hub.event_hub import EventHub
from toolwire.lazy import lazy_module
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import Wait
from toolwire.record.projects import ProjectStore, of_project
from toolwire.task_groups import TaskGroup
from toolwire.wire.codecs.stored import write_wait

if TYPE_CHECKING:
    from toolwire.assemble import bus_link, record_jobs, record_upkeep, report_link
    from toolwire.fleet import fair_share
else:
    fair_share = lazy_module("toolwire.fleet.fair_share")
    report_link = lazy_module("toolwire.assemble.report_link")
    bus_link = lazy_module("toolwire.assemble.bus_link")
    record_jobs = lazy_module("toolwire.assemble.record_jobs")
    record_upkeep = lazy_module("toolwire.assemble.record_upkeep")

_LONGEST_LINE = 200


def run(
    once: Annotated[bool, typer.Option("--once", help="Run what is ready now, and end.")] = False,
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", help="How many turns run at the same time.", min=1, max=64)
    ] = AT_ONCE,
    projects: Projects = None,
    all_projects: AllProjects = False,
    project_at_once: ProjectAtOnce = None,
    cancel: Annotated[
        str | None,
        typer.Option(
            "--cancel",
            metavar="TURN",
            help="End this turn instead; what waits in it never runs.",
            autocompletion=complete_interrupted_turn,
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    project: Project = "default",
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Continue turns as soon as what they wait for has come: an approval, a sub-agent, a time.

    A turn goes on with the model, tools and grants that it began with, less what the settings have taken back since.
    Several runners may share a store: each turn is taken up by one of them. With --projects or --all-projects it runs
    the turns of several projects in turn, each with its own folder and settings beneath fleet.folder. Ctrl-C ends
    it; what runs then goes on with the next runner. Ends with 1 if a turn could not go on with --once.
    """
    flags = {"store.home": home, "telemetry.metrics_port": metrics_port}
    fleet = fleet_flags(projects, all_projects=all_projects, at_once=project_at_once)
    place = current_project({**flags, **fleet}, project=project)
    if not place.settings.store.lasts:
        raise SettingsError("store.kind = memory keeps no turns beyond a command, so there is nothing to run")
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    if cancel is not None:
        waits = run_sync(_cancel(place, cancel))
        still = f"Turn {cancel} will end once its calls have stopped: it waits for {' and '.join(map(str, waits))}."
        screen.tell(still if waits else f"Turn {cancel} is canceled.", "dim")
        return Exit.DONE
    start_metrics(place)
    failures: list[str] = []
    out = sys.stdout  # what tools print goes elsewhere with --json

    def tell(ran: RanTurn) -> None:
        if ran.error:
            failures.append(ran.turn_id)
        with redirect_stdout(out):
            _show(screen, ran, as_json=as_json)

    with quiet_tools(as_json=as_json):
        try:
            run_on_new_loop(
                _run(ServedProjects(place, {"store.home": home}), {"store.home": home}, at_once, tell, once=once)
            )
        except asyncio.CancelledError:  # by SIGTERM
            raise KeyboardInterrupt from None
    return Exit.FAILED if failures else Exit.DONE


async def _run(
    served: ServedProjects, flags: dict[str, Any], at_once: int, tell: Callable[[RanTurn], None], *, once: bool
) -> None:
    place, task = served.own, asyncio.current_task()
    assert task is not None
    # As Ctrl-C does, also where a shell has it ignore that: what is open is closed.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with store_of(place) as view, holding_devices(place, view), AsyncExitStack() as closing:
        store = view.whole if served.is_shared else view
        links = _links(served, view, closing) if place.uses_bus() else {}

        def opened(turn: Turn) -> AbstractAsyncContextManager[Agent]:
            own = served.open(turn.project) if served.is_shared else place
            link = links.get("*" if served.serves_all else turn.project)
            return open_agent_of(turn, project=own, store=of_project(store, turn.project), flags=flags, link=link)

        most = place.settings.fleet.at_once or fair_share.share_of(at_once) if served.is_shared else None
        names = () if served.serves_all or not served.is_shared else served.names
        runner = TurnRunner(
            store, opened, at_once=at_once, per_project=most, projects=names, tell=tell,
            staying=lambda: sum(link.arrivals.staying() for link in links.values()),
        )  # fmt: skip
        for link in links.values():
            link.start(wake_turn=runner.wake_turn)
        looked_after = [(one, of_project(store, one.name)) for one in _with_records(served)]
        jobs = [record_jobs.RecordJobs(one, own, runner.wake) for one, own in looked_after]
        upkeep = [record_upkeep.RecordUpkeep(one, own, system_user()) for one, own in looked_after]
        for close in (*(one.close for one in jobs), *(one.close for one in upkeep)):
            closing.callback(close)
        if once:
            await _run_until_idle(runner, jobs)
            for each in upkeep:
                await each.run_once()
            return
        if links:
            await closing.enter_async_context(report_link.received_reports(place, store, list(links)))
        metrics = closing.enter_context(serving_metrics(place, view))
        told = f" Metrics: {metrics} ." if metrics else ""
        of = f" of {served.shown}" if served.is_shared else ""
        typer.echo(f"Waiting for turns{of} that can go on.{told} Ctrl-C ends it.", err=True)
        async with TaskGroup() as tasks:
            for work in (*(one.run_forever() for one in jobs), *(one.run_forever() for one in upkeep)):
                tasks.create_task(work, name="toolwire-records")
            tasks.create_task(runner.run_forever(), name="toolwire-turns")


async def _run_until_idle(runner: TurnRunner, jobs: "list[record_jobs.RecordJobs]") -> None:
    """Run what is ready, what schedules and records begin now, and what comes of that."""
    goes_on = True
    while goes_on:
        goes_on = any([await one.run_once() for one in jobs])
        await runner.run_until_idle()


def _with_records(served: ServedProjects) -> list[ProjectFolder]:
    """The projects whose schedules and agents are looked after here. One whose settings are broken is left out."""
    found = []
    for name in served.known():
        try:
            found.append(served.open(name))
        except SettingsError as wrong:
            typer.echo(f"The records of project {name} are not looked after: {wrong}", err=True)
    return found


def _links(served: ServedProjects, store: ProjectStore, closing: AsyncExitStack) -> "dict[str, bus_link.BusLink]":
    """What joins this process to the broker: by project, or one for all of them (`*`)."""
    links = {}
    for one in served.links():
        folder = served.own if served.serves_all else one
        links[one.name] = bus_link.BusLink(folder, store, serves_all=served.serves_all)
        closing.push_async_callback(links[one.name].close)
    return links


async def _cancel(place: ProjectFolder, named: str) -> tuple[Wait, ...]:
    if not place.store_exists:
        raise NotFound(f"there is no turn {named!r}; `toolwire status` shows the turns on record")
    async with store_of(place) as store:
        turn_id = await find_turn_id(store, named)
        before = await store.turn(turn_id)
        waits = await cancel_turn(store, turn_id, store.clock())
        if before.state != "ended" and (telemetry := telemetry_of(place)) is not None:
            tell_end(await store.turn(turn_id), EventHub(telemetry=telemetry))
        return waits


def _show(screen: Screen, ran: RanTurn, *, as_json: bool) -> None:
    if as_json:
        write_json(ran_object(ran))
        return
    if ran.answer is not None:
        screen.say(ran.answer.text)
    elif ran.result is not None:
        show_result(screen, ran.result)
    why = ran.error or (" or ".join(map(str, ran.waits.waits)) if ran.waits else "")
    screen.tell(one_line(f"{ran.turn_id} {ran.state}{': ' if why else ''}{why}", _LONGEST_LINE), "dim")


def ran_object(ran: RanTurn) -> dict[str, Any]:
    """What came of a turn, for programs."""
    body: dict[str, Any] = {"turn_id": ran.turn_id, "project": ran.project, "state": ran.state}
    if ran.answer is not None:
        body |= {"answer": ran.answer.text, "reason": ran.answer.reason.value}
    if ran.result is not None:
        body |= {"answer": ran.result.text, "reason": ran.result.status.value}
    if ran.waits is not None:
        body["waits"] = [write_wait(wait) for wait in ran.waits.waits]
    return body | ({"error": ran.error} if ran.error else {})
