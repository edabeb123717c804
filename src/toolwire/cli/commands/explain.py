"""`toolwire explain`: why a call may run, or what became of one on record."""

from typing import Annotated, Any

import typer
from msgspec.structs import replace
from rich.text import Text

from toolwire.agent import run_sync
from toolwire.assemble.agent_names import AGENT
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.stores import store_of
from toolwire.cli.commands.approvals import pattern_line
from toolwire.cli.commands.call import Pairs, case_of, granted_by, read_arguments, suggest_source
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.ids import find_call_id, find_turn_id
from toolwire.cli.resolve.options import (
    Allow,
    Arguments,
    AsJson,
    Groups,
    Home,
    NoColor,
    Project,
    Root,
    Tier,
    Yes,
    complete_call,
    complete_tool,
    complete_turn,
)
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.json_output import call_object, encode_json, plain, result_object
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean, on_one_line
from toolwire.cli.views.audit_line import row_line
from toolwire.cli.views.budget import budget_rung, used_today
from toolwire.decide.ladder import Case, Rung, decide
from toolwire.decide.ladder import explain as climb
from toolwire.decide.patterns import matching_approval
from toolwire.decide.policy import grant_of_resumed
from toolwire.errors import NotFound, SettingsError
from toolwire.protocol.approvals import ApprovalCard
from toolwire.protocol.calls import Allowed, Decision, Denied, NeedsApproval
from toolwire.protocol.chat import ResultsMessage, untrusted_sources
from toolwire.protocol.records import AuditRow, CallCard

_MARKS = {
    "passed": ("✓", "green"),
    "denied": ("✗", "red"),
    "asks": ("?", "yellow"),
    "tries": ("~", "yellow"),
    "unreached": ("·", "dim"),
}
_NEWEST_CALLS = 10_000


def explain(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The tool's name.", autocompletion=complete_tool)
    ] = None,
    pairs: Pairs = None,
    args: Arguments = None,
    call_id: Annotated[
        str | None,
        typer.Option(
            "--call",
            metavar="CALL_ID",
            help="Tell about this call from the record instead.",
            autocompletion=complete_call,
        ),
    ] = None,
    turn_id: Annotated[
        str | None,
        typer.Option(
            "--turn",
            metavar="ID",
            help="Judge as in this turn: its grant, and what it has read.",
            autocompletion=complete_turn,
        ),
    ] = None,
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
    """Print the ladder rung by rung with the verdict, or the story of a call on record."""
    if (name is None) == (call_id is None):
        raise SettingsError("explain needs a tool's name, or --call with the id of a call on record")
    place = current_project(
        {"grant.tier": tier, "grant.roots": root, "store.home": home, "tools.groups": tools}, project=project
    )
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    if call_id is not None:
        card, rows = run_sync(_find_call(place, call_id))
        _show_story(screen, card, rows, as_json=as_json)
        return Exit.DONE
    arguments, granted = read_arguments(args, pairs or []), granted_by(allow, confirms_all=yes)
    case = case_of(place, name or "", arguments, granted, resumes=turn_id is not None)
    if turn_id is not None:
        case = run_sync(_within_turn(place, case, turn_id))
    decision = decide(case)
    standing = run_sync(_active_pattern(place, decision))
    budget = budget_rung(place, run_sync(used_today(place)))
    _show_climb(screen, climb(case), decision, standing, budget, as_json=as_json)
    if case.call.name not in case.toolbox:
        suggest_source(screen, place, name or "")
        _tell_of_calls(screen, name or "")
    return Exit.DONE


def _tell_of_calls(screen: Screen, name: str) -> None:
    if name.startswith("call_"):
        screen.tell(clean(f"For a call on record write: toolwire explain --call {name[:80]}"), "yellow")


async def _find_call(place: ProjectFolder, call_id: str) -> tuple[CallCard, list[AuditRow]]:
    if not place.store_exists:
        raise NotFound(f"there is no record in {place.home}, so no call {call_id[:80]!r} either")
    async with store_of(place) as store:
        call_id = await find_call_id(store, call_id)
        cards = await store.calls(limit=_NEWEST_CALLS)
        card = next((card for card in cards if card.call.id == call_id), None)
        if card is None:
            raise NotFound(f"there is no call {call_id[:80]!r} on record; `toolwire logs` shows the ids of calls")
        rows = await store.audit_log(turn_id=card.turn_id, limit=_NEWEST_CALLS)
    return card, [row for row in rows if row.call_id == call_id]


async def _within_turn(place: ProjectFolder, case: Case, turn_id: str) -> Case:
    """The call as it would be judged next in a turn on record. Raises NotFound."""
    if not place.store_exists:
        raise NotFound(f"there is no record in {place.home}, so no turn {turn_id[:80]!r} either")
    async with store_of(place) as store:
        kept = await store.turn(await find_turn_id(store, turn_id))
    said = (*kept.opening.messages, *kept.events)
    spent = sum(len(each.results) for each in kept.events if isinstance(each, ResultsMessage))
    read = untrusted_sources(said)
    return replace(
        case, grant=grant_of_resumed(kept.opening.grant, case.grant), spent=spent, tainted=bool(read), read=read
    )


async def _active_pattern(place: ProjectFolder, decision: Decision) -> ApprovalCard | None:
    """The active pattern approval that covers this call, if there is one."""
    if not isinstance(decision, NeedsApproval) or not place.store_exists:
        return None
    async with store_of(place) as store:
        cards = [card for card in await store.active_patterns() if card.agent == AGENT]
    return matching_approval(cards, decision.allowed.tool, decision.allowed.arguments, decision.policy)


def _show_climb(
    screen: Screen,
    climbed: list[Rung],
    decision: Decision,
    standing: ApprovalCard | None,
    budget: Rung | None,
    *,
    as_json: bool,
) -> None:
    rungs = climbed if budget is None else [*climbed, budget]
    if as_json:
        said = {"standing": {"id": standing.id, "pattern": standing.pattern}} if standing else {}
        screen.json({**_decision_object(decision), **said, "rungs": plain(rungs)})
        return
    for rung in rungs:
        mark, style = _MARKS[rung.verdict]
        line = Text.assemble((f"{mark} ", style), (f"{rung.rule:<12}", "bold"), "  ", clean(rung.sentence))
        screen.out.print(line, soft_wrap=True)
    if budget is not None and budget.verdict == "denied":
        screen.out.print(Text("It will not run today.", "red"), soft_wrap=True)
        return
    if standing is not None:
        screen.out.print(Text(f"It may run: {pattern_line(standing)} ({standing.id}).", "green"), soft_wrap=True)
        return
    screen.out.print(_verdict(decision), soft_wrap=True)


def _decision_object(decision: Decision) -> dict[str, Any]:
    match decision:
        case Allowed(_, _, arguments, timeout_s, notes):
            return {"decision": "allowed", "arguments": plain(arguments), "timeout_s": timeout_s, "notes": plain(notes)}
        case Denied(_, code, message, rule):
            return {"decision": "denied", "code": code.value, "message": message, "rule": rule}
        case _:
            tries = {"tries": True, "refusal": decision.refusal} if decision.tries else {}
            return {"decision": "needs_approval", "reason": decision.reason, "digest": decision.digest, **tries}


def _verdict(decision: Decision) -> Text:
    match decision:
        case Allowed():
            notes = f" ({'; '.join(decision.notes)})" if decision.notes else ""
            return Text(f"It may run, for at most {decision.timeout_s:g} s{clean(notes)}.", "green")
        case Denied():
            return Text(f"It will not run: {decision.code}.", "red")
        case NeedsApproval(tries=True, refusal=str(refusal)) if refusal:
            return Text("It is tried where it can change nothing, and will not run otherwise.", "yellow")
        case NeedsApproval(tries=True):
            return Text("It is tried where it can change nothing; if it wants more, it needs approval.", "yellow")
        case _:
            return Text("It runs once a person agrees.", "yellow")


def _show_story(screen: Screen, card: CallCard, rows: list[AuditRow], *, as_json: bool) -> None:
    if as_json:
        body = {
            "turn_id": card.turn_id,
            "call": call_object(card.call),
            "effect": card.effect,
            "attempts": card.attempt,
            "audit": plain(rows),
            "result": result_object(card.result) if card.result else None,
        }
        screen.json(body)
        return
    screen.pairs(
        {
            "call": card.call.id,
            "turn": card.turn_id,
            "tool": f"{card.call.name} ({card.effect})",
            "arguments": encode_json(card.call.arguments).decode(),
            "attempts": str(card.attempt),
        }
    )
    for row in rows:
        screen.out.print(row_line(row), soft_wrap=True)
        if reason := row.detail.get("reason"):
            screen.out.print(Text(f"  {on_one_line(str(reason))}", "yellow"), soft_wrap=True)
    if card.result is None:
        screen.say("It has no result yet.", "yellow")
    else:
        screen.say(card.result.text, "" if card.result.ok else "red")
