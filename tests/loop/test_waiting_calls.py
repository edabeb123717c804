"""Calls that wait: for the turn of another agent, or for the result of a process that holds them."""

import pytest

from toolwire import Agent, Approval, Context, ToolResult, tool
from toolwire.errors import Suspended
from toolwire.protocol.calls import Text
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Effect, Tool
from toolwire.protocol.waits import ForApproval, ForResult, ForTurn
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel, call


class Worker:
    """A tool that sets another agent to work, whose turn waits the first time."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def wait_once(self, key: str) -> str:
        self.ran.append(key)
        if len(self.ran) == 1:
            raise Suspended("child", (ForApproval("question"),))
        return "the child has answered"

    def tool(self, *, is_async: bool) -> Tool:
        async def delegate(context: Context) -> str:
            """Delegate."""
            return self.wait_once(context.idempotency_key)

        def delegate_in_thread(context: Context) -> str:
            """Delegate."""
            return self.wait_once(context.idempotency_key)

        return tool(delegate if is_async else delegate_in_thread, name="delegate")


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("others", [0, 1])
async def test_a_tool_that_waits_for_another_turn_makes_its_own_turn_wait(
    store: Store, is_async: bool, others: int
) -> None:
    """It is an unsafe tool, and begins again: it had no effect but the other turn, which it finds by its key."""
    worker = Worker()

    @tool
    def note() -> str:
        """Note."""
        return "noted"

    tools = [worker.tool(is_async=is_async), note]
    asked = [call("delegate")] if not others else [[call("delegate"), call("note")]]
    with pytest.raises(Suspended) as suspended:
        await Agent(ScriptedModel(*asked), tools, store=store).ask("Delegate this")
    answer = await Agent(ScriptedModel("Done."), tools, store=store).resume(suspended.value.turn_id)

    assert suspended.value.waits == (ForTurn("child"), ForApproval("question"))
    assert answer.text == "Done."
    assert len(worker.ran) == 2
    assert len(set(worker.ran)) == 1
    cards = {card.call.name: card for card in await store.calls(turn_id=suspended.value.turn_id)}
    assert cards["delegate"].result is not None
    assert cards["delegate"].result.text == "the child has answered"


async def held_elsewhere(store: Store, agent: Agent) -> tuple[str, CallCard]:
    """A turn whose approved call another process has claimed."""
    with pytest.raises(Suspended) as suspended:
        await agent.ask("Launch")
    [approval] = suspended.value.approvals
    await store.answer(approval, Approval(granted=True, by="ann"))
    [card] = await store.calls(turn_id=suspended.value.turn_id)
    held = await store.claim(card, [], owner="worker", until=2e10)
    return suspended.value.turn_id, held


@pytest.mark.parametrize("effect", [Effect.UNSAFE, Effect.PURE])
async def test_a_call_that_another_process_holds_is_waited_for_and_its_result_counts(
    store: Store, effect: Effect
) -> None:
    ran: list[str] = []

    @tool(requires_confirmation=True, effect=effect)
    def launch() -> str:
        """Launch."""
        ran.append("here")
        return "launched here"

    turn_id, held = await held_elsewhere(
        store, Agent(ScriptedModel(call("launch")), [launch], store=store, suspends=True)
    )
    with pytest.raises(Suspended) as waiting:
        await Agent(ScriptedModel("Done."), [launch], store=store, suspends=True).resume(turn_id)

    given = ToolResult(held.call.id, "launch", Status.SUCCESS, (Text("launched there"),))
    assert await store.close(held, given, []) == given
    answer = await Agent(ScriptedModel("Done."), [launch], store=store, suspends=True).resume(turn_id)

    assert waiting.value.waits == (ForResult(held.call.id, 2e10),)
    assert answer.text == "Done."
    assert ran == []
    [card] = await store.calls(turn_id=turn_id)
    assert card.result is not None
    assert card.result.text == "launched there"


async def test_a_call_whose_holder_is_gone_is_told_as_unknown(store: Store) -> None:
    """The lease has run out: nobody can say any more whether the call has taken effect."""

    @tool(requires_confirmation=True)
    def launch() -> str:
        """Launch."""
        raise AssertionError("must not run")

    agent = Agent(ScriptedModel(call("launch")), [launch], store=store, suspends=True)
    turn_id, held = await held_elsewhere(store, agent)
    await store.renew(held, until=1.0)
    await Agent(ScriptedModel("Done."), [launch], store=store, suspends=True).resume(turn_id)

    [card] = await store.calls(turn_id=turn_id)
    assert card.result is not None
    assert card.result.error is not None
    assert card.result.error.code is Code.OUTCOME_UNKNOWN
