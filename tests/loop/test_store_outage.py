"""The store cannot be written when a result is to be kept: the turn is not stranded, and nothing runs twice."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Answer, Effect, SqliteStore, tool
from toolwire.errors import Fenced, StoreUnavailable
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import ResultsMessage
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import TurnKind
from toolwire.testing import ScriptedModel, call

BOUND_S = 30
PATIENCE_S = 0.05


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """What a backup or a database browser does."""
    with closing(sqlite3.connect(home / "store.db", isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


class Outage:
    """A store, and a tool during whose run it becomes unwritable until `repair`."""

    def __init__(self, home: Path, store: SqliteStore) -> None:
        self.home, self.store, self.ran = home, store, 0
        self._held = locked(home)

    def tool(self, effect: Effect = Effect.UNSAFE) -> Tool:
        @tool(effect=effect)
        def launch() -> str:
            """Launch."""
            self.ran += 1
            if self.ran == 1:
                self._held.__enter__()
            return f"launched {self.ran}"

        return launch

    def repair(self) -> None:
        self._held.__exit__(None, None, None)

    def agent(self, *script: Any, store: SqliteStore | None = None) -> Agent:
        return Agent(ScriptedModel(*script), [self.tool()], store=store or self.store)

    async def turn(self) -> str:
        [turn] = await self.store.turns()
        return turn.id


@pytest.fixture
async def outage(tmp_path: Path) -> AsyncIterator[Outage]:
    async with asyncio.timeout(BOUND_S), await SqliteStore.at(tmp_path, busy_timeout_s=PATIENCE_S) as store:
        yield Outage(tmp_path, store)


async def eventually(agent: Agent, turn_id: str) -> Answer | ToolResult:
    """What resuming gives as soon as the turn is free; the owner tries to release it by itself."""
    single = (await agent.store.turn(turn_id)).opening.kind is TurnKind.CALL
    while True:
        try:
            return await (agent.resume_call(turn_id) if single else agent.resume(turn_id))
        except (Fenced, StoreUnavailable) as refusal:
            assert "living process" in str(refusal) or "locked" in str(refusal)  # noqa: PT017 -- both are expected
            await asyncio.sleep(0)


def results_of(answer: Answer) -> list[str]:
    return [one.text for said in answer.turn.messages if isinstance(said, ResultsMessage) for one in said.results]


async def test_A6_a_turn_can_be_resumed_in_the_same_process_once_the_store_can_be_written(outage: Outage) -> None:
    with pytest.raises(StoreUnavailable):
        await outage.agent(call("launch")).ask("go")
    turn_id = await outage.turn()
    outage.repair()
    answer = await outage.agent("done").resume(turn_id)
    assert (answer.text, outage.ran, results_of(answer)) == ("done", 1, ["launched 1"])


async def test_A6_another_store_can_take_the_turn_over_once_it_was_released(outage: Outage) -> None:
    with pytest.raises(StoreUnavailable):
        await outage.agent(call("launch")).ask("go")
    turn_id = await outage.turn()
    outage.repair()
    async with await SqliteStore.at(outage.home) as other:
        answer = await eventually(outage.agent("done", store=other), turn_id)
    assert isinstance(answer, Answer)
    assert (answer.text, outage.ran, results_of(answer)) == ("done", 1, ["launched 1"])


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_A6_a_single_call_is_not_stranded_either(outage: Outage, elsewhere: bool) -> None:
    with pytest.raises(StoreUnavailable):
        await outage.agent().call("launch", {})
    turn_id = await outage.turn()
    outage.repair()
    async with await SqliteStore.at(outage.home) as other:
        result = await eventually(outage.agent(store=other if elsewhere else outage.store), turn_id)
    assert isinstance(result, ToolResult)
    assert (result.text, outage.ran) == ("launched 1", 1)


async def test_A6_a_turn_that_runs_in_this_process_cannot_be_taken_over(outage: Outage) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await go_on.wait()
        return "waited"

    agent = Agent(ScriptedModel(call("wait"), "done"), [wait], store=outage.store)
    task = asyncio.create_task(agent.ask("go"))
    await began.wait()
    with pytest.raises(Fenced, match="living process"):
        await Agent(ScriptedModel("stolen"), [wait], store=outage.store).resume(await outage.turn())
    go_on.set()
    assert (await task).text == "done"


async def test_A6_a_watcher_that_raises_leaves_no_call_that_cannot_be_resumed(outage: Outage) -> None:
    def watch(event: object) -> None:
        raise RuntimeError("the watcher is broken")

    with pytest.raises(RuntimeError):
        await outage.agent().call("launch", {}, on_event=watch)
    [turn] = await outage.store.turns()
    assert (turn.state, outage.ran) == ("interrupted", 0)


@pytest.mark.parametrize("begins", [True, False], ids=["begin", "resume"])
async def test_A6_one_who_gives_up_while_a_turn_is_taken_leaves_it_free(outage: Outage, begins: bool) -> None:
    """The change was on its way to the store already, so it is made, and then nobody runs the turn."""
    if not begins:
        cut = outage.agent(call("launch"))
        with pytest.raises(StoreUnavailable):
            await cut.ask("go")
        outage.repair()
    agent = outage.agent("never")
    turn_id = "" if begins else await outage.turn()
    with locked(outage.home):
        task = asyncio.create_task(agent.ask("go") if begins else agent.resume(turn_id))
        for _ in range(5):  # until the change was handed to the writer, which waits for the lock
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with await SqliteStore.at(outage.home) as other:
        turns = await other.turns()
        for turn in turns:
            assert isinstance(await eventually(outage.agent("done", store=other), turn.id), Answer)
    assert outage.ran == (0 if begins else 1)
