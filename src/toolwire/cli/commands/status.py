"""`toolwire status`: the settings in force, the store, the turns on record, and the health of tools."""

import time
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.specs import grant_of
from toolwire.assemble.stores import store_of
from toolwire.assemble.tools import toolbox_of
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import AsJson, Home, NoColor, Project
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.json_output import plain
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean, duration, one_line
from toolwire.cli.views.budget import budget_line, budget_object, used_today
from toolwire.cli.views.result import without_envelope
from toolwire.cli.views.service_warnings import warn_of_services
from toolwire.disclose.offer import covers
from toolwire.protocol.agents import GrantedByUser
from toolwire.protocol.budgets import Spending
from toolwire.record.contract import ToolMetrics, TurnSummary
from toolwire.settings import Layer

STATES = ("running", "interrupted", "ended")
_MOST_TURNS = 1_000
_MOST_ROWS = 1_000
_SHOWN_TURNS = 5
_STATE_STYLES = {"running": "cyan", "interrupted": "yellow", "ended": "green"}


def status(
    tools: Annotated[
        bool, typer.Option("--tools", help="Only the tools: offered or not, and how they have fared.")
    ] = False,
    project: Project = "default",
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Show the settings in force, the store, the turns on record, and the health of tools."""
    place = current_project({"store.home": home}, project=project)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    kept = run_sync(_read(place))
    used = run_sync(used_today(place))
    health = _health(place, kept.measured, kept.boxes)
    warn_of_services(screen, place)
    if as_json:
        screen.json({"tools": health} if tools else {**_overview(place, kept, used), "tools": health})
        return Exit.DONE
    if not tools:
        _show_overview(screen, place, kept, used)
    _show_health(screen, health)
    return Exit.DONE


class _RecordSummary(NamedTuple):
    """What is on record: turns, how many calls wait for a person, how tools have fared, where each of them last ran."""

    turns: list[TurnSummary]
    waiting: int
    measured: list[ToolMetrics]
    boxes: dict[str, str]


async def _read(place: ProjectFolder) -> _RecordSummary:
    """Look at the record. A store that does not exist yet is not made by looking for it."""
    if not place.store_exists:
        return _RecordSummary([], 0, [], {})
    async with store_of(place, only_reads=True) as store:
        rows = await store.audit_log(limit=_MOST_ROWS)
        boxes = {row.tool: str(row.detail["engine"]) for row in rows if row.detail.get("engine")}
        waiting = await store.approvals(only_open=True, limit=_MOST_TURNS)
        return _RecordSummary(await store.turns(limit=_MOST_TURNS), len(waiting), (await store.metrics())[0], boxes)


def settings_in_force(place: ProjectFolder) -> list[dict[str, Any]]:
    """Every setting that is not the built-in one, with its origin."""
    tree = place.settings.tree()
    return [
        {"key": key, "value": value, "origin": str(origin)}
        for key, value in _leaves(tree)
        if (origin := place.settings.origin(key)).layer is not Layer.BUILT_IN
    ]


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _overview(place: ProjectFolder, kept: _RecordSummary, used: Spending) -> dict[str, Any]:
    return {
        "model": place.settings.chosen().model,
        "settings": settings_in_force(place),
        "sandbox": place.settings.tools.engine,
        "store": {"kind": place.settings.store.kind, "home": str(place.home), "exists": place.store_exists},
        "budget": budget_object(place, used),
        "turns": {state: sum(turn.state == state for turn in kept.turns) for state in STATES},
        "waiting": kept.waiting,
        "newest": [plain(turn) for turn in kept.turns[:_SHOWN_TURNS]],
    }


def _health(place: ProjectFolder, measured: list[ToolMetrics], boxes: dict[str, str]) -> list[dict[str, Any]]:
    toolbox = toolbox_of(place)
    grant = grant_of(place, GrantedByUser(), toolbox)
    by_name = {each.tool: each for each in measured}
    return [
        {
            "tool": tool.name,
            "offered": covers(grant, tool),
            **_metrics_object(by_name.get(tool.name)),
            "engine": boxes.get(tool.name, ""),
        }
        for tool in toolbox
    ]


def _metrics_object(each: ToolMetrics | None) -> dict[str, Any]:
    if each is None:
        return {"calls": 0, "success": 0, "last_error": "", "last_error_at": None}
    return {
        "calls": each.calls,
        "success": each.success,
        "last_error": each.last_error,
        "last_error_at": each.last_error_at,
    }


def _show_overview(screen: Screen, place: ProjectFolder, kept: _RecordSummary, used: Spending) -> None:
    view, turns = _overview(place, kept, used), kept.turns
    counted = ", ".join(f"{number} {state}" for state, number in view["turns"].items() if number) or "none yet"
    more = f" (newest {_MOST_TURNS:,})" if len(turns) == _MOST_TURNS else ""
    chosen = place.settings.store
    lies = f"at {chosen.url}" if chosen.in_server else f"in {place.home}"
    store = f"{chosen.kind} {lies}" + ("" if place.store_exists else " (not made yet)")
    boxed = "none: commands are not confined" if view["sandbox"] == "none" else view["sandbox"]
    today = budget_line(place, used)
    shown = {"model": view["model"], "sandbox": boxed, "store": store, "turns": counted + more}
    asked = f"{kept.waiting} for approval: toolwire approvals" if kept.waiting else ""
    screen.pairs({**shown, **{name: said for name, said in (("waiting", asked), ("today", today)) if said}})
    for setting in view["settings"]:
        value = one_line(str(setting["value"]), 60)
        line = Text.assemble(("set    ", "dim"), f"{setting['key']} = {value}  ", (setting["origin"], "dim"))
        screen.out.print(line, soft_wrap=True)
    if turns:
        screen.out.print()
    for turn in turns[:_SHOWN_TURNS]:
        _show_turn(screen, turn)
    screen.out.print()


def _show_turn(screen: Screen, turn: TurnSummary) -> None:
    at = time.strftime("%m-%d %H:%M", time.localtime(turn.started_at))
    state = (f"{turn.state:<11}", _STATE_STYLES.get(turn.state, ""))
    line = Text.assemble((f"{at}  ", "dim"), state, " ", clean(turn.id), "  ", one_line(turn.question, 60))
    _print_line(screen, line)
    if turn.state == "ended":
        came = Text.assemble((f"             {turn.reason:<11} ", "dim"), one_line(without_envelope(turn.answer), 60))
        _print_line(screen, came)


def _print_line(screen: Screen, line: Text) -> None:
    """At a terminal it ends where the terminal does; elsewhere it is whole."""
    if screen.streams:
        screen.out.print(line, no_wrap=True, overflow="ellipsis")
    else:
        screen.out.print(line, soft_wrap=True)


def _show_health(screen: Screen, health: list[dict[str, Any]]) -> None:
    rows = []
    for each in health:
        ago = f" ({duration((time.time() - each['last_error_at']) * 1000)} ago)" if each["last_error_at"] else ""
        good = f"{each['success'] / each['calls']:.0%}" if each["calls"] else "-"
        offered = Text("yes", "green") if each["offered"] else Text("no", "red")
        box = Text(each["engine"] or "-", "bold red" if each["engine"] == "none" else "")
        said = one_line(each["last_error"], 80) + ago
        rows.append((Text(each["tool"], "bold"), offered, str(each["calls"]), good, box, said))
    screen.table(("tool", "offered", "calls", "ok", "ran in", "last error"), rows, right=("calls", "ok"))
