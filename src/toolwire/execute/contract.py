"""The promise of everything that can run a call."""

from concurrent.futures import Future
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.tools import Tool


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
class AbandonsWork(Protocol):
    """An executor that can give up a call whose work goes on, such as a function in a thread."""

    def leftover(self, key: str) -> Future[None] | None:
        """What is done when the work of a given-up call has ended; None when nothing of it is at work.

        `key` is the call's idempotency key. What the call touches is not free before.
        """
        ...


class RecordedResult(NamedTuple):
    """The result of a call as it is on record, and whether its turn has ended with it."""

    result: ToolResult
    has_ended: bool


class AwaitsResult(Protocol):
    """Tells that the result of a call may be on record. What it tells may get lost."""

    stays_s: float

    async def wait(self, most_s: float) -> RecordedResult | None:
        """Until it is told that the result is there, so long at most; the result, if it came with that."""
        ...

    def close(self) -> None:
        """It is not waited for any more. Harmless when called twice."""
        ...


@runtime_checkable
class KnowsCalls(Executor, Protocol):
    """An executor whose other side knows calls by their record: one that is sent again is not run again."""

    def knows_calls(self, tool: Tool) -> bool:
        """Whether this is so for the calls of a tool."""
        ...


class Dispatched(Struct, frozen=True):
    """A call is on its way to another process. Its turn waits for the result on record.

    At the time `until`, at the latest, the turn looks again: a call that no process has claimed by then is sent again.
    Where the process `stays`, it goes on with the turn itself as soon as the result is there: for as long as that
    takes, or for the time that the `arrival` says. A process that stays only for a time and is stopped meanwhile
    leaves the call as it is, and the turn waits.
    """

    until: float | None = None
    stays: bool = False
    arrival: AwaitsResult | None = None


@runtime_checkable
class Dispatcher(Executor, Protocol):
    """An executor that sends calls to processes which may outlive this one.

    The hub does not claim such a call. The process that runs it claims it from the store (one attempt more, and a lease
    that ends at a date), renews that while the tool works, and closes the call by the token of its claim. Until it is
    claimed it has not begun. So this process can die at any moment, and a call may be sent any number of times.
    """

    def dispatches(self, tool: Tool) -> bool:
        """Whether calls of this tool are sent, and not executed here."""
        ...

    async def dispatch(self, allowed: Allowed, context: Context) -> ToolResult | Dispatched:
        """Send a call; `context.record_id` and `context.epoch` say which card it is. A result says why it was not sent.

        The same card may be sent again.
        """
        ...
