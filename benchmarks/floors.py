"""The least that such a loop can be: `bare`, and `bare_safe`, which does what no honest one can leave out."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import orjson

from benchmarks.task import ANSWER, DESCRIPTION, QUESTION, SYSTEM, Asked, Run, Shape, functions, schema, script

Message = dict[str, Any]
Answer = Callable[[Message], Awaitable[Message]]
TIMEOUT_S = 30.0


class Arguments(msgspec.Struct, forbid_unknown_fields=True):
    city: str
    days: int
    units: str = "metric"


class Bare:
    """A hand-written loop: look up, decode, await, append."""

    def prepare(self, shape: Shape) -> Run:
        tools = {function.__name__: function for function in functions(shape.tools)}
        replies = _replies(shape)

        async def answer(call: Message) -> Message:
            function = call["function"]
            text = await tools[function["name"]](**orjson.loads(function["arguments"]))
            return {"role": "tool", "tool_call_id": call["id"], "content": text}

        async def model(messages: list[Message]) -> Message:
            return next(replies)

        return lambda: _loop(model, answer)


class BareSafe:
    """The same with typed arguments, a timeout and an error path for each call, and the whole request encoded."""

    def prepare(self, shape: Shape) -> Run:
        tools = {function.__name__: function for function in functions(shape.tools)}
        offered = [_offered(name) for name in tools]
        replies = _replies(shape)
        decoder = msgspec.json.Decoder(Arguments)

        async def answer(call: Message) -> Message:
            function = call["function"]
            try:
                given = decoder.decode(function["arguments"])
                async with asyncio.timeout(TIMEOUT_S):
                    text = await tools[function["name"]](given.city, given.days, given.units)
            except Exception as error:
                text = f"error: {error}"
            return {"role": "tool", "tool_call_id": call["id"], "content": text}

        async def model(messages: list[Message]) -> Message:
            orjson.dumps({"model": "m", "stream": False, "tools": offered, "messages": messages})
            return next(replies)

        return lambda: _loop(model, answer)


BARE, BARE_SAFE = Bare(), BareSafe()


async def _loop(model: Callable[[list[Message]], Awaitable[Message]], answer: Answer) -> str:
    messages: list[Message] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    while True:
        reply = await model(messages)
        messages.append(reply)
        calls = reply.get("tool_calls")
        if calls is None:
            return str(reply["content"])
        if len(calls) == 1:
            messages.append(await answer(calls[0]))
        else:
            messages += await asyncio.gather(*map(answer, calls))


def _replies(shape: Shape) -> Iterator[Message]:
    """What the model says, made when it is asked, as all other loops' models do."""
    return map(_reply, script(shape))


def _reply(asked: tuple[Asked, ...]) -> Message:
    if not asked:
        return {"role": "assistant", "content": ANSWER}
    calls = [
        {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}} for one in asked
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _offered(name: str) -> Message:
    return {"type": "function", "function": {"name": name, "description": DESCRIPTION, "parameters": schema()}}
