"""A step in which one call meets a store that is away: what had not been started runs when the turn goes on."""

import asyncio
from typing import Any

import pytest

from toolwire import Agent, Effect, tool
from toolwire.errors import StoreUnavailable
from toolwire.protocol.events import Event, TurnStarted
from toolwire.protocol.records import CallCard
from toolwire.record.memory import MemoryStore
from toolwire.testing import ScriptedModel, call


class ShortOutage(MemoryStore):
    """Away once, when the result of the first call is to be kept. A claim of the second waits until that is over."""

    is_away = True

    async def claim(self, card: CallCard, *given: Any, **named: Any) -> Any:
        if card.call.name == "second" and self.is_away:
            await asyncio.Event().wait()
        return await super().claim(card, *given, **named)

    async def close(self, card: CallCard, *given: Any, **named: Any) -> Any:
        if card.call.name == "first" and self.is_away:
            self.is_away = False
            raise StoreUnavailable("away")
        return await super().close(card, *given, **named)


@pytest.mark.parametrize(
    ("effect", "result"), [(Effect.PURE, "2"), (Effect.UNSAFE, "had been started, so it may have taken effect")]
)
async def test_a_call_that_ran_when_another_one_met_an_outage_runs_again_if_that_does_no_harm(
    effect: Effect, result: str
) -> None:
    ran: list[str] = []
    began = asyncio.Event()

    @tool(effect=Effect.PURE)
    async def first() -> str:
        """First."""
        await began.wait()
        return "1"

    @tool(effect=effect)
    async def third() -> str:
        """Never ends when it is called first."""
        ran.append("third")
        began.set()
        if len(ran) == 1:
            await asyncio.Event().wait()
        return "2"

    turns: list[str] = []
    store = ShortOutage()

    def watch(event: Event) -> None:
        if isinstance(event, TurnStarted):
            turns.append(event.turn_id)

    agent = Agent(ScriptedModel([call("first"), call("third")], "Done."), [first, third], store=store)
    with pytest.raises(StoreUnavailable):
        await agent.ask("Go", on_event=watch)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    assert (await agent.resume(turns[0])).text == "Done."
    kept = {card.call.name: card.result for card in await store.calls(turn_id=turns[0])}
    assert kept["third"] is not None
    assert result in kept["third"].text


async def test_a_call_that_had_not_been_started_is_not_canceled_by_the_outage_another_one_met() -> None:
    ran: list[str] = []

    @tool(effect=Effect.PURE)
    async def first() -> str:
        """First."""
        await asyncio.sleep(0)  # the second call comes as far as its claim
        ran.append("first")
        return "1"

    @tool
    def second() -> str:
        """Second."""
        ran.append("second")
        return "2"

    turns: list[str] = []

    def watch(event: Event) -> None:
        if isinstance(event, TurnStarted):
            turns.append(event.turn_id)

    model = ScriptedModel([call("first"), call("second")], "Done.")
    agent = Agent(model, [first, second], store=ShortOutage())
    with pytest.raises(StoreUnavailable):
        await agent.ask("Go", on_event=watch)
    assert ran == ["first"]

    assert (await agent.resume(turns[0])).text == "Done."
    assert sorted(ran) == ["first", "first", "second"]
