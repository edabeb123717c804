"""A thread that outgrows the embedded model's own window."""

from toolwire import Agent, Limits, MemoryStore
from toolwire.loop.compaction import QUESTION
from toolwire.models.local import open_local
from toolwire.models.local_engine import CONTEXT_TOKENS
from toolwire.testing import ScriptedModel

# Long enough for two requests, of which the second tells the summary of the first. Its sentences differ, since the
# model repeats what is repeated until its answer is as long as it may be.
BOAT = """It is called Nele. It was built in Hamburg in the year 1962, by a man who had never sailed before. It has two
masts and a small cabin with room for two people, a stove, a lamp and a shelf for charts. Its engine is old and starts
only on the third try. Every summer it goes from Kiel to the islands in the south of Denmark and back again. Last year
there was a storm on the way home: the mainsail tore, and the crew had to wait in Marstal for a week. A sailmaker there
mended it for a good price and a bottle of rum. They are friends since then, and he comes along for the first trip of
the year if his back allows it."""
COLOUR = """The hull is blue, the deck is grey, and the sails are white but for the one that was mended. The owner wants
to paint the cabin red before May, if the weather is dry. He has bought the paint, four brushes and a ladder. His
daughter thinks that green would be nicer, so they may still change their minds about it."""


async def test_the_embedded_model_summarises_what_fills_its_window() -> None:
    """Its window is its own; a fiftieth of it is enough here, since reading all of it takes long."""
    store = MemoryStore()
    before = Agent(ScriptedModel(BOAT, COLOUR), store=store)
    await before.ask("What do you know of the boat?", thread="chat")
    await before.ask("Which colour has it?", thread="chat")
    model = open_local()
    assert getattr(model, "window_tokens", None) == CONTEXT_TOKENS

    agent = Agent(model, store=store, limits=Limits(compact_at=0.02), max_tokens=32)
    answer = await agent.ask("Say hello.", thread="chat")

    [summary] = [turn for turn in await agent.store.turns() if turn.question == QUESTION]
    assert summary.answer
    assert answer.text
    assert answer.turn.messages[0] == (await agent.store.thread("chat"))[0]
    await agent.close()
