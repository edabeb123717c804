"""Anthropic messages in, Anthropic messages out: everything passes, and calls that leaked into text become calls."""

from collections.abc import Sequence
from typing import Any

from toolwire.gateway import frames
from toolwire.gateway.calls import AnswerFollower, Ids, Ready, Tally, ending, ready_calls, shared_out
from toolwire.gateway.faults import Fault, error_body
from toolwire.gateway.render_anthropic import Blocks, stop_reason, thinking_block, use_block
from toolwire.protocol.chat import Reply
from toolwire.wire.encode.outbound import Json
from toolwire.wire.replies.draft import CUT_REASONS
from toolwire.wire.replies.reply import parse_reply
from toolwire.wire.replies.unsent import collapse_space

_READ = ("text", "tool_use")


def repair(answer: Json, tools: Sequence[Any], ids: Ids, tally: Tally) -> Json:
    """The same message with its calls in order; the very same value where there is nothing to change."""
    content = answer.get("content")
    if isinstance(content, str):  # some servers that imitate the API forget the list
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return answer
    read = [block for block in content if _kind(block) in _READ]
    reply = parse_reply(answer | {"content": read}, tools, "anthropic")
    calls = ready_calls(reply, ids, tally)
    said = [_words(block) for block in content if _kind(block) == "text"]
    leaked = collapse_space(reply.content) != collapse_space("".join(said))
    why = str(answer.get("stop_reason") or "")
    reason = _reason(why, calls, reply)
    if not leaked and _as_they_were(read, calls):
        return answer | {"stop_reason": reason} if reason != why and (calls or not why) else answer
    shares = shared_out(said, reply.content) if leaked else said
    return answer | {"content": _content(content, reply, calls, shares), "stop_reason": reason}


def _as_they_were(read: list[Json], calls: list[Ready]) -> bool:
    given = [block for block in read if _kind(block) == "tool_use"]
    return len(given) == len(calls) and all(use_block(new) is old for new, old in zip(calls, given, strict=True))


def _content(content: list[Any], reply: Reply, calls: list[Ready], shares: list[str]) -> list[Any]:
    """The blocks in their order: each text with its share of what was kept, the rest as it was, then the calls."""
    kept: list[Any] = [thinking_block(reply.reasoning)] if reply.reasoning else []
    texts = iter(shares)
    for block in content:
        match _kind(block):
            case "tool_use":
                continue
            case "text" if (text := next(texts)) != _words(block):
                kept += [{"type": "text", "text": text}] if text else []
            case _:
                kept.append(block)
    return kept + [use_block(call) for call in calls]


def _words(block: Any) -> str:
    text = block.get("text")
    return text if isinstance(text, str) else ""


def _reason(why: str, calls: list[Ready], reply: Reply) -> str:
    """Why the message ended: in the upstream's own word, unless calls came to light or were lost."""
    word = ending(why, calls, reply)
    return why if why and word not in ("calls", "stop") and why in (word, *CUT_REASONS) else stop_reason(word)


def _kind(block: Any) -> str:
    return str(block.get("type")) if isinstance(block, dict) else ""


class AnthropicStream:
    """A stream of events on its way through; blocks are numbered anew, since some become others."""

    def __init__(self, tools: Sequence[Any], ids: Ids, tally: Tally) -> None:
        self.ended = False
        self.complete = False
        self._tools = tools
        self._ids = ids
        self._tally = tally
        self._following = AnswerFollower(tools, "anthropic")
        self._blocks = Blocks()
        self._kinds: dict[Any, str] = {}
        self._numbers: dict[Any, int] = {}

    def feed(self, payload: bytes, event: Json) -> list[bytes]:
        """Take one event; give what the client may see now."""
        kind = event.get("type")
        self.complete = self.complete or kind == "message_delta"
        self.ended = self.ended or kind == "message_stop"
        if not self._tools:
            return [frames.named_frame(kind, payload)]
        match kind:
            case "content_block_start":
                return self._start(event)
            case "content_block_delta":
                return self._delta(event)
            case "content_block_stop":
                return self._stop(event)
            case "message_delta":
                return self._close(event)
            case _:
                return [frames.named_frame(kind, payload)]

    def done(self) -> list[bytes]:
        """The upstream's stream is over although it did not say so."""
        self.ended = True
        last = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 0}}  # clients count them
        closed = [] if self.complete else self._close(last)
        return [*closed, frames.event({"type": "message_stop"})]

    def fail(self, fault: Fault) -> list[bytes]:
        """End the stream with an error that clients raise."""
        self.ended = True
        return [frames.event(error_body(fault, "anthropic"))]

    def _start(self, event: Json) -> list[bytes]:
        index, block = event.get("index"), event.get("content_block")
        kind = self._kinds[_key(index)] = _kind(block)
        if kind == "tool_use":
            self._following.feed(event)
            return []
        if kind == "text":
            return self._shown(self._following.feed(event))
        opened = self._blocks.begin(block if isinstance(block, dict) else {})
        self._numbers[_key(index)] = self._blocks.last
        return opened

    def _delta(self, event: Json) -> list[bytes]:
        key = _key(event.get("index"))
        match self._kinds.get(key), event.get("delta"):
            case "text", {"type": "text_delta"}:
                return self._shown(self._following.feed(event))
            case "tool_use", _:
                self._following.feed(event)
                return []
            case "text", dict(piece) if self._blocks.holds("text"):
                return [self._blocks.delta(self._blocks.last, piece)]
            case _, dict(piece) if key in self._numbers:
                return [self._blocks.delta(self._numbers[key], piece)]
            case _:
                return []

    def _stop(self, event: Json) -> list[bytes]:
        return self._blocks.close() if self._kinds.get(_key(event.get("index"))) != "tool_use" else []

    def _shown(self, spoken: tuple[str, str]) -> list[bytes]:
        text, thought = spoken
        return [*self._blocks.thought(thought), *self._blocks.text(text)]

    def _close(self, event: Json) -> list[bytes]:
        """Text that was held, the calls, and why the message ended."""
        self.complete = True
        delta = event.get("delta")
        given = delta if isinstance(delta, dict) else {}
        why = str(given.get("stop_reason") or "")
        self._following.feed({"type": "message_delta", "delta": {"stop_reason": why or "end_turn"}})
        closing = self._following.close(self._ids, self._tally)
        written = self._shown((closing.text, closing.thought))
        written += [frame for call in closing.calls for frame in self._blocks.call(call)]
        reason = _reason(why, closing.calls, closing.reply)
        ended = event | {"delta": {"stop_sequence": None} | given | {"stop_reason": reason}}
        return [*written, *self._blocks.close(), frames.event(ended)]


def _key(index: Any) -> Any:
    return index if isinstance(index, int) else None
