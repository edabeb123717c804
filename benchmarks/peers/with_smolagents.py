"""smolagents' ToolCallingAgent. Its tools and loop are synchronous; its answer is a call of `final_answer`.

The model prepares and writes its request as the library's own models do, since ours writes its request too.
"""

from typing import Any

import orjson
from smolagents import LogLevel, ToolCallingAgent, tool
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole, Model

from benchmarks.task import ANSWER, QUESTION, SYSTEM, WEATHER, Asked, Run, Shape, script

FINAL = (Asked("final", "final_answer", f'{{"answer": "{ANSWER}"}}'),)


class InstantModel(Model):
    def __init__(self, shape: Shape) -> None:
        super().__init__(model_id="instant")
        self._steps = script(shape)

    def generate(self, messages: Any, **asked: Any) -> Any:
        prepared = self._prepare_completion_kwargs(
            messages, model=self.model_id, convert_images_to_image_urls=True, **asked
        )
        orjson.dumps(prepared)
        calls = [_call(one) for one in next(self._steps) or FINAL]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)


def _call(one: Asked) -> Any:
    function = ChatMessageToolCallFunction(name=one.name, arguments=one.arguments)
    return ChatMessageToolCall(function=function, id=one.id, type="function")


def _tool(name: str) -> Any:
    def lookup(city: str, days: int, units: str = "metric") -> str:
        """Look up the weather forecast of one city for some days.

        Args:
            city: The city.
            days: How many days.
            units: The units.
        """
        return WEATHER.forecast(city, days, units)

    lookup.__name__ = name
    return tool(lookup)


def prepare(shape: Shape) -> Run:
    agent = ToolCallingAgent(
        tools=[_tool(f"lookup_{number}") for number in range(shape.tools)],
        model=InstantModel(shape),
        instructions=SYSTEM,
        max_steps=shape.turns + 2,
        verbosity_level=LogLevel.OFF,
    )

    async def run() -> str:
        return str(agent.run(QUESTION))

    return run
