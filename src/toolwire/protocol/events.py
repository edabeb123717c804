"""What a watcher of a turn is told, as it happens."""

from toolwire.protocol.calls import NeedsApproval, ToolCall, ToolResult
from toolwire.protocol.chat import CallDelta, ReasoningDelta, Reply, TextDelta, Waiting
from toolwire.protocol.turns import Ending, EndReason
from toolwire.protocol.values import dataclass


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
    request: NeedsApproval


@dataclass(frozen=True, slots=True)
class CallStarted:
    call: ToolCall


@dataclass(frozen=True, slots=True)
class CallProgress:
    call_id: str
    message: str
    fraction: float | None = None


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
    | Waiting
    | ModelReplied
    | ApprovalAsked
    | CallStarted
    | CallProgress
    | CallFinished
    | Noted
    | TurnEnded
)
