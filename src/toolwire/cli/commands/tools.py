"""`toolwire tools`: the catalogue, one tool in full, and the conformance report."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.specs import grant_of
from toolwire.assemble.tools import own_tools_of, toolbox_of
from toolwire.cli.entry.command import LOOK, CliCommand, Group
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.missing_flags import groups_with_tools
from toolwire.cli.resolve.options import Allow, AsJson, Groups, NoColor, Tier, complete_tool
from toolwire.cli.resolve.project import current_project
from toolwire.cli.resolve.tool_sources import where_to_find, withheld_tools
from toolwire.cli.terminal.input import read_bytes
from toolwire.cli.terminal.json_output import plain, tool_object
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean, one_line
from toolwire.cli.views.conformance import Report, report_on, report_on_skill, reports_object, show_reports
from toolwire.cli.views.service_warnings import warn_of_services
from toolwire.cli.views.tool_page import show_tool_page
from toolwire.decide.ladder import Case, preflight
from toolwire.define.conformance import SkillFinding, report
from toolwire.define.openai import tool_from_openai
from toolwire.define.skill_conformance import standard_name
from toolwire.define.toolbox import Toolbox
from toolwire.disclose.compact import compact_catalogue
from toolwire.errors import NotFound, SettingsError
from toolwire.protocol.agents import GrantedByUser
from toolwire.protocol.calls import Denied, ToolCall
from toolwire.protocol.skills import SkillTool
from toolwire.protocol.tools import Grant, Tool
from toolwire.toolbox.skills.catalog import read_skill

_NARROW = 90
_TIER_STYLES = {"crawl": "green", "walk": "yellow", "run": "red"}
_OF_THE_OFFER = {"offered", "tier", "permissions"}


class _ListsByDefault(Group):
    """`toolwire tools` alone means `toolwire tools list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell asks what could come next
            return super().parse_args(ctx, args)
        plain_flag = bool(args) and args[0].startswith("-") and args[0] not in ("-h", "--help")
        return super().parse_args(ctx, ["list", *args] if not args or plain_flag else args)


tools = typer.Typer(**LOOK, cls=_ListsByDefault, help="Show the catalogue, one tool in full, or a conformance report.")


@tools.command("list", cls=CliCommand)
def list_tools(
    compact: Annotated[
        bool, typer.Option("--compact", help="One line for each offered tool, as models are told about them.")
    ] = False,
    tools: Groups = None,
    tier: Tier = None,
    allow: Allow = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """List the tools here: which are offered, why the others are not, and the groups that hold more."""
    place = current_project({"grant.tier": tier, "tools.groups": tools})
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    toolbox = toolbox_of(place)
    grant = grant_of(place, GrantedByUser(permissions=tuple(allow or ())), toolbox)
    warn_of_services(screen, place)
    listed = [(tool, _why_not(tool, toolbox, grant)) for tool in toolbox]
    if compact:
        screen.say(compact_catalogue(tool for tool, reason in listed if not reason))
        return Exit.DONE
    listed += [(each.tool, each.reason) for each in withheld_tools(place)]
    if as_json:
        screen.json([{**tool_object(tool), **_offer_object(reason)} for tool, reason in listed])
    else:
        _show_catalogue(screen, listed)
        _show_groups(screen, place, {tool.name for tool, _ in listed})
    for reason in place.skills.now().broken.values():
        screen.tell(f"A skill cannot be read. {reason}", "yellow")
    return Exit.DONE


@tools.command("show", cls=CliCommand)
def show_tool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The tool's name.", autocompletion=complete_tool)],
    tools: Groups = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Show one tool in full: input, output, limits, examples."""
    place = current_project({"tools.groups": tools})
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    toolbox = toolbox_of(place)
    aside = {f"{each.tool.name}@{each.tool.version}": each for each in withheld_tools(place)}
    if name in aside:
        tool, withheld = aside[name].tool, aside[name].reason
    else:
        tool = _required(place, toolbox, name)
        withheld = _why_not(tool, toolbox, grant_of(place, GrantedByUser(), toolbox))
    warn_of_services(screen, place)
    entry = _skills_entry(place, tool)
    if as_json:
        screen.json({**tool_object(tool), **_offer_object(withheld), **_entry_object(entry)})
    else:
        show_tool_page(screen, tool, withheld, entry)
    return Exit.DONE


@tools.command("validate", cls=CliCommand)
def validate(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE|FOLDER", help="A tool's name, a JSON file of definitions, or the folder of a skill."
        ),
    ] = None,
    checklist: Annotated[
        bool, typer.Option("--checklist", help="Answer the checklists for creators and validators of tools.")
    ] = False,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Report what is wrong or doubtful about tool definitions. Ends with 1 when there are errors.

    Of trusted skills the tests are run, too, and run again with each permission taken away.
    """
    place = current_project()
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    reports = _reports(place, what)
    if as_json:
        screen.json(reports_object(reports, checklist=checklist))
    else:
        show_reports(screen, reports, checklist=checklist)
    return Exit.FAILED if any(each.failed for each in reports.values()) else Exit.DONE


def _reports(place: ProjectFolder, what: str | None) -> dict[str, Report]:
    skills = place.skills
    if what is not None and (Path(what).is_file() or what.endswith(".json")):
        return {tool.name: Report([*report(tool), *standard_name(tool)]) for tool in _defined_in(what)}
    if what is not None and Path(what).is_dir():
        return report_on_skill(read_skill(Path(what).absolute(), skills.trusted), skills)
    toolbox_of(place)  # names in the settings that stand for nothing are refused here too
    own, now = own_tools_of(place), skills.now()
    reports = {tool.name: report_on(tool) for tool in own}
    for path, reason in now.broken.items():
        reports[path.name] = Report([SkillFinding("error", "", reason)])
    for found in now.found:
        if what is None or any(what.partition("@")[0] == entry.tool.name for entry in found.skill.tools):
            reports |= report_on_skill(found, skills)
    if what is None:
        return reports
    meant = {name: each for name, each in reports.items() if what in (name, name.partition("@")[0])}
    return meant or {what: report_on(_required(place, toolbox_of(place), what))}


def _defined_in(file: str) -> list[Tool]:
    try:
        data = json.loads(read_bytes(file))
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{file} is not JSON: {error}") from None
    listed = data.get("tools", [data]) if isinstance(data, dict) else data
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise SettingsError(f"{file} must hold one tool definition or a list of them")
    return [tool_from_openai(each) for each in listed]


def _required(place: ProjectFolder, toolbox: Toolbox, name: str) -> Tool:
    tool = toolbox.get(name)
    if tool is None:
        near = toolbox.nearest(name)
        advice = f"Did you mean {' or '.join(near)}?" if near else "`toolwire tools list` shows all of them."
        advice = where_to_find(place, name) or advice
        raise NotFound(f"there is no tool named {name[:128]!r}. {advice}")
    return tool


def _skills_entry(place: ProjectFolder, tool: Tool) -> SkillTool | None:
    """The definition of a skill's tool; None for other tools."""
    for found in place.skills.now().found:
        for entry in found.skill.tools:
            same = (entry.tool.skill, entry.tool.version) == (tool.skill, tool.version)
            if same and entry.tool.name == tool.name.partition("@")[0]:
                return entry
    return None


def _entry_object(entry: SkillTool | None) -> dict[str, Any]:
    return {} if entry is None else {"metadata": entry.metadata, "explained": plain(entry.examples)}


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


def _show_groups(screen: Screen, place: ProjectFolder, listed: set[str]) -> None:
    """The groups of built-in tools that are not listed yet, and how to get them."""
    others = {
        group: [name for name in found if name not in listed] for group, found in groups_with_tools(place).items()
    }
    left = {group: ", ".join(names) for group, names in others.items() if names}
    if not left:
        return
    count = len({name for names in others.values() for name in names})
    screen.out.print()
    screen.prose(
        f"{count} more built-in tools are in groups. Add some with --tools (e.g. --tools coding,shell; desktop for "
        "most, all for every one), or for good with tools.groups in toolwire.toml:",
        "dim",
    )
    screen.table(("group", "tools"), [(Text(group, "bold"), names) for group, names in left.items()])


def _show_narrow(screen: Screen, listed: list[tuple[Tool, str]]) -> None:
    """Two lines for each tool, where columns would break every word."""
    for tool, reason in listed:
        tier = tool.tier.name.lower()
        offered = Text(f"no: {reason}", "red") if reason else Text("offered", "green")
        name = Text(clean(tool.name), "dim" if reason else "bold")
        screen.out.print(Text.assemble(name, "  ", (tier, _TIER_STYLES[tier]), "  ", offered))
        screen.out.print(Text(f"  {one_line(tool.description.partition('. ')[0], 100)}", "dim"))


def _show_catalogue(screen: Screen, listed: list[tuple[Tool, str]]) -> None:
    if screen.streams and screen.out.width < _NARROW:
        _show_narrow(screen, listed)
        return
    rows = []
    for tool, reason in listed:
        tier = tool.tier.name.lower()
        offered = Text(f"no: {reason}", "red") if reason else Text("yes", "green")
        needs = ", ".join(sorted(tool.needs)) or "-"
        name = Text(clean(tool.name), "dim" if reason else "bold")
        description = one_line(tool.description.partition(". ")[0], 100)
        rows.append((name, Text(tier, _TIER_STYLES[tier]), needs, tool.effect.value, offered, description))
    screen.table(("tool", "tier", "needs", "effect", "offered", "description"), rows)
