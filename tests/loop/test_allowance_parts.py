"""What a turn may still use, by itself: of its day, of its own limits, and of what its sub-agents leave it."""

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire import Grant, Limits, MemoryStore
from toolwire.errors import BudgetSpent
from toolwire.hub.allowance import Allowance
from toolwire.hub.calls import Accepted
from toolwire.protocol.agents import AgentSpec
from toolwire.protocol.budgets import Allotment, Budget, Spending
from toolwire.protocol.calls import Denied, ToolCall, ToolResult
from toolwire.protocol.chat import Reply, Request, Usage, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.records import CallCard
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record.contract import UsageRequest
from toolwire.testing import FrozenClock, ScriptedModel

MODEL = ScriptedModel()
DAY = 86_400.0 * 20_000
IN_ALL = "0 calls, 80 tokens, 0.5000 USD, 0.0 s"
RENEWS = "it renews at 2024-10-05 00:00 UTC"
ASK = Request((UserMessage("x" * 29),), max_tokens=20)
WANT = 20 + 29 // 3 + 1


class Stage:
    """A day on which another turn of the agent, and one of its colleague, have used 40 tokens and 0.25 USD each."""

    def __init__(self) -> None:
        self.clock = FrozenClock(DAY + 3600)
        self.store = MemoryStore(clock=self.clock, monotonic=self.clock)
        self.rates: dict[str, float] = {}

    async def begin(self) -> "Stage":
        for agent in ("ann", "bob"):
            turn = Turn(f"of {agent}", agent=agent)
            await self.store.begin(turn)
            await self.store.append_reply(turn, Reply("said", usage=Usage(30, 10, cost_usd=0.25)), [], [])
        return self

    def allowance(self, own: Turn, budget: Budget | None = None, *, lends: bool = False) -> Allowance:
        return Allowance(
            self.store, own, self.clock, self.clock, budget=budget, accounts=("bob", "ann"), lends=lends,
            rates=self.rates,
        )  # fmt: skip


def turn(**more: Any) -> Turn:
    limits = {key: more.pop(key) for key in ("tokens", "cost_usd", "deadline_s") if key in more}
    return Turn("t", agent="ann", running_since=DAY + 3600, limits=Limits(**limits), **more)


def ending(one: Turn) -> Ending:
    assert one.ending is not None
    return one.ending


@pytest.mark.parametrize(
    ("budget", "used", "part", "told"),
    [
        (Budget(tokens=80), None, "tokens", "80 tokens of 80 tokens"),
        (Budget(tokens=90), Spending(tokens=10, cost_usd=0.0), "tokens", "90 tokens of 90 tokens"),
        (Budget(cost_usd=0.5), None, "cost_usd", "0.5000 USD of 0.5000 USD"),
    ],
)
async def test_a_turn_does_not_begin_where_nothing_is_left_of_the_day(
    budget: Budget, used: Spending | None, part: str, told: str
) -> None:
    stage = await Stage().begin()
    with pytest.raises(BudgetSpent) as spent:
        await stage.allowance(turn(), budget).require(used)
    said = str(spent.value)
    assert said.startswith(f"agent 'ann' has used up its budget of today: {told} (in all ")
    assert said.endswith(f"; {RENEWS}; raise budget.{part}, or go on then")
    await stage.allowance(turn()).require(used)
    await stage.allowance(turn(), Budget(tokens=81)).require()


async def test_a_turn_that_goes_on_is_told_whether_the_budget_is_the_one_that_it_began_with() -> None:
    stage = await Stage().begin()
    for began, advice in ((Budget(tokens=70), "the turn began with this budget: go on then"), (Budget(), "raise")):
        own = turn(spec=AgentSpec(budget=began))
        with pytest.raises(BudgetSpent, match=advice):
            await stage.allowance(own, Budget(tokens=80)).require(Spending())
        with pytest.raises(BudgetSpent, match=r"raise budget\.tokens"):
            await stage.allowance(own, Budget(tokens=80)).require()


async def test_limits_are_cut_to_what_is_left_of_the_day_and_by_sub_agents() -> None:
    stage = await Stage().begin()
    own = turn(tokens=100, cost_usd=2.0)
    cut = await stage.allowance(own, Budget(tokens=130, cost_usd=9.0, wall_s=60)).cut(own)
    assert (cut.limits.tokens, cut.limits.cost_usd, cut.limits.deadline_s, cut.ending) == (50, 2.0, 60, None)
    await stage.store.reserve_share("t", Allotment(20, 60, 4, 1.0), 10)
    lent = await stage.store.reserved_shares("t")
    assert (lent.tokens, lent.cost_usd) == (30, 0.5)
    shared = await stage.allowance(own, lends=True).cut(own)
    assert (shared.limits.tokens, shared.limits.cost_usd) == (70, 1.5)
    free = await stage.allowance(turn(), lends=True).cut(turn())
    assert (free.limits.tokens, free.limits.cost_usd) == (None, None)
    alone = await stage.allowance(own).cut(own)
    assert alone.limits == own.limits
    ended = replace(own, ending=Ending(EndReason.ANSWERED, "Done."))
    assert await stage.allowance(own, Budget(tokens=1)).cut(ended) is ended


@pytest.mark.parametrize(
    ("budget", "reason", "part"),
    [
        (Budget(tokens=85), EndReason.TOKEN_BUDGET, "86 tokens of 85 tokens"),
        (Budget(cost_usd=0.6), EndReason.COST_BUDGET, "0.6000 USD of 0.6000 USD"),
        (Budget(wall_s=5), EndReason.DEADLINE, "7.0 s of 5.0 s"),
    ],
)
async def test_a_turn_ends_where_the_day_is_used_up(budget: Budget, reason: EndReason, part: str) -> None:
    stage = await Stage().begin()
    own = turn()
    stage.clock.advance(7)
    used = replace(own, usage=Usage(4, 2, cost_usd=0.1))
    cut = ending(await stage.allowance(own, replace(budget, calls=0)).cut(used))
    assert cut.reason is reason
    assert cut.answer.startswith(f"agent 'ann' has used up its budget of today: {part} (in all 0 calls, 86 tokens")
    assert cut.answer.endswith(f"{RENEWS}.")
    said = replace(used, messages=(UserMessage("q"), Reply("So far.")))
    assert ending(await stage.allowance(own, budget).cut(said)).answer == f"So far.\n\n({cut.answer})"


async def test_a_turn_ends_where_it_and_its_sub_agents_have_used_its_own_limits() -> None:
    stage = Stage()
    await stage.store.reserve_share("t", Allotment(20, 60, 4, 1.0), 10)
    for limits, answer in (
        ({"tokens": 36}, "This turn has used 6 tokens and its sub-agents use 30 tokens, of 36 tokens."),
        ({"cost_usd": 0.6}, "This turn has used 0.1000 USD and its sub-agents use 0.5000 USD, of 0.6000 USD."),
    ):
        own = turn(**limits)
        used = replace(own, usage=Usage(4, 2, cost_usd=0.1))
        assert ending(await stage.allowance(own, lends=True).cut(used)).answer == answer


@pytest.mark.parametrize(
    ("budget", "limits", "lends", "reserves"),
    [
        (None, {}, False, False),
        (Budget(calls=3, wall_s=9), {}, True, False),
        (Budget(tokens=3), {}, False, True),
        (Budget(cost_usd=3), {}, False, True),
        (None, {"tokens": 5}, True, True),
        (None, {"cost_usd": 5}, True, True),
        (None, {"tokens": 5, "cost_usd": 5}, False, False),
    ],
)
def test_usage_is_reserved_where_tokens_or_money_are_shared(
    budget: Budget | None, limits: dict[str, float], lends: bool, reserves: bool
) -> None:
    assert Stage().allowance(turn(**limits), budget, lends=lends).reserves_usage is reserves


class Noting(MemoryStore):
    """Notes what is to be reserved."""

    def __init__(self, clock: FrozenClock) -> None:
        super().__init__(clock=clock, monotonic=clock)
        self.requests: list[UsageRequest] = []

    async def reserve_usage(self, turn: Turn, request: UsageRequest) -> bool:
        self.requests.append(request)
        return await super().reserve_usage(turn, request)


class Priced(ScriptedModel):
    """Knows what its tokens cost, where there are some."""

    max_output_tokens = 7

    def price(self, usage: Usage) -> float | None:
        return 0.001 * usage.total_tokens if usage.output_tokens == 20 else None


async def wanted(own: Turn, budget: Budget | None, model: ScriptedModel, request: Request = ASK, **more: Any) -> Any:
    stage = Stage()
    stage.rates |= more.pop("rates", {})
    stage.store = store = Noting(stage.clock)
    allowance = stage.allowance(own, budget, **more)
    assert (await allowance.reserve(own, request, model)).ending is None
    return store.requests[-1]


async def test_what_is_reserved_is_what_the_answer_may_use() -> None:
    plain = await wanted(turn(tokens=500), Budget(tokens=900), MODEL, lends=True)
    assert plain == UsageRequest(Spending(0, WANT, 0.0), Budget(tokens=900), ("ann", "bob"), Budget(None, 500, None))
    assert (await wanted(turn(tokens=500), None, MODEL)).own == Budget()
    priced = [
        (await wanted(own, budget, Priced())).want.cost_usd
        for own, budget in ((turn(cost_usd=3.0), None), (turn(), Budget(cost_usd=3.0)), (turn(), Budget(tokens=900)))
    ]
    assert priced == pytest.approx([0.001 * WANT, 0.001 * WANT, 0.0])
    short = replace(ASK, max_tokens=None)
    assert (await wanted(turn(), Budget(tokens=900), Priced(), short)).want.tokens == 7 + WANT - 20
    known = await wanted(turn(), Budget(cost_usd=3.0), Priced(), short, rates={Priced().name: 0.01})
    assert known.want.cost_usd == pytest.approx(0.01 * (7 + WANT - 20))
    assert (await wanted(turn(), Budget(cost_usd=3.0), MODEL)).want.cost_usd == inf


async def test_what_was_used_already_is_reserved_as_well() -> None:
    stage = await Stage().begin()
    own, budget = turn(deadline_s=5.0), Budget(tokens=80 + WANT)
    allowance = stage.allowance(own, budget)
    await stage.store.begin(own)
    other = Turn("other", agent="bob")
    await stage.store.begin(other)
    assert await stage.store.reserve_usage(other, UsageRequest(Spending(0, 5), budget, ("ann", "bob")))
    stage.clock.advance(5.0)
    late = await allowance.reserve(own, ASK, MODEL, Spending(tokens=10 * WANT))
    assert ending(late) == Ending(EndReason.DEADLINE, "The time for this turn is over.")
    await stage.store.release_usage(other)
    assert (await allowance.reserve(own, ASK, MODEL)).ending is None


async def test_a_call_waits_for_what_others_hold_and_not_for_ever() -> None:
    stage = await Stage().begin()
    own, budget = turn(), Budget(tokens=81)
    for one in (own, Turn("other", agent="bob")):
        await stage.store.begin(one)
    assert await stage.store.reserve_usage(
        Turn("other", agent="bob"), UsageRequest(Spending(0, 5), budget, ("ann", "bob"))
    )
    ticks = iter([100.0, 101.0, 699.0, 101.0, 700.0])
    waiting = Allowance(
        stage.store, own, stage.clock, lambda: next(ticks), budget=budget, accounts=("bob",), lends=False, rates={}
    )  # fmt: skip
    ended = ending(await waiting.reserve(own, ASK, MODEL))
    assert (ended.reason, ended.answer.startswith("The rest of today's budget is reserved by turns")) == (
        EndReason.TOKEN_BUDGET, True,
    )  # fmt: skip
    spent = ending(await stage.allowance(own, Budget(tokens=80)).reserve(own, ASK, MODEL))
    assert spent.answer.startswith("agent 'ann' has used up its budget of today: 80 tokens of 80 tokens")


def test_the_price_of_a_token_is_the_highest_that_was_seen() -> None:
    stage = Stage()
    allowance = stage.allowance(turn())
    for usage, rate in (
        (Usage(0, 0), None),
        (Usage(1, 1), 0.0),
        (Usage(1, 1, cost_usd=0.4), 0.2),
        (Usage(2, 2, cost_usd=0.4), 0.2),
    ):
        allowance.learn_price(Reply("x", usage=usage), MODEL)
        assert stage.rates.get(MODEL.name) == rate


def test_calls_of_the_day_are_reserved_and_those_beyond_refused() -> None:
    stage = Stage()
    assert stage.allowance(turn()).reservation() is None
    assert stage.allowance(turn(), Budget(tokens=3)).reservation() is None
    settling = stage.allowance(turn()).reservation(settles=True)
    assert settling is not None
    assert (settling.most, settling.settles) == (None, True)
    found = stage.allowance(turn(), Budget(calls=0)).reservation()
    assert found is not None
    assert (found.most, found.accounts, found.settles) == (0, ("ann", "bob"), False)
    card, row = found.refuse(CallCard("r", "t", 1, ToolCall("look", {}, "c"), "d", attempt=1), Spending(2))
    assert (card.attempt, card.result and card.result.error and card.result.error.code) == (0, Code.PERMISSION_DENIED)
    assert card.result is not None
    assert "2 calls of 0 calls" in card.result.text
    assert card.result.text.endswith("Answer with what you have.")
    assert (row.event, row.rule, row.at) == ("denied", "budget", stage.clock())


async def test_calls_beyond_those_that_a_turn_may_make_are_refused() -> None:
    stage = Stage()
    await stage.store.reserve_share("t", Allotment(4, None, 4), 10)
    own = turn(grant=Grant(max_calls=6), calls=2)
    allowance = stage.allowance(own, lends=True)
    cards = [CallCard(f"r{n}", "t", 1, ToolCall("look", {}, f"c{n}"), "d") for n in range(4)]
    cards[3] = replace(cards[3], result=ToolResult("c3", "look", Status.SUCCESS))
    accepted = [
        Accepted(card, Denied(card.call, Code.NOT_FOUND, "as judged", "exists"), interrupted=card.call.id == "c2")
        for card in cards
    ]
    before = allowance.within(own, accepted)
    assert before == accepted
    await allowance.cut(own)
    after = allowance.within(own, accepted)
    assert [after[n] is accepted[n] for n in range(4)] == [True, True, False, True]
    refused = after[2].decision
    assert isinstance(refused, Denied)
    assert refused.call is cards[2].call
    assert (refused.code, after[2].interrupted, after[2].card) == (Code.PERMISSION_DENIED, True, cards[2])
    assert refused.message == (
        "This turn may make 6 calls: it has made 2, and its sub-agents use 2. Answer with what you have."
    )
