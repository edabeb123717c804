"""The promise of everything that can run a call."""

from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context


class Executor(Protocol):
    """Runs an allowed call where its tool lives.

    It has the call's secrets put in place by `context.reveal(allowed)`, if there is one, where the tool lives; what
    that raises passes through, and then nothing has begun.

    One that says `context.begins(context.turn_id, context.call_id)` itself, just before the tool begins, has an
    attribute `notes_begin` that is true. For any other it is said before the call is handed over.
    """

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        """Give exactly one result within the allowed time plus a small margin.

        Whatever the tool does is a result. Only the caller's own cancellation passes through, and `Suspended` from a
        tool that waits for another turn.
        """
        ...

    async def close(self) -> None:
        """Let go of what was started. Harmless when called twice."""
        ...


@runtime_checkable
class LeavesWork(Protocol):
    """An executor that can give up a call whose work goes on, such as a function in a thread."""

    def leftover(self, key: str) -> Future[None] | None:
        """What is done when the work of a given-up call has ended; None when nothing of it is at work.

        `key` is the call's idempotency key. What the call touches is not free before.
        """
        ...
