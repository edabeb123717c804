import asyncio

from toolwire import Agent, tool
from toolwire.testing import ScriptedModel, call


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# Any model will do: "local:smollm2", "ollama:qwen3", "anthropic:claude-sonnet-4-5", … This one follows a script.
model = ScriptedModel(call("add", a=40, b=2), "It is 42.")


async def main() -> None:
    async with Agent(model, [add]) as agent:
        answer = await agent.ask("What is 40 + 2?")
    print(answer.text)
    assert answer.text == "It is 42."


asyncio.run(main())
