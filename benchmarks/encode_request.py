"""How long it takes to write a request body for 50 tools and 40 messages: at first, and when two messages are new.

Run with `python benchmarks/encode_request.py`; prints the median in microseconds for each dialect.
"""

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import Any

from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Status
from toolwire.protocol.tools import Tool
from toolwire.wire import anthropic, ollama, openai
from toolwire.wire.request import Dialect, RequestEncoder

ROUNDS = 300


def _tools(count: int) -> tuple[Tool, ...]:
    field = {"type": "string", "description": "One of the values that the service knows."}
    properties = dict.fromkeys(("region", "metric", "since", "until", "unit"), field)
    schema = {"type": "object", "properties": properties, "required": ["metric"], "additionalProperties": False}
    return tuple(Tool(f"query_service_{n}", f"Ask service {n} for a metric over time.", schema) for n in range(count))


def _messages(steps: int) -> tuple[Message, ...]:
    messages: list[Message] = [UserMessage("How did the fleet do last week?")]
    for step in range(steps):
        call = ToolCall(
            "query_service_1", {"metric": "load", "since": f"day {step}"}, id=f"c{step}", alias=f"call_{step}"
        )
        messages.append(Reply(content="Looking at the next day.", calls=(call,)))
        messages.append(ResultsMessage((ToolResult(call.id, call.name, Status.SUCCESS, (Text("0.42 " * 60),)),)))
    return tuple(messages)


def _cold(dialect: Dialect, frame: Callable[..., dict[str, Any]], request: Request) -> int:
    encoder = RequestEncoder(dialect)
    start = perf_counter_ns()
    encoder.encode(request, frame(request, "model", stream=True))
    return perf_counter_ns() - start


def _grown(dialect: Dialect, frame: Callable[..., dict[str, Any]], request: Request) -> int:
    encoder = RequestEncoder(dialect)
    shorter = Request(request.messages[:-2], request.tools, request.system, request.conversation)
    encoder.encode(shorter, frame(shorter, "model", stream=True))
    start = perf_counter_ns()
    encoder.encode(request, frame(request, "model", stream=True))
    return perf_counter_ns() - start


def main() -> None:
    request = Request(_messages(20)[:40], _tools(50), "You watch a fleet. " * 20, "bench")
    speakers = ((openai.DIALECT, openai.frame), (anthropic.DIALECT, anthropic.frame), (ollama.DIALECT, ollama.frame))
    for dialect, frame in speakers:
        cold = median(_cold(dialect, frame, request) for _ in range(ROUNDS)) / 1000
        grown = median(_grown(dialect, frame, request) for _ in range(ROUNDS)) / 1000
        print(f"{dialect.name:10} cold {cold:6.1f} us   two new messages {grown:6.1f} us")


if __name__ == "__main__":
    main()
