"""A turn that was canceled while another process held a call of it: whoever takes it over ends it. In all stores."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from tests.loop.test_dispatched_calls import FAR, Fleet, agent, claimed, far, launched
from toolwire import Agent, Approval, Grant, Tier
from toolwire.assemble.turn_runner import RanTurn, TurnRunner
from toolwire.errors import ModelError, Suspended
from toolwire.hub.canceling import cancel_turn
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Reply
from toolwire.protocol.records import CallCard
from toolwire.protocol.turns import EndReason, Turn
from toolwire.protocol.waits import ForResult
from toolwire.record.contract import KeptTurn, Store
from toolwire.record.projects import ProjectStore, of_project
from toolwire.testing import call

WHY = "Not today."
PAST_FAR = FAR + 1


def a_card(project: str = "red", call_id: str = "c") -> CallCard:
    return CallCard(f"r-{project}-{call_id}", "t", 1, ToolCall("paint", {}, call_id), "d", project=project)


async def waiting(store: Store, project: str = "red") -> CallCard:
    """A turn that no process runs; its only call, as a worker holds it."""
    turn, card = Turn("t", project), a_card(project)
    await store.begin(turn)
    await store.append_reply(turn, Reply(calls=(card.call,)), [card], [])
    held = await store.claim(card, [], owner="worker", until=FAR)
    await store.release(turn)
    return held


async def test_who_takes_over_a_canceled_turn_learns_of_it_whatever_came_of_its_call(store: Store) -> None:
    held, other = await waiting(store), await waiting(store, "blue")
    taken = (await store.resume("t", project="red")).opening
    await store.ask_to_cancel(replace(held, epoch=taken.epoch, token=""), WHY)
    await store.release(replace(taken, waits=(ForResult("c", FAR),)))
    before = await store.turn("t", project="red")
    for one in (held, other):
        await store.close(one, launched(one), [])
    after = await store.resume("t", project="red")

    assert (before.cancel, after.cancel) == (WHY, WHY)
    assert (await store.resume("t", project="blue")).cancel == ""


async def left_over_a_detached_call(store: Store) -> str:
    """A turn whose model did not answer, after it had let a call run on its own; a worker holds that."""
    fleet, one = Fleet(), far(after_execution=AfterExecution.DETACH)
    asker = agent(store, fleet, one, call("launch", site="pad"), ModelError("The model is away."))
    with pytest.raises(ModelError):
        await asker.ask("Launch", thread="site")
    [turn] = await store.turns(state="interrupted")
    return turn.id


async def test_a_turn_that_is_canceled_while_a_runner_prepares_to_go_on_ends_as_canceled(store: Store) -> None:
    """The runner has read the turn by then, and the call succeeds before it takes the turn over."""
    own, ran = of_project(store, "default"), list[RanTurn]()
    turn_id = await left_over_a_detached_call(own)
    held = await claimed(own, turn_id)

    @asynccontextmanager
    async def opened(_: Turn) -> AsyncIterator[Agent]:
        going_on = agent(own, Fleet(), far(), "Launched.")
        assert await canceled(own, going_on, turn_id, held)
        yield going_on

    runner = TurnRunner(own, opened, tell=ran.append, clock=lambda: PAST_FAR)
    runner.request(turn_id)
    await runner.run_until_idle()

    assert [one.answer and (one.answer.reason, one.answer.text) for one in ran] == [(EndReason.CANCELED, WHY)]
    ending = (await own.turn(turn_id)).ending
    assert ending is not None
    assert ending.reason is EndReason.CANCELED


async def canceled(store: Store, by: Agent, turn_id: str, held: CallCard) -> bool:
    """Cancel a turn, whose holder does not hear of it before it is done; whether that was accepted for later."""
    waits = await by.cancel(turn_id, WHY)
    await store.close(held, launched(held), [])
    return waits == (ForResult(held.call.id, FAR),)


class Meanwhile(ProjectStore):
    """A project's store in which something happens just before a turn is taken over, or after its calls are read."""

    before_resume: Callable[[], Awaitable[object]] | None = None
    after_calls: Callable[[], Awaitable[object]] | None = None

    async def resume(self, turn_id: str, *, project: str | None = None) -> KeptTurn:
        happens, self.before_resume = self.before_resume, None
        if happens is not None:
            await happens()
        return await super().resume(turn_id, project=project)

    async def calls(self, **more: Any) -> list[CallCard]:
        cards = await super().calls(**more)
        happens, self.after_calls = self.after_calls, None
        if happens is not None:
            await happens()
        return cards


async def test_a_single_call_that_is_canceled_just_before_it_is_taken_over_ends_as_canceled(store: Store) -> None:
    """It was approved, and another process sends it, which a worker claims; then the turn is canceled."""
    own, fleet, one = Meanwhile(store, "default"), Fleet(), far(tier=Tier.RUN)
    by = agent(own, fleet, one, grant=Grant(tier=Tier.RUN), suspends=True)
    with pytest.raises(Suspended) as waiting:
        await by.call("launch", {"site": "pad"})
    turn_id = waiting.value.turn_id
    await own.answer(waiting.value.approvals[0], Approval(granted=True))

    async def goes_on_and_is_canceled() -> None:
        with pytest.raises(Suspended):
            await by.resume_call(turn_id)
        [(_, context)], [card] = fleet.sent, await own.calls(turn_id=turn_id)
        held = await own.claim(replace(card, epoch=context.epoch), [], owner="worker", until=FAR)
        assert await canceled(own, by, turn_id, held)

    own.before_resume = goes_on_and_is_canceled
    result = await by.resume_call(turn_id)

    ending = (await own.turn(turn_id)).ending
    assert (result.text, ending and ending.reason, ending and ending.answer) == (
        "launched there", EndReason.CANCELED, WHY,
    )  # fmt: skip


async def test_a_call_that_is_canceled_is_not_said_to_be_unstarted_once_a_worker_began_it_and_died(
    store: Store,
) -> None:
    """The worker claims it after it was read, and its lease is over when the call is ended: that is done once more."""
    own = Meanwhile(store, "default")
    turn_id = await left_over_a_detached_call(own)

    async def claimed_by_one_that_dies() -> None:
        await claimed(own, turn_id, until=1.0)

    own.after_calls = claimed_by_one_that_dies
    waits = await cancel_turn(own, turn_id, PAST_FAR, WHY)
    [left] = await own.calls(turn_id=turn_id)
    again = await cancel_turn(own, turn_id, PAST_FAR, WHY)

    [card] = await own.calls(turn_id=turn_id)
    assert (waits, again, left.result) == ((ForResult(left.call.id, 1.0),), (), None)
    assert card.result is not None
    assert card.result.text.endswith("It had been started, so it may have taken effect.")
