"""A thread that outgrows the embedded model's own window."""

from toolwire import Agent, Limits, MemoryStore
from toolwire.loop.compaction import QUESTION
from toolwire.models.local import open_local
from toolwire.models.local_dialogue import CONTEXT_TOKENS
from toolwire.testing import ScriptedModel

# Its sentences differ, since the model repeats what is repeated until its answer is as long as it may be.
BOAT = """It is called Nele. It was built in Hamburg in the year 1962, by a man who had never sailed before. It has two
masts and a small cabin with a stove, a lamp and a shelf for charts."""
COLOUR = "The hull is blue, the deck is grey, and the sails are white but for the one that was mended."


async def test_the_embedded_model_summarises_what_fills_its_window() -> None:
    """Its window is its own; a hundredth of it is enough here, since reading all of it takes long."""
    store = MemoryStore()
    before = Agent(ScriptedModel(BOAT, COLOUR), store=store)
    await before.ask("What do you know of the boat?", thread="chat")
    await before.ask("Which colour has it?", thread="chat")
    model = open_local()
    assert getattr(model, "window_tokens", None) == CONTEXT_TOKENS

    agent = Agent(model, store=store, limits=Limits(compact_at=0.01), max_tokens=16)
    answer = await agent.ask("Say hello.", thread="chat")

    [summary] = [turn for turn in await agent.store.turns() if turn.question == QUESTION]
    assert summary.answer
    assert answer.text
    assert answer.turn.messages[0] == (await agent.store.thread("chat"))[0]
    await agent.close()
