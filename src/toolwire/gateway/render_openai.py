"""Answers as OpenAI's chat completions give them, whole and as a stream of chunks."""

from collections.abc import Sequence

from toolwire.gateway import frames
from toolwire.gateway.calls import Ready
from toolwire.gateway.faults import Fault, error_body
from toolwire.gateway.same_openai import entry_of, reason_of
from toolwire.protocol.chat import Reply, Usage
from toolwire.wire.encode.outbound import Json

_KNOWN = frozenset({"stop", "length", "tool_calls", "content_filter"})


def finish_reason(word: str) -> str:
    """Why the answer ended, in OpenAI's words."""
    reason = "content_filter" if word == "refusal" else reason_of(word)
    return reason if reason in _KNOWN else "stop"


def usage_of(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def completion(id: str, model: str, created: int, reply: Reply, calls: Sequence[Ready], word: str) -> Json:  # noqa: A002
    """A whole completion."""
    message: Json = {"role": "assistant", "content": reply.content if reply.content or not calls else None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if calls:
        message["tool_calls"] = [entry_of(call) for call in calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(word)}
    head = _head(id, model, created, "chat.completion")
    return head | {"choices": [choice], "usage": usage_of(reply.usage)}


def as_function_call(answer: Json) -> Json:
    """The same completion for a client that knows functions only: its first call, in the field of that time."""
    [choice] = answer["choices"]
    message = {name: value for name, value in choice["message"].items() if name != "tool_calls"}
    message["function_call"] = choice["message"]["tool_calls"][0]["function"]
    reason = _legacy_reason(choice["finish_reason"])
    return answer | {"choices": [choice | {"message": message, "finish_reason": reason}]}


def _legacy_reason(reason: str) -> str:
    return "function_call" if reason == "tool_calls" else reason


def _head(id: str, model: str, created: int, kind: str) -> Json:  # noqa: A002 -- the API's own word
    return {"id": f"chatcmpl-{id}", "object": kind, "created": created, "model": model}


class OpenAIWriter:
    """Writes an answer of any model as chunks."""

    def __init__(
        self,
        id: str,  # noqa: A002 -- the API's own word
        model: str,
        created: int,
        *,
        counts: bool = False,
        legacy: bool = False,
    ) -> None:
        self._head = _head(id, model, created, "chat.completion.chunk")
        self._counts = counts
        self._legacy = legacy

    def begin(self) -> list[bytes]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def text(self, text: str) -> list[bytes]:
        return [self._chunk({"content": text})] if text else []

    def thought(self, text: str) -> list[bytes]:
        return [self._chunk({"reasoning_content": text})] if text else []

    def end(self, calls: Sequence[Ready], word: str, usage: Usage) -> list[bytes]:
        """The calls, why the answer ended, what it consumed if that was asked for, and the end."""
        reason = finish_reason(word)
        if self._legacy:
            written = [self._chunk({"function_call": entry_of(call)["function"]}) for call in calls[:1]]
            reason = _legacy_reason(reason)
        else:
            written = [self._chunk({"tool_calls": [{"index": at} | entry_of(call)]}) for at, call in enumerate(calls)]
        written.append(self._chunk({}, reason))
        if self._counts:
            written.append(frames.data(self._head | {"choices": [], "usage": usage_of(usage)}))
        return [*written, frames.DONE]

    def fail(self, fault: Fault) -> list[bytes]:
        return [frames.data(error_body(fault, "openai")), frames.DONE]

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return frames.data(self._head | {"choices": [choice]})
