"""`toolwire workflow`: run, check or draw a workflow of tool calls from a file."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from toolwire.agent import Answer, run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.stores import store_of
from toolwire.assemble.tools import toolbox_of
from toolwire.cli.entry.command import LOOK, CliCommand, Group, Interrupted
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.agents import Flags, begin_agent, how_to_answer
from toolwire.cli.resolve.options import (
    Allow,
    AsJson,
    Deadline,
    Groups,
    Home,
    NoColor,
    Project,
    Root,
    Tier,
    Yes,
)
from toolwire.cli.terminal.input import read_bytes
from toolwire.cli.terminal.screen import Screen, quiet_tools
from toolwire.cli.views.prompts import TerminalUser
from toolwire.cli.views.watch import Watcher, Watchers
from toolwire.cli.views.workflow_graph import draw_svg, draw_text
from toolwire.define.service_files import LARGEST_FILE, read_tables
from toolwire.errors import DefinitionError, ModelError, SettingsError, Suspended
from toolwire.models.workflow import workflow_limits
from toolwire.plan.workflow_reading import BadWorkflow, read_workflow
from toolwire.plan.workflows import Workflow
from toolwire.protocol.events import Event, TurnEnded
from toolwire.protocol.turns import WORKFLOW_MODEL

workflow = typer.Typer(**LOOK, cls=Group, help="Run, check or draw a workflow of tool calls.")

File = Annotated[str, typer.Argument(metavar="FILE", help="The workflow: .yaml, .toml or .json.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input", "-i", metavar="NAME=VALUE", help="A value for ${inputs.NAME}, as JSON or text; repeatable."
    ),
]


@workflow.command("run", cls=CliCommand)
def run(
    file: File,
    inputs: Inputs = None,
    tools: Groups = None,
    tier: Tier = None,
    allow: Allow = None,
    root: Root = None,
    yes: Yes = False,
    deadline: Deadline = None,
    project: Project = "default",
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Run a workflow. Its steps are calls like any other: judged, recorded, and resumed after an interruption.

    The report goes to standard output as JSON. The exit code is 0 only where no step failed.
    """
    flags = Flags(
        home=home, tier=tier, root=root, allow=allow or [], yes=yes, deadline=deadline, project=project, tools=tools,
        model=WORKFLOW_MODEL,
    )  # fmt: skip
    place = flags.place()
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    data, read = _read(file, inputs, place)
    with Watcher(screen, show_question=False, streams=False) as watcher:
        watchers = Watchers(*([] if as_json else [partial(_show_steps, watcher)]))
        with quiet_tools(as_json=as_json):
            answer = _answer(flags, place, screen, watchers, data, read)
    try:
        report: dict[str, Any] = json.loads(answer.text)
    except ValueError:
        raise SettingsError(f"the workflow did not come to its end: {answer.text}") from None
    screen.json({**report, "turn": answer.turn.id} if as_json else report)
    return Exit.FAILED if report["errors"] else Exit.DONE


def _show_steps(watcher: Watcher, event: Event) -> None:
    """Show what the steps do. The report, which is the answer of the turn, is shown at the end."""
    if not isinstance(event, TurnEnded):
        watcher(event)


def _answer(
    flags: Flags, place: ProjectFolder, screen: Screen, watchers: Watchers, data: dict[str, Any], read: Workflow
) -> Answer:
    """The turn of a workflow from its beginning to its end; whatever stops it halfway says how to go on."""
    try:
        return run_sync(_run(flags, place, screen, watchers, data, read))
    except KeyboardInterrupt:
        if not watchers.turn_id:
            raise
        raise Interrupted(f"Interrupted. Go on with: {flags.resume_line(watchers.turn_id)}") from None
    except Suspended as waits:
        raise waits.saying(
            f"{how_to_answer(waits, flags.project, flags.home)}\nThen go on with: {flags.resume_line(waits.turn_id)}"
        ) from None
    except ModelError as wrong:
        raise SettingsError(str(wrong)) from None


async def _run(
    flags: Flags, place: ProjectFolder, screen: Screen, watchers: Watchers, data: dict[str, Any], read: Workflow
) -> Answer:
    async with (
        store_of(place) as store,
        begin_agent(flags, place, store, TerminalUser(screen, agrees=flags.yes)) as agent,
    ):
        agent.limits = workflow_limits(read, agent.limits)
        return await agent.ask(json.dumps(data, ensure_ascii=False), on_event=watchers)


@workflow.command("validate", cls=CliCommand)
def validate(
    file: File,
    inputs: Inputs = None,
    tools: Groups = None,
    project: Project = "default",
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Check a workflow without running anything: ids, tools, references, conditions, circles."""
    place = Flags(home=home, project=project, tools=tools).place()
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    _, read = _read(file, inputs, place)
    levels = read.levels()
    if as_json:
        screen.json({"valid": True, "steps": len(read.steps), "levels": levels})
    else:
        screen.tell(f"{file} can run: {len(read.steps)} steps in {len(levels)} levels.", "green")
    return Exit.DONE


@workflow.command("graph", cls=CliCommand)
def graph(
    file: File,
    svg: Annotated[bool, typer.Option("--svg", help="Write an SVG picture instead of text.")] = False,
    no_color: NoColor = False,
) -> Exit:
    """Draw a workflow, as text or as SVG, on standard output. The tools need not be there."""
    _, read = _read(file, None, None)
    screen = Screen.of("never" if no_color else "auto", no_color=no_color)
    screen.say(draw_svg(read) if svg else draw_text(read))
    return Exit.DONE


def _read(file: str, inputs: Sequence[str] | None, place: ProjectFolder | None) -> tuple[dict[str, Any], Workflow]:
    """The workflow of a file with these inputs. Raises SettingsError with everything that is wrong with it."""
    try:
        data = read_tables(read_bytes(file, LARGEST_FILE), file)
    except DefinitionError as wrong:
        raise SettingsError(str(wrong)) from None
    declared = given if isinstance(given := data.get("inputs", {}), dict) else {}
    replaced = dict(map(_pair, inputs or ()))
    if replaced:
        data["inputs"] = {**declared, **replaced}
    tools = None if place is None else toolbox_of(place).names
    try:
        read = read_workflow(data, tools)
    except BadWorkflow as wrong:
        faults = "\n".join(f"- {fault}" for fault in wrong.faults)
        raise SettingsError(f"{file} cannot be run:\n{faults}") from None
    for name in replaced:
        if name not in declared and not read.uses_input(name):
            known = [*declared, *(one for one in replaced if one not in declared and read.uses_input(one))]
            meant = f"its inputs are {', '.join(known)}" if known else "it has no inputs"
            raise SettingsError(f"--input {name}: no step of {file} uses it; {meant}")
    return data, read


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SettingsError(f"--input {text}: write NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
