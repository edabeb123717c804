"""openai-agents, with tracing off."""

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from benchmarks.task import ANSWER, QUESTION, SYSTEM, Asked, Run, Shape, functions, script


class InstantModel(Model):
    def __init__(self, shape: Shape) -> None:
        self._steps = script(shape)

    async def get_response(self, *_: Any, **__: Any) -> Any:
        asked = next(self._steps)
        output = [_call(one) for one in asked] if asked else [_message()]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def _call(one: Asked) -> Any:
    return ResponseFunctionToolCall(call_id=one.id, name=one.name, arguments=one.arguments, type="function_call")


def _message() -> Any:
    text = ResponseOutputText(text=ANSWER, type="output_text", annotations=[])
    return ResponseOutputMessage(id="msg", content=[text], role="assistant", status="completed", type="message")


def prepare(shape: Shape) -> Run:
    tools = [function_tool(function) for function in functions(shape.tools)]
    agent = Agent(name="bench", instructions=SYSTEM, model=InstantModel(shape), tools=tools)
    config = RunConfig(tracing_disabled=True)

    async def run() -> str:
        result = await Runner.run(agent, QUESTION, max_turns=shape.turns + 2, run_config=config)
        return str(result.final_output)

    return run
