"""Anthropic Messages: content blocks, whole or as a stream of events."""

from typing import Any

from toolwire.protocol.calls import Problem
from toolwire.protocol.chat import Usage
from toolwire.wire.replies.draft import Draft, count, key


def read(draft: Draft, data: dict[str, Any]) -> None:
    """Read a whole message or one event."""
    match data.get("type"):
        case "message_start":
            message = data.get("message")
            if isinstance(message, dict):
                _read_message(draft, message)
        case "content_block_start":
            _read_block(draft, data.get("content_block"), data.get("index"))
        case "content_block_delta":
            _read_delta(draft, data.get("delta"), data.get("index"))
        case "message_delta":
            delta = data.get("delta")
            if isinstance(delta, dict):
                draft.ended(delta.get("stop_reason"))
            _read_usage(draft, data.get("usage"))
        case "error":
            error = data.get("error")
            said = error.get("message") if isinstance(error, dict) else error
            draft.problems.append(Problem("provider_error", str(said)[:300]))
        case "content_block_stop" | "message_stop" | "ping":
            pass
        case _:
            _read_message(draft, data)


def _read_message(draft: Draft, message: dict[str, Any]) -> None:
    model = message.get("model")
    if isinstance(model, str):
        draft.model = model
    content = message.get("content")
    if isinstance(content, str):
        draft.say(content)
    for position, block in enumerate(content if isinstance(content, list) else ()):
        _read_block(draft, block, ("block", position))
    draft.ended(message.get("stop_reason"))
    _read_usage(draft, message.get("usage"))


def _read_usage(draft: Draft, usage: Any) -> None:
    """Later events repeat only some of the counts. What was read from or written to the cache is input too."""
    if not isinstance(usage, dict):
        return
    before = draft.usage
    cached = count(usage.get("cache_read_input_tokens")) or before.cached_tokens
    fresh = count(usage.get("input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    total = fresh + written + cached if fresh else before.input_tokens
    draft.usage = Usage(total, count(usage.get("output_tokens")) or before.output_tokens, cached)


def _read_block(draft: Draft, block: Any, index: Any) -> None:
    if not isinstance(block, dict):
        return
    match block.get("type"):
        case "text":
            draft.say(block.get("text"))
        case "thinking":
            draft.think(block.get("thinking"))
            draft.keep("anthropic", {"type": "thinking"}, key(index))
            draft.extend(key(index), "thinking", block.get("thinking"))
            draft.extend(key(index), "signature", block.get("signature"))
        case "redacted_thinking":
            draft.keep("anthropic", {"type": "redacted_thinking", "data": block.get("data")})
        case "tool_use":
            call = draft.open(key(index), block.get("name"), block.get("id"), block)
            draft.add(call, block.get("input"))
        case _:
            pass  # server tools and their results: the provider has run them


def _read_delta(draft: Draft, delta: Any, index: Any) -> None:
    if not isinstance(delta, dict):
        return
    match delta.get("type"):
        case "text_delta":
            draft.say(delta.get("text"))
        case "thinking_delta":
            draft.think(delta.get("thinking"))
            draft.extend(key(index), "thinking", delta.get("thinking"))
        case "signature_delta":
            draft.extend(key(index), "signature", delta.get("signature"))
        case "input_json_delta":
            call = draft.by_key.get(key(index))
            if call is not None:
                draft.add(call, delta.get("partial_json"))
        case _:
            pass
