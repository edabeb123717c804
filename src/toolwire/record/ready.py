"""Which waiting turns can go on: what they wait for has come."""

from toolwire.errors import NotFound
from toolwire.protocol.approvals import ApprovalState
from toolwire.protocol.waits import ForApproval, ForResult, ForTurn, Until, Wait
from toolwire.record.contract import Store, TurnSummary

_MOST_CALLS = 1_000
MOST_WAITING = 10_000


async def ready_turns(store: Store, now: float, *, limit: int = 20) -> list[TurnSummary]:
    """Turns that no living process runs and that can go on, the oldest first: those have waited longest."""
    found: list[TurnSummary] = []
    for turn in reversed(await store.turns(state="waiting", limit=MOST_WAITING)):
        if len(found) >= limit:
            break
        if await is_ready(store, turn, now):
            found.append(turn)
    return found


async def is_ready(store: Store, turn: TurnSummary, now: float) -> bool:
    """Whether any of what a turn waits for has come."""
    for wait in turn.waits:
        if await _is_over(store, turn.id, wait, now):
            return True
    return False


async def _is_over(store: Store, turn_id: str, wait: Wait, now: float) -> bool:
    """What is not on record any more is not waited for: a process that resumes the turn is told what became of it."""
    try:
        match wait:
            case ForApproval(approval_id):
                return (await store.approval(approval_id)).state is not ApprovalState.OPEN
            case ForTurn(other):
                return (await store.turn(other)).state == "ended"
            case ForResult(call_id, until):
                cards = await store.calls(turn_id=turn_id, limit=_MOST_CALLS)
                has_result = any(card.call.id == call_id and card.result is not None for card in cards)
                return has_result or (until is not None and now >= until)
            case Until(at):
                return now >= at
    except NotFound:
        return True
