"""Ids as people type them: whole, or as much of the beginning or the end as fits no other one on record."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from toolwire.breadcrumbs.rules.callers import Caller
from toolwire.errors import NotFound, SettingsError
from toolwire.protocol.approvals import ApprovalCard
from toolwire.protocol.breadcrumbs import RecordQuery
from toolwire.record.contract import Store

if TYPE_CHECKING:
    from toolwire.breadcrumbs.service import RecordService

WHOLE = 36
_MOST_SEARCHED = 1_000
_SHORTEST = 4
_SHOWN = 5


async def find_turn_id(store: Store, given: str) -> str:
    """The id of a turn. Raises SettingsError where several fit; one that fits none is given back as it is."""
    if len(given) >= WHOLE:
        return given
    return only_match(given, (turn.id for turn in await store.turns(limit=_MOST_SEARCHED)), "turns")


async def find_call_id(store: Store, given: str) -> str:
    """The id of a call. Raises SettingsError where several fit; one that fits none is given back as it is."""
    return only_match(given, (card.call.id for card in await store.calls(limit=_MOST_SEARCHED)), "calls")


async def find_record_id(records: "RecordService", caller: Caller, given: str) -> str:
    """The id of a record. Raises SettingsError where several fit; one that fits none is given back as it is."""
    if len(given) >= WHOLE:
        return given
    rows = await records.listed(RecordQuery(), caller, limit=_MOST_SEARCHED)
    return only_match(given, (row.value.id for row in rows), "records")


async def find_approval_id(store: Store, given: str | None, *, active: bool = False) -> str:
    """The id of an approval; without one, the only pending or, among patterns, the only active one.

    Raises SettingsError where several fit, and NotFound where there is none to choose from.
    """
    if given is None:
        return _only_card(
            await (
                store.active_patterns(limit=_MOST_SEARCHED) if active else store.approvals(only_open=True, limit=_SHOWN)
            ),
            "active" if active else "pending",
        )
    if len(given) >= WHOLE:
        return given
    return only_match(given, (card.id for card in await store.approvals(limit=_MOST_SEARCHED)), "approvals")


def _only_card(cards: list[ApprovalCard], state: str) -> str:
    if not cards:
        raise NotFound(f"no approvals are {state}")
    if len(cards) > 1:
        listed = "".join(f"\n  {card.id}  {card.tool}" for card in cards[:_SHOWN])
        raise SettingsError(f"several approvals are {state}; name one of them:{listed}")
    return cards[0].id


def only_match(given: str, known: Iterable[str], what: str) -> str:
    """The one id that fits; one that fits none is given back as it is. Raises SettingsError where several fit."""
    part, ids = given.strip().lower(), list(known)
    if given in ids or len(part) < _SHORTEST:
        return given
    found = [one for one in ids if one.lower().startswith(part) or one.lower().endswith(part)]
    if len(found) > 1:
        more = "" if len(found) <= _SHOWN else f" and {len(found) - _SHOWN} more"
        raise SettingsError(
            f"{given!r} fits {len(found)} {what}: {', '.join(found[:_SHOWN])}{more}; give more of the id, "
            "from its beginning or its end"
        )
    return found[0] if found else given
