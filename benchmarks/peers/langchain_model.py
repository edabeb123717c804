"""The model that both LangChain agents ask."""

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from benchmarks.task import ANSWER, Asked


class InstantModel(BaseChatModel):
    steps: Iterator[tuple[Asked, ...]]

    @property
    def _llm_type(self) -> str:
        return "instant"

    def bind_tools(self, tools: Sequence[Any], **more: Any) -> Any:
        """Without the conversion to a provider's form that a real model makes each time."""
        return self.bind(tools=list(tools), **more)

    def _generate(self, *_: Any, **__: Any) -> Any:
        return _result(next(self.steps))

    async def _agenerate(self, *_: Any, **__: Any) -> Any:
        return _result(next(self.steps))


def _result(asked: tuple[Asked, ...]) -> Any:
    calls = [{"name": one.name, "args": orjson.loads(one.arguments), "id": one.id} for one in asked]
    message = AIMessage(content="" if asked else ANSWER, tool_calls=calls)
    return ChatResult(generations=[ChatGeneration(message=message)])
