"""What sub-agents hold of their question: never more than it has, and given back whatever becomes of them."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire import Agent, Grant, MemoryStore, Tier, tool
from toolwire.errors import ModelUnavailable
from toolwire.protocol.budgets import Budget, Spending
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import ResultsMessage, Usage
from toolwire.protocol.outcomes import Code
from toolwire.protocol.policy import Autonomy
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import Limits
from toolwire.record.contract import Store
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import FrozenClock, Line, ScriptedModel, call, says
from toolwire.toolbox.agents.delegation import SubAgents
from toolwire.toolbox.agents.delegation_tools import teamwork
from toolwire.toolbox.agents.workers import SubAgentProfile

GRANT = Grant(Tier.RUN, frozenset({"session"}), confirmed=frozenset({"*"}), autonomy=Autonomy.FULL, max_calls=20)


class Question:
    """A boss and one worker over a store; the tool `step` counts who has used it."""

    def __init__(self, store: Store, *, budget: Budget | None = None, clock: FrozenClock | None = None) -> None:
        self.store, self.clock, self.budget = store, clock, budget
        self.steps: list[str] = []
        self.lines: list[Line] = []
        self.tools: tuple[Tool, ...] = (self._step(),)
        self.sub_agents = SubAgents(store, [SubAgentProfile("hand", "works", GRANT, self._hand)], budget=budget)

    def _step(self) -> Tool:
        @tool
        async def step(who: str, seconds: float = 0) -> str:
            """Take a step."""
            await asyncio.sleep(0)
            if self.clock:
                self.clock.advance(seconds)
            self.steps.append(who)
            return f"step {len(self.steps)}"

        return step

    def _hand(self, grant: Grant) -> Agent:
        return self._timed(
            Agent(ScriptedModel(*self.lines), (*self.tools, *teamwork(self.sub_agents)), store=self.store)
        )

    def boss(self, *script: Line, limits: Limits | None = None, grant: Grant = GRANT) -> Agent:
        tools = (*self.tools, *teamwork(self.sub_agents))
        return self._timed(
            Agent(ScriptedModel(*script), tools, grant=grant, limits=limits, store=self.store, budget=self.budget,
                  accounts=["hand"], name="boss")
        )  # fmt: skip

    def _timed(self, agent: Agent) -> Agent:
        if self.clock:
            agent.runtime.clock = agent.runtime.monotonic = self.clock
        return agent


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    kept: Store = MemoryStore() if request.param == "memory" else await SqliteStore.at(tmp_path)
    yield kept
    await kept.close_store()


def results(agent: Agent) -> list[ToolResult]:
    model = agent.model
    assert isinstance(model, ScriptedModel)
    said = model.requests[-1].messages
    return [one for each in said if isinstance(each, ResultsMessage) for one in each.results]


async def test_a_share_comes_back_less_what_was_used_of_it(store: Store) -> None:
    question = Question(store)
    question.lines = [says("", call("step", who="hand"), usage=Usage(30, 0, 0, 0.25)), says("Done.", usage=Usage(5, 0))]
    async with asyncio.timeout(5):
        answer = await question.boss(call("task", prompt="Go."), "So.", limits=Limits(tokens=1000, cost_usd=4)).ask("?")

    assert await store.reserved_shares(answer.turn_id) == Spending(1, 35, 0.25)


@pytest.mark.parametrize(
    "lines", [[], [says("", call("step", who="hand"), usage=Usage(30, 0)), ModelUnavailable("gone")]]
)
async def test_a_sub_agent_that_fails_gives_back_what_it_has_not_used(store: Store, lines: list[Line]) -> None:
    question = Question(store)
    question.lines = lines
    boss = question.boss(call("task", prompt="Go."), "So.", limits=Limits(tokens=1000))
    async with asyncio.timeout(5):
        answer = await boss.ask("?")

    assert [one.error and one.error.code for one in results(boss)] == [Code.UNAVAILABLE]
    assert await store.reserved_shares(answer.turn_id) == (Spending(1, 30) if lines else Spending())


async def test_a_sub_agent_that_is_stopped_gives_back_what_it_has_not_used(store: Store) -> None:
    question, began = Question(store), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await asyncio.Event().wait()
        return "never"

    question.tools = (*question.tools, wait)
    question.lines = [says("", call("wait"), usage=Usage(30, 0))]
    async with asyncio.timeout(5):
        async with question.sub_agents:
            answer = await question.boss(call("sessions_spawn", prompt="Go."), "So.", limits=Limits(tokens=1000)).ask(
                "?"
            )
            await began.wait()
            assert (await store.reserved_shares(answer.turn_id)).calls == 10
    assert await store.reserved_shares(answer.turn_id) == Spending(1, 30)


async def test_what_sub_agents_hold_is_not_their_questions_own(store: Store) -> None:
    """One in the background holds half of 7 calls: the question has made 2 and may make 1 more, not 5."""
    question, go_on = Question(store), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        await go_on.wait()
        return "waited"

    question.tools = (*question.tools, wait)
    question.lines = [call("wait"), "Done."]
    boss = question.boss(
        call("step", who="boss"), call("sessions_spawn", prompt="Go."), [call("step", at, who="boss") for at in "abcd"],
        "So.", grant=Grant(Tier.RUN, frozenset({"session"}), confirmed=frozenset({"*"}), max_calls=7),
    )  # fmt: skip
    async with asyncio.timeout(5):
        async with question.sub_agents:
            await boss.ask("?")
            go_on.set()

    steps = [one for one in results(boss) if one.name == "step"]
    assert [one.ok for one in steps] == [True, True, True, False, False]
    assert steps[-1].text.startswith("This turn may make 7 calls: it has made 2, and its sub-agents use 3.")


async def test_a_question_ends_when_it_and_its_sub_agents_have_used_its_tokens(store: Store) -> None:
    question = Question(store)
    question.lines = [says("Done.", usage=Usage(450, 0))]
    asks = says("", call("task", prompt="Go."), usage=Usage(100, 0))
    boss = question.boss(asks, says("", call("step", who="boss"), usage=Usage(450, 0)), limits=Limits(tokens=1000))
    async with asyncio.timeout(5):
        answer = await boss.ask("?")

    assert (answer.reason, question.steps) == ("token_budget", [])
    assert answer.text == "This turn has used 550 tokens and its sub-agents use 450 tokens, of 1,000 tokens."


async def test_time_that_somebody_waits_for_a_sub_agent_counts_once() -> None:
    clock = FrozenClock()
    store = MemoryStore(clock=clock, monotonic=clock)
    question = Question(store, budget=Budget(wall_s=100), clock=clock)
    question.lines = [call("step", who="hand", seconds=30), "Done."]
    async with asyncio.timeout(5):
        await question.boss(call("task", prompt="Go."), "So.").ask("?")

    assert (await store.spent("boss", clock())).wall_s + (await store.spent("hand", clock())).wall_s == 30


async def test_a_sub_agent_in_the_background_has_no_more_time_than_its_question_left() -> None:
    clock = FrozenClock()
    store = MemoryStore(clock=clock, monotonic=clock)
    question = Question(store, clock=clock)
    question.lines = ["Done."]
    script = call("step", who="boss", seconds=30), call("sessions_spawn", prompt="Go."), "So."
    async with asyncio.timeout(5), question.sub_agents:
        await question.boss(*script, limits=Limits(deadline_s=50)).ask("?")
        [turn] = [one for one in await store.turns() if one.agent == "hand"]

    assert (await store.turn(turn.id)).opening.limits.deadline_s == 20


@settings(max_examples=60, deadline=None)
@given(
    most=st.integers(1, 12),
    hands=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    own=st.integers(0, 4),
    fails=st.booleans(),
)
def test_however_many_work_at_once_no_more_calls_are_made_than_the_question_has(
    most: int, hands: list[int], own: int, fails: bool
) -> None:
    """A question, sub-agents beside it that call as often as they like, some of which fail: the sum stays within."""

    async def run() -> int:
        store = MemoryStore()
        question = Question(store)
        last: Line = ModelUnavailable("gone") if fails else "Done."
        question.lines = [*([call("step", str(at), who="hand") for at in range(n)] for n in hands if n), last]
        errands = [call("task", f"t{at}", prompt="Go.") for at in range(len(hands))]
        steps = [call("step", f"s{at}", who="boss") for at in range(own)]
        grant = Grant(Tier.RUN, frozenset({"session"}), confirmed=frozenset({"*"}), max_calls=most)
        script: list[Line] = [[*errands, *steps], [*errands, *steps], "So."]
        async with asyncio.timeout(20):
            answer = await question.boss(*script, grant=grant, limits=Limits(parallel=8)).ask("?")
        made = sum(card.result is not None and card.result.ok for card in await store.calls(turn_id=answer.turn_id))
        return made + question.steps.count("hand")

    assert asyncio.run(run()) <= most


async def test_A7_sub_agents_of_sub_agents_never_make_more_calls_than_the_day_has(store: Store) -> None:
    """The boss has used most of the day; a hand of a hand counts what the boss has used."""
    question = Question(store, budget=Budget(calls=6))
    question.lines = [call("task", prompt="Deeper."), *[call("step", who="hand")] * 5, "Done."]
    steps = [call("step", str(each), who="boss") for each in range(3)]
    async with asyncio.timeout(5):
        await question.boss(steps, call("task", prompt="Go."), "So.").ask("?")
    spent = [(await store.spent(name, time.time())).calls for name in ("boss", "hand")]
    assert sum(spent) <= 6
    assert len(question.steps) <= 6
    assert "boss" in question.steps
