"""A call that was claimed for a turn of another process: what its tool knows, what it writes, and what cannot wait."""

from toolwire import Context, Grant, Limits, MemoryStore, Tier, Toolbox, tool
from toolwire.errors import Suspended
from toolwire.hub.claimed import ClaimedJourney
from toolwire.hub.runtime import Runtime
from toolwire.protocol.calls import Allowed, ToolCall, ToolResult
from toolwire.protocol.chat import Reply
from toolwire.protocol.context import CallInfo
from toolwire.protocol.events import Event, OutputDelta
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import ForTurn

GRANT = Grant(Tier.RUN, roots=("/w",))
INFO = CallInfo(
    "c", "t", project="garden", agent="ann", thread="shed", grant=GRANT, tainted_by=("page",), approved=True
)  # fmt: skip


async def claimed(one: Tool) -> tuple[ToolResult, list[Event]]:
    runtime, events, call = Runtime(Toolbox.of(one), MemoryStore()), list[Event](), ToolCall(one.name, {}, "c")
    turn = Turn("t", "garden", "ann", grant=GRANT)
    await runtime.store.begin(turn)
    card = CallCard("r", "t", 1, call, "d", project="garden", agent="ann")
    await runtime.store.append_reply(turn, Reply(calls=(call,)), [card], [])
    held = await runtime.store.claim(card, [], owner="worker", until=1e12)
    allowed = Allowed(call, one, {}, 5.0)
    return await ClaimedJourney(runtime, held, allowed, INFO, Limits(), events.append).run(allowed), events


async def test_what_its_turn_knows_has_travelled_with_it_and_all_output_is_told() -> None:
    seen = list[Context]()

    @tool
    async def look(context: Context) -> str:
        """Look."""
        seen.append(context)
        context.output("21 °C")
        return "seen"

    result, events = await claimed(look)
    [context] = seen
    assert result.text == "seen"
    assert (context.turn_id, context.project, context.agent, context.thread) == ("t", "garden", "ann", "shed")
    assert (context.grant, context.tainted_by, context.approved) == (GRANT, ("page",), True)
    assert (context.record_id, context.epoch) == ("r", 1)
    assert "".join(event.text for event in events if isinstance(event, OutputDelta)) == "21 °C"


async def test_a_tool_that_waits_for_another_turn_has_failed() -> None:
    @tool
    async def ask() -> str:
        """Ask."""
        raise Suspended("u", (ForTurn("u"),))

    result, _ = await claimed(ask)
    assert (result.error and result.error.code) == Code.EXECUTION_FAILED
    assert result.text == "'ask' waits for something, which a tool behind the bus cannot."
