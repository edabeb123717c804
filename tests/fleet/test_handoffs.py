"""A command that was just written down is handed over to a worker with a free slot; what none takes is published."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.fleet.conftest import Fleet
from toolwire import Tier, tool
from toolwire.bus.contract import Bus, HandoffAnswer
from toolwire.fleet.arrivals import Arrivals
from toolwire.fleet.fair_share import FairQueue
from toolwire.fleet.relay import HANDOFF_PAUSES_S
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.tools import Effect
from toolwire.testing import call

SOON_S = 20.0


class WatchedBus:
    """Remembers which commands were published, and what came of handoffs. It may lose what was taken."""

    def __init__(self, bus: Bus, *, loses: bool = False) -> None:
        self._bus = bus
        self._loses = loses
        self.refuses = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.published: list[BusMessage] = []
        self.answers: list[HandoffAnswer] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def publish(self, message: BusMessage, **named: Any) -> bool:
        if ".cmd.tool." in message.subject:
            self.published.append(message)
        return await self._bus.publish(message, **named)

    async def hand_over(self, message: BusMessage, **named: Any) -> HandoffAnswer:
        await self.may_answer.wait()
        if self.refuses:
            return HandoffAnswer.BUSY
        named["timeout_s"] = SOON_S  # however busy the machine is
        answer = HandoffAnswer.TAKEN if self._loses else await self._bus.hand_over(message, **named)
        self.answers.append(answer)
        return answer


@asynccontextmanager
async def waiting_caller(fleet: Fleet, **more: Any) -> AsyncIterator[dict[str, Any]]:
    """What an agent sends with that waits for its calls as long as they take."""
    arrivals = Arrivals()
    async with arrivals.listening(fleet.bus, fleet.project):
        yield {"stays_s": math.inf, "arrivals": arrivals, **more}


async def test_a_command_goes_straight_to_a_free_worker(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    fleet.bus = bus = WatchedBus(fleet.bus)
    await fleet.worker([note])
    relay = await fleet.relay(store=store)
    async with waiting_caller(fleet) as sends:
        agent = fleet.agent(store, [fleet.far(note)], relay=relay, sends=sends)
        results = [await agent.call("note", {"words": str(number)}) for number in range(3)]

    assert [result.text for result in results] == ["noted 0", "noted 1", "noted 2"]
    assert (bus.answers, bus.published) == ([HandoffAnswer.TAKEN] * 3, [])


async def test_a_command_is_published_where_no_slot_is_free(fleet: Fleet) -> None:
    store, began, may_end = await fleet.store(), asyncio.Event(), asyncio.Event()
    fleet.bus = bus = WatchedBus(fleet.bus)

    @tool(tier=Tier.WALK)
    async def note(words: str) -> str:
        """Write words down."""
        began.set()
        await may_end.wait()
        return words

    await fleet.worker([note], at_once=1)
    relay = await fleet.relay(store=store)
    async with waiting_caller(fleet) as sends:
        agent = fleet.agent(store, [fleet.far(note)], relay=relay, sends=sends)
        first = asyncio.create_task(agent.call("note", {"words": "milk"}))
        await began.wait()
        second = asyncio.create_task(agent.call("note", {"words": "tea"}))

        async def is_published() -> list[BusMessage]:
            return bus.published

        [message] = await fleet.until(is_published)
        may_end.set()
        results = [await first, await second]

    assert [result.text for result in results] == ["milk", "tea"]
    assert bus.answers == [HandoffAnswer.TAKEN, HandoffAnswer.BUSY]
    assert message.headers["CG-Project-Id"] == fleet.project


async def test_a_worker_that_took_a_command_keeps_no_other_from_a_free_one(fleet: Fleet) -> None:
    store, began, may_end = await fleet.store(), asyncio.Event(), asyncio.Event()
    fleet.bus = bus = WatchedBus(fleet.bus)

    @tool(tier=Tier.WALK)
    async def note(words: str) -> str:
        """Write words down."""
        if words == "milk":
            began.set()
            await may_end.wait()
        return words

    await fleet.worker([note], at_once=1)
    relay = await fleet.relay(store=store)
    async with waiting_caller(fleet) as sends:
        agent = fleet.agent(store, [fleet.far(note)], relay=relay, sends=sends)
        first = asyncio.create_task(agent.call("note", {"words": "milk"}))
        await began.wait()
        bus.refuses = True
        await fleet.worker([note], at_once=1)  # which asks the broker behind the first one
        async with asyncio.timeout(20):
            assert (await agent.call("note", {"words": "tea"})).text == "tea"
        may_end.set()
        assert (await first).text == "milk"


async def test_no_more_commands_are_handed_over_at_a_time_than_are_sent(fleet: Fleet) -> None:
    """Of thousands, most would wait for an answer for so long that they are published as well."""
    store, note = await fleet.store(), fleet.tool()
    fleet.bus = bus = WatchedBus(fleet.bus)
    bus.may_answer.clear()
    await fleet.worker([note])
    relay = await fleet.relay(store=store, at_once=2)
    script = [call("note", words=str(number)) for number in range(5)]
    turn = await fleet.sent(fleet.agent(store, [fleet.far(note)], script, relay=relay))
    async with asyncio.timeout(20):
        while len(fleet.noted) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (len(bus.published), bus.answers) == (3, [])
    bus.may_answer.set()

    async def have_ended() -> bool:
        return all(card.result is not None for card in await store.calls(turn_id=turn, project=fleet.project))

    await fleet.until(have_ended)
    assert (sorted(fleet.noted), bus.answers) == (["0", "1", "2", "3", "4"], [HandoffAnswer.TAKEN] * 2)


async def test_a_command_that_was_taken_and_lost_is_sent_when_it_is_due(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool(Effect.IDEMPOTENT)
    fleet.bus = bus = WatchedBus(fleet.bus, loses=True)
    await fleet.worker([note])
    relay = await fleet.relay(store=store, clock=lambda: store.clock() + 3_600.0)
    async with waiting_caller(fleet, queue_s=7_200.0) as sends:
        result = await fleet.agent(store, [fleet.far(note)], relay=relay, sends=sends).call("note", {"words": "milk"})

    assert result.text == "noted milk"
    assert len(bus.published) >= 1


async def test_where_handoffs_are_not_heard_commands_are_published_at_once_for_a_while(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    fleet.bus = bus = WatchedBus(fleet.bus)
    relay = await fleet.relay(store=store)
    script = [call("note", words=str(number)) for number in range(3)]
    await fleet.sent(fleet.agent(store, [fleet.far(note)], script, relay=relay))

    async def are_published() -> bool:
        return len(bus.published) == len(script)

    await fleet.until(are_published)
    assert bus.answers[0] is HandoffAnswer.UNHEARD
    assert HANDOFF_PAUSES_S[HandoffAnswer.UNHEARD] > HANDOFF_PAUSES_S[HandoffAnswer.BUSY] > 0
    await fleet.worker([note])
    async with asyncio.timeout(20):
        while sorted(fleet.noted) != ["0", "1", "2"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_work_of_a_project_starts_at_once_within_its_share_and_behind_what_waits() -> None:
    queue: FairQueue[str, int] = FairQueue(3, per_project=2)
    for number in range(2):
        assert queue.starts_at_once("acme")
        queue.add("acme", number)
        queue.take()
    assert (queue.starts_at_once("acme"), queue.starts_at_once("beta")) == (False, True)
    queue.add("acme", 2)
    queue.release("acme")
    assert (queue.starts_at_once("acme"), queue.starts_at_once("beta")) == (False, True)


def test_no_work_starts_at_once_where_all_slots_are_taken() -> None:
    queue: FairQueue[str, int] = FairQueue(2, per_project=1)
    for project in ("acme", "beta"):
        queue.add(project, 1)
        queue.take()
    assert not queue.starts_at_once("gamma")
    queue.release("acme")
    assert queue.starts_at_once("gamma")
