"""`toolwire run`: take up turns that can go on, as soon as what they wait for has come."""

import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire.agent import run_sync
from toolwire.assemble.agents import open_agent_of
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.services import uses_bus
from toolwire.assemble.stores import store_of
from toolwire.assemble.telemetry import serving_metrics, start_metrics, telemetry_of, tell_end
from toolwire.assemble.turn_runner import AT_ONCE, RanTurn, TurnRunner
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.ids import find_turn_id
from toolwire.cli.resolve.options import AsJson, Home, MetricsPort, NoColor, Project, complete_interrupted_turn
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.screen import Screen, quiet_tools, write_json
from toolwire.cli.terminal.text import one_line
from toolwire.cli.views.result import show_result
from toolwire.errors import NotFound, SettingsError
from toolwire.hub.canceling import cancel_turn
from toolwire.hub.event_hub import EventHub
from toolwire.lazy import lazy_module
from toolwire.protocol.waits import Wait
from toolwire.wire.codecs.stored import write_wait

if TYPE_CHECKING:
    from toolwire.assemble import bus_link
else:
    bus_link = lazy_module("toolwire.assemble.bus_link")

_LONGEST_LINE = 200


def run(
    once: Annotated[bool, typer.Option("--once", help="Run what is ready now, and end.")] = False,
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", help="How many turns run at the same time.", min=1, max=64)
    ] = AT_ONCE,
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
    Several runners may share a store: each turn is taken up by one of them. Ctrl-C ends it; what runs then goes on with
    the next runner. Ends with 1 if a turn could not go on with --once.
    """
    place = current_project({"store.home": home, "telemetry.metrics_port": metrics_port}, project=project)
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

    signal.signal(signal.SIGTERM, _interrupt)
    with quiet_tools(as_json=as_json):
        run_sync(_run(place, {"store.home": home}, at_once, tell, once=once))
    return Exit.FAILED if failures else Exit.DONE


def _interrupt(*_: object) -> None:
    """SIGTERM ends it as Ctrl-C does, also where a shell has it ignore that."""
    raise KeyboardInterrupt


async def _run(
    place: ProjectFolder, flags: dict[str, Any], at_once: int, tell: Callable[[RanTurn], None], *, once: bool
) -> None:
    async with store_of(place) as store:
        link = bus_link.BusLink(place, store) if uses_bus(place) else None
        opened = partial(open_agent_of, project=place, store=store, flags=flags, link=link)
        runner = TurnRunner(store, opened, at_once=at_once, tell=tell)
        try:
            if link is not None:
                link.start(runner.wake)
            if once:
                await runner.run_until_idle()
                return
            with serving_metrics(place, store) as metrics:
                told = f" Metrics: {metrics} ." if metrics else ""
                typer.echo(f"Waiting for turns that can go on.{told} Ctrl-C ends it.", err=True)
                await runner.run_forever()
        finally:
            if link is not None:
                await link.close()


async def _cancel(place: ProjectFolder, named: str) -> tuple[Wait, ...]:
    if not place.store_exists:
        raise NotFound(f"there is no turn {named!r}; `toolwire status` shows the turns on record")
    async with store_of(place) as store:
        turn_id = await find_turn_id(store, named)
        before = await store.turn(turn_id)
        waits = await cancel_turn(store, turn_id, time.time())
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
    body: dict[str, Any] = {"turn_id": ran.turn_id, "state": ran.state}
    if ran.answer is not None:
        body |= {"answer": ran.answer.text, "reason": ran.answer.reason.value}
    if ran.result is not None:
        body |= {"answer": ran.result.text, "reason": ran.result.status.value}
    if ran.waits is not None:
        body["waits"] = [write_wait(wait) for wait in ran.waits.waits]
    return body | ({"error": ran.error} if ran.error else {})
