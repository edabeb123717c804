"""How much may be used, how much was, and how a question shares it with its sub-agents."""

from typing import TypeVar

from msgspec import Struct

from toolwire.protocol.checked import CheckedStruct, amount, check_fields, count, optional

Number = TypeVar("Number", int, float)


@check_fields(calls=optional(count(0)), tokens=optional(count(0)), cost_usd=optional(amount), wall_s=optional(amount))
class Budget(CheckedStruct, frozen=True):
    """What an agent may use in one day (UTC), over all its turns. A part that is None does not apply.

    `wall_s` are seconds in which its turns run; waiting for approvals costs none.
    """

    calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    wall_s: float | None = None


class Spending(Struct, frozen=True):
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


class Allotment(Struct, frozen=True):
    """What a question, or all its sub-agents together, may use: calls, tokens, money, and how many agents may begin."""

    calls: int
    tokens: int | None = None
    agents: int = 32
    cost_usd: float | None = None

    def share(self, most: int) -> "Allotment | None":
        """What the next one may use: half of what is left, since others may begin meanwhile; None if nothing is."""
        if self.agents < 1 or min(self.calls, most) < 1 or self._is_spent:
            return None
        tokens = None if self.tokens is None else (self.tokens + 1) // 2
        return Allotment(
            min((self.calls + 1) // 2, most), tokens, 1, None if self.cost_usd is None else self.cost_usd / 2
        )

    def without(self, used: Spending, agents: int = 0) -> "Allotment":
        """What is left once so much was used or handed out, to so many agents."""
        return Allotment(
            self.calls - used.calls,
            None if self.tokens is None else self.tokens - used.tokens,
            self.agents - agents,
            None if self.cost_usd is None else self.cost_usd - used.cost_usd,
        )

    def at_most(self, other: "Allotment") -> "Allotment":
        """What both leave."""
        return Allotment(
            min(self.calls, other.calls),
            least(self.tokens, other.tokens),
            min(self.agents, other.agents),
            least(self.cost_usd, other.cost_usd),
        )

    @property
    def held(self) -> Spending:
        """What a share keeps from others for as long as it is in use."""
        return Spending(self.calls, self.tokens or 0, self.cost_usd or 0.0)

    @property
    def _is_spent(self) -> bool:
        return (self.tokens is not None and self.tokens < 1) or (self.cost_usd is not None and self.cost_usd <= 0)


class ReservedShares(Struct, frozen=True):
    """The shares of a question's sub-agents: what these have used or still hold, and how many have begun."""

    used: Spending = Spending()
    agents: int = 0

    def share(self, allotment: Allotment, question: Allotment | None, asker: Spending, most: int) -> Allotment | None:
        """The next share: of what is left of the allotment, and of what question and sub-agents leave."""
        left = allotment.without(self.used, self.agents)
        if question is not None:
            left = left.at_most(question.without(self.used, self.agents).without(asker))
        return left.share(most)


def least(one: Number | None, other: Number | None) -> Number | None:
    """The smaller of two limits; one that is None does not apply."""
    return min((number for number in (one, other) if number is not None), default=None)
