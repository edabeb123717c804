"""A sub-agent that waits for an approval makes its parent wait, not fail; and both go on once it is given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Approval, Grant, MemoryStore, SqliteStore, Tier, tool
from toolwire.assemble.turn_runner import RanTurn, TurnRunner
from toolwire.errors import Suspended
from toolwire.protocol.chat import ResultsMessage
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import ForApproval, ForTurn
from toolwire.record.contract import Store, TurnSummary
from toolwire.testing import ScriptedModel, call
from toolwire.toolbox.agents.delegation import SubAgents
from toolwire.toolbox.agents.delegation_tools import teamwork
from toolwire.toolbox.agents.workers import SubAgentProfile

GRANT = Grant(Tier.RUN, frozenset({"session"}), confirmed=frozenset({"task", "sessions_send", "sessions_spawn"}))


class House:
    """A boss that lets a worker unlock doors, which needs approval."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.opened: list[int] = []

        @tool(tier=Tier.RUN)
        def unlock(door: int) -> str:
            """Unlock a door."""
            self.opened.append(door)
            return f"door {door} is open"

        self.unlock = unlock

    def boss(self, script: tuple[Any, ...], work: tuple[Any, ...]) -> Agent:
        def make(grant: Grant) -> Agent:
            return Agent(ScriptedModel(*work), [self.unlock], grant=grant, store=self.store, suspends=True)

        sub_agents = SubAgents(self.store, [SubAgentProfile("porter", "opens doors", GRANT, make)])
        model = ScriptedModel(*script)
        return Agent(model, teamwork(sub_agents), grant=GRANT, store=self.store, suspends=True, name="boss")

    async def begin(self) -> Suspended:
        boss = self.boss((call("task", prompt="Open 7"),), (call("unlock", door=7),))
        with pytest.raises(Suspended) as waits:
            await boss.ask("Have 7 opened")
        return waits.value

    async def approve(self, *, granted: bool = True) -> None:
        [asked] = await self.store.approvals(only_open=True)
        await self.store.answer(asked.id, Approval(granted))


@pytest.fixture(params=["memory", "sqlite"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    store: Store = MemoryStore() if request.param == "memory" else await SqliteStore.at(tmp_path)
    yield House(store)
    await store.close_store()


async def test_a_parent_waits_for_the_turn_of_its_sub_agent_and_for_what_that_waits_for(house: House) -> None:
    waits = await house.begin()

    [child] = [turn for turn in await house.store.turns() if turn.agent == "porter"]
    [asked] = await house.store.approvals()
    assert waits.waits == (ForTurn(child.id), ForApproval(asked.id))
    assert [card.result for card in await house.store.calls(turn_id=waits.turn_id)] == [None]
    assert child.waits == (ForApproval(asked.id),)


@pytest.mark.parametrize("granted", [True, False])
async def test_after_the_answer_the_parent_goes_on_with_the_same_sub_agent(house: House, granted: bool) -> None:
    waits = await house.begin()
    await house.approve(granted=granted)

    answer = await house.boss(("All done.",), ("It is done.",)).resume(waits.turn_id)

    assert (answer.text, house.opened) == ("All done.", [7] if granted else [])
    [results] = [said for said in answer.turn.messages if isinstance(said, ResultsMessage)]
    assert "It is done." in results.results[0].text
    assert {(turn.agent, turn.state) for turn in await house.store.turns()} == {("boss", "ended"), ("porter", "ended")}


async def test_resumed_too_early_both_wait_on(house: House) -> None:
    first = await house.begin()
    with pytest.raises(Suspended) as second:
        await house.boss((), ()).resume(first.turn_id)

    assert (second.value.waits, house.opened) == (first.waits, [])
    assert len(await house.store.turns()) == 2


async def test_a_sub_agent_that_somebody_else_went_on_with_is_not_run_again(house: House) -> None:
    waits = await house.begin()
    await house.approve()
    [child] = [turn for turn in await house.store.turns() if turn.agent == "porter"]
    porter = Agent(ScriptedModel("It is done."), [house.unlock], grant=GRANT, store=house.store, suspends=True)
    await porter.resume(child.id)

    answer = await house.boss(("All done.",), ()).resume(waits.turn_id)

    assert (answer.text, house.opened) == ("All done.", [7])
    assert "It is done." in str(answer.turn.messages)


class LateAnswers(MemoryStore):
    """Whatever can go on does so before this store has said which turns are ready."""

    async def ready_turns(self, *args: Any, **more: Any) -> list[TurnSummary]:
        found = await super().ready_turns(*args, **more)
        for _ in range(1_000):
            await asyncio.sleep(0)
        return found


async def test_a_turn_that_becomes_ready_while_a_runner_looks_is_found_before_it_is_idle() -> None:
    await runners_continue_both(House(LateAnswers()))


async def test_runners_continue_a_parent_and_its_sub_agent_in_any_order_and_open_the_door_once(house: House) -> None:
    await runners_continue_both(house)


async def runners_continue_both(house: House) -> None:
    waits = await house.begin()
    await house.approve()
    ran: list[RanTurn] = []

    @asynccontextmanager
    async def again(turn: Turn) -> AsyncIterator[Agent]:
        if turn.agent == "porter":
            yield Agent(ScriptedModel("It is done."), [house.unlock], grant=GRANT, store=house.store, suspends=True)
        else:
            yield house.boss(("All done.",), ("It is done.",))

    async with asyncio.timeout(30):
        await TurnRunner(house.store, again, tell=ran.append).run_until_idle()

    assert (house.opened, {one.error for one in ran}) == ([7], {""})
    assert (await house.store.turn(waits.turn_id)).state == "ended"
