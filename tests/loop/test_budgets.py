"""What a turn and a day may cost."""

from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Answer, Limits, MemoryStore, SqliteStore, tool
from toolwire.errors import BudgetSpent
from toolwire.protocol.chat import Reply, Usage
from toolwire.protocol.turns import Budget, EndReason, Spending
from toolwire.record.contract import Store
from toolwire.testing import FrozenClock, ScriptedModel, call, says


@tool
def look() -> str:
    """Look."""
    return "nothing"


def speaks(cost: float, *, calls: bool = False) -> Reply:
    return says("so", *([call("look")] if calls else []), usage=Usage(100, 0, 0, cost))


async def asked(store: Store, budget: Budget | None, *script: Reply | str, **more: Any) -> Answer:
    agent = Agent(ScriptedModel(*script), [look], store=store, budget=budget, **more)
    return await agent.ask("go")


async def test_a_turn_stops_when_its_money_is_used_up() -> None:
    answer = await asked(MemoryStore(), None, *[speaks(0.04, calls=True)] * 5, limits=Limits(cost_usd=0.1))
    assert (answer.reason, answer.turn.iterations) == (EndReason.COST_BUDGET, 3)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_the_turns_of_a_day_have_used_is_taken_from_the_next(kind: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if kind == "memory" else await SqliteStore.at(tmp_path)
    budget = Budget(calls=4, tokens=1000, cost_usd=0.1)
    first = await asked(store, budget, speaks(0.03, calls=True), speaks(0.03))
    assert (first.reason, first.turn.grant.max_calls, first.turn.limits.tokens) == (EndReason.ANSWERED, 4, 1000)
    second = await asked(store, budget, *[speaks(0.03, calls=True)] * 4)
    assert (second.reason, second.turn.grant.max_calls, second.turn.limits.tokens) == (EndReason.COST_BUDGET, 3, 800)
    with pytest.raises(BudgetSpent, match=r"2 calls, 400 tokens, 0\.1200 USD"):
        await asked(store, budget, "never")
    other = Agent(ScriptedModel("free"), [look], store=store, budget=budget, name="somebody-else")
    assert (await other.ask("go")).text == "free"
    await store.close_store()


async def test_a_new_day_has_a_new_budget() -> None:
    clock = FrozenClock()
    store = MemoryStore(clock=clock)
    agent = Agent(ScriptedModel(speaks(0.5), "tomorrow"), [look], store=store, budget=Budget(cost_usd=0.5))
    agent.runtime.clock = clock
    await agent.ask("go")
    assert await store.spent("agent", clock()) == Spending(0, 100, 0.5)
    with pytest.raises(BudgetSpent):
        await agent.ask("go")
    clock.advance(86_400)
    assert (await agent.ask("go")).text == "tomorrow"
