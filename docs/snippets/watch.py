import asyncio

from toolwire import Agent, tool
from toolwire.protocol.chat import TextDelta
from toolwire.protocol.events import CallFinished, TurnEnded
from toolwire.testing import ScriptedModel, call, says


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return "nothing there"


async def main() -> None:
    model = ScriptedModel(says("Let me look. ", call("look", where="under the bed")), "Nothing is there.")
    seen = []
    async for event in Agent(model, [look]).stream("What is under the bed?"):
        match event:
            case TextDelta(text):
                print(text, end="")
            case CallFinished(call=made, result=result):
                print(f"[{made.name}: {result.text}, {result.elapsed_ms:.1f} ms] ", end="")
            case TurnEnded(ending=ending):
                print(f"({ending.reason})")
        seen.append(type(event).__name__)
    assert seen[0] == "TurnStarted"
    assert seen[-1] == "TurnEnded"


asyncio.run(main())
