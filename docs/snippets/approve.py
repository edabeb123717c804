import asyncio

from toolwire import Agent, Approval, Grant, Tier, tool
from toolwire.protocol.calls import NeedsApproval
from toolwire.protocol.chat import ResultsMessage
from toolwire.testing import ScriptedModel, call


@tool(tier=Tier.RUN)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


async def ask_dana(request: NeedsApproval) -> Approval:
    """Shown to a person, with exactly the arguments that would run. Waiting here costs the turn no deadline."""
    path = request.allowed.arguments["path"]
    return Approval(granted=path.startswith("tmp/"), by="dana", reason="only temporary files")


async def main() -> None:
    model = ScriptedModel([call("delete", path="tmp/a"), call("delete", path="notes.txt")], "One of two.")
    agent = Agent(model, [delete], grant=Grant(tier=Tier.RUN), approve=ask_dana)
    answer = await agent.ask("Clean up.")
    [results] = [message.results for message in answer.turn.messages if isinstance(message, ResultsMessage)]
    assert [result.status for result in results] == ["success", "failed"]
    assert "only temporary files" in results[1].text


asyncio.run(main())
