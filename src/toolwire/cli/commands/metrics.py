"""`toolwire metrics`: what tools and turns have done so far, in numbers."""

from typing import Annotated, Any

import typer
from rich.text import Text

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.stores import store_of
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import AsJson, Home, NoColor, Project
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.json_output import plain
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean, duration, quantity
from toolwire.cli.views.formats import show_formats
from toolwire.record.contract import LoopMetrics, ToolMetrics
from toolwire.wire.formats.tally import FormatTally

_RIGHT = ("calls", "ok", "errors", "timeouts", "canceled", "p50", "p95", "max")


def metrics(
    tools: Annotated[bool, typer.Option("--tools", help="Only the tools.")] = False,
    loop: Annotated[bool, typer.Option("--loop", help="Only the loop.")] = False,
    formats: Annotated[
        bool, typer.Option("--formats", help="How tools are told to each model, and how it goes.")
    ] = False,
    project: Project = "default",
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Show what tools and turns have done so far, in numbers."""
    place = current_project({"store.home": home}, project=project)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    if formats:
        show_formats(screen, run_sync(_read_formats(place)), as_json=as_json)
        return Exit.DONE
    per_tool, of_loop = run_sync(_read(place))
    both = tools == loop
    if as_json:
        body: dict[str, Any] = {"tools": [_described(each) for each in per_tool]} if tools or both else {}
        if tools and not loop:
            body["together"] = _together(of_loop)
        screen.json({**body, "loop": plain(of_loop)} if loop or both else body)
        return Exit.DONE
    if tools or both:
        _show_tools(screen, per_tool)
        _show_errors(screen, per_tool)
    if tools and not loop and of_loop.turns:
        _show_together(screen, of_loop)
    if both:
        screen.out.print()
    if loop or both:
        _show_loop(screen, of_loop)
    return Exit.DONE


def _described(each: ToolMetrics) -> dict[str, Any]:
    """A tool's numbers with the two that are computed from them."""
    shares = {
        "success_rate": each.success / each.calls if each.calls else None,
        "avg_ms": each.total_ms / each.calls if each.calls else None,
    }
    return {**plain(each), **shares}


def _together(loop: LoopMetrics) -> dict[str, Any]:
    return {
        "parallel_batches": loop.batches,
        "max_concurrency": loop.max_concurrency,
        "saved_ms": loop.saved_ms,
        "iterations": loop.iterations,
        "turns": loop.turns,
        "recovery_rate": loop.recovered / loop.with_failures if loop.with_failures else None,
    }


async def _read(place: ProjectFolder) -> tuple[list[ToolMetrics], LoopMetrics]:
    if not place.store_exists:
        return [], LoopMetrics()
    async with store_of(place, only_reads=True) as store:
        return await store.metrics()


async def _read_formats(place: ProjectFolder) -> list[FormatTally]:
    if not place.store_exists:
        return []
    async with store_of(place, only_reads=True) as store:
        return await store.formats()


def _show_tools(screen: Screen, measured: list[ToolMetrics]) -> None:
    if not measured:
        screen.say("No tool has been called yet.", "dim")
        return
    rows: list[list[str | Text]] = [
        [
            Text(clean(each.tool), "bold"),
            str(each.calls),
            f"{each.success / each.calls:.0%}" if each.calls else "-",
            *(Text(str(number), "red" if number else "dim") for number in (each.errors, each.timeouts, each.canceled)),
            *(duration(ms) for ms in (each.p50_ms, each.p95_ms, each.max_ms)),
        ]
        for each in measured
    ]
    screen.table(("tool", *_RIGHT), rows, right=_RIGHT)


def _show_errors(screen: Screen, measured: list[ToolMetrics]) -> None:
    """Why calls failed, tool by tool, and what the last one said."""
    for each in measured:
        if each.last_error or each.errors_by_type:
            counted = ", ".join(f"{code} {count}" for code, count in each.errors_by_type.items())
            screen.say(clean(f"{each.tool}: {counted or 'errors'}; last: {each.last_error or 'none'}"), "dim")


def _show_together(screen: Screen, loop: LoopMetrics) -> None:
    """How calls of one turn got on together."""
    recovered = f"{loop.recovered / loop.with_failures:.0%}" if loop.with_failures else "-"
    screen.pairs(
        {
            "parallel": f"{quantity(loop.batches, 'batch', 'batches')}, at most {loop.max_concurrency} at once, "
            f"{duration(loop.saved_ms)} saved",
            "iterations": f"{loop.iterations:,} in {quantity(loop.turns, 'turn')}",
            "recovery": f"{recovered} of {quantity(loop.with_failures, 'turn')} with failures still answered",
        }
    )


def _show_loop(screen: Screen, loop: LoopMetrics) -> None:
    turns = max(loop.turns, 1)
    screen.pairs(
        {
            "turns": f"{loop.turns:,} ended, {loop.answered:,} with an answer",
            "steps": f"{loop.iterations:,} in all, {loop.iterations / turns:.1f} per turn",
            "time": f"{duration(loop.total_ms)} in all, {duration(loop.total_ms / turns)} per turn",
            "parallel": f"{quantity(loop.batches, 'batch', 'batches')}, at most {loop.max_concurrency} at once, "
            f"{duration(loop.saved_ms)} saved",
            "failures": f"in {quantity(loop.with_failures, 'turn')}, {loop.recovered:,} of them still answered",
            "tokens": f"{loop.input_tokens:,} in, {loop.output_tokens:,} out",
            "cost": "unknown" if loop.cost_usd is None else f"${loop.cost_usd:.4f}" if loop.cost_usd else "$0",
        }
    )
