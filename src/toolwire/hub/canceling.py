"""Ending a turn from outside: what had not run never does, and every call of it has a result."""

from toolwire.deliver.endings import canceled
from toolwire.loop.step import stopped
from toolwire.protocol.chat import Reply
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Ending, EndReason
from toolwire.protocol.values import changed
from toolwire.record.contract import KeptTurn, Store, TurnStats

CANCELED = "The turn was canceled."
_MOST_CALLS = 10_000


async def cancel_turn(store: Store, turn_id: str, now: float, reason: str = CANCELED) -> None:
    """End a turn that no process runs. Ending one that has ended changes nothing.

    Raises `NotFound` for an unknown turn and `Fenced` for one that a living process runs.
    """
    if (await store.turn(turn_id)).state == "ended":
        return
    kept = await store.resume(turn_id)
    turn = kept.opening
    try:
        cards = await store.calls(turn_id=turn_id, limit=_MOST_CALLS)
        for card in cards:
            if card.result is None:
                await _end_call(store, changed(card, epoch=turn.epoch), now)
        await store.end(stopped(turn, Ending(EndReason.CANCELED, reason)), _stats(kept, cards))
    except BaseException:
        await store.release(turn)
        raise


async def _end_call(store: Store, card: CallCard, now: float) -> None:
    begun = card.attempt > 0
    result = canceled(card.call, begun=begun)
    await store.close(card, result, [AuditRow.about(card, "finished", now, result=result)], ran=begun)


def _stats(kept: KeptTurn, cards: list[CallCard]) -> TurnStats:
    replies = [said for said in kept.events if isinstance(said, Reply)]
    return TurnStats(
        iterations=len(replies),
        calls=len(cards),
        input_tokens=sum(reply.usage.input_tokens for reply in replies),
        output_tokens=sum(reply.usage.output_tokens for reply in replies),
        wall_s=kept.ran_s if kept.opening.limits.own_time else 0.0,
    )
