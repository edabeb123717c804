"""A refused command is answered like any other: with a card that says what was wrong, and a callback to it."""

from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.outcomes import Status
from toolwire.protocol.subjects import Subject
from toolwire.wire.utp.cards import ToolResultCard
from toolwire.wire.utp.messages import ToolCallback
from toolwire.wire.utp.outcome import error_of
from toolwire.wire.utp.violations import Refusal

_NEEDED = ("project_id", "channel_id", "agent_id", "agent_turn_id", "turn_epoch", "tool_call_id")


def refusal_card(refusal: Refusal, *, card_id: str, author_id: str = "", created_at: str = "") -> ToolResultCard | None:
    """The failed result of a refused command; None where it cannot be told whose call it was.

    What cannot be answered is for the audit log: without an identity there is no turn to tell.
    """
    known = refusal.known
    if any(name not in known for name in _NEEDED):
        return None
    return ToolResultCard(
        card_id=card_id,
        project_id=known["project_id"],
        agent_turn_id=known["agent_turn_id"],
        tool_call_id=known["tool_call_id"],
        status=Status.FAILED,
        error=error_of(refusal.error),
        function_name=known.get("tool_name", ""),
        step_id=known.get("step_id", ""),
        turn_epoch=known["turn_epoch"],
        author_id=author_id,
        created_at=created_at,
    )


def refusal_callback(refusal: Refusal, card: ToolResultCard) -> ToolCallback:
    """The callback to the card of a refused command. It goes back to the model unless the command said otherwise."""
    known = refusal.known
    return ToolCallback(
        Subject.report(known["project_id"], known["channel_id"]),
        known["agent_id"],
        known["agent_turn_id"],
        known["turn_epoch"],
        known["tool_call_id"],
        card.card_id,
        card.status,
        known.get("after_execution", AfterExecution.SUSPEND),
        known.get("step_id", ""),
    )
