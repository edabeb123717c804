"""The APIs that an upstream may speak: where each is asked, how its answers come, and how a request is written."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from toolwire.gateway.calls import Ids, Tally
from toolwire.gateway.faults import Fault
from toolwire.gateway.same_anthropic import AnthropicStream
from toolwire.gateway.same_anthropic import repair as repair_message
from toolwire.gateway.same_openai import OpenAIStream
from toolwire.gateway.same_openai import repair as repair_completion
from toolwire.gateway.same_responses import ResponsesStream
from toolwire.gateway.same_responses import repair as repair_response
from toolwire.models.payloads import EventData, JsonLines
from toolwire.protocol.chat import Request
from toolwire.wire.encode import anthropic, ollama, openai_chat
from toolwire.wire.encode.outbound import Json
from toolwire.wire.encode.request import Dialect


class Stream(Protocol):
    """An answer on its way to a client. It is `complete` once nothing is missing, and `ended` when it was closed."""

    @property
    def ended(self) -> bool: ...

    @property
    def complete(self) -> bool: ...

    def feed(self, payload: bytes, chunk: Json) -> list[bytes]: ...

    def done(self) -> list[bytes]: ...

    def fail(self, fault: Fault) -> list[bytes]: ...


Repair = Callable[[Json, Sequence[Any], Ids, Tally], Json]
OpenStream = Callable[[Sequence[Any], Ids, Tally], Stream]


class Api(Struct, frozen=True):
    """One API. `reply_field` is in every whole answer; `enough` knows the chunk that completes a stream."""

    name: str
    path: str
    models_path: str
    reply_field: str
    payloads: type[EventData] | type[JsonLines]
    enough: Callable[[Json], bool]


class AnswerCodec(Struct, frozen=True):
    """How answers pass in an API that clients speak too."""

    api: Api
    repair: Repair
    stream: OpenStream


class RequestCodec(Struct, frozen=True):
    """How a request of our own is written for an API."""

    api: Api
    dialect: Dialect
    frame: Callable[[Request, str, bool], Json]


def _chunk_is_last(chunk: Json) -> bool:
    match chunk.get("choices"):
        case [{"finish_reason": str()}, *_]:
            return True
        case _:
            return False


def _message_is_over(event: Json) -> bool:
    return event.get("type") == "message_delta"


def _response_is_over(event: Json) -> bool:
    return event.get("type") in ("response.completed", "response.incomplete", "response.failed")


def _line_is_last(line: Json) -> bool:
    return line.get("done") is True


def _openai_frame(request: Request, model: str, stream: bool) -> Json:
    frame = openai_chat.frame(request, model, stream=stream)
    return frame | {"stream_options": {"include_usage": True}} if stream else frame


def _anthropic_frame(request: Request, model: str, stream: bool) -> Json:
    return anthropic.frame(request, model, stream=stream)


def _ollama_frame(request: Request, model: str, stream: bool) -> Json:
    return ollama.frame(request, model, stream=stream)


CHAT = Api("openai", "/v1/chat/completions", "/v1/models", "choices", EventData, _chunk_is_last)
MESSAGES = Api("anthropic", "/v1/messages", "/v1/models", "content", EventData, _message_is_over)
RESPONSES = Api("openai_responses", "/v1/responses", "/v1/models", "output", EventData, _response_is_over)
NATIVE = Api("ollama", "/api/chat", "/api/tags", "message", JsonLines, _line_is_last)

SPOKEN = {
    "openai": AnswerCodec(CHAT, repair_completion, OpenAIStream),
    "anthropic": AnswerCodec(MESSAGES, repair_message, AnthropicStream),
    "openai_responses": AnswerCodec(RESPONSES, repair_response, ResponsesStream),
}
WRITTEN = {
    "openai": RequestCodec(CHAT, openai_chat.DIALECT, _openai_frame),
    "anthropic": RequestCodec(MESSAGES, anthropic.DIALECT, _anthropic_frame),
    "ollama": RequestCodec(NATIVE, ollama.DIALECT, _ollama_frame),
}
