"""The three chat APIs as their real SDKs use them, so that one test can be said for all of them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import openai

from tests.gateway.stand import DESCRIPTION, NAME, QUESTION, ROOM, Gate
from tests.models.provider import Scripted, answer, says

Calls = Sequence[tuple[str, str, str]]


@dataclass
class Got:
    """What a client's SDK made of an answer."""

    text: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    ending: str = ""
    thought: str = ""
    tokens: int = 0


@dataclass(frozen=True)
class Kind:
    """One API: how its upstream answers with some text and calls, and how its SDK asks."""

    name: str
    path: str
    whole: Callable[..., Any]
    events: Callable[..., list[Any]]
    endings: dict[str, str]
    framed: Callable[[list[Any]], bytes]

    def says(self, text: str, calls: Calls = (), ending: str = "stop") -> Scripted:
        return says(self.whole(text, calls, self.endings[ending]))

    def streams(self, pieces: Sequence[str], calls: Calls = (), ending: str = "stop") -> Scripted:
        return answer(self.framed(self.events(pieces, calls, self.endings[ending])), kind="text/event-stream")

    async def ask(self, gate: Gate, *, stream: bool, tools: bool = True, more: dict[str, Any] | None = None) -> Got:
        return await ASKING[self.name](gate, stream, tools, more or {})


def _chat_whole(text: str, calls: Calls, ending: str) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [_entry(call) for call in calls]
    choice = {"index": 0, "message": message, "finish_reason": ending, "logprobs": None}
    usage = {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return head | {"choices": [choice], "usage": usage, "x_vendor": {"kept": True}}


def _entry(call: tuple[str, str, str]) -> Any:
    return {"id": call[0], "type": "function", "function": {"name": call[1], "arguments": call[2]}}


def chunk(delta: Any, ending: str | None = None, index: int = 0) -> Any:
    choice = {"index": index, "delta": delta, "finish_reason": ending}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def _chat_events(pieces: Sequence[str], calls: Calls, ending: str) -> list[Any]:
    events = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": piece}) for piece in pieces)]
    for at, call in enumerate(calls):
        first = _entry(call) | {"index": at, "function": {"name": call[1], "arguments": ""}}
        events.append(chunk({"tool_calls": [first]}))
        pieces = (call[2][:5], call[2][5:])
        events += [chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]}) for piece in pieces]
    usage = {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}
    return [*events, chunk({}, ending), chunk({}) | {"choices": [], "usage": usage}]


def framed_chat(events: list[Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def framed_named(events: list[Any]) -> bytes:
    return b"".join(
        b"event: " + event["type"].encode() + b"\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events
    )


def _message_whole(text: str, calls: Calls, ending: str) -> Any:
    content = [{"type": "text", "text": text}] if text else []
    content += [{"type": "tool_use", "id": id_, "name": name, "input": json.loads(args)} for id_, name, args in calls]
    usage = {"input_tokens": 20, "output_tokens": 7}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    return head | {"content": content, "stop_reason": ending, "usage": usage, "x_vendor": {"kept": True}}


def _message_events(pieces: Sequence[str], calls: Calls, ending: str) -> list[Any]:
    start = _message_whole("", (), "end_turn") | {"stop_reason": None}
    events: list[Any] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    if pieces:
        events += _block(0, {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces])
    for at, (id_, name, args) in enumerate(calls, 1 if pieces else 0):
        parts = [{"type": "input_json_delta", "partial_json": piece} for piece in (args[:5], args[5:])]
        events += _block(at, {"type": "tool_use", "id": id_, "name": name, "input": {}}, parts)
    delta = {"stop_reason": ending, "stop_sequence": None}
    return [*events, {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}, {"type": "message_stop"}]


def _block(index: int, block: Any, deltas: list[Any]) -> list[Any]:
    begun = {"type": "content_block_start", "index": index, "content_block": block}
    said = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [begun, *said, {"type": "content_block_stop", "index": index}]


def _response_whole(text: str, calls: Calls, ending: str) -> Any:
    output = [_message_item(text)] if text else []
    output += [_call_item(call) for call in calls]
    usage: dict[str, Any] = {"input_tokens": 20, "output_tokens": 7, "total_tokens": 27}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "error": None, "tools": []}
    head |= {"parallel_tool_calls": True, "tool_choice": "auto", "x_vendor": {"kept": True}}
    details = {"reason": "max_output_tokens"} if ending == "incomplete" else None
    return head | {"output": output, "status": ending, "usage": usage, "incomplete_details": details}


def _message_item(text: str) -> Any:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}


def _call_item(call: tuple[str, str, str]) -> Any:
    head = {"type": "function_call", "id": f"fc_{call[0]}", "call_id": call[0], "name": call[1]}
    return head | {"arguments": call[2], "status": "completed"}


def _response_events(pieces: Sequence[str], calls: Calls, ending: str) -> list[Any]:
    whole = _response_whole("".join(pieces), calls, ending)
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    events: list[Any] = [{"type": "response.created", "response": begun}]
    if pieces:
        events += _message_steps(pieces)
    for at, call in enumerate(calls, 1 if pieces else 0):
        where = {"output_index": at, "item_id": f"fc_{call[0]}"}
        item = _call_item(call)
        events += [
            {"type": "response.output_item.added", "output_index": at, "item": item | {"arguments": ""}},
            {"type": "response.function_call_arguments.delta", **where, "delta": call[2]},
            {"type": "response.function_call_arguments.done", **where, "arguments": call[2]},
            {"type": "response.output_item.done", "output_index": at, "item": item},
        ]
    events.append({"type": f"response.{ending}", "response": whole})
    return [event | {"sequence_number": at} for at, event in enumerate(events)]


def _message_steps(pieces: Sequence[str]) -> list[Any]:
    where = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
    item = _message_item("".join(pieces))
    empty = {"type": "output_text", "text": "", "annotations": []}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        {"type": "response.content_part.added", **where, "part": empty},
        *({"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []} for piece in pieces),
        {"type": "response.output_text.done", **where, "text": "".join(pieces), "logprobs": []},
        {"type": "response.content_part.done", **where, "part": item["content"][0]},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]


async def _ask_chat(gate: Gate, stream: bool, tools: bool, more: dict[str, Any]) -> Got:
    function = {"name": NAME, "description": DESCRIPTION, "parameters": ROOM}
    given: dict[str, Any] = {"tools": [{"type": "function", "function": function}]} if tools else {}
    given |= {"model": "m", "messages": [{"role": "user", "content": QUESTION}]} | more
    async with gate.openai() as client:
        if not stream:
            return read_completion(await client.chat.completions.create(**given))
        try:
            async with client.chat.completions.stream(**given) as events:
                return read_completion(await events.get_final_completion())
        except openai.LengthFinishReasonError as cut:
            return read_completion(cut.completion)


def read_completion(completion: Any, at: int = 0) -> Got:
    choice = completion.choices[at]
    calls = choice.message.tool_calls or []
    return Got(
        choice.message.content or "",
        [(call.function.name, _loaded(call.function.arguments)) for call in calls],
        [call.id for call in calls],
        choice.finish_reason,
        getattr(choice.message, "reasoning_content", None) or "",
        completion.usage.total_tokens if completion.usage else 0,
    )


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def _ask_message(gate: Gate, stream: bool, tools: bool, more: dict[str, Any]) -> Got:
    given: dict[str, Any] = {}
    if tools:
        given["tools"] = [{"name": NAME, "description": DESCRIPTION, "input_schema": ROOM}]
    given |= {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": QUESTION}]} | more
    async with gate.anthropic() as client:
        if not stream:
            return _read_message(await client.messages.create(**given))
        async with client.messages.stream(**given) as events:
            return _read_message(await events.get_final_message())


def _read_message(message: Any) -> Got:
    uses = [block for block in message.content if block.type == "tool_use"]
    return Got(
        "".join(block.text for block in message.content if block.type == "text"),
        [(use.name, use.input) for use in uses],
        [use.id for use in uses],
        message.stop_reason,
        "".join(block.thinking for block in message.content if block.type == "thinking"),
        message.usage.input_tokens + message.usage.output_tokens,
    )


async def _ask_response(gate: Gate, stream: bool, tools: bool, more: dict[str, Any]) -> Got:
    given: dict[str, Any] = {}
    if tools:
        given["tools"] = [
            {"type": "function", "name": NAME, "description": DESCRIPTION, "parameters": ROOM, "strict": False}
        ]
    given |= {"model": "m", "input": QUESTION} | more
    async with gate.openai() as client:
        if not stream:
            return _read_response(await client.responses.create(**given))
        last: Any = None
        seen: list[int] = []
        async for event in await client.responses.create(stream=True, **given):
            seen.append(getattr(event, "sequence_number", -1))
            if event.type in ("response.completed", "response.incomplete", "response.failed"):
                last = event.response
        assert not tools or seen == list(range(len(seen)))
        return _read_response(last)


def _read_response(response: Any) -> Got:
    calls = [item for item in response.output if item.type == "function_call"]
    thoughts = [item for item in response.output if item.type == "reasoning"]
    ending = response.status if not response.error else f"failed: {response.error.message}"
    return Got(
        response.output_text,
        [(call.name, _loaded(call.arguments)) for call in calls],
        [call.call_id for call in calls],
        ending,
        "".join(part.text for item in thoughts for part in item.content or []),
        response.usage.total_tokens if response.usage else 0,
    )


ASKING = {"openai": _ask_chat, "anthropic": _ask_message, "openai_responses": _ask_response}

CHAT = Kind(
    "openai", "/v1/chat/completions", _chat_whole, _chat_events,
    {"stop": "stop", "calls": "tool_calls", "length": "length"}, framed_chat,
)  # fmt: skip
MESSAGES = Kind(
    "anthropic", "/v1/messages", _message_whole, _message_events,
    {"stop": "end_turn", "calls": "tool_use", "length": "max_tokens"}, framed_named,
)  # fmt: skip
RESPONSES = Kind(
    "openai_responses", "/v1/responses", _response_whole, _response_events,
    {"stop": "completed", "calls": "completed", "length": "incomplete"}, framed_named,
)  # fmt: skip
KINDS = [CHAT, MESSAGES, RESPONSES]
