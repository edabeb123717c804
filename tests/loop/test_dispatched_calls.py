"""Calls that are sent to processes which claim, run and close them, and may outlive the one that asked."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire import Agent, ToolResult, tool
from toolwire.errors import Fenced, Suspended
from toolwire.execute.contract import Dispatched
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.hub.calls import end_with_call
from toolwire.hub.canceling import cancel_turn
from toolwire.protocol.budgets import Budget
from toolwire.protocol.calls import Allowed, Text
from toolwire.protocol.context import Context
from toolwire.protocol.events import Event, TurnEnded
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Edge, Effect, Tool
from toolwire.protocol.turns import EndReason, Turn
from toolwire.protocol.waits import ForResult
from toolwire.record.contract import Store
from toolwire.record.projects import ProjectStore
from toolwire.testing import ScriptedModel, call

SOON, FAR = 1_000.0, 2e10


class Fleet:
    """Takes calls for workers; sent ones lie in `sent`. One that is down sends nothing."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.sent: list[tuple[Allowed, Context]] = []
        self.is_down = is_down

    def dispatches(self, tool: Tool) -> bool:
        return isinstance(tool.target, Edge)

    async def dispatch(self, allowed: Allowed, context: Context) -> ToolResult | Dispatched:
        if self.is_down:
            return ToolResult.failed(allowed.call, Code.UNAVAILABLE, "No broker is there.")
        self.sent.append((allowed, context))
        return Dispatched(until=SOON)

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:
        raise AssertionError("what is dispatched is not executed here")

    async def close(self) -> None:
        """Nothing to let go of."""


def far(effect: Effect = Effect.UNSAFE, **more: Any) -> Tool:
    @tool(effect=effect, **more)
    def launch(site: str = "pad") -> str:
        """Launch."""
        raise AssertionError("must not run here")

    return replace(launch, target=Edge("site"))


def agent(store: Store, fleet: Fleet, one: Tool, *script: Any, **more: Any) -> Agent:
    executor = Router(InProcessExecutor(), edge=fleet)
    return Agent(ScriptedModel(*script), [one], store=store, executor=executor, **more)


async def sent(store: Store, fleet: Fleet, one: Tool, **more: Any) -> str:
    """A turn whose call was sent."""
    with pytest.raises(Suspended) as waiting:
        await agent(store, fleet, one, call("launch", site="pad"), **more).ask("Launch")
    return waiting.value.turn_id


async def claimed(store: Store, turn_id: str, until: float = FAR) -> CallCard:
    """The call as a worker holds it."""
    [card] = await store.calls(turn_id=turn_id)
    return await store.claim(card, [], owner="worker", until=until)


def launched(card: CallCard) -> ToolResult:
    return ToolResult(card.call.id, "launch", Status.SUCCESS, (Text("launched there"),))


@pytest.mark.parametrize("touches", [{}, {"writes": ("site",)}])
async def test_a_turn_waits_for_a_call_that_was_sent_and_goes_on_with_its_result(
    store: Store, touches: dict[str, Any]
) -> None:
    fleet, one = Fleet(), far(**touches)
    with pytest.raises(Suspended) as waiting:
        await agent(store, fleet, one, call("launch", site="pad")).ask("Launch")
    turn_id = waiting.value.turn_id
    [card] = await store.calls(turn_id=turn_id)
    before = await store.ready_turns(SOON - 1)
    held = await claimed(store, turn_id)
    await store.close(held, launched(held), [])
    after = [turn.id for turn in await store.ready_turns(SOON - 1)]
    answer = await agent(store, fleet, one, "Done.").resume(turn_id)

    [(allowed, context)] = fleet.sent
    assert waiting.value.waits == (ForResult(card.call.id, SOON),)
    assert (card.attempt, card.result, held.attempt) == (0, None, 1)
    assert (context.record_id, context.epoch, context.call_id) == (card.record_id, card.epoch, card.call.id)
    assert allowed.arguments == {"site": "pad"}
    assert (before, after) == ([], [turn_id])
    assert answer.text == "Done."


async def test_a_call_that_no_worker_claimed_is_sent_again_when_the_time_has_come(store: Store) -> None:
    fleet, one = Fleet(), far()
    turn_id = await sent(store, fleet, one)
    ready = [turn.id for turn in await store.ready_turns(SOON)]
    with pytest.raises(Suspended):
        await agent(store, fleet, one).resume(turn_id)

    first, again = (context for _, context in fleet.sent)
    assert ready == [turn_id]
    assert (first.record_id, first.call_id) == (again.record_id, again.call_id)
    assert again.epoch > first.epoch


async def test_a_call_that_a_worker_holds_is_waited_for(store: Store) -> None:
    fleet, one = Fleet(), far()
    turn_id = await sent(store, fleet, one)
    held = await claimed(store, turn_id)
    with pytest.raises(Suspended) as waiting:
        await agent(store, fleet, one).resume(turn_id)
    await store.close(held, launched(held), [])
    answer = await agent(store, fleet, one, "Done.").resume(turn_id)

    assert waiting.value.waits == (ForResult(held.call.id, FAR),)
    assert (len(fleet.sent), answer.text) == (1, "Done.")


@pytest.mark.parametrize("effect", [Effect.UNSAFE, Effect.PURE])
async def test_a_worker_that_died_leaves_an_unknown_outcome_or_a_call_that_is_sent_again(
    store: Store, effect: Effect
) -> None:
    fleet, one = Fleet(), far(effect)
    turn_id = await sent(store, fleet, one)
    await claimed(store, turn_id, until=1.0)
    if effect is Effect.UNSAFE:
        await agent(store, fleet, one, "Done.").resume(turn_id)
    else:
        with pytest.raises(Suspended):
            await agent(store, fleet, one).resume(turn_id)

    [card] = await store.calls(turn_id=turn_id)
    codes = {Effect.UNSAFE: Code.OUTCOME_UNKNOWN, Effect.PURE: None}
    assert (card.result.error.code if card.result and card.result.error else None) == codes[effect]
    assert len(fleet.sent) == (1 if effect is Effect.UNSAFE else 2)


async def test_a_call_that_cannot_be_sent_is_a_result_and_costs_nothing(store: Store) -> None:
    answer = await agent(
        store, Fleet(is_down=True), far(), call("launch"), "ProxyRefusal.", budget=Budget(calls=5)
    ).ask("Launch")  # fmt: skip

    [card] = await store.calls(turn_id=answer.turn_id)
    assert card.result is not None
    assert (card.attempt, card.result.text) == (0, "No broker is there.")
    assert (await store.spent("agent", card.created_at)).calls == 0


async def test_a_single_call_that_a_worker_ends_just_before_it_is_left_to_wait_gives_its_result(store: Store) -> None:
    """The time in which its process waits for the result is over at that moment."""

    class EndsFirst(ProjectStore):
        async def release(self, turn: Turn) -> None:
            held = await claimed(store, turn.id)
            ends = partial(end_with_call, turn)
            await store.close(held, launched(held), [], ends=ends, tell_end=told.append)
            await super().release(turn)

    own, seen, told = EndsFirst(store, "default"), list[Event](), list[bool]()
    result = await agent(own, Fleet(), far()).call("launch", {"site": "pad"}, on_event=seen.append)
    [turn] = await store.turns()

    assert (result.text, turn.state, turn.reason) == ("launched there", "ended", EndReason.DELIVERED)
    assert isinstance(seen[-1], TurnEnded)
    assert told == [True]


async def test_a_worker_does_not_get_a_call_of_a_canceled_turn(store: Store) -> None:
    turn_id = await sent(store, Fleet(), far())
    await cancel_turn(store, turn_id, 5.0)
    with pytest.raises(Fenced, match="taken over"):
        await claimed(store, turn_id)

    [card] = await store.calls(turn_id=turn_id)
    assert card.result is not None
    assert (card.result.status, card.attempt) == (Status.CANCELED, 0)


async def test_a_command_of_an_older_epoch_gets_no_claim_and_the_newer_one_does(store: Store) -> None:
    """The turn went on in another process meanwhile, where the call may have been judged otherwise."""
    fleet, one = Fleet(), far()
    turn_id = await sent(store, fleet, one)
    with pytest.raises(Suspended):
        await agent(store, fleet, one).resume(turn_id)
    [card] = await store.calls(turn_id=turn_id)
    old, new = (replace(card, epoch=context.epoch) for _, context in fleet.sent)
    with pytest.raises(Fenced, match="taken over"):
        await store.claim(old, [], owner="worker", until=FAR)
    held = await store.claim(new, [], owner="worker", until=FAR)

    assert held.attempt == 1
    assert held.token


async def test_calls_of_one_step_run_here_and_there(store: Store) -> None:
    ran: list[str] = []

    @tool
    def note() -> str:
        """Note."""
        ran.append("noted")
        return "noted"

    fleet, one = Fleet(), far()
    executor = Router(InProcessExecutor(), edge=fleet)
    model = ScriptedModel([call("launch"), call("note")])
    with pytest.raises(Suspended) as waiting:
        await Agent(model, [one, note], store=store, executor=executor).ask("Both")
    turn_id = waiting.value.turn_id
    [card] = [card for card in await store.calls(turn_id=turn_id) if card.call.name == "launch"]
    held = await store.claim(card, [], owner="worker", until=FAR)
    await store.close(held, launched(held), [])
    answer = await Agent(ScriptedModel("Done."), [one, note], store=store, executor=executor).resume(turn_id)

    assert (ran, answer.text, len(fleet.sent)) == (["noted"], "Done.", 1)
