"""What a shell offers for a word of the command line: ids on record, groups of tools, permissions, profiles.

A shell asks between two key presses. So nothing here asks back, writes or fails: where the settings are wrong or need
trust, or the store cannot be read, nothing is offered.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder, open_project
from toolwire.assemble.stores import store_of
from toolwire.assemble.tools import toolbox_of
from toolwire.cli.terminal.text import one_line
from toolwire.errors import ToolwireError
from toolwire.protocol.turns import TurnKind
from toolwire.record.contract import Store, TurnSummary
from toolwire.record.projects import DEFAULT
from toolwire.toolbox.registry import GROUPS, PERMISSIONS

Offer = tuple[str, str]
"""A word, and what it stands for; some shells show both."""

_MOST = 50
_LONGEST = 60


def turn_ids(ctx: Any, incomplete: str) -> list[Offer]:
    """The newest turns."""

    async def read(store: Store) -> list[Offer]:
        return [_turn(turn) for turn in await store.turns(limit=_MOST)]

    return _on_record(ctx, incomplete, read)


def interrupted_ids(ctx: Any, incomplete: str, *, single_call: bool | None = None) -> list[Offer]:
    """The turns that can go on: questions, single calls, or both."""

    async def read(store: Store) -> list[Offer]:
        return [
            _turn(turn)
            for turn in await store.turns(limit=_MOST, state="interrupted")
            if single_call in (None, turn.kind is TurnKind.CALL)
        ]

    return _on_record(ctx, incomplete, read)


def _turn(turn: TurnSummary) -> Offer:
    return turn.id, one_line(turn.question, _LONGEST)


def approval_ids(ctx: Any, incomplete: str) -> list[Offer]:
    """Pending approvals; for `--revoke`, the patterns that are active."""

    async def read(store: Store) -> list[Offer]:
        revokes = bool(ctx.params.get("revoke"))
        cards = await (store.active_patterns(limit=_MOST) if revokes else store.approvals(only_open=True, limit=_MOST))
        return [(card.id, one_line(f"{card.tool}: {card.reason}", _LONGEST)) for card in cards]

    return _on_record(ctx, incomplete, read)


def call_ids(ctx: Any, incomplete: str) -> list[Offer]:
    """The newest calls."""

    async def read(store: Store) -> list[Offer]:
        return [(card.call.id, card.call.name) for card in await store.calls(limit=_MOST)]

    return _on_record(ctx, incomplete, read)


def registered_tools(ctx: Any, incomplete: str) -> list[Offer]:
    """The tools that the store has registered, each version behind an `@`."""

    async def read(store: Store) -> list[Offer]:
        rows = await store.registered_tools()
        named = {row.name: row.description for row in rows}
        pinned = [(f"{row.name}@{row.version}", row.description) for row in rows]
        return [(word, one_line(about, _LONGEST)) for word, about in (*named.items(), *pinned)]

    return _on_record(ctx, incomplete, read)


def tool_groups(incomplete: str) -> list[Offer]:
    """Groups of tools, one after another with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    named = before.split(",")
    return [
        (f"{before}{comma}{group}", f"{len(tools)} tools")
        for group, tools in GROUPS.items()
        if group.startswith(last) and group not in named
    ]


def permissions(incomplete: str) -> list[str]:
    return sorted(name for name in PERMISSIONS if name.startswith(incomplete))


def tool_names(ctx: Any, incomplete: str) -> list[Offer]:
    """The tools of this project, with those of the groups that `--tools` names."""
    place = _place(ctx)
    if place is None:
        return []
    with suppress(ToolwireError):
        return _beginning(incomplete, ((tool.name, one_line(tool.description, _LONGEST)) for tool in toolbox_of(place)))
    return []


def profiles(ctx: Any, incomplete: str) -> list[Offer]:
    place = _place(ctx)
    named = place.settings.profiles.items() if place is not None else ()
    return _beginning(incomplete, ((name, f"{one.provider}:{one.model}") for name, one in named))


def _place(ctx: Any) -> ProjectFolder | None:
    """The project, as far as the words before say which. None where its settings are wrong or not trusted."""
    said = {"store.home": ctx.params.get("home"), "tools.groups": ctx.params.get("tools")}
    with suppress(ToolwireError):
        return open_project(said, name=ctx.params.get("project") or DEFAULT)
    return None


def _on_record(ctx: Any, incomplete: str, read: Callable[[Store], Awaitable[Iterable[Offer]]]) -> list[Offer]:
    place = _place(ctx)
    if place is None or not place.store_exists:
        return []

    async def offers() -> list[Offer]:
        async with store_of(place, only_reads=True) as store:
            return _beginning(incomplete, await read(store))

    with suppress(ToolwireError):
        return run_sync(offers())
    return []


def _beginning(incomplete: str, offers: Iterable[Offer]) -> list[Offer]:
    return [(word, meaning) for word, meaning in offers if word.startswith(incomplete)]
