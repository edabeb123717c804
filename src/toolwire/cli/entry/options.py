"""Options that several commands share, each said once."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print exact JSON on standard output, and nothing else there.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours and no spinners.")]
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
    str | None, typer.Option("--profile", metavar="NAME", help="A profile of the settings, in place of a model.")
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
    typer.Option("--allow", metavar="PERMISSION", help="Also grant this permission, e.g. file_read. Repeatable."),
]
Root = Annotated[
    list[str] | None,
    typer.Option("--root", metavar="PATH", help="Folder that file tools may reach, in place of the set ones."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve every call that needs approval.")]
System = Annotated[str, typer.Option("--system", metavar="TEXT", help="Instructions for the model.")]
Thread = Annotated[
    str, typer.Option("--thread", metavar="NAME", help="Go on with the conversation of this name, or begin it.")
]
Project = Annotated[
    str, typer.Option("--project", metavar="NAME", help="The project on record for this work.", show_default=False)
]
Iterations = Annotated[
    int | None, typer.Option("--iterations", metavar="N", help="Model replies before it must answer.")
]
Deadline = Annotated[float | None, typer.Option("--deadline", metavar="S", help="Seconds that the turn may take.")]
Tokens = Annotated[int | None, typer.Option("--tokens", metavar="N", help="Tokens that the turn may use.")]
Groups = Annotated[
    str | None,
    typer.Option(
        "--tools", metavar="GROUPS", help="Groups of built-in tools to add, e.g. desktop or coding,shell,git."
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
