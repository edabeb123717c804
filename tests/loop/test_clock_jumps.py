"""The system's time is corrected while a turn runs: that neither ends it, nor prolongs it, nor costs anything."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Approval, Limits, MemoryStore, SqliteStore, tool
from toolwire.errors import Fenced, ModelUnavailable, Suspended
from toolwire.protocol.approvals import ApprovalState
from toolwire.protocol.budgets import Budget
from toolwire.protocol.calls import NeedsApproval
from toolwire.protocol.turns import EndReason
from toolwire.record.contract import Store
from toolwire.testing import FrozenClock, Line, ScriptedModel, call

NOON = 1_700_000_000 // 86_400 * 86_400 + 43_200.0
JUMPS = pytest.mark.parametrize("jump_s", [3600.0, -3600.0], ids=["forwards", "back"])


class Clocks:
    """A store, dates that can jump, and time that passes apart from them."""

    def __init__(self, store: Store, dates: FrozenClock, passing: FrozenClock) -> None:
        self.store, self.dates, self.passing = store, dates, passing

    def agent(self, *script: Line, jump_s: float, **more: Any) -> Agent:
        @tool
        def work(seconds: float) -> str:
            """Work while somebody sets the clock."""
            self.dates.advance(seconds + jump_s)
            self.passing.advance(seconds)
            return f"worked until {self.passing()}"

        @tool(requires_confirmation=True)
        def launch() -> str:
            """Launch."""
            return "launched"

        agent = Agent(ScriptedModel(*script), [work, launch], store=self.store, **more)
        agent.runtime.clock, agent.runtime.monotonic = self.dates, self.passing
        return agent

    async def spent_s(self) -> float:
        return (await self.store.spent("agent", self.dates())).wall_s


@pytest.fixture(params=["memory", "sqlite"])
async def clocks(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Clocks]:
    dates, passing = FrozenClock(NOON), FrozenClock(500.0)
    memory = request.param == "memory"
    store: Store = (
        MemoryStore(clock=dates, monotonic=passing)
        if memory
        else await SqliteStore.at(tmp_path, clock=dates, monotonic=passing)
    )
    yield Clocks(store, dates, passing)
    await store.close_store()


@JUMPS
async def test_A7_a_jump_does_not_end_a_turn_that_has_time_left(clocks: Clocks, jump_s: float) -> None:
    script = call("work", seconds=2), call("work", seconds=2), "done"
    answer = await clocks.agent(*script, jump_s=jump_s, limits=Limits(deadline_s=5)).ask("go")
    assert answer.text == "done"
    assert await clocks.spent_s() == 4


@JUMPS
async def test_A7_a_jump_does_not_switch_a_deadline_off(clocks: Clocks, jump_s: float) -> None:
    script = call("work", seconds=2), call("work", seconds=4), "never"
    answer = await clocks.agent(*script, jump_s=jump_s, limits=Limits(deadline_s=5)).ask("go")
    assert answer.reason is EndReason.DEADLINE
    assert await clocks.spent_s() == 6


@JUMPS
async def test_A7_a_clock_jump_while_an_approval_is_pending_costs_the_turn_nothing(
    clocks: Clocks, jump_s: float
) -> None:
    async def slow(request: NeedsApproval) -> Approval:
        clocks.dates.advance(30 + jump_s)
        clocks.passing.advance(30)
        return Approval(granted=True)

    script = call("work", seconds=2), call("launch"), "done"
    answer = await clocks.agent(*script, jump_s=0, limits=Limits(deadline_s=5), approve=slow).ask("go")
    assert answer.text == "done"
    assert await clocks.spent_s() == 2


@JUMPS
async def test_A7_a_resumed_turn_goes_on_with_what_it_has_used_whatever_the_clock_says(
    clocks: Clocks, jump_s: float
) -> None:
    limits = Limits(deadline_s=10)
    with pytest.raises(ModelUnavailable):
        await clocks.agent(call("work", seconds=6), ModelUnavailable("gone"), jump_s=jump_s, limits=limits).ask("go")
    [left] = await clocks.store.turns()
    assert (await clocks.store.turn(left.id)).ran_s == 6
    clocks.passing.now = 7.0  # another process, after the machine was started again
    script = call("work", seconds=3), call("work", seconds=3), "never"
    answer = await clocks.agent(*script, jump_s=jump_s, limits=limits).resume(left.id)
    assert (answer.reason, answer.turn.calls) == (EndReason.DEADLINE, 3)
    assert await clocks.spent_s() == 12


@JUMPS
async def test_A7_an_approval_expires_when_its_time_has_passed_whatever_the_clock_says(
    clocks: Clocks, jump_s: float
) -> None:
    waiting = clocks.agent(call("launch"), "done", jump_s=0, approval_s=60, suspends=True)
    with pytest.raises(Suspended) as waits:
        await waiting.ask("go")
    [question] = waits.value.approvals
    clocks.dates.advance(50 + jump_s)
    clocks.passing.advance(50)
    assert [card.id for card in await clocks.store.approvals(only_open=True)] == [question]
    assert (await clocks.store.approval(question)).state is ApprovalState.OPEN
    clocks.dates.advance(11)
    clocks.passing.advance(11)
    assert await clocks.store.approvals(only_open=True) == []
    with pytest.raises(Fenced, match="its time is over"):
        await clocks.store.answer(question, Approval(granted=True))


@JUMPS
async def test_A7_an_answer_in_time_counts_whatever_the_clock_says(clocks: Clocks, jump_s: float) -> None:
    async def slow(request: NeedsApproval) -> Approval:
        clocks.dates.advance(50 + jump_s)
        clocks.passing.advance(50)
        return Approval(granted=True)

    agent = clocks.agent(call("launch"), "done", jump_s=0, approval_s=60, approve=slow)
    assert (await agent.ask("go")).turn.failed_calls == 0


@JUMPS
async def test_A7_a_jump_is_not_charged_to_the_day(clocks: Clocks, jump_s: float) -> None:
    budget = Budget(wall_s=100)
    await clocks.agent(call("work", seconds=2), "done", jump_s=jump_s, budget=budget).ask("go")
    assert (await clocks.agent("again", jump_s=0, budget=budget).ask("go")).text == "again"
    assert await clocks.spent_s() == 2
