"""What a step of a turn costs: one commit if its calls change nothing, two if they may run twice."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Effect, Tool, Toolbox, tool
from toolwire.hub.runtime import Runtime
from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import Reply, UserMessage
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import ScriptedModel, call

TRIES = 30
PATIENCE_S = 20.0


@tool(effect=Effect.PURE)
async def look(city: str) -> str:
    """Look what the weather is like."""
    return f"dry in {city}"


@tool(effect=Effect.IDEMPOTENT)
async def note(city: str) -> str:
    """Write down that the weather of a city was asked for."""
    return f"noted {city}"


@tool(effect=Effect.UNSAFE)
async def order(city: str) -> str:
    """Order an umbrella to a city."""
    return f"ordered to {city}"


async def commits(home: Path, which: Tool, calls: int, steps: int) -> tuple[int, list[int]]:
    """How many commits a turn makes that has so many steps, each with so many calls; and how each call was started."""
    replies = [[call(which.name, city=f"{step}-{number}") for number in range(calls)] for step in range(steps)]
    made = 0

    def count(_changes: int, _seconds: float) -> None:
        nonlocal made
        made += 1

    async with await SqliteStore.at(home) as store:
        store._writer.watch_commits(count)
        answer = await Agent(ScriptedModel(*replies, "done"), [which], store=store).ask("How is it?")
        assert answer.text == "done"
        return made, [card.attempt for card in await store.calls()]


@pytest.mark.parametrize(
    ("which", "calls", "wanted"),
    [(order, 1, 2), (note, 3, 2), (order, 3, 3)],
    ids=lambda one: getattr(one, "name", None),
)
async def test_a_step_takes_two_commits_and_one_more_for_several_calls_that_must_not_run_twice(
    tmp_path: Path, which: Tool, calls: int, wanted: int
) -> None:
    few, _ = await commits(tmp_path / "one", which, calls, 1)
    many, attempts = await commits(tmp_path / "five", which, calls, 5)

    assert many - few == 4 * wanted
    assert attempts == [1] * calls * 5


@pytest.mark.parametrize("calls", [1, 3])
async def test_a_step_of_calls_that_change_nothing_and_are_quick_takes_one_commit(tmp_path: Path, calls: int) -> None:
    """A busy machine may take longer than the moment for which they are held back."""
    found = set()
    for number in range(TRIES):
        few, _ = await commits(tmp_path / f"one-{number}", look, calls, 1)
        many, attempts = await commits(tmp_path / f"five-{number}", look, calls, 5)
        assert attempts == [1] * calls * 5
        found.add(many - few)
        if found & {4}:
            break
    assert min(found) == 4


async def test_a_single_call_that_changes_nothing_and_is_quick_takes_one_commit(tmp_path: Path) -> None:
    found = set()
    async with await SqliteStore.at(tmp_path) as store, Agent(ScriptedModel(), [look], store=store) as agent:
        for number in range(TRIES):
            made: list[int] = []
            store.watch_commits(lambda changes, _, made=made: made.append(changes))  # type: ignore[misc]
            assert (await agent.call("look", {"city": "Rome"})).text == "dry in Rome"
            turns = await store.turns()
            assert (turns[0].state, len(turns)) == ("ended", number + 1)
            found.add(len(made))
            if 1 in found:
                break
    assert min(found) == 1


async def test_a_call_that_changes_nothing_and_takes_long_is_on_record_while_it_runs(tmp_path: Path) -> None:
    ends = asyncio.Event()

    @tool(effect=Effect.PURE)
    async def wait() -> str:
        """Wait."""
        await ends.wait()
        return "waited"

    async with await SqliteStore.at(tmp_path) as store, Agent(ScriptedModel(), [wait], store=store) as agent:
        calling = asyncio.create_task(agent.call("wait", {}))
        async with asyncio.timeout(PATIENCE_S):
            while not (cards := await store.calls()):
                pass
        assert (cards[0].attempt, cards[0].result) == (1, None)
        ends.set()
        assert (await calling).text == "waited"


@pytest.mark.parametrize("which", [note, order], ids=lambda one: one.name)
async def test_a_single_call_takes_two_commits_with_the_beginning_and_the_end_of_its_turn(
    tmp_path: Path, which: Tool
) -> None:
    made: list[int] = []
    async with await SqliteStore.at(tmp_path) as store, Agent(ScriptedModel(), [which], store=store) as agent:
        store.watch_commits(lambda changes, _: made.append(changes))
        await agent.call(which.name, {"city": "Rome"})
        [turn] = await store.turns()

    assert (turn.state, len(made)) == ("ended", 2)


async def test_a_single_call_that_is_canceled_while_its_result_is_written_has_ended_with_that() -> None:
    is_written = asyncio.Event()

    class Waits(MemoryStore):
        """Has written a result, and does not answer."""

        async def close(self, *args: Any, **more: Any) -> ToolResult:
            await super().close(*args, **more)
            is_written.set()
            await asyncio.Event().wait()
            raise AssertionError

    store = Waits()
    asking = asyncio.create_task(Agent(ScriptedModel(), [order], store=store).call("order", {"city": "Rome"}))
    await is_written.wait()
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
    [turn] = await store.turns()
    assert (turn.state, (await store.turn(turn.id)).ending) == ("ended", Ending(EndReason.DELIVERED, "ordered to Rome"))


@pytest.mark.parametrize(("effect", "attempts"), [(Effect.PURE, 2), (Effect.IDEMPOTENT, 2), (Effect.UNSAFE, 1)])
async def test_calls_of_a_step_that_was_cut_off_before_any_of_them_began_run_when_it_is_resumed(
    tmp_path: Path, effect: Effect, attempts: int
) -> None:
    """As after a power cut, nothing tells which calls had begun: what counts as started is run only if it may be."""
    ran: list[str] = []

    @tool(effect=effect)
    async def act(city: str) -> str:
        """Act."""
        ran.append(city)
        return f"acted in {city}"

    cities, turn = ["Rome", "Oslo"], Turn("turn-1", messages=(UserMessage("go"),))
    reply = Reply(calls=tuple(ToolCall("act", {"city": city}, city) for city in cities))
    async with await SqliteStore.at(tmp_path) as store:
        await store.begin(turn)
        await Runtime(Toolbox.of(act), store).accept(turn, reply, frozenset({"act"}))
    async with await SqliteStore.at(tmp_path) as store:
        await Agent(ScriptedModel("done"), [act], store=store).resume(turn.id)
        cards = await store.calls()

    assert sorted(ran) == sorted(cities)
    assert {card.call.id: (card.attempt, card.result and card.result.text) for card in cards} == {
        city: (attempts, f"acted in {city}") for city in cities
    }
