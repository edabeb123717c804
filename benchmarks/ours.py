"""The work done by toolwire, with a model that answers at once: with the request encoded, without, and reply parsed."""

from collections.abc import Callable
from typing import Any

import orjson

from benchmarks.task import ANSWER, QUESTION, SYSTEM, Asked, Run, Shape, functions, script
from toolwire.agent import Agent
from toolwire.define.toolbox import Toolbox
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Delta, Reply, Request
from toolwire.protocol.tools import Grant
from toolwire.protocol.turns import Limits
from toolwire.wire.encode import openai_chat
from toolwire.wire.encode.request import RequestEncoder
from toolwire.wire.replies.reply import parse_reply

Answering = Callable[[tuple[Asked, ...], Request], Reply]


class InstantModel:
    """A model that follows the script. With an encoder it writes every request, as one behind HTTP must."""

    name = "instant:model"

    def __init__(self, shape: Shape, answering: Answering, encoder: RequestEncoder | None) -> None:
        self._steps = script(shape)
        self._answering = answering
        self._encoder = encoder

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        if self._encoder is not None:
            self._encoder.encode(request, openai_chat.frame(request, "model"))
        return self._answering(next(self._steps), request)

    async def close(self) -> None:
        """Nothing to let go of."""


class Ours:
    """One agent on a memory store for all runs, as the peers' agents are made once."""

    def __init__(self, answering: Answering, *, encodes: bool) -> None:
        self._answering = answering
        self._encodes = encodes

    def prepare(self, shape: Shape) -> Run:
        toolbox = Toolbox.of(*functions(shape.tools))
        encoder = RequestEncoder(openai_chat.DIALECT) if self._encodes else None
        model = InstantModel(shape, self._answering, encoder)
        limits = Limits(iterations=shape.turns + 2, parallel=shape.parallel)
        grant = Grant(max_calls=shape.tool_calls)
        agent = Agent(model, toolbox, system=SYSTEM, grant=grant, limits=limits)

        async def run() -> str:
            return (await agent.ask(QUESTION)).text

        return run


def ready(asked: tuple[Asked, ...], request: Request) -> Reply:
    """The reply as a value; only the arguments are read, as the floors read them."""
    if not asked:
        return Reply(ANSWER)
    calls = tuple([ToolCall(one.name, orjson.loads(one.arguments), alias=one.id) for one in asked])
    return Reply(calls=calls, finish_reason="tool_calls")


def parsed(asked: tuple[Asked, ...], request: Request) -> Reply:
    """The reply read from a chat completion, with every check that a real one gets."""
    return parse_reply(_completion(asked), tools=request.tools, provider="openai")


def _completion(asked: tuple[Asked, ...]) -> dict[str, Any]:
    if not asked:
        return {"choices": [{"message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}]}
    calls = [
        {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}} for one in asked
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    return {"choices": [{"message": message, "finish_reason": "tool_calls"}]}


ENCODED = Ours(ready, encodes=True)
UNENCODED = Ours(ready, encodes=False)
PARSED = Ours(parsed, encodes=True)
