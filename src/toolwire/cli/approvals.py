"""`toolwire approvals` and `toolwire approve`: what turns wait for, and a person's word about it."""

import getpass
from typing import Annotated

import typer
from rich.text import Text

from toolwire.agent import run_sync
from toolwire.cli.call import read_arguments
from toolwire.cli.exits import Exit
from toolwire.cli.opening import Place, here, store_of
from toolwire.cli.options import Arguments, AsJson, Home, NoColor
from toolwire.cli.plain import encoded, plain
from toolwire.cli.screen import Screen
from toolwire.cli.text import clean
from toolwire.errors import NotKept, SettingsError
from toolwire.protocol.approvals import Approval, ApprovalCard, ApprovalState, Scope

_LONGEST_SHOWN = 4_000
_STYLES = {"open": "yellow", "granted": "green", "rejected": "red", "expired": "red"}


def approvals(
    every: Annotated[bool, typer.Option("--all", help="Also those that are answered or whose time is over.")] = False,
    turn: Annotated[str | None, typer.Option("--turn", metavar="ID", help="Only this turn's.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="The newest N.", min=1)] = 20,
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """List what people were asked about calls, with the exact arguments."""
    place = here({"store.home": home})
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    cards = run_sync(_listed(place, turn, limit, only_open=not every))
    if as_json:
        screen.json([_object(card) for card in cards])
    elif not cards:
        screen.tell("Nobody is asked anything." if not every else "Nobody was ever asked anything.", "dim")
    else:
        for card in cards:
            _show(screen, card)
    return Exit.DONE


def approve(
    approval: Annotated[str, typer.Argument(metavar="ID", help="The approval, from `toolwire approvals`.")],
    deny: Annotated[bool, typer.Option("--deny", help="Say no.")] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the model reads it after a no.")] = "",
    args: Arguments = None,
    whole_turn: Annotated[
        bool, typer.Option("--turn", help="Say yes to this tool for the rest of the turn.", show_default=False)
    ] = False,
    by: Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who says so, if not you.")] = None,
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Answer what a turn waits for. The first answer counts; with --args the call runs with those arguments instead."""
    if deny and (args is not None or whole_turn):
        raise SettingsError("--deny says no to the call as it is; leave out --args and --turn")
    place = here({"store.home": home})
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    changed = None if args is None else read_arguments(args, [])
    scope = Scope.TURN if whole_turn else Scope.ONCE
    word = Approval(not deny, by or getpass.getuser(), reason, changed, scope)
    card = run_sync(_answered(place, approval, word))
    if as_json:
        screen.json(_object(card))
    else:
        _show(screen, card)
        if card.state is not ApprovalState.OPEN:
            screen.tell(f"Go on with: toolwire ask --resume {card.turn_id}", "dim")
    return Exit.DONE


async def _listed(place: Place, turn: str | None, limit: int, *, only_open: bool) -> list[ApprovalCard]:
    if not place.kept:
        return []
    async with store_of(place) as store:
        return await store.approvals(turn_id=turn, only_open=only_open, limit=limit)


async def _answered(place: Place, approval_id: str, word: Approval) -> ApprovalCard:
    if not place.kept:
        raise NotKept(f"there is no store in {place.home}, so nobody was asked anything")
    async with store_of(place) as store:
        return await store.answer(approval_id, word)


def _object(card: ApprovalCard) -> object:
    return {**plain(card), "state": card.state.value}


def _show(screen: Screen, card: ApprovalCard) -> None:
    arguments = encoded(card.arguments, indent=True).decode()
    if len(arguments) > _LONGEST_SHOWN:
        arguments = f"{arguments[:_LONGEST_SHOWN]}\n… {len(arguments) - _LONGEST_SHOWN:,} more characters"
    state = card.state.value
    several = f", {len({one.by for one in card.answers})} of {card.quorum} people" if card.quorum > 1 else ""
    screen.out.print(
        Text.assemble((card.id, "bold"), "  ", (state + several, _STYLES[state]), f"  turn {card.turn_id}"),
        soft_wrap=True,
    )
    screen.out.print(Text(f"  {clean(card.reason)}", "dim"), soft_wrap=True)
    screen.out.print(Text.assemble("  ", (clean(card.tool), "bold"), " ", clean(arguments)), soft_wrap=True)
