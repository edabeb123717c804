"""The calls of a step that cannot wait: they run one after the other, without a task for each."""

import asyncio

import pytest

from toolwire import Agent, Effect, Tool, tool
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Reply, ResultsMessage
from toolwire.protocol.outcomes import Status
from toolwire.protocol.turns import Turn
from toolwire.record.memory import MemoryStore
from toolwire.testing import ScriptedModel, call


@tool
async def tasks(number: int) -> str:
    """Say how many tasks there are."""
    return f"{number}: {len(asyncio.all_tasks())}"


def texts(turn: Turn) -> list[str]:
    return [result.text for said in turn.messages if isinstance(said, ResultsMessage) for result in said.results]


async def test_calls_that_cannot_wait_run_in_order_without_a_task_for_each() -> None:
    before = len(asyncio.all_tasks())
    model = ScriptedModel([call("tasks", number=1), call("tasks", number=2), call("tasks", number=3)], "Done.")

    answer = await Agent(model, [tasks]).ask("How many?")

    assert texts(answer.turn) == [f"1: {before}", f"2: {before}", f"3: {before}"]


async def test_of_calls_that_share_a_step_with_one_that_waits_each_has_its_task() -> None:
    @tool
    async def pause() -> str:
        """Wait for the others."""
        await asyncio.sleep(0)
        return "paused"

    before = len(asyncio.all_tasks())
    model = ScriptedModel([call("tasks", number=1), call("pause"), call("tasks", number=3)], "Done.")

    answer = await Agent(model, [tasks, pause]).ask("How many?")

    first, paused, _ = texts(answer.turn)
    assert int(first.partition(": ")[2]) > before
    assert paused == "paused"


async def test_a_call_that_repeats_another_one_of_its_step_does_not_run() -> None:
    ran: list[str] = []

    @tool
    async def note(word: str) -> str:
        """Note a word."""
        ran.append(word)
        return word

    twice = ToolCall("note", {"word": "a"}, alias="c1")
    model = ScriptedModel(Reply(calls=(twice, twice, ToolCall("note", {"word": "b"}, alias="c2"))), "Done.")

    answer = await Agent(model, [note]).ask("Note it.")

    assert texts(answer.turn) == ["a", "a", "b"]
    assert ran == ["a", "b"]


async def test_a_call_that_had_not_begun_when_its_turn_was_canceled_has_a_result() -> None:
    ran: list[str] = []

    def stop() -> None:
        asyncio.get_running_loop().call_soon(asking.cancel)

    @tool
    async def large() -> str:
        """Its result takes so long to be made ready that this is done in a thread."""
        ran.append("large")
        stop()
        return "x" * (2 << 20)

    @tool
    async def late() -> str:
        """Comes after it."""
        ran.append("late")
        return "late"

    store = MemoryStore()
    agent = Agent(ScriptedModel([call("large"), call("late")], "Done."), [large, late], store=store)
    asking = asyncio.create_task(agent.ask("Go"))
    with pytest.raises(asyncio.CancelledError):
        await asking

    results = {card.call.name: card.result for card in await store.calls()}
    assert ran == ["large"]
    assert {name: result.status for name, result in results.items() if result} == {
        "large": Status.CANCELED,
        "late": Status.CANCELED,
    }


def test_only_functions_that_cannot_wait_are_run_at_once() -> None:
    @tool
    def in_a_thread() -> str:
        """Any function may wait in its thread."""
        return ""

    @tool(effect=Effect.PURE)
    async def waits() -> str:
        """Wait."""
        await asyncio.sleep(0)
        return ""

    router = Router(InProcessExecutor())
    elsewhere = Tool(name="elsewhere", description="It has no target here.", input_schema={})

    assert [router.runs_at_once(one) for one in (tasks, in_a_thread, waits, elsewhere)] == [True, False, False, False]
