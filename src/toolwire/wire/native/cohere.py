"""Cohere: version 2 messages and events, and version 1 answers."""

from typing import Any

from toolwire.protocol.chat import Usage
from toolwire.wire.native import openai_chat
from toolwire.wire.replies.draft import Draft, count, key


def read(draft: Draft, data: dict[str, Any]) -> None:
    """Read a whole answer or one event."""
    kind = data.get("type")
    if isinstance(kind, str) and "-" in kind:
        _read_event(draft, kind, data)
        return
    message = data.get("message")
    if isinstance(message, dict):
        _read_message(draft, message)
    else:
        draft.say(data.get("text"))
        openai_chat.read_message(draft, {"tool_calls": data.get("tool_calls")})
    _read_usage(draft, data.get("usage") or data.get("meta"))
    draft.ended(data.get("finish_reason"))


def _read_usage(draft: Draft, usage: Any) -> None:
    tokens = usage.get("tokens") if isinstance(usage, dict) else None
    if isinstance(tokens, dict):
        cached = count(usage.get("cached_tokens"))
        draft.usage = Usage(count(tokens.get("input_tokens")), count(tokens.get("output_tokens")), cached)


def _read_message(draft: Draft, message: dict[str, Any]) -> None:
    draft.think(message.get("tool_plan"))
    openai_chat.read_message(draft, message)


def _read_event(draft: Draft, kind: str, data: dict[str, Any]) -> None:
    delta = data.get("delta")
    message = delta.get("message") if isinstance(delta, dict) else None
    inner = message if isinstance(message, dict) else {}
    match kind:
        case "tool-plan-delta":
            draft.think(inner.get("tool_plan"))
        case "content-delta" | "content-start":
            content = inner.get("content")
            openai_chat.read_content(draft, [content] if isinstance(content, dict) else content)
        case "tool-call-start":
            _read_start(draft, inner.get("tool_calls"), key(data.get("index")))
        case "tool-call-delta":
            _read_fragment(draft, inner.get("tool_calls"), key(data.get("index")))
        case "message-end" if isinstance(delta, dict):
            draft.ended(delta.get("finish_reason"))
            _read_usage(draft, delta.get("usage"))
        case "text-generation":
            draft.say(data.get("text"))
        case _:
            pass


def _read_start(draft: Draft, entry: Any, by: Any) -> None:
    if isinstance(entry, list):
        entry = entry[0] if entry else None
    function = entry.get("function") if isinstance(entry, dict) else None
    if isinstance(entry, dict) and isinstance(function, dict):
        call = draft.open(by, function.get("name"), entry.get("id"))
        draft.add(call, function.get("arguments"))


def _read_fragment(draft: Draft, entry: Any, by: Any) -> None:
    if isinstance(entry, list):
        entry = entry[0] if entry else None
    function = entry.get("function") if isinstance(entry, dict) else None
    call = draft.by_key.get(by)
    if call is not None and isinstance(function, dict):
        draft.add(call, function.get("arguments"))
