"""`toolwire tools`: the catalogue, one tool in full, and the conformance report."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from toolwire.cli.door import Command
from toolwire.cli.exits import Exit
from toolwire.cli.help import Group
from toolwire.cli.opening import Granted, Place, grant_of, here, toolbox_of
from toolwire.cli.options import Allow, AsJson, NoColor, Tier
from toolwire.cli.plain import encoded, plain, tool_object
from toolwire.cli.reading import read_bytes
from toolwire.cli.screen import Screen
from toolwire.cli.table import LOOK
from toolwire.cli.text import clean, one_line
from toolwire.decide.ladder import Case, preflight
from toolwire.decide.policy import ruling
from toolwire.define.conformance import Finding, report
from toolwire.define.openai import tool_from_openai
from toolwire.define.toolbox import Toolbox
from toolwire.disclose.compact import compact_catalogue
from toolwire.errors import NotKept, SettingsError
from toolwire.protocol.calls import Denied, ToolCall
from toolwire.protocol.policy import Verdict
from toolwire.protocol.tools import Grant, Tool

_TIER_STYLES = {"crawl": "green", "walk": "yellow", "run": "red"}
_OF_THE_OFFER = {"offered", "tier", "permissions"}


class _ListsByDefault(Group):
    """`toolwire tools` alone means `toolwire tools list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        plain_flag = bool(args) and args[0].startswith("-") and args[0] != "--help"
        return super().parse_args(ctx, ["list", *args] if not args or plain_flag else args)


tools = typer.Typer(**LOOK, cls=_ListsByDefault, help="Show the catalogue, one tool in full, or a conformance report.")


@tools.command("list", cls=Command)
def list_tools(
    compact: Annotated[
        bool, typer.Option("--compact", help="One line for each offered tool, as models are told about them.")
    ] = False,
    tier: Tier = None,
    allow: Allow = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """List all tools: which are offered, and why the others are not."""
    place = here({"grant.tier": tier})
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    toolbox = toolbox_of(place)
    grant = grant_of(place, Granted(allow or []), toolbox)
    withheld = {tool.name: _why_not(tool, toolbox, grant) for tool in toolbox}
    if compact:
        screen.say(compact_catalogue(tool for tool in toolbox if not withheld[tool.name]))
    elif as_json:
        screen.json([{**tool_object(tool), **_offer_object(withheld[tool.name])} for tool in toolbox])
    else:
        _show_catalogue(screen, toolbox, withheld)
    return Exit.DONE


@tools.command("show", cls=Command)
def show_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool's name.")],
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Show one tool in full: input, output, limits, examples."""
    place = here()
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    toolbox = toolbox_of(place)
    tool = _required(toolbox, name)
    withheld = _why_not(tool, toolbox, grant_of(place, Granted(), toolbox))
    if as_json:
        screen.json({**tool_object(tool), **_offer_object(withheld)})
    else:
        _show_tool(screen, tool, withheld)
    return Exit.DONE


@tools.command("validate", cls=Command)
def validate(
    what: Annotated[
        str | None, typer.Argument(metavar="[NAME|FILE]", help="A tool's name, or a JSON file of definitions.")
    ] = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Report what is wrong or doubtful about tool definitions. Ends with 1 when there are errors."""
    place = here()
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    findings = {tool.name: report(tool) for tool in _meant(place, what)}
    if as_json:
        screen.json({name: plain(found) for name, found in findings.items()})
    else:
        for name, found in findings.items():
            _show_findings(screen, name, found)
    return Exit.FAILED if any(each.level == "error" for found in findings.values() for each in found) else Exit.DONE


def _meant(place: Place, what: str | None) -> list[Tool]:
    if what is not None and Path(what).is_file():
        return _defined_in(what)
    toolbox = toolbox_of(place)
    return list(toolbox) if what is None else [_required(toolbox, what)]


def _defined_in(file: str) -> list[Tool]:
    try:
        data = json.loads(read_bytes(file))
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{file} is not JSON: {error}") from None
    listed = data.get("tools", [data]) if isinstance(data, dict) else data
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise SettingsError(f"{file} must hold one tool definition or a list of them")
    return [tool_from_openai(each) for each in listed]


def _required(toolbox: Toolbox, name: str) -> Tool:
    tool = toolbox.get(name)
    if tool is None:
        near = toolbox.nearest(name)
        advice = f"Did you mean {' or '.join(near)}?" if near else "`toolwire tools list` shows all of them."
        raise NotKept(f"there is no tool named {name[:128]!r}. {advice}")
    return tool


def _why_not(tool: Tool, toolbox: Toolbox, grant: Grant) -> str:
    """Why the grant does not cover the tool; empty when it does."""
    issues = preflight(Case(ToolCall(tool.name, {}), toolbox, grant))
    denied = (issue for issue in issues if isinstance(issue, Denied) and issue.rule in _OF_THE_OFFER)
    return next((_short_reason(issue.rule, tool) for issue in denied), "")


def _short_reason(rule: str, tool: Tool) -> str:
    match rule:
        case "tier":
            return f"needs tier {tool.tier.name.lower()}"
        case "permissions":
            return f"needs {', '.join(sorted(tool.needs))}"
        case _:
            return f"runs on {', '.join(sorted(tool.platforms))}"


def _offer_object(withheld: str) -> dict[str, Any]:
    return {"offered": not withheld, "why_not": withheld}


def _show_catalogue(screen: Screen, toolbox: Toolbox, withheld: dict[str, str]) -> None:
    rows = []
    for tool in toolbox:
        tier, reason = tool.tier.name.lower(), withheld[tool.name]
        offered = Text(f"no: {reason}", "red") if reason else Text("yes", "green")
        needs = ", ".join(sorted(tool.needs)) or "-"
        name = Text(clean(tool.name), "dim" if reason else "bold")
        description = one_line(tool.description.partition(". ")[0], 100)
        rows.append((name, Text(tier, _TIER_STYLES[tier]), needs, tool.effect.value, offered, description))
    screen.table(("tool", "tier", "needs", "effect", "offered", "description"), rows)


def _show_tool(screen: Screen, tool: Tool, withheld: str) -> None:
    screen.out.print(Text.assemble((clean(tool.name), "bold"), "  ", (f"version {clean(tool.version)}", "dim")))
    screen.prose(tool.description)
    screen.out.print()
    screen.pairs(
        {
            "offered": f"no, it {withheld}" if withheld else "yes",
            "tier": tool.tier.name.lower(),
            "needs": ", ".join(sorted(tool.needs)) or "nothing",
            "effect": tool.effect.value,
            "time": f"{tool.timeout_s:g} s, at most {tool.max_timeout_s:g} s",
            "asks first": "yes, unless the grant confirms it"
            if ruling(tool, {}, Grant()).verdict is Verdict.ASK
            else "no",
            "touches": ", ".join((*(f"reads {r}" for r in tool.reads), *(f"writes {w}" for w in tool.writes))) or "-",
        }
    )
    _show_fields(screen, "takes", tool.input_schema)
    if tool.output_schema is not None:
        _show_fields(screen, "gives", tool.output_schema)
    for example in tool.examples:
        screen.say(f"example  {encoded(example).decode()}")


def _show_fields(screen: Screen, title: str, schema: Any) -> None:
    """The top of a schema as a table; the whole of it is in `--json`."""
    properties = schema.get("properties") or {}
    required = set(schema.get("required", ()))
    screen.out.print(Text(f"\n{title}", "bold"))
    if not properties:
        screen.say(_type_of(schema))
        return
    rows = [
        (name, _type_of(field), "yes" if name in required else _default_of(field), _described(field))
        for name, field in properties.items()
    ]
    screen.table(("field", "type", "required" if title == "takes" else "always", "meaning"), rows)


def _type_of(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "anything"
    if "enum" in schema:
        return one_line(" | ".join(encoded(value).decode() for value in schema["enum"]), 60)
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type_of(schema.get('items'))}"
    if isinstance(kind, list):
        return " or ".join(map(str, kind))
    branches = schema.get("anyOf") or schema.get("oneOf") or []
    return str(kind) if kind else " or ".join(_type_of(branch) for branch in branches[:6]) or "anything"


def _default_of(schema: Any) -> str:
    if isinstance(schema, dict) and "default" in schema:
        return one_line(f"no ({encoded(schema['default']).decode()})", 40)
    return "no"


def _described(schema: Any) -> str:
    return str(schema.get("description", "")) if isinstance(schema, dict) else ""


def _show_findings(screen: Screen, name: str, found: list[Finding]) -> None:
    if not found:
        screen.out.print(Text.assemble(("✓ ", "green"), clean(name)))
    for each in found:
        mark, style = ("✗ ", "red") if each.level == "error" else ("! ", "yellow")
        where = f" {each.where}" if each.where else ""
        screen.out.print(Text.assemble((mark, style), clean(f"{name}{where}: {each.message}")), soft_wrap=True)
