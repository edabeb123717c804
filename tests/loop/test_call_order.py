"""Calls of one reply that depend on each other, when their turn is stopped or its process dies half-way."""

import asyncio
from pathlib import Path

import pytest

from tests import forked
from toolwire import Agent, SqliteStore, tool
from toolwire.protocol.calls import CallOptions, ToolCall
from toolwire.protocol.outcomes import Status
from toolwire.protocol.tools import Effect
from toolwire.record.memory import MemoryStore
from toolwire.testing import ScriptedModel


def asked(name: str, *before: str) -> ToolCall:
    return ToolCall(name, {}, alias=name, options=CallOptions(dependencies=before))


@pytest.mark.feature("F135")
@pytest.mark.parametrize("second", [asked("after", "slow"), asked("slow")], ids=["dependent", "repeated"])
async def test_every_call_has_a_result_when_a_turn_is_stopped_while_one_waits_for_another(second: ToolCall) -> None:
    begun = asyncio.Event()

    @tool(name="slow")
    async def slow() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    @tool(name="after")
    def after() -> str:
        """Come after it."""
        raise AssertionError("it must not run")

    store = MemoryStore()
    agent = Agent(ScriptedModel([asked("slow"), second]), [slow, after], store=store)
    turn = asyncio.create_task(agent.ask("Go"))
    await begun.wait()
    turn.cancel()
    await asyncio.wait((turn,))
    assert [card.result and card.result.status for card in await store.calls()] == [Status.CANCELED] * 2


DYING = """
import asyncio, os, sys
from pathlib import Path
from toolwire import Agent, SqliteStore, tool
from toolwire.protocol.calls import CallOptions, ToolCall
from toolwire.protocol.tools import Effect
from toolwire.testing import ScriptedModel

@tool(name="first", effect=Effect.IDEMPOTENT)
async def first() -> str:
    "Die."
    os._exit(9)

@tool(name="after", effect=Effect.IDEMPOTENT)
async def after() -> str:
    "Come after it."
    return "after"

def asked(name, *before):
    return ToolCall(name, {}, alias=name, options=CallOptions(dependencies=before))

async def main():
    async with await SqliteStore.at(Path(sys.argv[1])) as store:
        await Agent(ScriptedModel([asked("after", "first"), asked("first")]), [first, after], store=store).ask("go")

asyncio.run(main())
"""


@pytest.mark.feature("F135")
async def test_the_order_holds_in_the_process_that_goes_on_with_the_turn(tmp_path: Path) -> None:
    died = await asyncio.to_thread(forked.run_python, "-c", DYING, str(tmp_path))
    assert died.returncode == 9
    ran: list[str] = []

    @tool(name="first", effect=Effect.IDEMPOTENT)
    async def first() -> str:
        """Take some time."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ran.append("first")
        return "first"

    @tool(name="after", effect=Effect.IDEMPOTENT)
    async def after() -> str:
        """Come after it."""
        ran.append("after")
        return "after"

    async with await SqliteStore.at(tmp_path) as store:
        [left] = await store.turns(state="interrupted")
        await Agent(ScriptedModel("done"), [first, after], store=store).resume(left.id)
        assert ran == ["first", "after"]
        assert all(card.result is not None and card.result.ok for card in await store.calls())
