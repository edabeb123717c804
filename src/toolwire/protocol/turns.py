"""The turn: one request from question to deliverable, and where it stops by itself."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from toolwire.protocol.agents import AgentSpec
from toolwire.protocol.budgets import Spending
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Message, Usage, UserMessage
from toolwire.protocol.checked import CheckedStruct, amount, check_fields, count, flag, optional, texts
from toolwire.protocol.outcomes import Status
from toolwire.protocol.tools import Grant
from toolwire.protocol.tracing import NO_TRACE, TraceContext
from toolwire.protocol.waits import Wait

NO_MODEL = "none"
"""Stands in the record where a turn that is a single call has no model."""

RESTORED_EPOCHS = 1_000_000
"""By so much the epochs of open turns rise when their store is restored from a backup: more than a turn is taken over
in the time that a backup may be old."""

WORKFLOW_MODEL = "workflow:steps"
"""Stands in the record where the steps of a workflow take the place of a model."""


class TurnKind(StrEnum):
    """What a turn is: a question that a model answers with the help of tools, or a single call without a model."""

    QUESTION = "question"
    CALL = "call"

    @staticmethod
    def of_model(model: str) -> "TurnKind":
        """The kind of a turn on record, which is told by its model."""
        return TurnKind.CALL if model == NO_MODEL else TurnKind.QUESTION


class EndReason(StrEnum):
    """Why a turn ended."""

    ANSWERED = "answered"
    DELIVERED = "delivered"
    ITERATION_LIMIT = "iteration_limit"
    FAILURE_LIMIT = "failure_limit"
    STUCK = "stuck"
    TOKEN_BUDGET = "token_budget"
    COST_BUDGET = "cost_budget"
    DEADLINE = "deadline"
    CANCELED = "canceled"
    STOPPED = "stopped"
    CALL_FAILED = "call_failed"
    MUST_END_WITH = "must_end_with"


@check_fields(
    iterations=count(1), consecutive_failures=count(1), parallel=count(1), calls_per_step=count(1), repeats=count(1),
    tokens=optional(count(0)), cost_usd=optional(amount), deadline_s=optional(amount), result_chars=count(1),
    tools_enabled=flag, envelope=flag, own_time=flag, window_tokens=optional(count(1)), must_end_with=texts,
)  # fmt: skip
class Limits(CheckedStruct, frozen=True):
    """Where a turn stops by itself. A limit of None does not apply.

    The model is shown `result_chars` of each result; with `envelope`, what commands give comes in a Tool Envelope.
    A sub-agent whose caller waits has no `own_time`: its seconds are those of the caller.
    A thread that fills `compact_at` of the model's window of `window_tokens` is told by a summary from then on; None
    is what the model says about itself.
    At most `in_flight` calls of an agent run at once, over all its turns and all processes that run them; workers and
    devices have limits of their own.
    A turn that `must_end_with` some tools ends with a result of one of them, not with words: the model is reminded, and
    after some times the turn has failed.
    """

    iterations: int = 10
    consecutive_failures: int = 3
    parallel: int = 5
    calls_per_step: int = 32
    repeats: int = 3
    tokens: int | None = None
    cost_usd: float | None = None
    deadline_s: float | None = None
    result_chars: int = 65_536
    tools_enabled: bool = True
    envelope: bool = True
    own_time: bool = True
    window_tokens: int | None = None
    compact_at: float = 0.75
    must_end_with: tuple[str, ...] = ()
    in_flight: int | None = None


class Ending(Struct, frozen=True, gc=False):
    """How a turn ended, with its deliverable: the words for the user and, from a tool that ended it, the `value`.

    `call_id` names the call whose result ended the turn, if one did.
    """

    reason: EndReason
    answer: str
    value: Any = None
    call_id: str = ""

    @property
    def status(self) -> Status:
        """How the turn as a whole went, in the words that results have."""
        return _STATUSES.get(self.reason, Status.PARTIAL)


_STATUSES = {
    EndReason.ANSWERED: Status.SUCCESS,
    EndReason.DELIVERED: Status.SUCCESS,
    EndReason.CANCELED: Status.CANCELED,
    EndReason.STOPPED: Status.CANCELED,
    EndReason.CALL_FAILED: Status.FAILED,
    EndReason.MUST_END_WITH: Status.FAILED,
}


class Turn(Struct, frozen=True, gc=False):
    """One request from question to deliverable. A value: every change is a new turn, and it can be stored.

    `pending` are the calls of the last reply that still want a result. `closing` is set once the turn is on its
    last step, where no tools are offered. `echoes` remembers recent calls with their results, and `repeats` how
    often the newest of them occurs among them.
    `tainted` is set once a result was untrusted: what the model wants since then may not be its user's wish.
    `running_since` is a reading of the process's monotonic clock: when it would have begun had it run at a stretch. No
    correction of the wall clock lengthens or cuts it; only `started_at` is a date.
    `waited_s` is time spent on people's approvals; it does not count against the deadline.
    `spec` says how to build its agent again, in any process; turns of before it was kept have None, and some of them
    `flags`: those of the command that began it, for the command that goes on with it.
    `waits` says what it waits for while no process runs it; empty where it was interrupted and must be resumed by hand.
    `trace` is the span above it, of whatever asked for it: each process that runs it makes spans of the same trace.
    `reminders` counts how often the model was told with which tools the turn must end.
    """

    id: str
    project: str = "default"
    agent: str = "agent"
    thread: str = ""
    epoch: int = 1
    model: str = ""
    system: str = ""
    grant: Grant = Grant()
    limits: Limits = Limits()
    started_at: float = 0.0
    messages: tuple[Message, ...] = ()
    pending: tuple[ToolCall, ...] = ()
    iterations: int = 0
    calls: int = 0
    failures: int = 0
    failed_calls: int = 0
    usage: Usage = Usage()
    echoes: tuple[tuple[str, ...], ...] = ()
    repeats: int = 0
    warned: bool = False
    closing: EndReason | None = None
    waited_s: float = 0.0
    tainted: bool = False
    ending: Ending | None = None
    running_since: float = 0.0
    flags: tuple[str, ...] = ()
    spec: AgentSpec | None = None
    waits: tuple[Wait, ...] = ()
    trace: TraceContext = NO_TRACE
    reminders: int = 0

    @property
    def kind(self) -> TurnKind:
        return TurnKind.of_model(self.model)

    @property
    def question(self) -> str:
        """The user's words that opened this turn."""
        for message in reversed(self.messages):
            if isinstance(message, UserMessage):
                return message.text
        return ""

    def used(self) -> Spending:
        """What it has used so far, without its time; calls that want a result count already."""
        usage = self.usage
        return Spending(self.calls + len(self.pending), usage.total_tokens, usage.cost_usd or 0.0)

    def own_s(self, now: float) -> float:
        """Seconds in which it has run so far, without those of pending approvals; none if they count for its caller."""
        return max(0.0, now - self.running_since - self.waited_s) if self.limits.own_time else 0.0
