"""A runner continues turns once what they wait for has come; two of them never run a turn twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Approval, Grant, MemoryStore, SqliteStore, Tier, Toolbox, tool
from toolwire.assemble.turn_runner import FIRST_PAUSE_S, RanTurn, TurnRunner
from toolwire.errors import StoreError, Suspended
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import Until
from toolwire.record.contract import Store
from toolwire.record.projects import of_project
from toolwire.testing import FrozenClock, ScriptedModel, call

BOUND_S = 30
GRANT = Grant(tier=Tier.RUN)


class Doors:
    """A tool that needs approval, what it did, and agents that have it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.opened: list[int] = []
        self.tools = Toolbox.of(self.tool())
        self.script: tuple[Any, ...] = ("Done.",)
        self.ran: list[RanTurn] = []

    def tool(self) -> Tool:
        @tool(tier=Tier.RUN)
        def unlock(door: int) -> str:
            """Unlock a door."""
            self.opened.append(door)
            return f"door {door} is open"

        return unlock

    def agent(self, *script: Any) -> Agent:
        return Agent(ScriptedModel(*script), self.tools, store=self.store, grant=GRANT, suspends=True)

    @asynccontextmanager
    async def again(self, turn: Turn) -> AsyncIterator[Agent]:
        yield self.agent(*self.script)

    def runner(self, **more: Any) -> TurnRunner:
        return TurnRunner(self.store, self.again, tell=self.ran.append, **more)

    async def wait_for(self, door: int, *, single: bool = False) -> Suspended:
        agent = self.agent(call("unlock", door=door))
        with pytest.raises(Suspended) as waits:
            await (agent.call("unlock", {"door": door}) if single else agent.ask("Open"))
        return waits.value

    async def approve(self, waits: Suspended, *, granted: bool = True) -> None:
        await self.store.answer(waits.approvals[0], Approval(granted))


@pytest.fixture
def doors() -> Doors:
    return Doors(MemoryStore())


@pytest.mark.parametrize("single", [False, True], ids=["question", "call"])
async def test_an_approval_is_enough_for_a_turn_to_continue(doors: Doors, single: bool) -> None:
    waits = await doors.wait_for(7, single=single)
    await doors.runner().run_until_idle()
    assert doors.ran == []

    await doors.approve(waits)
    await doors.runner().run_until_idle()

    [ran] = doors.ran
    assert (ran.turn_id, ran.state, doors.opened) == (waits.turn_id, "ended", [7])
    assert (await doors.store.turn(waits.turn_id)).state == "ended"


async def test_a_no_continues_a_turn_as_well(doors: Doors) -> None:
    await doors.approve(await doors.wait_for(7), granted=False)
    await doors.runner().run_until_idle()

    assert ([ran.state for ran in doors.ran], doors.opened) == (["ended"], [])


async def test_a_turn_that_waits_again_is_taken_up_again(doors: Doors) -> None:
    doors.script = (call("unlock", door=8),)
    waits = await doors.wait_for(7)
    await doors.approve(waits)
    await doors.runner().run_until_idle()
    assert [ran.state for ran in doors.ran] == ["waiting"]

    doors.script = ("Done.",)
    [again] = await doors.store.approvals(only_open=True)
    await doors.store.answer(again.id, Approval(granted=True))
    await doors.runner().run_until_idle()

    assert ([ran.state for ran in doors.ran], doors.opened) == (["waiting", "ended"], [7, 8])


async def test_a_running_runner_learns_of_an_approval_when_it_is_woken(doors: Doors) -> None:
    done = asyncio.Event()
    runner = TurnRunner(doors.store, doors.again, poll_s=BOUND_S, tell=lambda _: done.set())
    work = asyncio.create_task(runner.run_forever())
    waits = await doors.wait_for(7)
    await doors.approve(waits)
    runner.wake()
    async with asyncio.timeout(BOUND_S):
        await done.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert doors.opened == [7]


@pytest.mark.parametrize("runners", [2, 5])
async def test_of_several_runners_one_takes_a_turn_and_nothing_runs_twice(tmp_path: Path, runners: int) -> None:
    """Each has a store of its own over one file, as processes have."""
    async with await SqliteStore.at(tmp_path) as store:
        first = Doors(store)
        waits = [await first.wait_for(door) for door in range(6)]
        for one in waits:
            await first.approve(one)
    stores = [await SqliteStore.at(tmp_path) for _ in range(runners)]
    crews = [Doors(store) for store in stores]
    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*(crew.runner().run_until_idle() for crew in crews))
    assert sorted(door for crew in crews for door in crew.opened) == list(range(6))
    ended = [ran.turn_id for crew in crews for ran in crew.ran if ran.state == "ended"]
    assert sorted(ended) == sorted(one.turn_id for one in waits)
    for store in stores:
        await store.close_store()


async def test_a_turn_whose_tool_is_missing_waits_on_and_is_tried_again_after_a_pause(doors: Doors) -> None:
    waits = await doors.wait_for(7)
    await doors.approve(waits)
    whole, doors.tools = doors.tools, Toolbox()
    clock = FrozenClock()
    runner = doors.runner(monotonic=clock)
    await runner.run_until_idle()
    await runner.run_until_idle()
    [ran] = doors.ran
    assert (ran.state, "there is no such tool now" in ran.error, doors.opened) == ("failed", True, [])

    doors.tools = whole
    clock.advance(FIRST_PAUSE_S)
    await runner.run_until_idle()

    assert ([one.state for one in doors.ran], doors.opened) == (["failed", "ended"], [7])


async def test_one_broken_turn_does_not_stop_the_others(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    broken = await doors.wait_for(1)
    sound = await doors.wait_for(2)
    for waits in (broken, sound):
        await doors.approve(waits)

    @asynccontextmanager
    async def again(turn: Turn) -> AsyncIterator[Agent]:
        if turn.id == broken.turn_id:
            raise RuntimeError("no such luck")
        yield doors.agent("Done.")

    await TurnRunner(doors.store, again, at_once=1, tell=doors.ran.append).run_until_idle()

    assert {ran.turn_id: ran.state for ran in doors.ran} == {broken.turn_id: "failed", sound.turn_id: "ended"}
    assert doors.opened == [2]


async def test_a_model_that_does_not_answer_leaves_the_turn_ready(doors: Doors) -> None:
    waits = await doors.wait_for(7)
    await doors.approve(waits)
    doors.script = ()
    await doors.runner().run_until_idle()
    doors.script = ("Done.",)
    await doors.runner().run_until_idle()

    assert ([ran.state for ran in doors.ran], doors.opened) == (["failed", "ended"], [7])


async def test_what_runs_when_a_runner_is_stopped_goes_on_with_the_next_one(doors: Doors) -> None:
    begun = asyncio.Event()

    class Silent(ScriptedModel):
        async def ask(self, request: Any, on_delta: Any = None) -> Any:
            begun.set()
            await asyncio.Event().wait()

    @asynccontextmanager
    async def again(turn: Turn) -> AsyncIterator[Agent]:
        yield Agent(Silent(), doors.tools, store=doors.store, grant=GRANT, suspends=True)

    waits = await doors.wait_for(7)
    await doors.approve(waits)
    work = asyncio.create_task(TurnRunner(doors.store, again).run_forever())
    async with asyncio.timeout(BOUND_S):
        await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await doors.runner().run_until_idle()

    assert ([ran.state for ran in doors.ran], doors.opened) == (["ended"], [7])


async def test_a_turn_that_was_only_begun_is_run_by_the_next_runner(doors: Doors) -> None:
    begun = await doors.agent().begin("Hello?", thread="hall", turn_id="mine")
    assert (begun.id, (await doors.store.turn("mine")).state) == ("mine", "interrupted")
    with pytest.raises(StoreError, match="already kept"):
        await doors.agent().begin("Hello?", turn_id="mine")

    await doors.runner().run_until_idle()

    assert [(ran.turn_id, ran.state) for ran in doors.ran] == [("mine", "ended")]
    assert len(await doors.store.thread("hall")) == 2


async def test_a_turn_that_does_not_say_that_it_is_ready_runs_when_it_is_requested(doors: Doors) -> None:
    waits = await doors.wait_for(7)
    runner = doors.runner()
    async with runner.without(waits.turn_id):
        runner.request(waits.turn_id)
        await runner.run_until_idle()
        assert doors.ran == []
    await runner.run_until_idle()

    assert [(ran.turn_id, ran.state) for ran in doors.ran] == [(waits.turn_id, "waiting")]
    assert doors.opened == []


async def test_a_runner_of_all_projects_lets_them_take_turns(doors: Doors) -> None:
    """Turns of two projects have the same ids; the project that has most does not run them all before the others."""
    for project, number in (("flood", 5), ("late", 2), ("later", 1)):
        for place in range(number):
            turn = Turn(f"turn-{place}", project, "agent", waits=(Until(0.0),))
            await doors.store.begin(turn)
            await doors.store.release(turn)
    begun: list[tuple[str, str]] = []
    open_now: list[str] = []
    most = 0

    @asynccontextmanager
    async def again(turn: Turn) -> AsyncIterator[Agent]:
        nonlocal most
        begun.append((turn.project, turn.id))
        open_now.append(turn.project)
        most = max(most, open_now.count("flood"))
        view = of_project(doors.store, turn.project)
        yield Agent(ScriptedModel("Done."), Toolbox(), store=view, project=turn.project, grant=GRANT, suspends=True)
        open_now.remove(turn.project)

    runner = TurnRunner(doors.store, again, at_once=2, per_project=1, tell=doors.ran.append)
    await runner.run_until_idle()

    assert sorted(begun[:3]) == [("flood", "turn-0"), ("late", "turn-0"), ("later", "turn-0")]
    assert (len(begun), len(set(begun)), most) == (8, 8, 1)
    assert sorted((ran.project, ran.turn_id) for ran in doors.ran) == sorted(begun)
    assert all(ran.state == "ended" for ran in doors.ran)


async def test_calls_that_run_on_their_own_keep_no_other_turn_waiting(doors: Doors) -> None:
    """An agent is closed when such calls are done, which may take long. Meanwhile its place is free."""
    done, ran = asyncio.Event(), asyncio.Event()
    for number in range(2):
        turn = Turn(f"turn-{number}", waits=(Until(0.0),))
        await doors.store.begin(turn)
        await doors.store.release(turn)

    @asynccontextmanager
    async def again(turn: Turn) -> AsyncIterator[Agent]:
        yield doors.agent("Done.")
        if turn.id == "turn-0":
            await done.wait()

    def tell(one: RanTurn) -> None:
        doors.ran.append(one)
        ran.set()

    runner = asyncio.create_task(TurnRunner(doors.store, again, at_once=1, poll_s=BOUND_S, tell=tell).run_forever())
    async with asyncio.timeout(BOUND_S):
        await ran.wait()
        assert [one.turn_id for one in doors.ran] == ["turn-1"]
        ran.clear()
        done.set()
        await ran.wait()
    assert [one.turn_id for one in doors.ran] == ["turn-1", "turn-0"]
    runner.cancel()
    await asyncio.gather(runner, return_exceptions=True)
