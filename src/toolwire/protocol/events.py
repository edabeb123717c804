"""What a watcher of a turn is told, as it happens: values that can be kept, sent and read again.

`EventEnvelope` says of each event which turn it belongs to and where it stands in it; `wire/codecs/events.py` writes it
as JSON. An event holds nothing that only this process can use.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import CallDelta, ProviderWait, ReasoningDelta, Reply, TextDelta
from toolwire.protocol.turns import Ending, EndReason
from toolwire.protocol.waits import Wait


class TurnStarted(Struct, frozen=True):
    """A turn begins. `lost` says what of its tools cannot be told in the formats of this model."""

    turn_id: str
    question: str
    model: str
    tools: tuple[str, ...]
    resumed: bool = False
    lost: tuple[str, ...] = ()


class ModelAsked(Struct, frozen=True):
    """The model is thinking. `closing` says why this is the last step."""

    iteration: int
    closing: EndReason | None = None


class ModelReplied(Struct, frozen=True):
    iteration: int
    reply: Reply
    elapsed_ms: float


class ApprovalAsked(Struct, frozen=True):
    """People are asked about a call, with the arguments with which it would run. `digest` binds their answer to it."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    reason: str
    digest: str
    quorum: int = 1


class CallStarted(Struct, frozen=True):
    call: ToolCall


class CallProgress(Struct, frozen=True):
    call_id: str
    message: str
    fraction: float | None = None


NO_WORKER_YET = "no worker has taken it yet"
"""The progress of a call that was sent to workers some seconds ago."""


class OutputDelta(Struct, frozen=True):
    """A piece of what a running tool has written to `stream`; `offset` counts the characters of the call before it."""

    call_id: str
    text: str
    stream: str = "stdout"
    offset: int = 0


class CallFinished(Struct, frozen=True):
    call: ToolCall
    result: ToolResult
    replayed: bool = False


class Noted(Struct, frozen=True):
    """The runtime said something to the model."""

    text: str


class TurnWaiting(Struct, frozen=True):
    """The turn stops here until something that it waits for has come; then any process can go on with it."""

    turn_id: str
    waits: tuple[Wait, ...]


class TurnEnded(Struct, frozen=True):
    turn_id: str
    ending: Ending
    elapsed_ms: float


Event = (
    TurnStarted
    | ModelAsked
    | TextDelta
    | ReasoningDelta
    | CallDelta
    | ProviderWait
    | ModelReplied
    | ApprovalAsked
    | CallStarted
    | CallProgress
    | OutputDelta
    | CallFinished
    | Noted
    | TurnWaiting
    | TurnEnded
)

Emit = Callable[[Event], None]
"""Is told each event of a turn. It runs in the turn's way and must not wait."""


class EventEnvelope(Struct, frozen=True):
    """An event with its place: `seq` counts from 1 each time a process takes the turn up, which is its `epoch`.

    `(epoch, seq)` ascends over the whole life of a turn, whichever processes run it.
    """

    project: str
    turn_id: str
    epoch: int
    seq: int
    at: float
    event: Event

    @property
    def id(self) -> str:
        """Its place as text, unique within the turn."""
        return f"{self.epoch}.{self.seq}"
