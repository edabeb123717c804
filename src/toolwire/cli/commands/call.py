"""`toolwire call` and `toolwire preflight`: one tool, without a model."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from toolwire.agent import run_sync
from toolwire.assemble.agents import open_agent
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.resumed_specs import project_again, resumed_spec
from toolwire.assemble.specs import grant_of, spec_of
from toolwire.assemble.stores import store_of
from toolwire.assemble.tools import toolbox_of
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.agents import how_to_answer, newest_interrupted, require_turn_id
from toolwire.cli.resolve.ids import find_turn_id
from toolwire.cli.resolve.missing_flags import RULES, missing_flags, missing_sentence
from toolwire.cli.resolve.options import (
    Allow,
    Arguments,
    AsJson,
    Groups,
    Home,
    NoColor,
    Project,
    Resume,
    Root,
    Tier,
    Yes,
    complete_tool,
    complete_tool_or_call,
)
from toolwire.cli.resolve.project import current_project
from toolwire.cli.resolve.resuming import (
    granting_flags,
    named_project,
    require_still_granted,
    resume_command,
    turn_to_resume,
)
from toolwire.cli.resolve.tool_sources import where_to_find
from toolwire.cli.terminal.input import read_bytes
from toolwire.cli.terminal.json_output import plain, result_object
from toolwire.cli.terminal.screen import Screen, quiet_tools
from toolwire.cli.terminal.text import clean
from toolwire.cli.views.prompts import TerminalUser
from toolwire.cli.views.result import show_result
from toolwire.decide.ladder import Case, Issue
from toolwire.decide.ladder import preflight as everything_in_the_way
from toolwire.errors import SettingsError, Suspended
from toolwire.lazy import lazy_module
from toolwire.protocol.agents import AgentSpec, GrantedByUser
from toolwire.protocol.calls import Denied, ToolCall, ToolResult
from toolwire.protocol.tools import BusService

if TYPE_CHECKING:
    from toolwire.cli.resolve import worker_wait
else:
    # Loaded for a call that a worker runs.
    worker_wait = lazy_module("toolwire.cli.resolve.worker_wait")

LARGEST_ARGUMENTS = 8 * 1024 * 1024

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tool's name.", autocompletion=complete_tool)]
NameOrTurn = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="The tool's name. With --resume: a turn's id.",
        autocompletion=complete_tool_or_call,
    ),
]
Pairs = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Arguments one by one; values are read as the tool's schema says."),
]


def call(
    name: NameOrTurn = None,
    pairs: Pairs = None,
    args: Arguments = None,
    resume: Resume = False,
    tools: Groups = None,
    tier: Tier = None,
    allow: Allow = None,
    root: Root = None,
    yes: Yes = False,
    project: Project = "default",
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Take one call through the whole journey: judged, recorded, run, recorded again.

    Ends with 0 only when the call succeeded. A call whose process died is settled with --resume: it runs again only
    if its tool is pure or idempotent; otherwise its outcome is unknown, and is recorded as such.
    """
    arguments = read_arguments(args, pairs or [])
    wanted = _CallOrTurn(require_turn_id(name) if resume else _require_tool(name), arguments, resume, home)
    set_by_flags = {"grant.tier": tier, "grant.roots": root, "store.home": home, "tools.groups": tools}
    place, granted = current_project(set_by_flags, project=project), granted_by(allow, confirms_all=yes)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    said: dict[str, Any] = {"--home": home, "--project": named_project(project)}
    given = granting_flags(tools, tier, allow, root, yes=yes)
    with quiet_tools(as_json=as_json):
        try:
            result = run_sync(_run_call(place, screen, wanted, granted, set_by_flags))
        except Suspended as waits:
            line = resume_command("call", waits.turn_id, said | given if resume else said)
            raise waits.saying(f"{how_to_answer(waits, project, home)}\nThen go on with: {line}") from None
    flags = {} if result.ok or resume else _missing(place, result, name or "", granted)
    if as_json:
        screen.json(result_object(result))
    else:
        show_result(screen, result, is_cured=bool(flags))
        if flags:
            screen.tell(missing_sentence(name or "", pairs or [], {"--args": args, **given, **said}, flags), "yellow")
    if result.ok:
        return Exit.DONE
    if result.error is None or result.error.detail != {"rule": "exists"}:
        return Exit.FAILED
    if not flags:
        suggest_source(screen, place, wanted.name or "")
    return Exit.NOT_FOUND


def _missing(place: ProjectFolder, result: ToolResult, name: str, granted: GrantedByUser) -> dict[str, Any]:
    rule = result.error.detail.get("rule") if result.error and result.error.detail else ""
    if rule not in RULES:
        return {}
    toolbox = toolbox_of(place)
    return missing_flags(place, toolbox, grant_of(place, granted, toolbox), name)


def preflight(
    name: Name,
    pairs: Pairs = None,
    args: Arguments = None,
    tools: Groups = None,
    tier: Tier = None,
    allow: Allow = None,
    root: Root = None,
    yes: Yes = False,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """List everything that stands between a call and its execution. Nothing runs, nothing is recorded.

    Ends with 0 when nothing does, with 1 otherwise.
    """
    place = current_project({"grant.tier": tier, "grant.roots": root, "tools.groups": tools})
    case = case_of(place, name, read_arguments(args, pairs or []), granted_by(allow, confirms_all=yes))
    issues = everything_in_the_way(case)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    if as_json:
        screen.json({"ok": not issues, "issues": [_issue_object(issue) for issue in issues]})
    elif issues:
        for issue in issues:
            found = _issue_object(issue)
            screen.say(f"{found['rule']:<12}  {found['message']}")
    else:
        screen.say(f"Nothing stands in the way of {name}.", "green")
    flags = missing_flags(place, case.toolbox, case.grant, name)
    if flags and not as_json:
        given = {"--args": args, **granting_flags(tools, tier, allow, root, yes=yes)}
        screen.tell(missing_sentence(name, pairs or [], given, flags), "yellow")
    elif case.call.name not in case.toolbox:
        suggest_source(screen, place, name)
    return Exit.FAILED if issues else Exit.DONE


def granted_by(allow: list[str] | None, *, confirms_all: bool = False) -> GrantedByUser:
    """What `--allow` and `--yes` grant."""
    return GrantedByUser(permissions=tuple(allow or ()), confirms_all=confirms_all)


def case_of(
    place: ProjectFolder, name: str, arguments: dict[str, Any], granted: GrantedByUser, *, resumes: bool = False
) -> Case:
    """The call as the ladder judges it, on its own and outside any turn."""
    place.uses_bus()  # a call that must go over a bus that is not there could not run
    toolbox = toolbox_of(place)
    grant = grant_of(place, granted, toolbox, resumes=resumes)
    return Case(ToolCall(name, arguments, format="direct"), toolbox, grant)


def suggest_source(screen: Screen, place: ProjectFolder, name: str) -> None:
    """Tell the one who types, not the model, where a tool that is not there could come from."""
    if place_of_it := where_to_find(place, name):
        screen.tell(clean(place_of_it), "yellow")


def read_arguments(text: str | None, pairs: list[str]) -> dict[str, Any]:
    """The arguments of a call from `--args` and `key=value` words. Raises SettingsError."""
    arguments = _object(_text_of(text)) if text is not None else {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise SettingsError(f"{pair[:80]!r} is not KEY=VALUE; write for example expression=2+2")
        if key in arguments:
            raise SettingsError(f"the argument {key!r} is given twice")
        arguments[key] = value
    return arguments


def _text_of(text: str) -> str:
    if text != "-" and not text.startswith("@"):
        return text
    return read_bytes(text.removeprefix("@"), LARGEST_ARGUMENTS).decode("utf-8", "replace")


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise SettingsError(
            f"""--args is not JSON ({error}); write for example --args '{{"path": "a.txt"}}'"""
        ) from None
    if not isinstance(value, dict):
        raise SettingsError(f"--args must be a JSON object with one entry for each argument, not {_kind(value)}")
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys stand once: a reader of such a text must not see another call than the one that runs."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"the key {twice[:80]!r} stands twice in one object")
    return entries


def _kind(value: Any) -> str:
    kinds = {list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


class _CallOrTurn(NamedTuple):
    """What to do: call the tool of this name, or go on with the turn of this id."""

    name: str | None
    arguments: dict[str, Any]
    resume: bool
    home: str | None = None


def _require_tool(name: str | None) -> str:
    if name is None:
        raise SettingsError("there is no tool to call; write for example: toolwire call calculator expression=2+2")
    return name


async def _run_call(
    place: ProjectFolder, screen: Screen, wanted: _CallOrTurn, granted: GrantedByUser, flags: Mapping[str, Any]
) -> ToolResult:
    grant_of(place, granted)  # before there is a store: a wrong flag leaves nothing behind
    async with store_of(place) as store:
        if not wanted.resume:
            name, person = wanted.name or "", TerminalUser(screen, agrees=granted.confirms_all)
            async with open_agent(place, store, person, _spec(place, granted), only=name) as agent:
                # Any call that no worker runs is written with fewer commits if nothing watches it.
                tool = agent.toolbox.get(name)
                is_sent = tool is not None and isinstance(tool.target, BusService)
                watcher = worker_wait.WorkerWait(screen, place, wanted.home) if is_sent else None
                return await agent.call(name, wanted.arguments, on_event=watcher)
        if wanted.arguments:
            raise SettingsError("a call that goes on has its arguments already; leave them out after --resume")
        named = wanted.name and await find_turn_id(store, wanted.name)
        turn_id = named or await newest_interrupted(store, single_call=True)
        turn = await turn_to_resume(store, turn_id)
        place = project_again(turn, flags, place)
        spec = resumed_spec(place, turn, _spec(place, granted))
        person = TerminalUser(screen, agrees=spec.granted.confirms_all)
        async with open_agent(place, store, person, spec, resumes=turn) as agent:
            await require_still_granted(agent, turn_id, wanted.home)
            watcher = worker_wait.WorkerWait(screen, place, wanted.home) if place.has_bus else None
            return await agent.resume_call(turn_id, on_event=watcher)


def _spec(place: ProjectFolder, granted: GrantedByUser) -> AgentSpec:
    return spec_of(place, allow=granted.permissions, confirms_all=granted.confirms_all)


def _issue_object(issue: Issue) -> dict[str, Any]:
    if isinstance(issue, Denied):
        return {"rule": issue.rule, "code": issue.code.value, "message": issue.message}
    arguments = plain(issue.allowed.arguments)
    return {"rule": "confirmation", "code": "needs_approval", "message": issue.reason, "arguments": arguments}
