"""Calls that run on their own, once their turn goes on without them: none of them stays without a result."""

from contextlib import suppress

from msgspec.structs import replace

from toolwire.deliver.endings import unknown
from toolwire.errors import CallHeld, Fenced, NotFound
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.tools import REPEATABLE
from toolwire.record.contract import Store

GRACE_S = 3600.0
"""How long a call that may be run again waits for a process that does so."""


async def settle_detached(store: Store, now: float) -> list[CallCard]:
    """End calls whose process has died, as far as no other may run them again; gives those that were ended."""
    lost = [card for card in await store.detached_calls() if _is_lost(card, now)]
    for card in lost:
        with suppress(CallHeld, Fenced, NotFound):  # it was renewed, its turn was taken over, or both are gone
            kept = await store.turn(card.turn_id, project=card.project)
            result = unknown(card)
            row = AuditRow.about(card, "finished", now, result=result)
            await store.close(replace(card, epoch=kept.opening.epoch, token=""), result, [row])
    return lost


def _is_lost(card: CallCard, now: float) -> bool:
    if not card.attempt or card.until is None:
        return False
    return now >= card.until + (GRACE_S if card.effect in REPEATABLE else 0.0)
