"""pydantic-ai, with its function model."""

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import UsageLimits

from benchmarks.task import ANSWER, QUESTION, SYSTEM, Run, Shape, functions, script


def prepare(shape: Shape) -> Run:
    steps = script(shape)

    async def model(messages: Any, info: Any) -> Any:
        asked = next(steps)
        if not asked:
            return ModelResponse(parts=[TextPart(ANSWER)])
        return ModelResponse(parts=[ToolCallPart(one.name, one.arguments, tool_call_id=one.id) for one in asked])

    agent = Agent(FunctionModel(model), system_prompt=SYSTEM, tools=functions(shape.tools))
    limits = UsageLimits(request_limit=None)

    async def run() -> str:
        return str((await agent.run(QUESTION, usage_limits=limits)).output)

    return run
