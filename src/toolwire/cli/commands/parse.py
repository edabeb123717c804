"""`toolwire parse`: any model output into content, reasoning, calls and problems."""

import json
from typing import Annotated, Any

import typer
from rich.text import Text

from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import NoColor, ToolsFile
from toolwire.cli.terminal.input import read_bytes
from toolwire.cli.terminal.json_output import reply_object
from toolwire.cli.terminal.screen import Screen, write_json
from toolwire.cli.terminal.text import arguments_line, clean, one_line
from toolwire.errors import SettingsError
from toolwire.protocol.chat import Reply
from toolwire.wire.native.detect import GENERIC, READERS
from toolwire.wire.replies.reply import parse_reply
from toolwire.wire.text.spans import spans

PROVIDERS = ("auto", *(name for name in READERS if name != GENERIC), "text")

STYLES = {
    "text": "",
    "reasoning": "italic blue",
    "call": "black on green",
    "refused": "black on yellow",
    "markup": "dim strike",
}


def parse(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="What the model answered; - is standard input.")] = "-",
    tools: ToolsFile = None,
    provider: Annotated[
        str, typer.Option("--provider", metavar="NAME", help=f"Who answered: {', '.join(PROVIDERS)}.")
    ] = "auto",
    finish_reason: Annotated[
        str | None, typer.Option("--finish-reason", metavar="R", help="Why the model stopped, if you know better.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which part of the text was read as what, instead of JSON.")
    ] = False,
    no_color: NoColor = False,
) -> Exit:
    """Read any model output into content, reasoning, calls and problems.

    A JSON object is taken as a provider's response, anything else as text. What is wrong with it is in `problems`.
    Calls in text count only for tools that were offered, so give them with --tools.
    """
    if provider not in PROVIDERS:
        raise SettingsError(f"--provider {provider!r} is unknown; choose one of {', '.join(PROVIDERS)}")
    offered = _tools_in(tools) if tools else []
    text = read_bytes(file).decode("utf-8", "replace")
    response = _response(text)
    reply = parse_reply(response, offered, provider, finish_reason)
    if explain:
        _explain(response if isinstance(response, str) else reply.content, reply, offered, Screen.of(no_color=no_color))
    else:
        write_json(reply_object(reply), indent=True)
    return Exit.DONE


def _explain(text: str, reply: Reply, tools: list[Any], screen: Screen) -> None:
    """The text in colours with a legend, then every call and every problem on a line of its own."""
    parts = spans(text, tools, cut=reply.finish_reason == "length")
    if screen.streams:
        screen.out.print(Text.assemble(*((clean(text[part.start : part.end]), STYLES[part.kind]) for part in parts)))
        screen.out.print(Text.assemble("\n", *((f" {kind} ", style) for kind, style in STYLES.items())), end="\n\n")
    rows = [
        (f"{part.start}-{part.end}", part.kind, part.what or one_line(text[part.start : part.end], 60))
        for part in parts
    ]
    screen.table(("where", "read as", "what"), rows)
    for call in reply.calls:
        screen.say(f"call  {call.name}({arguments_line(call.arguments, 100)})  from {call.format}")
    for problem in reply.problems:
        screen.say(f"{problem.code}  {problem.message}")


def _response(text: str) -> Any:
    """A provider's response if the text is one JSON object, else the text itself."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return data if isinstance(data, dict) else text


def _tools_in(file: str) -> list[Any]:
    try:
        data = json.loads(read_bytes(file))
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"--tools {file} is not JSON: {error}") from None
    listed = data.get("tools") if isinstance(data, dict) else data
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise SettingsError(f"--tools {file} must hold a JSON list of tool definitions")
    return listed
