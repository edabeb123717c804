"""`toolwire approvals` and `toolwire approve`: what turns wait for, and answering it."""

import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from toolwire.agent import run_sync
from toolwire.assemble.agent_names import AGENT
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.specs import resuming_grant
from toolwire.assemble.stores import store_of
from toolwire.cli.commands.call import read_arguments
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.ids import find_approval_id, find_turn_id
from toolwire.cli.resolve.options import (
    Arguments,
    AsJson,
    Home,
    NoColor,
    Project,
    complete_approval,
    complete_turn,
)
from toolwire.cli.resolve.project import current_project
from toolwire.cli.resolve.resuming import resume_command_of
from toolwire.cli.terminal.identity import system_user
from toolwire.cli.terminal.input import confirm, user_is_present
from toolwire.cli.terminal.json_output import plain
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean, distinct_line
from toolwire.cli.views.arguments import format_arguments, pattern_to_offer
from toolwire.decide.patterns import offered_pattern, pattern_rule, pattern_scope
from toolwire.errors import NotFound, SettingsError
from toolwire.protocol.approvals import PATTERN_S, Approval, ApprovalCard, ApprovalState, Scope
from toolwire.record.contract import Store

_STYLES = {"open": "yellow", "granted": "green", "rejected": "red", "expired": "red"}


def approvals(
    every: Annotated[bool, typer.Option("--all", help="Also those that are answered or whose time is over.")] = False,
    turn: Annotated[
        str | None, typer.Option("--turn", metavar="ID", help="Only this turn's.", autocompletion=complete_turn)
    ] = None,
    patterns: Annotated[
        bool, typer.Option("--patterns", help="The approvals of patterns that are active.", show_default=False)
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="The newest N.", min=1)] = 20,
    project: Project = "default",
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """List what people were asked about calls, with the exact arguments."""
    place = current_project({"store.home": home}, project=project)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    cards = run_sync(
        _active_patterns(place, limit) if patterns else _read_approvals(place, turn, limit, only_open=not every)
    )
    if as_json:
        screen.json([_object(card) for card in cards])
    elif not cards:
        nothing = "No approvals are pending." if not every else "No approvals are on record."
        screen.tell("No pattern approvals are active." if patterns else nothing, "dim")
    else:
        for card in cards:
            _show(screen, card)
    return Exit.DONE


ApprovalId = Annotated[
    str | None,
    typer.Argument(
        metavar="ID",
        help="The approval, or a unique part of its id; not needed where only one is pending.",
        autocompletion=complete_approval,
    ),
]
Deny = Annotated[bool, typer.Option("--deny", help="Deny the call.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the model reads it when a call is denied.")]
WholeTurn = Annotated[
    bool, typer.Option("--turn", help="Approve this tool for the rest of the turn.", show_default=False)
]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        metavar="TEXT",
        help="Approve all such calls of this agent: how a command begins (git commit), or `path is docs/*`.",
    ),
]
Hours = Annotated[
    float | None,
    typer.Option("--hours", metavar="N", help="How long the pattern is approved; a day unless given.", min=0),
]
Revoke = Annotated[bool, typer.Option("--revoke", help="Revoke the approval of a pattern.", show_default=False)]
OnBehalfOf = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="For whom you answer: a comment. You answer as your system user."),
]


def approve(
    approval: ApprovalId = None,
    deny: Deny = False,
    reason: Reason = "",
    args: Arguments = None,
    whole_turn: WholeTurn = False,
    pattern: Pattern = None,
    hours: Hours = None,
    revoke: Revoke = False,
    by: OnBehalfOf = None,
    project: Project = "default",
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Answer what a turn waits for. The first answer counts; with --args the call runs with those arguments instead."""
    _require_one({
        "--deny": deny, "--revoke": revoke, "--args": args is not None, "--turn": whole_turn,
        "--pattern": pattern is not None,
    })  # fmt: skip
    if hours is not None and pattern is None:
        raise SettingsError("--hours says how long a pattern is approved; give --pattern too")
    place = current_project({"store.home": home}, project=project)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    who = system_user()
    if revoke:
        card = run_sync(_revoke(place, approval, who))
    else:
        changed = None if args is None else read_arguments(args, [])
        scope = Scope.PATTERN if pattern is not None else Scope.TURN if whole_turn else Scope.ONCE
        lasts_s = PATTERN_S if hours is None else hours * 3600
        word = Approval(
            not deny, who, reason, changed, scope, pattern or "", lasts_s, on_behalf_of=_other_than(who, by or "")
        )
        card = run_sync(_answer(place, screen, approval, word))
    if as_json:
        screen.json(_object(card))
    else:
        _show(screen, card)
        if not revoke:
            screen.tell(_next_step(place, card, home), "dim")
    return Exit.DONE


def _next_step(place: ProjectFolder, card: ApprovalCard, home: str | None) -> str:
    if card.state is ApprovalState.OPEN:
        return _more_people(card)
    return f"Go on with: {run_sync(_next_command(place, card.turn_id, home))}"


def _require_one(flags: Mapping[str, bool]) -> None:
    """Raise SettingsError where several flags were given of which only one makes sense."""
    given = [flag for flag, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise SettingsError(f"{' and '.join(given)} do not go together; say one of them")


def _other_than(who: str, named: str) -> str:
    """The name of another person on whose behalf the user answers."""
    return "" if Approval(granted=True, by=named).voice == Approval(granted=True, by=who).voice else named.strip()


def _more_people(card: ApprovalCard) -> str:
    missing = card.quorum - len(card.voices)
    several = "another person" if missing < 2 else f"{missing} more people"
    return f"{several} must agree: another system user, or another token of `toolwire serve`.".capitalize()


async def _read_approvals(place: ProjectFolder, turn: str | None, limit: int, *, only_open: bool) -> list[ApprovalCard]:
    if not place.store_exists:
        return []
    async with store_of(place, only_reads=True) as store:
        meant = turn and await find_turn_id(store, turn)
        return await store.approvals(turn_id=meant, only_open=only_open, limit=limit)


async def _active_patterns(place: ProjectFolder, limit: int) -> list[ApprovalCard]:
    if not place.store_exists:
        return []
    async with store_of(place, only_reads=True) as store:
        return await store.active_patterns(limit=limit)


async def _next_command(place: ProjectFolder, turn_id: str, home: str | None) -> str:
    """The command that takes up this turn."""
    async with _open_store(place) as store:
        opening = (await store.turn(turn_id)).opening
    agent = opening.spec.name if opening.spec is not None else AGENT
    now = resuming_grant(place, place.settings.granted_to(agent, place.settings.grant(place.cwd)))
    return resume_command_of(opening, now, home)


async def _answer(place: ProjectFolder, screen: Screen, given: str | None, word: Approval) -> ApprovalCard:
    async with _open_store(place) as store:
        approval_id = await find_approval_id(store, given)
        if given is None and word.granted and user_is_present():
            _show(screen, await store.approval(approval_id))
            if not confirm("Run it?"):
                raise SettingsError("nothing was answered; to deny it: toolwire approve --deny")
        if word.scope is Scope.PATTERN:
            card = await store.approval(approval_id)
            try:
                pattern_rule(card.tool, card.arguments, word.pattern)
            except ValueError as wrong:
                raise SettingsError(f"--pattern: {wrong}") from None
        return await store.answer(approval_id, word)


async def _revoke(place: ProjectFolder, given: str | None, by: str) -> ApprovalCard:
    async with _open_store(place) as store:
        return await store.revoke(await find_approval_id(store, given, active=True), by)


@asynccontextmanager
async def _open_store(place: ProjectFolder) -> AsyncIterator[Store]:
    if not place.store_exists:
        raise NotFound(f"there is no store in {place.home}, so no approvals were requested")
    async with store_of(place) as store:
        yield store


def _object(card: ApprovalCard) -> object:
    offered = offered_pattern(card.tool, card.arguments) if card.state is ApprovalState.OPEN else ""
    return {**plain(card), "state": card.state.value, "pattern": card.pattern or offered}


def _show(screen: Screen, card: ApprovalCard) -> None:
    arguments = format_arguments(card.arguments)
    state = card.state.value
    several = f", {len(card.voices)} of {card.quorum} people" if card.quorum > 1 else ""
    screen.out.print(
        Text.assemble((card.id, "bold"), "  ", (state + several, _STYLES[state]), f"  turn {card.turn_id}"),
        soft_wrap=True,
    )
    screen.out.print(Text(f"  {distinct_line(card.reason)}", "dim"), soft_wrap=True)
    screen.out.print(Text.assemble("  ", (clean(card.tool), "bold"), " ", clean(arguments)), soft_wrap=True)
    for answer in card.answers:
        if answer.arguments is not None:
            edited = f"  with other arguments, {clean(answer.speaker)}: {format_arguments(answer.arguments)}"
            screen.out.print(Text(edited, "yellow"), soft_wrap=True)
    if card.stands_until:
        screen.out.print(Text(f"  {pattern_line(card)}", "green"), soft_wrap=True)
    elif card.state is ApprovalState.OPEN and (offered := pattern_to_offer(card.tool, card.arguments)):
        covers = pattern_scope(card.arguments, offered)
        told = f"  for all like it: --pattern {shlex.quote(offered)} ({covers})"
        screen.out.print(Text(told, "dim"), soft_wrap=True)


def pattern_line(card: ApprovalCard) -> str:
    """Who allowed which calls for how long."""
    until = datetime.fromtimestamp(card.stands_until).astimezone().strftime("%Y-%m-%d %H:%M")
    people = " and ".join(answer.speaker for answer in card.voices)
    where = f"for agent {card.agent} in project {card.project}"
    return clean(f"{people} allowed {card.tool} with {card.pattern!r} {where} until {until}")
