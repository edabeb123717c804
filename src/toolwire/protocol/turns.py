"""The turn: one request from question to deliverable, and where it stops by itself."""

from enum import StrEnum
from typing import TypeVar

from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Message, Usage, UserMessage
from toolwire.protocol.checked import amount, checked, count, flag, optional
from toolwire.protocol.tools import Grant
from toolwire.protocol.values import dataclass, quick

Number = TypeVar("Number", int, float)


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


@checked(
    iterations=count(1), consecutive_failures=count(1), parallel=count(1), calls_per_step=count(1), repeats=count(1),
    tokens=optional(count(0)), cost_usd=optional(amount), deadline_s=optional(amount), result_chars=count(1),
    tools_enabled=flag, envelope=flag, own_time=flag, window_tokens=optional(count(1)),
)  # fmt: skip
@quick
@dataclass(frozen=True, slots=True)
class Limits:
    """Where a turn stops by itself. A limit of None does not apply.

    The model is shown `result_chars` of each result; with `envelope`, what commands give comes in a Tool Envelope.
    A sub-agent that somebody waits for has no `own_time`: its seconds are those of whoever waits.
    A thread that fills `compact_at` of the model's window of `window_tokens` is told by a summary from then on; None
    is what the model says about itself.
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


@checked(calls=optional(count(0)), tokens=optional(count(0)), cost_usd=optional(amount), wall_s=optional(amount))
@quick
@dataclass(frozen=True, slots=True)
class Budget:
    """What an agent may use in one day (UTC), over all its turns. A part that is None does not apply.

    `wall_s` are seconds in which its turns run; waiting for people's word costs none.
    """

    calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    wall_s: float | None = None


@quick
@dataclass(frozen=True, slots=True)
class Spending:
    """What was used: by a turn, or by an agent in one day."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    wall_s: float = 0.0

    def __add__(self, other: "Spending") -> "Spending":
        return Spending(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.cost_usd + other.cost_usd,
            self.wall_s + other.wall_s,
        )

    def __sub__(self, other: "Spending") -> "Spending":
        return self + Spending(-other.calls, -other.tokens, -other.cost_usd, -other.wall_s)


@quick
@dataclass(frozen=True, slots=True)
class Purse:
    """What a question, or all its sub-agents together, may use: calls, tokens, money, and how many agents may begin."""

    calls: int
    tokens: int | None = None
    agents: int = 32
    cost_usd: float | None = None

    def share(self, most: int) -> "Purse | None":
        """What the next one may use: half of what is left, since others may begin meanwhile; None if nothing is."""
        if self.agents < 1 or min(self.calls, most) < 1 or self._is_spent:
            return None
        tokens = None if self.tokens is None else (self.tokens + 1) // 2
        return Purse(min((self.calls + 1) // 2, most), tokens, 1, None if self.cost_usd is None else self.cost_usd / 2)

    def without(self, used: Spending, agents: int = 0) -> "Purse":
        """What is left once so much was used or handed out, to so many agents."""
        return Purse(
            self.calls - used.calls,
            None if self.tokens is None else self.tokens - used.tokens,
            self.agents - agents,
            None if self.cost_usd is None else self.cost_usd - used.cost_usd,
        )

    def at_most(self, other: "Purse") -> "Purse":
        """What both leave."""
        return Purse(
            min(self.calls, other.calls),
            least(self.tokens, other.tokens),
            min(self.agents, other.agents),
            least(self.cost_usd, other.cost_usd),
        )

    @property
    def held(self) -> Spending:
        """What a share keeps from others for as long as somebody has it."""
        return Spending(self.calls, self.tokens or 0, self.cost_usd or 0.0)

    @property
    def _is_spent(self) -> bool:
        return (self.tokens is not None and self.tokens < 1) or (self.cost_usd is not None and self.cost_usd <= 0)


@quick
@dataclass(frozen=True, slots=True)
class Lent:
    """What the sub-agents of a question have used or still hold, and how many have begun."""

    used: Spending = Spending()
    agents: int = 0

    def share(self, purse: Purse, question: Purse | None, asker: Spending, most: int) -> Purse | None:
        """The next share: of what is left in the purse, and of what the question itself and its sub-agents leave."""
        left = purse.without(self.used, self.agents)
        if question is not None:
            left = left.at_most(question.without(self.used, self.agents).without(asker))
        return left.share(most)


def least(one: Number | None, other: Number | None) -> Number | None:
    """The smaller of two limits; one that is None does not apply."""
    return min((number for number in (one, other) if number is not None), default=None)


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
    `running_since` is a reading of the process's monotonic clock: when it would have begun had it run at a stretch. No
    correction of the wall clock lengthens or cuts it; only `started_at` is a date.
    `waited_s` is time spent on people's approvals; it does not count against the deadline.
    `flags` are those of the command that began it, for the command that goes on with it.
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
        """Seconds in which it has run so far and nobody waited for people; none if they are somebody else's."""
        return max(0.0, now - self.running_since - self.waited_s) if self.limits.own_time else 0.0
