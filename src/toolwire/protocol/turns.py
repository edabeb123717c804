"""The turn: one request from question to deliverable, and where it stops by itself."""

from dataclasses import dataclass
from enum import StrEnum

from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Message, Usage, UserMessage
from toolwire.protocol.tools import Grant
from toolwire.protocol.values import quick


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


@quick
@dataclass(frozen=True, slots=True)
class Limits:
    """Where a turn stops by itself. A limit of None does not apply.

    The model is shown `result_chars` of each result; with `envelope`, what commands give comes in a Tool Envelope.
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


@quick
@dataclass(frozen=True, slots=True)
class Budget:
    """What an agent may use in one day (UTC), over all its turns. A part that is None does not apply."""

    calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None


@quick
@dataclass(frozen=True, slots=True)
class Spending:
    """What an agent has used in one day, as far as its ended turns say."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: "Spending") -> "Spending":
        return Spending(self.calls + other.calls, self.tokens + other.tokens, self.cost_usd + other.cost_usd)


@quick
@dataclass(frozen=True, slots=True)
class Purse:
    """What all sub-agents of one question may still use together: calls, tokens, and how many more may begin."""

    calls: int
    tokens: int | None = None
    agents: int = 32

    def share(self, most: int) -> "Purse | None":
        """What the next one may use: half of what is left, since others may begin meanwhile; None if nothing is."""
        if self.agents < 1 or min(self.calls, most) < 1 or (self.tokens is not None and self.tokens < 1):
            return None
        return Purse(min((self.calls + 1) // 2, most), None if self.tokens is None else (self.tokens + 1) // 2, 1)

    def without(self, share: "Purse") -> "Purse":
        """The purse after somebody took a share and began."""
        return self.given_back(-share.calls, -(share.tokens or 0), -1)

    def given_back(self, calls: int, tokens: int, agents: int = 0) -> "Purse":
        """The purse after somebody ended who has used so much less than the share, or more."""
        return Purse(self.calls + calls, None if self.tokens is None else self.tokens + tokens, self.agents + agents)


@quick
@dataclass(frozen=True, slots=True)
class Ending:
    reason: EndReason
    answer: str


@quick
@dataclass(frozen=True, slots=True)
class Turn:
    """One request from question to deliverable. A value: every change is a new turn, and it can be stored.

    `pending` are the calls of the last reply that still want a result. `closing` is set once the turn is on its
    last step, where no tools are offered. `echoes` remembers recent calls with their results, and `repeats` how
    often the newest of them occurs among them.
    `tainted` is set once a result was untrusted: what the model wants since then may not be its user's wish.
    `waited_s` is time spent on people's approvals; it does not count against the deadline.
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

    @property
    def question(self) -> str:
        """The user's words that opened this turn."""
        for message in reversed(self.messages):
            if isinstance(message, UserMessage):
                return message.text
        return ""
