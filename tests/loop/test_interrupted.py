"""A turn whose task is canceled stays in its conversation: what it did is told to the next question."""

import asyncio

from toolwire import Agent, tool
from toolwire.protocol.chat import Reply, ResultsMessage, UserMessage
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel, call

BOUND_S = 20


async def test_A3_a_canceled_ask_stays_in_its_thread_and_can_go_on(store: Store) -> None:
    began, made = asyncio.Event(), []

    @tool
    def note(text: str) -> str:
        """Note."""
        made.append(text)
        return "noted"

    @tool
    async def hold() -> str:
        """Hold."""
        began.set()
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel(call("note", text="milk"), call("hold"), "I have noted milk.", "Held and given up.")
    agent = Agent(model, [note, hold], store=store)
    async with asyncio.timeout(BOUND_S):
        task = asyncio.create_task(agent.ask("Note it and hold", thread="kitchen"))
        await began.wait()
        task.cancel()
        await asyncio.wait((task,))
        assert (await agent.ask("What have you done?", thread="kitchen")).text == "I have noted milk."

        asked = model.requests[2].messages
        results = [one.text for said in asked if isinstance(said, ResultsMessage) for one in said.results]
        assert [said.text for said in asked if isinstance(said, UserMessage)] == [
            "Note it and hold",
            "What have you done?",
        ]
        assert [one.name for said in asked if isinstance(said, Reply) for one in said.calls] == ["note", "hold"]
        assert results[0] == "noted"
        assert "was canceled. It had been started" in results[1]

        [left] = await store.turns(state="interrupted")
        assert (await agent.resume(left.id)).text == "Held and given up."
    assert made == ["milk"]
