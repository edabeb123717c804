"""Options that several commands share, each said once, with what a shell offers for them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module

if TYPE_CHECKING:
    from toolwire.cli.resolve import completions
else:
    # Needed only while a shell asks what could come next.
    completions = lazy_module("toolwire.cli.resolve.completions")


def complete_turn(ctx: Any, incomplete: str) -> Any:
    return completions.turn_ids(ctx, incomplete)


def complete_call(ctx: Any, incomplete: str) -> Any:
    return completions.call_ids(ctx, incomplete)


def complete_approval(ctx: Any, incomplete: str) -> Any:
    return completions.approval_ids(ctx, incomplete)


def complete_tool(ctx: Any, incomplete: str) -> Any:
    return completions.tool_names(ctx, incomplete)


def complete_registered(ctx: Any, incomplete: str) -> Any:
    return completions.registered_tools(ctx, incomplete)


def complete_interrupted_turn(ctx: Any, incomplete: str) -> Any:
    return completions.interrupted_ids(ctx, incomplete)


def complete_resumed(ctx: Any, incomplete: str) -> Any:
    """The turn after `--resume`; a question cannot be completed."""
    return completions.interrupted_ids(ctx, incomplete, single_call=False) if ctx.params.get("resume") else []


def complete_tool_or_call(ctx: Any, incomplete: str) -> Any:
    """The tool to call, or after `--resume` the call that was interrupted."""
    if ctx.params.get("resume"):
        return completions.interrupted_ids(ctx, incomplete, single_call=True)
    return completions.tool_names(ctx, incomplete)


def _complete_groups(incomplete: str) -> Any:
    return completions.tool_groups(incomplete)


def _complete_permission(incomplete: str) -> Any:
    return completions.permissions(incomplete)


def _complete_profile(ctx: Any, incomplete: str) -> Any:
    return completions.profiles(ctx, incomplete)


AsJson = Annotated[bool, typer.Option("--json", help="Print exact JSON on standard output, and nothing else there.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours and no spinners.")]
MOST_STREAM_MB = 1_000_000
"""What `bus.stream_mb` takes at most."""

MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", metavar="N", help="Give Prometheus metrics at this port; 0 takes a free one."),
]
Home = Annotated[
    str | None, typer.Option("--home", metavar="DIR", help="Folder that keeps the record, in place of .toolwire.")
]
Model = Annotated[
    str | None, typer.Option("--model", "-m", metavar="PROVIDER:NAME", help="The model to ask, e.g. ollama:qwen3.")
]
BaseUrl = Annotated[
    str | None, typer.Option("--base-url", metavar="URL", help="Address of the model's API, if not the usual one.")
]
KeyEnv = Annotated[
    str | None,
    typer.Option("--key-env", metavar="NAME", help="Variable with the key for the model's API, if not the usual one."),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="A profile of the settings, in place of a model.",
        autocompletion=_complete_profile,
    ),
]
Tier = Annotated[
    str | None,
    typer.Option(
        "--tier",
        metavar="TIER",
        help="The highest tier of tools: crawl, walk or run.",
        autocompletion=lambda: ["crawl", "walk", "run"],
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PERMISSION",
        help="Also grant this permission, e.g. file_read. Repeatable.",
        autocompletion=_complete_permission,
    ),
]
Root = Annotated[
    list[str] | None,
    typer.Option("--root", metavar="PATH", help="Folder that file tools may reach, in place of the set ones."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve every call that needs approval.")]
ResultSchema = Annotated[
    str | None,
    typer.Option(
        "--result-schema", metavar="FILE", help="A JSON Schema: the turn ends with a result of that shape, as JSON."
    ),
]
System = Annotated[str, typer.Option("--system", metavar="TEXT", help="Instructions for the model.")]
Thread = Annotated[
    str, typer.Option("--thread", metavar="NAME", help="Go on with the conversation of this name, or begin it.")
]
Project = Annotated[
    str, typer.Option("--project", metavar="NAME", help="The project on record for this work.", show_default=False)
]
Projects = Annotated[
    str | None,
    typer.Option("--projects", metavar="NAMES", help="Serve these projects, with commas between them."),
]
AllProjects = Annotated[bool, typer.Option("--all-projects", help="Serve all projects that are in the store.")]
ProjectAtOnce = Annotated[
    int | None,
    typer.Option("--project-at-once", metavar="N", help="How many of these may be of one of several projects.", min=1),
]
Iterations = Annotated[
    int | None, typer.Option("--iterations", metavar="N", help="Model replies before it must answer.")
]
Deadline = Annotated[float | None, typer.Option("--deadline", metavar="S", help="Seconds that the turn may take.")]
Tokens = Annotated[int | None, typer.Option("--tokens", metavar="N", help="Tokens that the turn may use.")]
Groups = Annotated[
    str | None,
    typer.Option(
        "--tools",
        metavar="GROUPS",
        help="Groups of built-in tools to add, e.g. desktop or coding,shell,git.",
        autocompletion=_complete_groups,
    ),
]
NoTools = Annotated[bool, typer.Option("--no-tools", help="Offer no tools: a plain question to the model.")]
Trace = Annotated[bool, typer.Option("--trace", help="Show every event on standard error (JSON lines with --json).")]
Record = Annotated[
    str | None, typer.Option("--record", metavar="FILE", help="Keep what the model says in this new file.")
]
Replay = Annotated[
    str | None, typer.Option("--replay", metavar="FILE", help="Answer from a recorded file instead of a model.")
]
Arguments = Annotated[
    str | None,
    typer.Option("--args", metavar="JSON", help="The arguments: a JSON object, @FILE, or - for standard input."),
]
ToolsFile = Annotated[
    str | None, typer.Option("--tools", metavar="FILE", help="JSON list of tools, as for the OpenAI API.")
]
Step = Annotated[
    bool, typer.Option("--step", help="Pause before each further step: go on, say something to the model, or stop.")
]
Stdin = Annotated[
    bool | None,
    typer.Option(
        "--stdin/--no-stdin",
        help="Wait for piped input, or do not read it. Without either, a pipe that stays silent for 3 s is not read.",
        show_default=False,
    ),
]
Stream = Annotated[
    bool, typer.Option("--no-stream", help="Write only the final answer, once it is complete.", show_default=False)
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with an interrupted turn: the newest, or the one named after it.")
]


def fleet_flags(projects: str | None, *, all_projects: bool, at_once: int | None) -> dict[str, Any]:
    """The flags of a process that may serve several projects, by dotted key. Raises SettingsError."""
    if projects is not None and all_projects:
        raise SettingsError("--projects names some of the projects that --all-projects serves; give one of them")
    return {"fleet.projects": "*" if all_projects else projects, "fleet.at_once": at_once}
