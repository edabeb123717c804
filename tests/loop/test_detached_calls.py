"""Calls that run on their own: their turn goes on, and their result comes later."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.loop.test_dispatched_calls import FAR, SOON, Fleet, claimed, far, launched
from toolwire import Agent, Approval, Code, Grant, Tier, Tool, tool
from toolwire.assemble.turn_runner import TurnRunner
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.hub.canceling import cancel_turn
from toolwire.hub.detached import settle_detached
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.events import CallFinished, Event, TurnEnded
from toolwire.protocol.outcomes import Status
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Effect
from toolwire.protocol.turns import Turn
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel, call

DETACH = AfterExecution.DETACH


class Oven:
    """A tool that is done when it is told."""

    def __init__(self, **more: Any) -> None:
        self.done, self.begun = asyncio.Event(), asyncio.Event()

        @tool(after_execution=DETACH, **more)
        async def bake(what: str = "bread") -> dict[str, str]:
            """Bake."""
            self.begun.set()
            await self.done.wait()
            return {"baked": what}

        self.tool = bake


async def only_call(store: Store, turn_id: str) -> CallCard:
    [card] = await store.calls(turn_id=turn_id)
    return card


@pytest.mark.feature("F025")
@pytest.mark.parametrize("calls", [1, 2])
async def test_a_turn_ends_while_a_detached_call_still_runs_and_its_result_comes_later(
    store: Store, calls: int
) -> None:
    oven, seen = Oven(), list[Event]()
    model = ScriptedModel([call("bake", what=str(n)) for n in range(calls)], "It is in the oven.")
    agent = Agent(model, [oven.tool], store=store)
    answer = await agent.ask("Bake!", on_event=seen.append)
    before = [card.result for card in await store.calls(turn_id=answer.turn_id)]
    oven.done.set()
    await agent.runtime.close()

    cards = await store.calls(turn_id=answer.turn_id)
    told = str(model.requests[1].messages[-1])
    assert (answer.text, before) == ("It is in the oven.", [None] * calls)
    assert [card.result.structured for card in cards if card.result] == [{"baked": str(n)} for n in range(calls)]
    assert all(card.call.id in told and "runs on its own" in told for card in cards)
    kinds = [type(event) for event in seen if isinstance(event, (CallFinished, TurnEnded))]
    assert kinds == [TurnEnded, *[CallFinished] * calls]
    assert (await store.detached_calls()) == []


async def test_what_the_model_heard_of_a_detached_call_stays_the_same_on_record(store: Store) -> None:
    oven = Oven()
    agent = Agent(ScriptedModel(call("bake"), "Fine.", "Still."), [oven.tool], store=store)
    await agent.ask("Bake!", thread="kitchen")
    early = await store.thread("kitchen")
    oven.done.set()
    await agent.runtime.close()
    await agent.ask("And?", thread="kitchen")

    assert (await store.thread("kitchen"))[: len(early)] == early
    assert "runs on its own" in str(early)


async def test_a_detached_call_that_fails_is_on_record_and_ends_nothing(store: Store) -> None:
    @tool(after_execution=DETACH)
    async def burn() -> str:
        """Burn."""
        raise ValueError("smoke")

    agent = Agent(ScriptedModel(call("burn"), "Fine."), [burn], store=store)
    answer = await agent.ask("Burn!")
    await agent.runtime.close()

    card = await only_call(store, answer.turn_id)
    assert card.result is not None
    assert (answer.text, card.result.status) == ("Fine.", Status.FAILED)


async def test_a_detached_call_cannot_end_a_turn_that_does_not_wait_for_it(store: Store) -> None:
    @tool(after_execution=DETACH, controls_turn=True)
    async def burn() -> dict[str, Any]:
        """Burn."""
        return {"__cg_control": {"after_execution": "terminate"}}

    agent = Agent(ScriptedModel(call("burn"), "Fine."), [burn], store=store)
    answer = await agent.ask("Burn!")
    await agent.runtime.close()

    rows = await store.audit_log(turn_id=answer.turn_id)
    assert (answer.text, "turn_control_ignored" in [row.event for row in rows]) == ("Fine.", True)


async def test_a_single_call_of_a_detaching_tool_gives_its_result(store: Store) -> None:
    oven = Oven()
    oven.done.set()

    result = await Agent(ScriptedModel(), [oven.tool], store=store).call("bake", {})

    assert result.structured == {"baked": "bread"}


async def test_a_detached_call_needs_approval_as_any_other(store: Store) -> None:
    async def no(_: Any) -> Approval:
        return Approval(granted=False, by="ann", reason="too hot")

    oven = Oven(requires_confirmation=True, tier=Tier.RUN)
    model = ScriptedModel(call("bake"), "No bread.")
    agent = Agent(model, [oven.tool], store=store, approve=no, grant=Grant(tier=Tier.RUN))
    answer = await agent.ask("Bake!")

    card = await only_call(store, answer.turn_id)
    assert "too hot" in str(model.requests[1].messages[-1])
    assert (oven.begun.is_set(), card.detached) == (False, False)


def fleet_agent(store: Store, fleet: Fleet, one: Tool, *script: Any) -> Agent:
    return Agent(ScriptedModel(*script), [one], store=store, executor=Router(InProcessExecutor(), edge=fleet))


async def test_a_detached_call_is_claimed_and_ended_by_a_worker_after_its_turn(store: Store) -> None:
    fleet, one = Fleet(), far(after_execution=DETACH)
    answer = await fleet_agent(store, fleet, one, call("launch"), "Sent.").ask("Launch!")
    waiting = await store.detached_calls()
    held = await claimed(store, answer.turn_id)
    await store.close(held, launched(held), [])

    card = await only_call(store, answer.turn_id)
    assert (answer.text, len(fleet.sent), [one.call.id for one in waiting]) == ("Sent.", 1, [held.call.id])
    assert card.result == launched(held)
    assert await store.detached_calls() == []


async def test_a_detached_call_that_cannot_be_sent_is_an_ordinary_result(store: Store) -> None:
    fleet, one = Fleet(is_down=True), far(after_execution=DETACH)
    model = ScriptedModel(call("launch"), "ProxyRefusal.")
    asking = Agent(model, [one], store=store, executor=Router(InProcessExecutor(), edge=fleet))
    answer = await asking.ask("Launch!")

    card = await only_call(store, answer.turn_id)
    assert "No broker is there." in str(model.requests[1].messages[-1])
    assert card.detached is False


async def test_a_turn_that_is_taken_over_does_not_take_its_detached_calls_back(store: Store) -> None:
    """The worker got its command under the epoch before."""
    fleet, one = Fleet(), far(after_execution=DETACH)
    with pytest.raises(Exception, match="script"):
        await fleet_agent(store, fleet, one, call("launch")).ask("Launch!")
    [turn] = await store.turns()
    answer = await fleet_agent(store, fleet, one, "Sent.").resume(turn.id)
    [(_, context)] = fleet.sent
    card = await only_call(store, turn.id)
    held = await store.claim(card, [], owner="worker", until=FAR)

    assert (answer.text, context.epoch, held.attempt) == ("Sent.", 1, 1)


@pytest.mark.parametrize("effect", [Effect.UNSAFE, Effect.PURE])
async def test_a_detached_call_whose_process_died_ends_as_unknown_unless_it_may_run_again(
    store: Store, effect: Effect
) -> None:
    fleet, one = Fleet(), far(effect, after_execution=DETACH)
    answer = await fleet_agent(store, fleet, one, call("launch"), "Sent.").ask("Launch!")
    await claimed(store, answer.turn_id, until=SOON)
    await settle_detached(store, SOON - 1)
    early = (await only_call(store, answer.turn_id)).result
    await settle_detached(store, SOON)

    card = await only_call(store, answer.turn_id)
    codes = {Effect.UNSAFE: Code.OUTCOME_UNKNOWN, Effect.PURE: None}
    assert early is None
    assert (card.result.error.code if card.result and card.result.error else None) == codes[effect]


async def test_canceling_a_turn_ends_its_detached_calls_that_no_worker_has(store: Store) -> None:
    fleet, one = Fleet(), far(after_execution=DETACH)
    with pytest.raises(Exception, match="script"):
        await fleet_agent(store, fleet, one, call("launch")).ask("Launch!")
    [turn] = await store.turns()
    await cancel_turn(store, turn.id, 5.0)

    card = await only_call(store, turn.id)
    assert card.result is not None
    assert card.result.status is Status.CANCELED


async def test_a_runner_of_turns_ends_detached_calls_that_lost_their_process(store: Store) -> None:
    fleet, one = Fleet(), far(after_execution=DETACH)
    answer = await fleet_agent(store, fleet, one, call("launch"), "Sent.").ask("Launch!")
    await claimed(store, answer.turn_id, until=SOON)
    await TurnRunner(store, opens_nothing).run_until_idle()

    card = await only_call(store, answer.turn_id)
    assert card.result is not None
    assert card.result.error is not None
    assert card.result.error.code is Code.OUTCOME_UNKNOWN


def opens_nothing(turn: Turn) -> AbstractAsyncContextManager[Agent]:
    raise AssertionError("no turn is to be taken up")


async def test_a_detached_call_of_this_process_stops_when_it_is_to_be_canceled(
    store: Store,
) -> None:
    oven = Oven()
    agent = Agent(ScriptedModel(call("bake"), "Fine."), [oven.tool], store=store)
    agent.runtime.detached_lease_s = 0.04
    answer = await agent.ask("Bake!")
    await store.ask_to_cancel(await only_call(store, answer.turn_id), "not wanted")
    async with asyncio.timeout(5):
        await agent.runtime.close()

    card = await only_call(store, answer.turn_id)
    assert card.result is not None
    assert card.result.status is Status.CANCELED


@pytest.mark.parametrize("while_closing", [True, False])
async def test_a_process_that_is_interrupted_cancels_its_detached_calls(store: Store, while_closing: bool) -> None:
    oven, ids, waiting = Oven(timeout_s=300), list[str](), asyncio.Event()

    async def work() -> None:
        agent = Agent(ScriptedModel(call("bake"), "Fine."), [oven.tool], store=store)
        try:
            ids.append((await agent.ask("Bake!")).turn_id)
            waiting.set()
            if not while_closing:
                await asyncio.Event().wait()
        finally:
            await agent.runtime.close()

    task = asyncio.create_task(work())
    async with asyncio.timeout(5):
        await waiting.wait()
        await oven.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    card = await only_call(store, ids[0])
    assert card.result is not None
    assert card.result.status is Status.CANCELED
