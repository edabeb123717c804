"""The providers' real SDKs asking a scripted server, so that our readers meet the very objects their users hold."""

import json
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import cohere.v2.client
import httpx
import mistralai.client
import ollama
from cohere.core.client_wrapper import AsyncClientWrapper

from tests.models.provider import Scripted, answer, says, sse
from tests.no_tls import NO_TLS, anthropic_client, openai_client

with warnings.catch_warnings():
    # Compiling it warns of escapes in its docstrings, and a warning fails a test run.
    warnings.filterwarnings("ignore", "invalid escape sequence")
    from google import genai
    from google.genai import types as gemini

SUM = {"a": 40, "b": 2}
WRITTEN = json.dumps(SUM)
HALVES = (WRITTEN[:5], WRITTEN[5:])
SIGNATURE = "c2lnbmVkPz4-"  # the URL's alphabet, as Gemini writes it
QUESTION: Any = [{"role": "user", "content": "What is 40 + 2?"}]

Objects = list[Any]


@dataclass(frozen=True)
class Sdk:
    """One SDK: what its provider sends, whole and streamed, and how it is asked for it."""

    name: str
    provider: str
    whole: dict[str, Any]
    events: list[dict[str, Any]]
    ask: Callable[[str], Awaitable[Any]]
    stream: Callable[[str], Awaitable[Objects]]
    ending: str
    usage: tuple[int, int, int]
    lines: bool = False
    carried: bool = False

    @property
    def whole_answer(self) -> Scripted:
        return says(self.whole)

    @property
    def streamed_answer(self) -> Scripted:
        if self.lines:
            return answer(b"".join(json.dumps(event).encode() + b"\n" for event in self.events))
        named = "type" in self.events[0]
        body = b"".join(_named(event) for event in self.events) if named else sse(self.events)
        return answer(body + (b"data: [DONE]\n\n" if "choices" in self.events[0] else b""), kind="text/event-stream")


def _named(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\n".encode() + sse([event])


def _entry(arguments: Any) -> dict[str, Any]:
    return {"id": "call_0001", "type": "function", "function": {"name": "add", "arguments": arguments}}


def _completion(message: dict[str, Any], reason: str = "tool_calls") -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": reason, "logprobs": None}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, "prompt_tokens_details": CACHED}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def _chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return head | {"choices": [choice]} | more


def _fragment(arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}


CACHED = {"cached_tokens": 4}
CHAT_USAGE = _completion({})["usage"]


async def _ask_openai(url: str) -> Any:
    async with openai_client(base_url=url, api_key="k", max_retries=0, timeout=5) as client:
        return await client.chat.completions.create(model="m", messages=QUESTION)


async def _stream_openai(url: str) -> Objects:
    async with openai_client(base_url=url, api_key="k", max_retries=0, timeout=5) as client:
        stream = await client.chat.completions.create(model="m", messages=QUESTION, stream=True)
        return [chunk async for chunk in stream]


async def _watch_openai(url: str) -> Objects:
    async with (
        openai_client(base_url=url, api_key="k", max_retries=0, timeout=5) as client,
        client.chat.completions.stream(model="m", messages=QUESTION) as stream,
    ):
        return [event async for event in stream]


OPENAI = Sdk(
    "openai",
    "openai",
    _completion({"content": "Adding.", "reasoning_content": "Forty and two.", "tool_calls": [_entry(WRITTEN)]}),
    [
        _chunk({"role": "assistant", "content": "", "reasoning_content": "Forty "}),
        _chunk({"reasoning_content": "and two."}),
        _chunk({"content": "Add"}),
        _chunk({"content": "ing."}),
        _chunk({"tool_calls": [_entry("") | {"index": 0}]}),
        *(_chunk(_fragment(half)) for half in HALVES),
        _chunk({}, "tool_calls"),
        _chunk({}) | {"choices": [], "usage": CHAT_USAGE},
    ],
    _ask_openai,
    _stream_openai,
    "tool_calls",
    (11, 7, 4),
)
OPENAI_HELPER = Sdk(
    "openai_helper", "openai", OPENAI.whole, OPENAI.events, _ask_openai, _watch_openai, "tool_calls", (11, 7, 4)
)

_REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Forty and two."}],
    "encrypted_content": "c2VhbGVk",
}
_SAID = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Adding.", "annotations": []}],
}
_CALLED = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_0001",
    "name": "add",
    "arguments": WRITTEN,
}
_RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "output": [_REASONING, _SAID, _CALLED],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 11,
        "output_tokens": 7,
        "total_tokens": 18,
        "input_tokens_details": CACHED,
        "output_tokens_details": {"reasoning_tokens": 3},
    },
}
_BEGUN = _RESPONSE | {"status": "in_progress", "output": [], "usage": None}


def _numbered(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def _item(kind: str, at: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": at, "item": item}


def _text_event(kind: str, **more: Any) -> dict[str, Any]:
    return {
        "type": f"response.{kind}",
        "output_index": 1,
        "item_id": "msg_1",
        "content_index": 0,
        "logprobs": [],
    } | more


_RESPONSE_EVENTS = _numbered(
    [
        {"type": "response.created", "response": _BEGUN},
        _item("added", 0, _REASONING | {"summary": []}),
        {
            "type": "response.reasoning_summary_part.added",
            "item_id": "rs_1",
            "output_index": 0,
            "summary_index": 0,
            "part": {"type": "summary_text", "text": ""},
        },
        {
            "type": "response.reasoning_summary_text.delta",
            "item_id": "rs_1",
            "output_index": 0,
            "summary_index": 0,
            "delta": "Forty and two.",
        },
        _item("done", 0, _REASONING),
        _item("added", 1, _SAID | {"content": [], "status": "in_progress"}),
        _text_event("content_part.added", part={"type": "output_text", "text": "", "annotations": []}),
        _text_event("output_text.delta", delta="Add"),
        _text_event("output_text.delta", delta="ing."),
        _text_event("output_text.done", text="Adding."),
        _item("done", 1, _SAID),
        _item("added", 2, _CALLED | {"arguments": "", "status": "in_progress"}),
        *(
            {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 2, "delta": half}
            for half in HALVES
        ),
        {
            "type": "response.function_call_arguments.done",
            "item_id": "fc_1",
            "output_index": 2,
            "name": "add",
            "arguments": WRITTEN,
        },
        _item("done", 2, _CALLED),
        {"type": "response.completed", "response": _RESPONSE},
    ]
)


async def _ask_responses(url: str) -> Any:
    async with openai_client(base_url=url, api_key="k", max_retries=0, timeout=5) as client:
        return await client.responses.create(model="m", input=QUESTION)


async def _stream_responses(url: str) -> Objects:
    async with openai_client(base_url=url, api_key="k", max_retries=0, timeout=5) as client:
        stream = await client.responses.create(model="m", input=QUESTION, stream=True)
        return [event async for event in stream]


async def _watch_responses(url: str) -> Objects:
    async with (
        openai_client(base_url=url, api_key="k", max_retries=0, timeout=5) as client,
        client.responses.stream(model="m", input=QUESTION) as stream,
    ):
        return [event async for event in stream]


RESPONSES = Sdk(
    "openai_responses",
    "openai_responses",
    _RESPONSE,
    _RESPONSE_EVENTS,
    _ask_responses,
    _stream_responses,
    "stop",
    (11, 7, 4),
    carried=True,
)
RESPONSES_HELPER = Sdk(
    "openai_responses_helper",
    "openai_responses",
    _RESPONSE,
    _RESPONSE_EVENTS,
    _ask_responses,
    _watch_responses,
    "stop",
    (11, 7, 4),
    carried=True,
)

_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
_ANTHROPIC_USAGE = {
    "input_tokens": 7,
    "output_tokens": 7,
    "cache_read_input_tokens": 4,
    "cache_creation_input_tokens": 0,
}


def _block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


async def _ask_anthropic(url: str) -> Any:
    async with anthropic_client(base_url=url, api_key="k", max_retries=0, timeout=5) as client:
        return await client.messages.create(model="m", max_tokens=100, messages=QUESTION)


async def _stream_anthropic(url: str) -> Objects:
    async with anthropic_client(base_url=url, api_key="k", max_retries=0, timeout=5) as client:
        stream = await client.messages.create(model="m", max_tokens=100, messages=QUESTION, stream=True)
        return [event async for event in stream]


async def _watch_anthropic(url: str) -> Objects:
    async with (
        anthropic_client(base_url=url, api_key="k", max_retries=0, timeout=5) as client,
        client.messages.stream(model="m", max_tokens=100, messages=QUESTION) as stream,
    ):
        return [event async for event in stream]


ANTHROPIC = Sdk(
    "anthropic",
    "anthropic",
    _MESSAGE
    | {
        "content": [
            {"type": "thinking", "thinking": "Forty and two.", "signature": SIGNATURE},
            {"type": "text", "text": "Adding."},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": SUM},
        ],
        "stop_reason": "tool_use",
        "usage": _ANTHROPIC_USAGE,
    },
    [
        {
            "type": "message_start",
            "message": _MESSAGE
            | {"content": [], "stop_reason": None, "usage": _ANTHROPIC_USAGE | {"output_tokens": 1}},
        },
        *_block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Forty and two."},
            {"type": "signature_delta", "signature": SIGNATURE},
        ),
        *_block(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "Add"},
            {"type": "text_delta", "text": "ing."},
        ),
        *_block(
            2,
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
            *({"type": "input_json_delta", "partial_json": half} for half in HALVES),
        ),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ],
    _ask_anthropic,
    _stream_anthropic,
    "tool_use",
    (11, 7, 4),
    carried=True,
)
ANTHROPIC_HELPER = Sdk(
    "anthropic_helper",
    "anthropic",
    ANTHROPIC.whole,
    ANTHROPIC.events,
    _ask_anthropic,
    _watch_anthropic,
    "tool_use",
    (11, 7, 4),
    carried=True,
)


def _candidate(parts: list[dict[str, Any]], reason: str | None = None) -> dict[str, Any]:
    ending = {"finishReason": reason} if reason else {}
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0} | ending], "modelVersion": "m"}


_GEMINI_USAGE = {
    "usageMetadata": {
        "promptTokenCount": 11,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 3,
        "cachedContentTokenCount": 4,
        "totalTokenCount": 18,
    }
}
_THOUGHT = {"text": "Forty and two.", "thought": True}
_SIGNED = {"functionCall": {"id": "f1", "name": "add", "args": SUM}, "thoughtSignature": SIGNATURE}


def _gemini(url: str) -> genai.Client:
    return genai.Client(api_key="k", vertexai=False, http_options=gemini.HttpOptions(base_url=url, timeout=5000))


async def _ask_gemini(url: str) -> Any:
    async with _gemini(url).aio as client:
        return await client.models.generate_content(model="m", contents="What is 40 + 2?")


async def _stream_gemini(url: str) -> Objects:
    async with _gemini(url).aio as client:
        stream = await client.models.generate_content_stream(model="m", contents="What is 40 + 2?")
        return [chunk async for chunk in stream]


GEMINI = Sdk(
    "google_genai",
    "gemini",
    _candidate([_THOUGHT, {"text": "Adding."}, _SIGNED], "STOP") | _GEMINI_USAGE,
    [
        _candidate([_THOUGHT]),
        _candidate([{"text": "Add"}]),
        _candidate([{"text": "ing."}]),
        _candidate([_SIGNED]),
        _candidate([{"text": ""}], "STOP") | _GEMINI_USAGE,
    ],
    _ask_gemini,
    _stream_gemini,
    "STOP",
    (11, 7, 4),
    carried=True,
)

_MISTRAL_THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Forty and two."}]}
_MISTRAL_ENTRY = {"id": "call00001", "function": {"name": "add", "arguments": WRITTEN}, "index": 0}


async def _ask_mistral(url: str) -> Any:
    async with mistralai.client.Mistral(api_key="k", server_url=url, timeout_ms=5000) as client:
        return await client.chat.complete_async(model="m", messages=QUESTION)


async def _stream_mistral(url: str) -> Objects:
    async with mistralai.client.Mistral(api_key="k", server_url=url, timeout_ms=5000) as client:
        stream = await client.chat.stream_async(model="m", messages=QUESTION)
        return [event async for event in stream]


MISTRAL = Sdk(
    "mistralai",
    "mistral",
    _completion({"content": [_MISTRAL_THOUGHT, {"type": "text", "text": "Adding."}], "tool_calls": [_MISTRAL_ENTRY]}),
    [
        _chunk({"role": "assistant", "content": ""}),
        _chunk({"content": [_MISTRAL_THOUGHT]}),
        _chunk({"content": "Add"}),
        _chunk({"content": "ing."}),
        _chunk({"content": "", "tool_calls": [_MISTRAL_ENTRY]}, "tool_calls", usage=CHAT_USAGE),
    ],
    _ask_mistral,
    _stream_mistral,
    "tool_calls",
    (11, 7, 4),
)

_COHERE_USAGE = {
    "billed_units": {"input_tokens": 9, "output_tokens": 7},
    "tokens": {"input_tokens": 11, "output_tokens": 7},
    "cached_tokens": 4,
}


def _cohere(url: str, http: httpx.AsyncClient) -> cohere.v2.client.AsyncV2Client:
    wrapper = AsyncClientWrapper(token="k", base_url=url, timeout=5, httpx_client=http)
    return cohere.v2.client.AsyncV2Client(client_wrapper=wrapper)


async def _ask_cohere(url: str) -> Any:
    async with httpx.AsyncClient(trust_env=False, verify=NO_TLS) as http:
        return await _cohere(url, http).chat(model="m", messages=QUESTION)


async def _stream_cohere(url: str) -> Objects:
    async with httpx.AsyncClient(trust_env=False, verify=NO_TLS) as http:
        return [event async for event in _cohere(url, http).chat_stream(model="m", messages=QUESTION)]


def _cohere_content(kind: str, index: int, content: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "index": index, "delta": {"message": {"content": content}}}


def _cohere_call(kind: str, calls: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "index": 0, "delta": {"message": {"tool_calls": calls}}}


COHERE = Sdk(
    "cohere",
    "cohere",
    {
        "id": "c1",
        "finish_reason": "TOOL_CALL",
        "message": {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Forty and two."}, {"type": "text", "text": "Adding."}],
            "tool_calls": [_entry(WRITTEN)],
        },
        "usage": _COHERE_USAGE,
    },
    [
        {"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant", "content": []}}},
        _cohere_content("content-start", 0, {"type": "thinking", "thinking": ""}),
        _cohere_content("content-delta", 0, {"thinking": "Forty and two."}),
        {"type": "content-end", "index": 0},
        _cohere_content("content-start", 1, {"type": "text", "text": ""}),
        _cohere_content("content-delta", 1, {"text": "Add"}),
        _cohere_content("content-delta", 1, {"text": "ing."}),
        {"type": "content-end", "index": 1},
        _cohere_call("tool-call-start", _entry("")),
        *(_cohere_call("tool-call-delta", {"function": {"arguments": half}}) for half in HALVES),
        {"type": "tool-call-end", "index": 0},
        {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": _COHERE_USAGE}},
    ],
    _ask_cohere,
    _stream_cohere,
    "TOOL_CALL",
    (11, 7, 4),
)


def _line(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": ""} | message,
    }
    return head | {"done": False} | more


_OLLAMA_END = {"done": True, "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 7, "total_duration": 5}
_OLLAMA_CALL = {"tool_calls": [{"function": {"name": "add", "arguments": SUM}}]}


async def _ask_ollama(url: str) -> Any:
    async with ollama.AsyncClient(host=url, timeout=5, verify=NO_TLS) as client:
        return await client.chat(model="m", messages=QUESTION)


async def _stream_ollama(url: str) -> Objects:
    async with ollama.AsyncClient(host=url, timeout=5, verify=NO_TLS) as client:
        return [part async for part in await client.chat(model="m", messages=QUESTION, stream=True)]


OLLAMA = Sdk(
    "ollama",
    "ollama",
    _line({"content": "Adding.", "thinking": "Forty and two."} | _OLLAMA_CALL) | _OLLAMA_END,
    [
        _line({"thinking": "Forty and two."}),
        _line({"content": "Add"}),
        _line({"content": "ing."}),
        _line(_OLLAMA_CALL),
        _line({}) | _OLLAMA_END,
    ],
    _ask_ollama,
    _stream_ollama,
    "stop",
    (11, 7, 0),
    lines=True,
)

SDKS = [
    OPENAI,
    OPENAI_HELPER,
    RESPONSES,
    RESPONSES_HELPER,
    ANTHROPIC,
    ANTHROPIC_HELPER,
    GEMINI,
    MISTRAL,
    COHERE,
    OLLAMA,
]
