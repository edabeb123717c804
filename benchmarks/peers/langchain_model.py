"""The model that both LangChain agents ask."""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from benchmarks.task import ANSWER, Asked


class InstantModel(BaseChatModel):
    steps: Iterator[tuple[Asked, ...]]

    @property
    def _llm_type(self) -> str:
        return "instant"

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> Any:
        """As the real models of LangChain do it."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **more)

    def _generate(self, *_: Any, **__: Any) -> Any:
        return _result(next(self.steps))

    async def _agenerate(self, *_: Any, **__: Any) -> Any:
        return _result(next(self.steps))


def _result(asked: tuple[Asked, ...]) -> Any:
    calls = [{"name": one.name, "args": orjson.loads(one.arguments), "id": one.id} for one in asked]
    message = AIMessage(content="" if asked else ANSWER, tool_calls=calls)
    return ChatResult(generations=[ChatGeneration(message=message)])
