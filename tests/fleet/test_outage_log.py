"""What processes of a fleet log while something is away, or comes twice."""

import asyncio
import logging

import pytest

from tests.fleet.conftest import Fleet
from tests.fleet.test_calls import command
from toolwire import tool
from toolwire.errors import StoreUnavailable
from toolwire.fleet.outage_log import AGAIN_S, OutageLog
from toolwire.fleet.relay import Relay
from toolwire.protocol.tools import Effect, Tier
from toolwire.record.contract import DueDispatch
from toolwire.record.memory import MemoryStore
from toolwire.testing import call


def test_a_warning_is_logged_when_it_is_new_and_again_after_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 1.0, 2.0, AGAIN_S, AGAIN_S + 1])
    outages = OutageLog(logging.getLogger("outages"), lambda: next(times))
    for error in ("no answer", "no answer", "starting up", "no answer", "no answer"):
        outages.warn("the store is away", StoreUnavailable(error))
    assert [one.getMessage().rpartition(": ")[2] for one in caplog.records] == ["no answer", "starting up", "no answer"]


async def test_a_relay_whose_store_is_away_says_so_once_and_goes_on(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    asked, often = 0, asyncio.Event()

    class Away(MemoryStore):
        async def take_due(self, *_: object, **__: object) -> list[DueDispatch]:
            nonlocal asked
            asked += 1
            if asked == 5:
                often.set()
            raise StoreUnavailable("the store does not answer")

    relay = asyncio.create_task(Relay(Away(), fleet.bus, poll_s=0.001).run())
    async with asyncio.timeout(5):
        await often.wait()
    relay.cancel()
    await asyncio.gather(relay, return_exceptions=True)
    assert len(caplog.records) == 1, caplog.text


async def test_a_pure_call_that_another_worker_has_taken_meanwhile_warns_of_nothing(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    store = await fleet.store()

    @tool(effect=Effect.PURE, tier=Tier.WALK)
    async def note(words: str = "") -> str:
        """Write words down, while another worker takes the call."""
        await store.claim(await fleet.card(store, turn_id), (), token="another")
        return words

    async def heard_late() -> bool:
        return "late_result" in await fleet.events(store, turn_id) and not worker.running

    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    await fleet.bus.publish(await command(fleet, store, turn_id))
    worker = await fleet.worker([note])

    await fleet.until(heard_late)
    assert not caplog.records, caplog.text
