"""What a watcher of a turn is told, as it happens: values that can be kept, sent and read again.

`EventEnvelope` says of each event which turn it belongs to and where it stands in it; `wire/codecs/events.py` writes it
as JSON. An event holds nothing that only this process can use.
"""

from collections.abc import Callable, Mapping
from typing import Any

from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import CallDelta, ProviderWait, ReasoningDelta, Reply, TextDelta
from toolwire.protocol.turns import Ending, EndReason
from toolwire.protocol.values import dataclass, fast_frozen
from toolwire.protocol.waits import Wait


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn begins. `lost` says what of its tools cannot be told in the formats of this model."""

    turn_id: str
    question: str
    model: str
    tools: tuple[str, ...]
    resumed: bool = False
    lost: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """The model is thinking. `closing` says why this is the last step."""

    iteration: int
    closing: EndReason | None = None


@dataclass(frozen=True, slots=True)
class ModelReplied:
    iteration: int
    reply: Reply
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """People are asked about a call, with the arguments with which it would run. `digest` binds their answer to it."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    reason: str
    digest: str
    quorum: int = 1


@dataclass(frozen=True, slots=True)
class CallStarted:
    call: ToolCall


@dataclass(frozen=True, slots=True)
class CallProgress:
    call_id: str
    message: str
    fraction: float | None = None


NO_WORKER_YET = "no worker has taken it yet"
"""The progress of a call that was sent to workers some seconds ago."""


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """A piece of what a running tool has written to `stream`; `offset` counts the characters of the call before it."""

    call_id: str
    text: str
    stream: str = "stdout"
    offset: int = 0


@dataclass(frozen=True, slots=True)
class CallFinished:
    call: ToolCall
    result: ToolResult
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Noted:
    """The runtime said something to the model."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnWaiting:
    """The turn stops here until something that it waits for has come; then any process can go on with it."""

    turn_id: str
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class TurnEnded:
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


@fast_frozen
@dataclass(frozen=True, slots=True)
class EventEnvelope:
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
