"""A thread that outgrows the embedded model's own window."""

from toolwire import Agent, Limits, MemoryStore
from toolwire.loop.compaction import QUESTION
from toolwire.models.local import open_local
from toolwire.models.local_engine import CONTEXT_TOKENS
from toolwire.testing import ScriptedModel


async def test_the_embedded_model_summarises_what_fills_its_window() -> None:
    """Its window is its own; a tenth of it is enough here, since reading all of it takes long."""
    store = MemoryStore()
    before = Agent(ScriptedModel("The boat is called Nele. " * 40, "It is blue. " * 80), store=store)
    await before.ask("What is the boat called?", thread="chat")
    await before.ask("Which colour has it?", thread="chat")
    model = open_local()
    assert getattr(model, "window_tokens", None) == CONTEXT_TOKENS

    agent = Agent(model, store=store, limits=Limits(compact_at=0.1), max_tokens=32)
    answer = await agent.ask("Say hello.", thread="chat")

    [summary] = [turn for turn in await agent.store.turns() if turn.question == QUESTION]
    assert summary.answer
    assert answer.text
    assert answer.turn.messages[0] == (await agent.store.thread("chat"))[0]
    await agent.close()
