"""What a turn and a day may cost."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.record.conftest import libsql_server
from tests.record.samples import a_turn
from toolwire import Agent, Answer, Approval, Limits, MemoryStore, SqliteStore, tool
from toolwire.errors import BudgetSpent, ModelUnavailable
from toolwire.protocol.budgets import Budget, Spending
from toolwire.protocol.calls import NeedsApproval, ToolResult
from toolwire.protocol.chat import Delta, Reply, Request, ResultsMessage, Usage
from toolwire.protocol.turns import EndReason
from toolwire.record.contract import Store, UsageRequest
from toolwire.record.libsql import LibsqlStore
from toolwire.testing import FrozenClock, Line, ScriptedModel, call, says

SPENDER = Path(__file__).with_name("spender.py")


@tool
def look() -> str:
    """Look."""
    return "nothing"


def speaks(cost: float, *, calls: bool = False) -> Reply:
    return says("so", *([call("look")] if calls else []), usage=Usage(100, 0, 0, cost))


class Day:
    """A store and a clock that stands still, and agents whose tools take as long as they are told to."""

    def __init__(self, store: Store, clock: FrozenClock) -> None:
        self.store, self.clock = store, clock

    def agent(self, *script: Line, **more: Any) -> Agent:
        @tool
        def work(seconds: float) -> str:
            """Work."""
            self.clock.advance(seconds)
            return f"worked {self.clock()}"

        @tool(requires_confirmation=True)
        def launch() -> str:
            """Launch."""
            self.clock.advance(5)
            return "launched"

        model = ScriptedModel(*script)
        agent = Agent(model, [work, launch], store=self.store, budget=Budget(wall_s=100), **more)
        agent.runtime.clock = agent.runtime.monotonic = self.clock
        return agent


@pytest.fixture(params=["memory", "sqlite"])
async def day(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Day]:
    clock = FrozenClock(time.time() // 86_400 * 86_400 + 3600)
    memory = request.param == "memory"
    store: Store = (
        MemoryStore(clock=clock, monotonic=clock)
        if memory
        else await SqliteStore.at(tmp_path, clock=clock, monotonic=clock)
    )
    yield Day(store, clock)
    await store.close_store()


def results_of(answer: Answer) -> list[ToolResult]:
    return [one for said in answer.turn.messages if isinstance(said, ResultsMessage) for one in said.results]


async def asked(store: Store, budget: Budget | None, *script: Line, **more: Any) -> Answer:
    agent = Agent(ScriptedModel(*script), [look], store=store, budget=budget, **more)
    return await agent.ask("go")


async def test_a_turn_stops_when_its_money_is_used_up() -> None:
    answer = await asked(MemoryStore(), None, *[speaks(0.04, calls=True)] * 5, limits=Limits(cost_usd=0.1))
    assert (answer.reason, answer.turn.iterations) == (EndReason.COST_BUDGET, 3)


async def test_what_the_turns_of_a_day_have_used_is_taken_from_the_next(day: Day) -> None:
    store, budget = day.store, Budget(calls=4, tokens=1000, cost_usd=0.1)
    first = await asked(store, budget, speaks(0.03, calls=True), speaks(0.03))
    assert (first.reason, first.turn.limits.tokens) == (EndReason.ANSWERED, 1000)
    second = await asked(store, budget, *[speaks(0.03, calls=True)] * 4)
    assert (second.reason, second.turn.limits.tokens) == (EndReason.COST_BUDGET, 800)
    assert "has used up its budget of today: 0.1200 USD of 0.1000 USD" in second.text
    with pytest.raises(BudgetSpent, match=r"2 calls, 400 tokens, 0\.1200 USD") as refusal:
        await asked(store, budget, "never")
    assert "it renews at " in str(refusal.value)
    assert str(refusal.value).endswith(" UTC; raise budget.cost_usd, or go on then")
    other = Agent(ScriptedModel("free"), [look], store=store, budget=budget, name="somebody-else")
    assert (await other.ask("go")).text == "free"


async def test_a_call_beyond_those_of_the_day_is_refused_with_how_many_there_were(day: Day) -> None:
    budget = Budget(calls=3)
    await asked(day.store, budget, [call("look"), call("look")], "so")
    second = await asked(day.store, budget, [call("look", str(each)) for each in "ab"], "so")
    made, refused = results_of(second)
    assert (made.text, refused.ok) == ("nothing", False)
    assert refused.text.startswith("agent 'agent' has used up its budget of today: 3 calls of 3 calls")
    assert " UTC. Answer with what you have." in refused.text
    [row] = [row for row in await day.store.audit_log(turn_id=second.turn_id) if row.rule == "budget"]
    assert (row.event, row.code) == ("denied", "permission_denied")
    assert (await day.store.spent("agent", day.clock())).calls == 3


async def test_a_new_day_has_a_new_budget() -> None:
    clock = FrozenClock()
    store = MemoryStore(clock=clock, monotonic=clock)
    agent = Agent(ScriptedModel(speaks(0.5), "tomorrow"), [look], store=store, budget=Budget(cost_usd=0.5))
    agent.runtime.clock = agent.runtime.monotonic = clock
    await agent.ask("go")
    assert await store.spent("agent", clock()) == Spending(0, 100, 0.5)
    with pytest.raises(BudgetSpent, match="1970-01-13 00:00 UTC"):
        await agent.ask("go")
    clock.advance(86_400)
    assert (await agent.ask("go")).text == "tomorrow"


async def test_seconds_of_the_day_are_used_up_like_anything_else(day: Day) -> None:
    first = await day.agent(call("work", seconds=60), "done").ask("go")
    assert (first.reason, first.turn.limits.deadline_s) == (EndReason.ANSWERED, 100)
    second = await day.agent(call("work", seconds=30), call("work", seconds=30), "never").ask("go")
    assert (second.reason, second.turn.limits.deadline_s) == (EndReason.DEADLINE, 40)
    assert "has used up its budget of today: 120.0 s of 100.0 s" in second.text
    with pytest.raises(BudgetSpent, match=r"120\.0 s of 100\.0 s .* raise budget\.wall_s"):
        await day.agent("never").ask("go")
    with pytest.raises(BudgetSpent):
        await day.agent().call("work", {"seconds": 1})


async def test_time_spent_waiting_for_approval_is_not_counted_for_the_day(day: Day) -> None:
    async def slow(request: NeedsApproval) -> Approval:
        day.clock.advance(3600)
        return Approval(granted=True)

    answer = await day.agent(call("launch"), "done", approve=slow).ask("go")
    assert (answer.text, (await day.store.spent("agent", day.clock())).wall_s) == ("done", 5)


async def test_a_pending_approval_costs_the_turn_no_time(day: Day) -> None:
    """The process is stopped while it asks: what it waited for is not what it ran."""

    async def leaves(request: NeedsApproval) -> Approval:
        day.clock.advance(3600)
        raise asyncio.CancelledError

    agent = day.agent(call("launch"), "done", approve=leaves)
    with pytest.raises(asyncio.CancelledError):
        await agent.ask("go")
    [summary] = await day.store.turns()
    assert (await day.store.turn(summary.id)).ran_s == 0


async def test_a_resumed_turn_goes_on_with_the_time_that_it_had_left(day: Day) -> None:
    """A day passes in which nobody runs it, and that is not its time; the 40 seconds before are."""
    limits, lost = Limits(deadline_s=60), ModelUnavailable("gone")
    with pytest.raises(ModelUnavailable):
        await day.agent(call("work", seconds=40), lost, limits=limits).ask("go")
    [summary] = await day.store.turns()
    assert await day.store.spent("agent", day.clock()) == Spending(1, wall_s=40)
    day.clock.advance(86_400)
    assert await day.store.spent("agent", day.clock()) == Spending()

    resumed = await day.agent(call("work", seconds=30), "never", limits=limits).resume(summary.id)

    assert resumed.reason == EndReason.DEADLINE
    assert await day.store.spent("agent", day.clock()) == Spending(2, wall_s=70)


async def test_a_turn_for_which_nothing_is_left_today_can_be_resumed_when_there_is(day: Day) -> None:
    with pytest.raises(ModelUnavailable):
        await day.agent(ModelUnavailable("gone")).ask("go")
    [summary] = await day.store.turns()
    await day.agent(call("work", seconds=100), "never").ask("go")
    with pytest.raises(BudgetSpent):
        await day.agent("never").resume(summary.id)
    day.clock.advance(86_400)
    assert (await day.agent("at last").resume(summary.id)).text == "at last"


async def test_a_turn_that_waits_counts_for_the_others_before_it_ends(day: Day) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await go_on.wait()
        return "waited"

    budget = Budget(calls=2)
    slow = Agent(ScriptedModel([call("wait", "a"), call("look", "b")], "done"), [wait, look], store=day.store)
    async with asyncio.timeout(5):
        task = asyncio.create_task(slow.ask("go"))
        await began.wait()
        with pytest.raises(BudgetSpent, match="2 calls of 2 calls"):
            await asked(day.store, budget, "never")
        go_on.set()
        assert (await task).text == "done"


@pytest.mark.parametrize("most", [1, 3, 7])
async def test_turns_at_the_same_time_never_make_more_calls_than_a_day_has(day: Day, most: int) -> None:
    made: list[str] = []

    @tool
    def count(turn: str) -> str:
        """Count."""
        made.append(turn)
        return "counted"

    def agent(name: str) -> Agent:
        script = [call("count", at, turn=name) for at in "abc"], call("count", turn=name), "done"
        return Agent(ScriptedModel(*script), [count], store=day.store, budget=Budget(calls=most))

    async with asyncio.timeout(20):
        await asyncio.gather(*(agent(str(each)).ask("go") for each in range(6)), return_exceptions=True)
    assert len(made) == most
    assert (await day.store.spent("agent", day.clock())).calls == most


async def test_A7_single_calls_at_the_same_time_are_never_more_than_a_day_has(day: Day) -> None:
    made: list[int] = []

    @tool
    def count(number: int) -> str:
        """Count."""
        made.append(number)
        return "counted"

    def one(number: int) -> Coroutine[Any, Any, ToolResult]:
        agent = Agent(ScriptedModel(), [count], store=day.store, budget=Budget(calls=5))
        return agent.call("count", {"number": number})

    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(*map(one, range(12)), return_exceptions=True)
    assert len(made) == 5
    assert sum(isinstance(outcome, ToolResult) and outcome.ok for outcome in outcomes) == 5
    assert (await day.store.spent("agent", day.clock())).calls == 5


async def test_A7_what_was_refused_or_did_not_run_costs_nothing(day: Day) -> None:
    """Denied by the policy, by a person, unknown, repeated, given up before it began: only one call has run."""

    async def no(request: NeedsApproval) -> Approval:
        return Approval(granted=False)

    @tool(requires_confirmation=True)
    def launch() -> str:
        """Launch."""
        return "launched"

    @tool(needs=["network"])
    def reach() -> str:
        """RuleReach."""
        return "reached"

    script = [call("launch"), call("reach"), call("nothing")], [call("look", "same"), call("look", "same")], "done"
    agent = Agent(ScriptedModel(*script), [look, launch, reach], store=day.store, budget=Budget(calls=2), approve=no)
    assert (await agent.ask("go")).text == "done"
    assert (await day.store.spent("agent", day.clock())).calls == 1
    assert not (await agent.call("launch", {})).ok
    assert (await day.store.spent("agent", day.clock())).calls == 1
    assert (await agent.call("look", {})).ok
    with pytest.raises(BudgetSpent, match="2 calls of 2 calls"):
        await agent.call("look", {})


async def test_A7_a_resumed_turn_reserves_like_any_other(day: Day) -> None:
    """Two of three calls are made by others while it is interrupted."""
    budget = Budget(calls=3)
    with pytest.raises(ModelUnavailable):
        await asked(day.store, budget, call("look"), ModelUnavailable("gone"))
    [left] = await day.store.turns()
    await asked(day.store, budget, call("look"), "so")
    agent = Agent(ScriptedModel([call("look", "a"), call("look", "b")], "so"), [look], store=day.store, budget=budget)
    answer = await agent.resume(left.id)
    assert [result.ok for result in results_of(answer)] == [True, True, False]
    assert (await day.store.spent("agent", day.clock())).calls == 3


async def test_A7_projects_have_days_of_their_own(day: Day) -> None:
    for project in ("house", "garden"):
        agent = Agent(ScriptedModel(), [look], store=day.store, budget=Budget(calls=1), project=project)
        assert (await agent.call("look", {})).ok
        with pytest.raises(BudgetSpent):
            await agent.call("look", {})


async def spent_by_ten(tmp_path: Path, kind: str, way: str, most: int) -> tuple[list[str], Spending]:
    """What ten processes have written into their ledger that spend until the day is used up, and what is on record."""
    ledger, home = tmp_path / "ledger", tmp_path / "home"
    with libsql_server(tmp_path) as url:
        words = [str(SPENDER), kind, url, str(home), str(ledger), way, str(most)]
        processes = [forked.python(*words) for _ in range(10)]
        async with asyncio.timeout(120):
            for process in processes:
                assert process.stdout is not None
                assert await asyncio.to_thread(process.stdout.readline) == b"ready\n"
            ending = (asyncio.to_thread(process.communicate, b"go\n") for process in processes)
            said = await asyncio.gather(*ending)
        opening = SqliteStore.at(home) if kind == "sqlite" else LibsqlStore.on(url, home)
        async with await opening as store:
            spent = await store.spent("agent", time.time())
    assert [out for out, _ in said] == [b"spent\n"] * 10
    return ledger.read_text().splitlines(), spent


@pytest.mark.parametrize(("kind", "way"), [("sqlite", "ask"), ("libsql", "call")])
async def test_A7_ten_processes_never_make_more_calls_than_a_day_has(tmp_path: Path, kind: str, way: str) -> None:
    lines, spent = await spent_by_ten(tmp_path, kind, way, 25)
    assert len(lines) == spent.calls == 25


@pytest.mark.parametrize(("kind", "way"), [("sqlite", "tokens"), ("libsql", "money")])
async def test_A7_ten_processes_exceed_a_day_by_less_than_one_reply(tmp_path: Path, kind: str, way: str) -> None:
    """Each reply uses what was expected of it, so that only the last one, which took what was left, may exceed that."""
    lines, spent = await spent_by_ten(tmp_path, kind, way, 2_000)
    used = [int(line) for line in lines]
    assert 2_000 <= sum(used) < 2_000 + max(used)
    assert (spent.tokens, round(spent.cost_usd, 6)) == (sum(used), sum(used) / 1000)


class SlowModel(ScriptedModel):
    """A scripted model that says when it was asked, and answers when it may."""

    def __init__(self, *script: Line) -> None:
        super().__init__(*script)
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        reply = await super().ask(request, on_delta)
        self.asked.set()
        await self.may_answer.wait()
        return reply


@pytest.mark.parametrize("budget", [Budget(tokens=100), Budget(cost_usd=0.5)])
async def test_A7_the_last_tokens_are_reserved_before_the_model_is_asked(day: Day, budget: Budget) -> None:
    slow, other = SlowModel(speaks(0.5)), ScriptedModel(speaks(0.5))
    first = asyncio.create_task(Agent(slow, [look], store=day.store, budget=budget).ask("go"))
    second = None
    async with asyncio.timeout(30):
        await slow.asked.wait()
        second = asyncio.create_task(Agent(other, [look], store=day.store, budget=budget).ask("go"))
        await asyncio.wait({second}, timeout=0.3)  # time enough to ask, if it did not wait
        slow.may_answer.set()
        answers = await asyncio.gather(first, second)

    assert answers[0].text == "so"
    assert other.requests == []
    assert answers[1].turn.ending is not None
    assert answers[1].turn.ending.reason in (EndReason.TOKEN_BUDGET, EndReason.COST_BUDGET)
    spent = await day.store.spent("agent", time.time())
    assert (spent.tokens, spent.cost_usd) == (100, 0.5)


async def test_A7_a_reservation_that_was_too_large_is_released_with_the_reply(day: Day) -> None:
    """Each call expects 4,096 tokens and more, and uses 100."""
    for _ in range(5):
        answer = await Agent(ScriptedModel(speaks(0.1)), [look], store=day.store, budget=Budget(tokens=5_000)).ask("go")
        assert answer.text == "so"
    assert (await day.store.spent("agent", time.time())).tokens == 500


async def test_A7_a_model_that_fails_holds_nothing(day: Day) -> None:
    budget = Budget(tokens=100)
    with pytest.raises(ModelUnavailable):
        await Agent(ScriptedModel(ModelUnavailable("gone")), [look], store=day.store, budget=budget).ask("go")
    async with asyncio.timeout(30):
        answer = await Agent(ScriptedModel(speaks(0.1)), [look], store=day.store, budget=budget).ask("go")
    assert answer.text == "so"


async def test_A7_a_turn_whose_time_is_over_does_not_wait_for_the_tokens_of_others(day: Day) -> None:
    slow, budget = SlowModel(speaks(0.1)), Budget(tokens=100)
    first = asyncio.create_task(Agent(slow, [look], store=day.store, budget=budget).ask("go"))
    async with asyncio.timeout(30):
        await slow.asked.wait()
        hurried = Agent(ScriptedModel(), [look], store=day.store, budget=budget, limits=Limits(deadline_s=0.2))
        answer = await hurried.ask("go")
        slow.may_answer.set()
        await first
    assert answer.turn.ending is not None
    assert answer.turn.ending.reason is EndReason.DEADLINE


async def test_A7_a_summary_reserves_what_it_uses_and_settles_it(day: Day) -> None:
    model, budget = ScriptedModel(*[says("so", usage=Usage(40, 10, 0, 0.1))] * 10), Budget(tokens=100_000)
    limits = Limits(window_tokens=1_000, compact_at=0.5)
    agent = Agent(model, [], store=day.store, budget=budget, limits=limits)
    for question in ("go " * 500, "go " * 500, "go"):
        await agent.ask(question, thread="chat")

    used = 50 * len(model.requests)
    assert used > 150  # with summaries
    assert (await day.store.spent("agent", time.time())).tokens == used
    rest = UsageRequest(Spending(0, 100_000 - used), budget, ("agent",))
    assert await day.store.reserve_usage(a_turn("next"), rest)  # none holds anything any more
