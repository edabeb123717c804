"""A process that has just sent calls stays with their turn for a moment, and hears of the results without asking."""

import asyncio
import math

import pytest
from msgspec.structs import replace

from tests.fleet.conftest import Fleet
from toolwire import Agent
from toolwire.errors import Suspended
from toolwire.execute.contract import RecordedResult
from toolwire.fleet.arrivals import Arrival, Arrivals, arrival_note
from toolwire.fleet.parcels import wakeup_message
from toolwire.fleet.wakeups import hear_woken_turns, wakeups_of
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Effect, Tool
from toolwire.protocol.waits import ForResult
from toolwire.record.postgres import PostgresStore
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import call


class WatchedArrivals(Arrivals):
    """Counts those that wait."""

    waiting = 0

    def expect(
        self, project: str, turn_id: str, call_id: str, stays_s: float = math.inf, note_key: str = ""
    ) -> Arrival | None:
        arrival = super().expect(project, turn_id, call_id, stays_s, note_key)
        assert arrival is not None
        wait = arrival.wait

        async def counted(most_s: float) -> RecordedResult | None:
            self.waiting += 1
            return await wait(most_s)

        arrival.wait = counted  # type: ignore[method-assign]
        return arrival


async def staying(fleet: Fleet, stays_s: float) -> tuple[WatchedArrivals, dict[str, object]]:
    """What an agent sends with that stays for a time."""
    arrivals = WatchedArrivals()
    await fleet.closing.enter_async_context(arrivals.listening(fleet.bus, fleet.project))
    return arrivals, {"stays_s": stays_s, "arrivals": arrivals}


async def test_a_turn_whose_result_comes_soon_is_not_left_meanwhile(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    await fleet.worker([note])
    relay = await fleet.relay(store=store)
    arrivals, sends = await staying(fleet, 30.0)
    step = [call("note", words="milk"), call("note", words="eggs")]
    agent = fleet.agent(store, [fleet.far(note)], step, "All noted.", relay=relay, sends=sends)

    answer = await agent.ask("Note it")

    assert (answer.text, sorted(fleet.noted), answer.turn.epoch) == ("All noted.", ["eggs", "milk"], 1)
    assert arrivals.staying() == 0


async def test_a_turn_waits_whose_result_does_not_come_while_its_process_stays(fleet: Fleet) -> None:
    store, note, (_, sends) = await fleet.store(), fleet.tool(), await staying(fleet, 0.001)
    agent = fleet.agent(store, [fleet.far(note)], call("note", words="milk"), sends=sends)

    turn_id = await fleet.sent(agent)

    kept = await store.turn(turn_id, project=fleet.project)
    assert (kept.state, [type(wait) for wait in kept.opening.waits]) == ("interrupted", [ForResult])


@pytest.mark.parametrize("calls", [1, 2])
async def test_a_call_goes_on_whose_process_is_stopped_while_it_stays(fleet: Fleet, calls: int) -> None:
    """Its turn waits for it, as if the process had not stayed; a user who waits cancels what was asked for."""
    store, note, (arrivals, sends) = await fleet.store(), fleet.tool(), await staying(fleet, 30.0)
    step = [call("note", words=str(number)) for number in range(calls)]
    asking = asyncio.create_task(fleet.agent(store, [fleet.far(note)], step, sends=sends).ask("Note it"))

    async def all_wait() -> bool:
        return arrivals.waiting == calls

    await fleet.until(all_wait)
    asking.cancel()
    with pytest.raises(Suspended) as waits:
        await asking
    assert len(waits.value.waits) == calls

    await fleet.worker([note])
    await fleet.relay()
    fleet.runner(store, [fleet.far(note)], "All noted.").wake()
    assert await fleet.answer() == "All noted."
    assert len(fleet.noted) == calls


async def test_no_more_turns_are_stayed_with_than_may_be_and_none_where_nothing_is_heard(fleet: Fleet) -> None:
    arrivals = Arrivals(most=1)
    assert arrivals.expect(fleet.project, "turn-1", "call-1", 1.0) is None
    async with arrivals.listening(fleet.bus, fleet.project):
        first = arrivals.expect(fleet.project, "turn-1", "call-1", 1.0)
        assert first is not None
        assert arrivals.expect(fleet.project, "turn-2", "call-1", 1.0) is None
        assert arrivals.expect(fleet.project, "turn-2", "call-1", math.inf) is not None
        first.close()
        assert arrivals.staying() == 1


async def test_a_wakeup_has_its_own_turn_looked_at(fleet: Fleet) -> None:
    """The runner's own timer is far away, and no other turn is asked for."""
    store, note = await fleet.store(), fleet.tool()
    runner = fleet.runner(store, [fleet.far(note)], "All noted.")
    fleet.spawn(
        hear_woken_turns(fleet.bus, runner.wake_turn, durable=f"named-{fleet.project}", project=fleet.project)
    )  # fmt: skip
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    assert await store.ready_turns(0.0, only=[turn_id], project=fleet.project) == []
    await fleet.worker([note])
    await fleet.relay()

    assert await fleet.answer() == "All noted."
    assert (await store.call(turn_id, (await fleet.card(store, turn_id)).call.id, project=fleet.project)).result


async def test_that_a_call_is_sent_is_kept_in_the_transaction_of_the_reply(fleet: Fleet) -> None:
    """So a step with a call elsewhere is made durable by one commit in this process, and two where it runs."""
    store, note = await fleet.store(), fleet.tool()
    agent = fleet.agent(store, [fleet.far(note)], call("note", words="milk"))
    await store.audit([])
    commits: list[int] = []
    store.watch_commits(lambda changes, _: commits.append(changes))

    turn_id = await fleet.sent(agent)

    card = await fleet.card(store, turn_id)
    events = await fleet.events(store, turn_id)
    assert (card.attempt, events) == (0, ["allowed", "dispatched"])
    # The turn begins; it replies and sends; it waits. A near store may be quicker than what comes next.
    assert sum(commits) == 4
    assert isinstance(store, SqliteStore)
    if isinstance(store, PostgresStore):
        assert commits == [1, 2, 1]


@pytest.mark.parametrize("effect", [Effect.PURE, Effect.UNSAFE])
async def test_a_worker_ends_the_turn_that_is_its_call_alone(fleet: Fleet, effect: Effect) -> None:
    """Who waits for the call is told by a note that no one keeps, and has nothing more to write."""
    store, note = await fleet.store(), fleet.tool(effect)
    arrivals = WatchedArrivals()
    await fleet.closing.enter_async_context(arrivals.listening(fleet.bus, fleet.project))
    await fleet.worker([note])
    relay = await fleet.relay()
    sends = {"stays": True, "arrivals": arrivals}
    agent = fleet.agent(store, [fleet.far(note)], relay=relay, sends=sends)
    await store.audit([])
    commits: list[int] = []
    store.watch_commits(lambda changes, _: commits.append(changes))

    async with fleet.bus.listen(wakeups_of(fleet.project)) as wakeups:
        result = await agent.call("note", {"words": "milk"})
        message = wakeup_message(await fleet.card(store, (await fleet.turns(store))[0].id), "public")
        assert isinstance(message, BusMessage)
        await fleet.bus.stream(message)  # the first wakeup that is heard
        heard = await anext(wakeups)

    [turn] = await fleet.turns(store)
    assert (result.text, turn.state, sum(commits)) == ("noted milk", "ended", 2)  # it begins with its card, and is sent
    assert heard == message
    assert await fleet.events(store, turn.id) == ["allowed", "dispatched", "started", "finished"]
    await agent.call("note", {"words": "eggs"})
    assert fleet.noted == ["milk", "eggs"]


async def test_a_turn_that_is_a_call_alone_ends_where_its_worker_does_not_end_it(fleet: Fleet) -> None:
    """A relay that gives a call up leaves the turn to who runs it."""
    store, note = await fleet.store(), fleet.tool()
    arrivals, _ = await staying(fleet, math.inf)
    await fleet.relay()
    sends = {"stays": True, "arrivals": arrivals, "queue_s": 0.0}
    agent = fleet.agent(store, [fleet.far(note)], sends=sends)

    result = await agent.call("note", {"words": "milk"})

    [turn] = await fleet.turns(store)
    assert (result.ok, turn.state, fleet.noted) == (False, "ended", [])


async def waiting_agent(fleet: Fleet, store: SqliteStore) -> tuple[Agent, WatchedArrivals, Tool]:
    """An agent that waits for what it calls in workers, for as long as it takes."""
    note, (arrivals, _) = fleet.tool(), await staying(fleet, math.inf)
    sends = {"stays": True, "arrivals": arrivals}
    return fleet.agent(store, [fleet.far(note)], relay=await fleet.relay(), sends=sends), arrivals, note


@pytest.mark.parametrize(("words", "is_found"), [("milk", True), ("m" * 10_000, False)], ids=["short", "long"])
async def test_a_note_brings_a_result_that_is_not_long_and_saves_a_look(
    fleet: Fleet, words: str, is_found: bool
) -> None:
    store = await fleet.store()
    agent, _, note = await waiting_agent(fleet, store)
    look, looked = store.call_and_end, asyncio.Event()

    async def late(turn_id: str, call_id: str, *, project: str = "default") -> tuple[CallCard, bool]:
        """What a store says that does not know of the result yet."""
        card, _ = await look(turn_id, call_id, project=project)
        if card.result is not None:
            looked.set()
        return replace(card, result=None), False

    store.call_and_end = late  # type: ignore[method-assign]
    await fleet.worker([note])
    calling = asyncio.create_task(agent.call("note", {"words": words}))
    looking = asyncio.create_task(looked.wait())
    await asyncio.wait((calling, looking), return_when=asyncio.FIRST_COMPLETED)
    looking.cancel()

    assert calling.done() is is_found
    store.call_and_end = look  # type: ignore[method-assign]
    assert (await calling).text == f"noted {words}"
    assert [turn.state for turn in await fleet.turns(store)] == ["ended"]


async def test_a_note_is_not_believed_that_comes_from_one_who_cannot_read_the_store(fleet: Fleet) -> None:
    """It has the waiting process look, and no more."""
    store = await fleet.store()
    agent, arrivals, note = await waiting_agent(fleet, store)
    calling = asyncio.create_task(agent.call("note", {"words": "milk"}))

    async def has_looked() -> bool:
        return arrivals.waiting > 1

    await fleet.until(lambda: fleet.turns(store))
    turn_id = (await fleet.turns(store))[0].id
    forged = ToolResult.failed((await fleet.card(store, turn_id)).call, Code.EXECUTION_FAILED, "The shop is closed.")
    for key in ("", "guessed"):
        message = arrival_note(await fleet.card(store, turn_id), "public", key, RecordedResult(forged, has_ended=True))
        await fleet.bus.stream(message)
    await fleet.until(has_looked)
    await fleet.worker([note])

    assert (await calling).text == "noted milk"
