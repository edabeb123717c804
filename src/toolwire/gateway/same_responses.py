"""The Responses API in and out: everything passes, and calls that leaked into text become calls."""

from collections.abc import Sequence
from typing import Any

from toolwire.gateway import frames
from toolwire.gateway.calls import AnswerFollower, Ids, Ready, Tally, ending, ready_calls, shared_out
from toolwire.gateway.faults import Fault
from toolwire.gateway.render_responses import (
    Items,
    call_item,
    ending_fields,
    envelope,
    failed_response,
    text_item,
    thought_item,
)
from toolwire.protocol.chat import Reply
from toolwire.wire.encode.outbound import Json
from toolwire.wire.replies.reply import parse_reply
from toolwire.wire.replies.unsent import collapse_space

_CALLS = ("function_call", "custom_tool_call")
_PROVIDER = "openai_responses"


def repair(answer: Json, tools: Sequence[Any], ids: Ids, tally: Tally) -> Json:
    """The same response with its calls in order; the very same value where there is nothing to change."""
    output = answer.get("output")
    if not isinstance(output, list):
        return answer
    if not answer.get("status"):
        answer = answer | ending_fields("stop")
    reply = parse_reply(_readable(answer), tools, _PROVIDER)
    calls = ready_calls(reply, ids, tally)
    said = [_text(item) for item in output if _kind(item) == "message"]
    leaked = collapse_space(reply.content) != collapse_space("".join(said))
    if not leaked and _as_they_were(output, calls):
        return answer
    word = ending("", calls, reply)
    status = ending_fields(word) if word == "length" and answer.get("status") == "completed" else {}
    shares = shared_out(said, reply.content) if leaked else said
    return answer | {"output": _output(output, reply, calls, shares)} | status


def _readable(response: Json) -> Json:
    """The response with only what may hold calls: reasoning and refusals are none of the parser's business here."""
    output = response.get("output")
    kept = [_plain(item) for item in output if _kind(item) in (*_CALLS, "message")] if isinstance(output, list) else []
    return response | {"output": kept}


def _plain(item: Json) -> Json:
    return item | {"content": _text(item)} if _kind(item) == "message" else item


def _as_they_were(output: list[Any], calls: list[Ready]) -> bool:
    given = [item for item in output if _kind(item) in _CALLS]
    return len(given) == len(calls) and all(
        call_item(new) is old or _kind(old) == "custom_tool_call" for new, old in zip(calls, given, strict=True)
    )


def _output(output: list[Any], reply: Reply, calls: list[Ready], shares: list[str]) -> list[Any]:
    """The items in their order: each message with its share of what was kept, everything else as it was, the calls."""
    kept: list[Any] = [thought_item("rs_text", reply.reasoning)] if reply.reasoning else []
    texts = iter(shares)
    for item in output:
        match _kind(item):
            case "function_call" | "custom_tool_call":
                continue
            case "message" if (text := next(texts)) != _text(item):
                content = (text_item("", text)["content"] if text else []) + _others(item)
                kept += [item | {"content": content}] if content else []
            case _:
                kept.append(item)
    return kept + [call_item(call) for call in calls]


def _text(item: Any) -> str:
    parts = item.get("content") if _kind(item) == "message" else None
    found = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else [parts]
    return "".join(text for text in found if isinstance(text, str))


def _others(item: Json) -> list[Any]:
    """The parts of a message that are no text, such as a refusal."""
    parts = item.get("content")
    return [part for part in parts if _kind(part) != "output_text"] if isinstance(parts, list) else []


def _kind(item: Any) -> str:
    return str(item.get("type")) if isinstance(item, dict) else ""


class ResponsesStream:
    """A stream of events on its way through; items and events are numbered anew, since some items become others."""

    def __init__(self, tools: Sequence[Any], ids: Ids, tally: Tally) -> None:
        self.ended = False
        self._tools = tools
        self._ids = ids
        self._tally = tally
        self._following = AnswerFollower(tools, _PROVIDER)
        self._items = Items("text")
        self._kinds: dict[Any, str] = {}
        self._numbers: dict[Any, int] = {}
        self._response: Json = {}

    @property
    def complete(self) -> bool:
        """Whether the answer is whole: the last event says so itself."""
        return self.ended

    def feed(self, payload: bytes, event: Json) -> list[bytes]:
        """Take one event; give what the client may see now."""
        kind = str(event.get("type"))
        response = event.get("response")
        if isinstance(response, dict):
            self._response = response
        self.ended = kind in ("response.completed", "response.incomplete", "response.failed")
        if not self._tools:
            self._items.passed(event.get("sequence_number"))
            return [frames.named_frame(kind, payload)]
        key = event.get("output_index") if isinstance(event.get("output_index"), int) else None
        match kind.removeprefix("response."):
            case "output_item.added":
                return self._added(event, key)
            case "output_item.done":
                return self._done(event, key)
            case "completed" | "incomplete":
                return self._closed(kind, event)
            case _ if self._kinds.get(key) == "message":
                return self._of_message(kind, event)
            case _ if self._kinds.get(key) in _CALLS:
                self._following.feed(event)
                return []
            case _:
                return [self._passed(event, key)]

    def done(self) -> list[bytes]:
        """The upstream's stream is over although it did not say so."""
        self.ended = True
        whole = self._response or envelope("text", "", 0)
        return self._closed("response.completed", {"response": whole | ending_fields("stop")})

    def fail(self, fault: Fault) -> list[bytes]:
        """End the stream with a response that failed."""
        self.ended = True
        whole = self._response or envelope("text", "", 0)
        return [self._items.event("response.failed", response=failed_response(whole, fault, self._items.output))]

    def _added(self, event: Json, key: Any) -> list[bytes]:
        item = event.get("item")
        kind = self._kinds[key] = _kind(item)
        if kind == "message":
            self._items.message_id = str(item.get("id") or "") if isinstance(item, dict) else ""
            return []
        if kind in _CALLS:
            self._following.feed(event)
            return []
        closed, self._numbers[key] = self._items.begin()
        return [*closed, self._passed(event, key)]

    def _done(self, event: Json, key: Any) -> list[bytes]:
        kind = self._kinds.get(key, "")
        if kind == "message":
            return self._items.close()
        if kind in _CALLS:
            self._following.feed(event)
            return []
        if isinstance(item := event.get("item"), dict):
            self._items.output.append(item)
        return [self._passed(event, key)]

    def _of_message(self, kind: str, event: Json) -> list[bytes]:
        match kind, event.get("annotation"):
            case "response.output_text.delta", _:
                return self._shown(self._following.feed(event))
            case "response.refusal.delta", _:
                return self._items.refusal(str(event.get("delta") or ""))
            case "response.output_text.annotation.added", dict(annotation):
                return self._items.annotate(annotation)
            case _:
                return []

    def _shown(self, spoken: tuple[str, str]) -> list[bytes]:
        text, thought = spoken
        return [*self._items.thought(thought), *self._items.text(text)]

    def _closed(self, kind: str, event: Json) -> list[bytes]:
        """Text that was held, the calls, and the whole response once more."""
        given = event.get("response")
        whole: Json = given if isinstance(given, dict) else {}
        written = self._shown(self._following.feed({"type": kind, "response": _readable(whole)}))
        closing = self._following.close(self._ids, self._tally)
        written += self._shown((closing.text, closing.thought))
        written += [frame for call in closing.calls for frame in self._items.call(call)]
        written += self._items.close()
        if kind == "response.completed" and ending("", closing.calls, closing.reply) == "length":
            kind, whole = "response.incomplete", whole | ending_fields("length")
        return [*written, self._items.event(kind, response=whole | {"output": self._items.output})]

    def _passed(self, event: Json, key: Any) -> bytes:
        fields = {name: value for name, value in event.items() if name not in ("type", "sequence_number")}
        if key in self._numbers:
            fields["output_index"] = self._numbers[key]
        return self._items.event(str(event.get("type")), **fields)
