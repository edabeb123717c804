import asyncio
import tempfile
from pathlib import Path

from toolwire import Agent, SqliteStore, tool
from toolwire.errors import ModelUnavailable
from toolwire.testing import ScriptedModel, call

sent: list[str] = []


@tool
def send(to: str) -> str:
    """Send the letter."""
    sent.append(to)
    return "sent"


async def main(home: Path) -> None:
    async with await SqliteStore.at(home) as store:
        model = ScriptedModel(call("send", to="ada"), ModelUnavailable("connection refused"), "It is on its way.")
        agent = Agent(model, [send], store=store)
        try:
            await agent.ask("Send Ada the letter.")
        except ModelUnavailable:
            [interrupted] = await store.turns(state="interrupted")
        answer = await agent.resume(interrupted.id)
    assert answer.text == "It is on its way."
    assert sent == ["ada"]  # once, although the turn was run twice


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
