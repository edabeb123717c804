"""A call inside the hub: what was decided about it, and what can come of it.

An outcome is one of four things. A `ToolResult` is what a call that ran gave. `Refused` is a call that may not run.
`Waiting` is a call that has no result yet and needs something from outside before it can go on. `Detached` is one that
runs on its own.
"""

from msgspec import Struct

from toolwire.loop.step import end_turn
from toolwire.protocol.calls import Allowed, Decision, Denied, NeedsApproval, ToolResult
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import REPEATABLE, Effect, Tool
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.protocol.waits import Wait
from toolwire.record.contract import Ends, TurnStats


class Accepted(Struct, frozen=True):
    """A call that is on record, with our decision. A process began an `interrupted` one and never finished it."""

    card: CallCard
    decision: Decision
    interrupted: bool = False

    @property
    def tool(self) -> Tool | None:
        """The tool that would run; None for a call that was denied."""
        match self.decision:
            case Allowed(tool=tool) | NeedsApproval(allowed=Allowed(tool=tool)):
                return tool
        return None

    @property
    def may_run_again(self) -> bool:
        """Whether running it twice does no harm, or its tool's own journal prevents that."""
        tool, effect = self.tool, self.card.effect
        journaled = tool is not None and tool.journaled and effect == Effect.TRANSACTIONAL
        return journaled or effect in REPEATABLE


class Refused(Struct, frozen=True):
    """The call may not run."""

    denied: Denied


class Waiting(Struct, frozen=True):
    """The call has no result yet. What it waits for is kept with its turn."""

    waits: tuple[Wait, ...]


class Detached(Struct, frozen=True):
    """The call runs on its own, and its turn does not wait for it."""


class Conclusion(Struct):
    """How the turn of a single call ends with its result. `is_written` once that is handed to the store with it.

    Where another process runs the call, that one ends the turn, and `is_written` says that it did.
    """

    ends: Ends
    is_written: bool = False


Outcome = ToolResult | Refused | Waiting | Detached


def end_with_call(turn: Turn, result: ToolResult) -> tuple[Turn, TurnStats]:
    """A turn that is a single call, ended with the result of that."""
    done = end_turn(turn, Ending(EndReason.CALL_FAILED if result.is_failure else EndReason.DELIVERED, result.text))
    took_ms = result.elapsed_ms + result.queued_ms
    return done, TurnStats(
        calls=1, failed_calls=int(result.is_failure), duration_ms=result.elapsed_ms, wall_s=took_ms / 1000
    )
