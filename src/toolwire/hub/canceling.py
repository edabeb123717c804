"""Ending a turn from outside: what had not run never does, and every call of it has a result."""

from collections.abc import Iterable

from msgspec.structs import replace

from toolwire.deliver.endings import canceled_result
from toolwire.errors import CallHeld, NotFound
from toolwire.loop.step import end_turn
from toolwire.protocol.chat import Reply
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Ending, EndReason
from toolwire.protocol.waits import ForResult, ForTurn, Wait
from toolwire.record.contract import KeptTurn, Store, TurnStats

CANCELED = "The turn was canceled."
_MOST_CALLS = 10_000
LOOK_AGAIN_S = 10.0
"""How often the holder of a call is looked at that was asked to stop."""


async def turns_waited_for(store: Store, turn_id: str) -> list[str]:
    """The turns of sub-agents that a turn waits for, and those that they wait for, which have not ended."""
    return await _unended(store, (await store.turn(turn_id)).opening.waits)


async def _unended(store: Store, waits: Iterable[Wait]) -> list[str]:
    """The turns among these waits that have not ended, and those that they wait for."""
    found: dict[str, None] = {}
    pending = list(waits)
    while pending:
        wait = pending.pop(0)
        if isinstance(wait, ForTurn) and wait.turn_id not in found and await _goes_on(store, wait.turn_id):
            found[wait.turn_id] = None
            pending += (await store.turn(wait.turn_id)).opening.waits
    return list(found)


async def _goes_on(store: Store, turn_id: str) -> bool:
    try:
        return (await store.turn(turn_id)).state != "ended"
    except NotFound:  # pruned
        return False


async def cancel_turn(store: Store, turn_id: str, now: float, reason: str = CANCELED) -> tuple[Wait, ...]:
    """End a turn that no process runs, with the turns of sub-agents that it waits for.

    A call that another process holds is not ended over its head: its holder is asked to stop, and the turn ends when
    that has given its result or its lease is over. Then what it waits for comes back, and the process that goes on with
    the turn ends it (`Agent.resume`, a runner, or this function again). Ending one that has ended changes nothing.
    Raises `NotFound` for an unknown turn and `Fenced` for one that a living process runs.
    """
    if (await store.turn(turn_id)).state == "ended":
        return ()
    # Taken over first: from now on no runner goes on with it because a sub-agent has ended, and it waits for no others.
    return await end_canceled(store, await store.resume(turn_id), now, reason)


async def end_canceled(store: Store, kept: KeptTurn, now: float, reason: str) -> tuple[Wait, ...]:
    """End a turn that was just taken over, as `cancel_turn` does, or leave it with what it waits for before that."""
    turn = kept.opening
    try:
        for child in await _unended(store, turn.waits):
            await cancel_turn(store, child, now, reason)
        cards = await store.calls(turn_id=turn.id, limit=_MOST_CALLS)
        held = [
            await _end_call(store, replace(card, epoch=turn.epoch), now, reason)
            for card in cards
            if card.result is None
        ]
        if waits := tuple(one for one in held if one is not None):
            await store.release(replace(turn, waits=waits))
            return waits
        await store.end(end_turn(turn, Ending(EndReason.CANCELED, reason)), _stats(kept, cards))
    except BaseException:
        await store.release(turn)
        raise
    return ()


async def _end_call(store: Store, card: CallCard, now: float, reason: str) -> ForResult | None:
    """End a call, or ask its holder to; then, what is to be waited for."""
    begun = card.attempt > 0
    result = canceled_result(card.call, begun=begun)
    try:
        await store.close(card, result, [AuditRow.about(card, "finished", now, result=result)], ran=begun)
    except CallHeld as held:
        asked = await store.ask_to_cancel(card, reason)
        if asked.result is None:
            # A lease without a date lasts while its holder gives signs of life, so that is looked at again.
            return ForResult(card.call.id, now + LOOK_AGAIN_S if held.until is None else held.until)
    return None


def _stats(kept: KeptTurn, cards: list[CallCard]) -> TurnStats:
    replies = [said for said in kept.events if isinstance(said, Reply)]
    return TurnStats(
        iterations=len(replies),
        calls=len(cards),
        input_tokens=sum(reply.usage.input_tokens for reply in replies),
        output_tokens=sum(reply.usage.output_tokens for reply in replies),
        wall_s=kept.ran_s if kept.opening.limits.own_time else 0.0,
    )
