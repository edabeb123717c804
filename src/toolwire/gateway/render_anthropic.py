"""Answers as Anthropic's Messages API gives them, whole and as a stream of events."""

from collections.abc import Sequence

from toolwire.gateway import frames
from toolwire.gateway.calls import Ready
from toolwire.gateway.faults import Fault, error_body
from toolwire.protocol.chat import Reply, Usage
from toolwire.wire.encode.outbound import Json, to_json

_REASONS = {"calls": "tool_use", "length": "max_tokens", "stop": "end_turn", "content_filter": "refusal"}
_KNOWN = frozenset({"end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal"})


def stop_reason(word: str) -> str:
    """Why the answer ended, in Anthropic's words."""
    return _REASONS.get(word, word if word in _KNOWN else "end_turn")


def use_block(call: Ready) -> Json:
    """A call as a content block: the upstream's own where it is right, with what else that says."""
    own: Json = call.raw
    match own:
        case {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(given)} if given == call.value:
            return own
        case {"type": "tool_use"}:
            return own | {"id": call.id, "name": call.name, "input": dict(call.value)}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.value)}


def thinking_block(text: str) -> Json:
    return {"type": "thinking", "thinking": text, "signature": ""}


def usage_of(usage: Usage) -> Json:
    """Token counts; what was read from a cache is told apart."""
    fresh = max(0, usage.input_tokens - usage.cached_tokens)
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }


def message(id: str, model: str, reply: Reply, calls: Sequence[Ready], word: str) -> Json:  # noqa: A002
    """A whole message."""
    content = [thinking_block(reply.reasoning)] if reply.reasoning else []
    content += [{"type": "text", "text": reply.content}] if reply.content else []
    content += [use_block(call) for call in calls]
    return _envelope(id, model) | {
        "content": content,
        "stop_reason": stop_reason(word),
        "usage": usage_of(reply.usage),
    }


def _envelope(id: str, model: str) -> Json:  # noqa: A002 -- the API's own word
    return {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_of(Usage()),
    }


class Blocks:
    """The content blocks of a stream, numbered in the order in which they are opened; at most one is open."""

    def __init__(self) -> None:
        self._count = 0
        self._open = ""

    def text(self, text: str) -> list[bytes]:
        """More text, in a block of its own kind."""
        return self._say("text", {"type": "text", "text": ""}, {"type": "text_delta", "text": text}) if text else []

    def thought(self, text: str) -> list[bytes]:
        """More reasoning."""
        return self._say("thinking", thinking_block(""), {"type": "thinking_delta", "thinking": text}) if text else []

    def call(self, call: Ready) -> list[bytes]:
        """A whole call."""
        block = use_block(call)
        piece = {"type": "input_json_delta", "partial_json": to_json(block["input"]).decode()}
        return [*self.begin(block | {"input": {}}), self.delta(self._count - 1, piece), *self.close()]

    def begin(self, block: Json) -> list[bytes]:
        """Open a block; the one before is closed."""
        before = self.close()
        self._count += 1
        self._open = str(block.get("type"))
        start = {"type": "content_block_start", "index": self._count - 1, "content_block": block}
        return [*before, frames.event(start)]

    def delta(self, index: int, piece: Json) -> bytes:
        return frames.event({"type": "content_block_delta", "index": index, "delta": piece})

    def close(self) -> list[bytes]:
        """Close the open block, if there is one."""
        if not self._open:
            return []
        self._open = ""
        return [frames.event({"type": "content_block_stop", "index": self._count - 1})]

    def holds(self, kind: str) -> bool:
        """Whether the open block is of this kind."""
        return self._open == kind

    @property
    def last(self) -> int:
        """The number of the block that was opened last."""
        return self._count - 1

    def _say(self, kind: str, block: Json, piece: Json) -> list[bytes]:
        opened = [] if self._open == kind else self.begin(block)
        return [*opened, self.delta(self.last, piece)]


class AnthropicWriter:
    """Writes an answer of any model as Anthropic's events."""

    def __init__(self, id: str, model: str, created: int) -> None:  # noqa: A002, ARG002 -- alike for every dialect
        self._envelope = _envelope(id, model)
        self._blocks = Blocks()

    def begin(self) -> list[bytes]:
        return [frames.event({"type": "message_start", "message": self._envelope})]

    def text(self, text: str) -> list[bytes]:
        return self._blocks.text(text)

    def thought(self, text: str) -> list[bytes]:
        return self._blocks.thought(text)

    def end(self, calls: Sequence[Ready], word: str, usage: Usage) -> list[bytes]:
        """The calls, why the answer ended, what it consumed, and the end."""
        written = [frame for call in calls for frame in self._blocks.call(call)]
        delta = {"stop_reason": stop_reason(word), "stop_sequence": None}
        last = {"type": "message_delta", "delta": delta, "usage": usage_of(usage)}
        return [*written, *self._blocks.close(), frames.event(last), frames.event({"type": "message_stop"})]

    def fail(self, fault: Fault) -> list[bytes]:
        return [frames.event(error_body(fault, "anthropic"))]
