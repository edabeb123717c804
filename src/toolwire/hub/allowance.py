"""What a turn may still use, looked up before each step: what its sub-agents leave it, and others leave of the day.

- Calls of the day are reserved in the transaction that writes them down, so that no two can get the last one, and those
  beyond are refused there. What does not run in the end is given back.
- Tokens and money are reserved before the model is asked, as much as the answer may use. The transaction that writes
  the reply puts what it used in their place. A call for which there is no room waits for the replies of others.
- Within a question, a reply is on record with its calls before they are dispatched, and so is what a sub-agent draws
  before it begins. Each looks at what the other has written down.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from math import inf

from msgspec.structs import replace

from toolwire.deliver.endings import refusal_result
from toolwire.errors import BudgetSpent
from toolwire.hub.calls import Accepted
from toolwire.loop.limits import (
    WITHOUT_ANSWER,
    amount,
    day_sentence,
    expected_usage,
    time_left_s,
    used_up,
    within_budget,
)
from toolwire.loop.step import last_words
from toolwire.protocol.budgets import Budget, Spending
from toolwire.protocol.calls import Denied
from toolwire.protocol.chat import ChatModel, Reply, Request, Usage
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Ending, EndReason, Limits, Turn
from toolwire.record.contract import BudgetStore, Reservation, UsageRequest

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_MOST_WAITING_S = 600.0
"""So long a model call waits for what others have reserved. A reservation ends with its reply, or with its process."""

NOTHING = Spending()
_GO_ON = "Answer with what you have."
_RESERVED = "The rest of today's budget is reserved by turns that are waiting for their model. Try again later."
_REASONS = {
    "tokens": EndReason.TOKEN_BUDGET,
    "cost_usd": EndReason.COST_BUDGET,
    "wall_s": EndReason.DEADLINE,
}


class Allowance:
    """What one turn may use: what `own` says, and of the day's `budget` what the agents in `accounts` leave."""

    def __init__(
        self,
        store: BudgetStore,
        own: Turn,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        *,
        budget: Budget | None,
        accounts: Iterable[str],
        lends: bool,
        rates: dict[str, float],
    ) -> None:
        self._store = store
        self._own = own
        self._clock = clock
        self._monotonic = monotonic
        self._budget = budget
        self._accounts = tuple(dict.fromkeys((own.agent, *accounts)))
        self._lends = lends
        self._rates = rates
        self._spent = Spending()
        self._lent = Spending()

    async def require(self, used: Spending | None = None) -> None:
        """Raise `BudgetSpent` when nothing is left of the day, for a turn that has used so much already."""
        if self._budget is None:
            return
        now = self._clock()
        spent = await self._by_others(now) + (used or Spending())
        if part := used_up(self._budget, spent):
            sentence = day_sentence(self._own.agent, self._budget, spent, part, now)
            # A turn that goes on keeps the budget that it began with, whatever the settings allow by now.
            began = self._own.spec.budget if used is not None and self._own.spec is not None else None
            is_its_own = began is not None and used_up(began, spent) == part
            advice = (
                "the turn began with this budget: go on then" if is_its_own else f"raise budget.{part}, or go on then"
            )
            raise BudgetSpent(f"{sentence}; {advice}")

    async def cut(self, turn: Turn) -> Turn:
        """The turn with its limits cut down to what is left now, or with an ending where that is nothing."""
        if turn.ending is not None:
            return turn
        now = self._clock()
        self._spent = await self._by_others(now)
        self._lent = await self._store.reserved_shares(turn.id) if self._lends else Spending()
        turn = replace(turn, limits=self._left())
        reason, sentence = self._over(turn, now)
        return turn if reason is None else _ended(turn, reason, sentence)

    @property
    def reserves_usage(self) -> bool:
        """Whether the model may be asked only after tokens or money were reserved for its answer."""
        day, own = self._budget or Budget(), self._own.limits
        of_day = day.tokens is not None or day.cost_usd is not None
        return of_day or (self._lends and (own.tokens is not None or own.cost_usd is not None))

    async def reserve(self, turn: Turn, request: Request, model: ChatModel, already: Spending = NOTHING) -> Turn:
        """The turn, once what the answer may use is reserved for it; or with an ending, where nothing is left.

        What it used `already`, and is not on record, is reserved as well.
        """
        own, began, pause_s = self._own.limits, self._monotonic(), _FIRST_PAUSE_S
        limits = Budget(None, own.tokens, own.cost_usd) if self._lends else Budget()
        want = already + await self._expected(request, model)
        asked = UsageRequest(want, self._budget or Budget(), self._accounts, limits)
        while not await self._store.reserve_usage(turn, asked):
            turn = await self.cut(turn)
            if turn.ending is not None:
                return turn
            now = self._monotonic()
            if time_left_s(turn, now) == 0.0:
                return _ended(turn, EndReason.DEADLINE, WITHOUT_ANSWER[EndReason.DEADLINE])
            if now - began >= _MOST_WAITING_S:
                return _ended(turn, EndReason.TOKEN_BUDGET, _RESERVED)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        return turn

    async def _expected(self, request: Request, model: ChatModel) -> Spending:
        usage = expected_usage(request, getattr(model, "max_output_tokens", None))
        limited = self._own.limits.cost_usd is not None or (self._budget and self._budget.cost_usd is not None)
        cost_usd = await self._price(usage, model) if limited else 0.0
        return Spending(0, usage.total_tokens, cost_usd)

    async def _price(self, usage: Usage, model: ChatModel) -> float:
        """What a usage costs, by the model's own prices or as its replies did so far; infinite where unknown."""
        price: Callable[[Usage], float | None] | None = getattr(model, "price", None)
        known = await asyncio.to_thread(price, usage) if price is not None else None
        rate = self._rates.get(model.name, inf)
        return rate * usage.total_tokens if known is None else known

    def learn_price(self, reply: Reply, model: ChatModel) -> None:
        """Remember what a token of this model costs. One that never says so costs nothing that could be counted."""
        if reply.usage.total_tokens:
            rate = (reply.usage.cost_usd or 0.0) / reply.usage.total_tokens
            self._rates[model.name] = max(rate, self._rates.get(model.name, 0.0))

    def reservation(self, *, settles: bool = False) -> Reservation | None:
        """What the store has to count while it writes calls down, and whether a reply `settles` what was reserved."""
        most = None if self._budget is None else self._budget.calls
        return Reservation(most, self._accounts, self._refuse, settles) if most is not None or settles else None

    def _refuse(self, card: CallCard, spent: Spending) -> tuple[CallCard, AuditRow]:
        assert self._budget is not None
        now = self._clock()
        sentence = day_sentence(self._own.agent, self._budget, spent, "calls", now)
        denied = Denied(card.call, Code.PERMISSION_DENIED, f"{sentence}. {_GO_ON}", "budget")
        card = replace(card, attempt=0, result=refusal_result(denied))
        return card, AuditRow.about(card, "denied", now, rule="budget", result=card.result)

    def within(self, turn: Turn, accepted: Sequence[Accepted]) -> list[Accepted]:
        """The calls of a step, with those refused that are one too many since `cut` has looked."""
        most, lent = turn.grant.max_calls, self._lent.calls
        room = most - lent - turn.calls
        sentence = f"This turn may make {most} calls: it has made {turn.calls}, and its sub-agents use {lent}. {_GO_ON}"
        return [
            one if place < room or one.card.result is not None else _refused(one, sentence)
            for place, one in enumerate(accepted)
        ]

    async def _by_others(self, now: float) -> Spending:
        spent = Spending()
        if self._budget is not None:
            for agent in self._accounts:
                spent += await self._store.spent(agent, now, but=self._own.id)
        return spent

    def _left(self) -> Limits:
        limits, lent = self._own.limits, self._lent
        if self._lends:
            tokens = None if limits.tokens is None else limits.tokens - lent.tokens
            cost_usd = None if limits.cost_usd is None else limits.cost_usd - lent.cost_usd
            limits = replace(limits, tokens=tokens, cost_usd=cost_usd)
        return limits if self._budget is None else within_budget(limits, self._budget, self._spent)

    def _over(self, turn: Turn, now: float) -> tuple[EndReason | None, str]:
        """Why the turn cannot go on, and what to say. Calls are refused one by one instead."""
        used, own = turn.used() + Spending(wall_s=turn.own_s(self._monotonic())), self._own.limits
        if self._budget is not None:
            spent = used + self._spent
            if part := used_up(replace(self._budget, calls=None), spent):
                return _REASONS[part], f"{day_sentence(turn.agent, self._budget, spent, part, now)}."
        if part := used_up(Budget(None, own.tokens, own.cost_usd), used + self._lent):
            by_itself, lent, most = (amount(part, getattr(one, part)) for one in (used, self._lent, own))
            return _REASONS[part], f"This turn has used {by_itself} and its sub-agents use {lent}, of {most}."
        return None, ""


def _ended(turn: Turn, reason: EndReason, sentence: str) -> Turn:
    words = last_words(turn)
    return replace(turn, ending=Ending(reason, f"{words}\n\n({sentence})" if words else sentence))


def _refused(one: Accepted, sentence: str) -> Accepted:
    call = one.card.call
    return Accepted(one.card, Denied(call, Code.PERMISSION_DENIED, sentence, "budget"), one.interrupted)
