"""From one API to another by way of our nouns: a client's request read, its answer written in the client's words."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from toolwire.gateway.asked import ChatRequest
from toolwire.gateway.calls import AnswerFollower, Ids, Ready, Tally, delta_texts, ending, ready_calls
from toolwire.gateway.faults import Fault, Rejected
from toolwire.gateway.render_anthropic import AnthropicWriter, message
from toolwire.gateway.render_openai import OpenAIWriter, as_function_call, completion
from toolwire.gateway.render_responses import ResponsesWriter, response
from toolwire.protocol.chat import Delta, Reply, Request, Usage, UserMessage
from toolwire.wire.decode.request import BadRequest, DecodedRequest, decode_request
from toolwire.wire.encode.outbound import Json
from toolwire.wire.encode.tool_names import NameMap
from toolwire.wire.replies.unsent import unsent

# Left out without a word: they change nothing that a client could notice here.
_HARMLESS = frozenset({
    "stream_options", "user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier",
})  # fmt: skip
_STATEFUL = ("previous_response_id", "conversation")
_MOST_LOSSES = 5


class AnswerWriter(Protocol):
    """Writes one answer as the events of one API."""

    def begin(self) -> list[bytes]: ...

    def text(self, text: str) -> list[bytes]: ...

    def thought(self, text: str) -> list[bytes]: ...

    def end(self, calls: Sequence[Ready], word: str, usage: Usage) -> list[bytes]: ...

    def fail(self, fault: Fault) -> list[bytes]: ...


class AnswerHead(Struct, frozen=True):
    """What an answer of ours carries besides what the model said."""

    id: str
    model: str
    created: int


def decode_chat_request(asked: ChatRequest) -> DecodedRequest:
    """The client's request in our nouns. Raises Rejected."""
    kept = next((name for name in _STATEFUL if asked.data.get(name)), None)
    if kept is not None:
        raise Rejected(Fault(400, "stateless", f"{kept} needs an upstream that keeps responses; send the whole input"))
    match decode_request(asked.data, asked.dialect):
        case BadRequest(wrong):
            raise Rejected(Fault(400, "invalid_request", wrong))
        case DecodedRequest() as found:
            return found


def left_out(
    found: DecodedRequest,
    understood: frozenset[str] = frozenset(),
    *,
    blind: bool = False,
    untold: Iterable[object] = (),
) -> str:
    """What of a request could not be translated, as the value of a header; empty when nothing was lost.

    `blind` says that the upstream cannot see the pictures of a conversation; `untold` is what its tools lose.
    """
    known = _HARMLESS | understood | {"tools"}
    ignored = [
        f"{name} was ignored" for name, value in found.extras.items() if name not in known and _asks(name, value)
    ]
    unseen = ["images were left out"] if blind and _shows(found.request) else []
    lost = [*map(str, found.losses), *map(str, untold), *unseen, *ignored]
    more = [f"and {len(lost) - _MOST_LOSSES} more"] if len(lost) > _MOST_LOSSES else []
    text = "; ".join([*lost[:_MOST_LOSSES], *more])[:500]
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in text)


def _shows(request: Request) -> bool:
    return any(isinstance(message, UserMessage) and message.parts for message in request.messages)


def _asks(name: str, value: Any) -> bool:
    """Whether an option asks for anything that would not have been done anyway."""
    match name, value:
        case "parallel_tool_calls", _:
            return value is False
        case ("n", 1) | ("tool_choice" | "function_call", "auto" | "none" | {"type": "auto" | "none"}):
            return False
        case _:
            return bool(value)


def writer_for(asked: ChatRequest, envelope: AnswerHead) -> AnswerWriter:
    """The one that writes the client's dialect."""
    match asked.dialect:
        case "anthropic":
            return AnthropicWriter(envelope.id, envelope.model, envelope.created)
        case "openai_responses":
            return ResponsesWriter(envelope.id, envelope.model, envelope.created)
        case _:
            options = asked.data.get("stream_options")
            counts = isinstance(options, dict) and options.get("include_usage") is True
            return OpenAIWriter(
                envelope.id, envelope.model, envelope.created, counts=counts, legacy=_knows_functions_only(asked)
            )


def render_reply(asked: ChatRequest, envelope: AnswerHead, reply: Reply, ids: Ids, tally: Tally) -> Json:
    """A whole reply in the client's dialect."""
    calls = ready_calls(reply, ids, tally)
    word = ending(_plain_reason(reply.finish_reason), calls, reply)
    match asked.dialect:
        case "anthropic":
            return message(envelope.id, envelope.model, reply, calls, word)
        case "openai_responses":
            return response(envelope.id, envelope.model, envelope.created, reply, calls, word)
        case _:
            made = completion(envelope.id, envelope.model, envelope.created, reply, calls, word)
            return as_function_call(made) if calls and _knows_functions_only(asked) else made


def _knows_functions_only(asked: ChatRequest) -> bool:
    """Whether a client is from the time when tools were functions and an answer called at most one."""
    return "functions" in asked.data and "tools" not in asked.data


def refusal_text(answer: Json) -> str:
    """What a model says in place of an answer, in an answer or a chunk of chat completions, which keep it apart."""
    match answer:
        case {"choices": [{"message": {"refusal": str(words)}} | {"delta": {"refusal": str(words)}}, *_]}:
            return words
        case _:
            return ""


def _plain_reason(reason: str) -> str:
    return "stop" if reason in ("end_turn", "stop_sequence", "tool_use", "tool_calls") else reason


class TranslatedStream:
    """An upstream's stream, read in its API and written in the client's."""

    def __init__(
        self,
        writer: AnswerWriter,
        names: NameMap,
        provider: str,
        enough: Callable[[Json], bool],
        ids: Ids,
        tally: Tally,
    ) -> None:
        self.ended = False
        self.complete = False
        self._writer = writer
        self._following = AnswerFollower(names.tools, provider, names)
        self._enough = enough
        self._ids = ids
        self._tally = tally
        self._begun = False

    def feed(self, payload: bytes, chunk: Json) -> list[bytes]:  # noqa: ARG002 -- nothing passes as it came
        """Take one chunk; give what the client may see now."""
        text, thought = self._following.feed(chunk)
        text += refusal_text(chunk)
        self.complete = self.complete or self._enough(chunk)
        return [*self._beginning(), *self._writer.thought(thought), *self._writer.text(text)]

    def done(self) -> list[bytes]:
        """The answer is over: text that was held, the calls, the end."""
        self.ended = True
        closing = self._following.close(self._ids, self._tally)
        word = ending(_plain_reason(closing.reply.finish_reason), closing.calls, closing.reply)
        said = [*self._writer.thought(closing.thought), *self._writer.text(closing.text)]
        return [*self._beginning(), *said, *self._writer.end(closing.calls, word, closing.reply.usage)]

    def fail(self, fault: Fault) -> list[bytes]:
        self.ended = True
        return self._writer.fail(fault)

    def _beginning(self) -> list[bytes]:
        if self._begun:
            return []
        self._begun = True
        return self._writer.begin()


class SpokenReply:
    """A reply of one of our own models, written for a client as it is said."""

    def __init__(self, writer: AnswerWriter, ids: Ids, tally: Tally) -> None:
        self._writer = writer
        self._ids = ids
        self._tally = tally
        self._text: list[str] = []
        self._thought: list[str] = []

    def begin(self) -> list[bytes]:
        return self._writer.begin()

    def say(self, delta: Delta) -> list[bytes]:
        text, thought = delta_texts([delta])
        self._text.append(text)
        self._thought.append(thought)
        return [*self._writer.thought(thought), *self._writer.text(text)]

    def end(self, reply: Reply) -> list[bytes]:
        """The rest of the reply, and its end."""
        calls = ready_calls(reply, self._ids, self._tally)
        word = ending(_plain_reason(reply.finish_reason), calls, reply)
        said = self._writer.thought(unsent("".join(self._thought), reply.reasoning))
        said += self._writer.text(unsent("".join(self._text), reply.content))
        return [*said, *self._writer.end(calls, word, reply.usage)]

    def fail(self, fault: Fault) -> list[bytes]:
        return self._writer.fail(fault)
