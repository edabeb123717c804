"""What a provider's prompt cache sees of a turn: everything that was sent before, unchanged, and something after it."""

import asyncio
import json
from typing import Any

from toolwire.agent import Agent
from toolwire.define.functions import tool
from toolwire.define.toolbox import Toolbox
from toolwire.models.opening import open_model
from toolwire.protocol.chat import ResultsMessage
from toolwire.protocol.outcomes import Code

from .conftest import KEY
from .provider import Provider, Scripted, says


@tool
def apple() -> str:
    """Give an apple."""
    return "an apple"


@tool
def berry() -> str:
    """Give a berry."""
    return "a berry"


@tool
def cherry() -> str:
    """Give a cherry."""
    return "a cherry"


def calls(name: str, number: int) -> Scripted:
    call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return says({"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]})


DONE = says({"choices": [{"message": {"content": "Done."}, "finish_reason": "stop"}]})


async def flapping(provider: Provider, *boxes: Toolbox) -> list[tuple[str, Code | None]]:
    """Ask for berries, with another toolbox from each step on, and say what came of each call."""
    provider.will(*(calls("berry", number) for number in range(len(boxes))), DONE)
    model = open_model("vllm:some-model", base_url=f"{provider.url}/v1", api_key=KEY, environ={})
    coming = iter(boxes)

    async def change(_: Any) -> None:
        if (box := next(coming, None)) is not None:
            agent.change_tools(box)

    agent = Agent(model, boxes[0], intervene=change)
    async with asyncio.timeout(5):
        answer = await agent.ask("Some berries, please.")
    await model.close()
    results = [one for said in answer.turn.messages if isinstance(said, ResultsMessage) for one in said.results]
    return [(one.text, one.error.code if one.error else None) for one in results]


def head(body: dict[str, Any]) -> str:
    """What stands before the messages, to the byte."""
    return json.dumps({name: value for name, value in body.items() if name != "messages"})


async def test_tools_that_come_and_go_change_nothing_that_was_sent_before(provider: Provider) -> None:
    both = Toolbox.of(apple, berry)

    came = await flapping(provider, both, Toolbox.of(apple), Toolbox.of(cherry, berry, apple))

    assert [code for _, code in came] == [None, Code.UNAVAILABLE, None]
    assert "temporarily unavailable" in came[1][0]
    assert [one["function"]["name"] for one in provider.bodies[0]["tools"]] == ["apple", "berry"]
    assert len({head(body) for body in provider.bodies}) == 1
    for before, after in zip(provider.bodies, provider.bodies[1:], strict=False):
        assert after["messages"][: len(before["messages"])] == before["messages"]


async def test_another_process_with_the_same_tools_sends_the_same_bytes(provider: Provider) -> None:
    await flapping(provider, Toolbox.of(apple, berry))
    first = head(provider.bodies[0])

    await flapping(provider, Toolbox.of(Toolbox.of(apple), berry))

    assert head(provider.bodies[-1]) == first
