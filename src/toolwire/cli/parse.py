"""`toolwire parse`: any model output into content, reasoning, calls and problems."""

import json
from typing import Annotated, Any

import typer

from toolwire.cli.exits import Exit
from toolwire.cli.options import ToolsFile
from toolwire.cli.plain import reply_object
from toolwire.cli.reading import read_bytes
from toolwire.cli.screen import write_json
from toolwire.errors import SettingsError
from toolwire.wire.reply import parse_reply

PROVIDERS = "auto openai openai_responses anthropic gemini ollama bedrock cohere mistral text".split()


def parse(
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="What the model answered; - is standard input.")
    ] = "-",
    tools: ToolsFile = None,
    provider: Annotated[
        str, typer.Option("--provider", metavar="NAME", help=f"Who answered: {', '.join(PROVIDERS)}.")
    ] = "auto",
    finish_reason: Annotated[
        str | None, typer.Option("--finish-reason", metavar="R", help="Why the model stopped, if you know better.")
    ] = None,
) -> Exit:
    """Read any model output into content, reasoning, calls and problems.

    A JSON object is taken as a provider's response, anything else as text. What is wrong with it is in `problems`.
    """
    if provider not in PROVIDERS:
        raise SettingsError(f"--provider {provider!r} is unknown; choose one of {', '.join(PROVIDERS)}")
    offered = _tools_in(tools) if tools else []
    text = read_bytes(file).decode("utf-8", "replace")
    write_json(reply_object(parse_reply(_response(text), offered, provider, finish_reason)), indent=True)
    return Exit.DONE


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
