"""Amazon Bedrock Converse: content blocks, whole or as a stream of events."""

import base64
from typing import Any

from toolwire.protocol.chat import Usage
from toolwire.wire.replies.draft import Draft, count, key


def read(draft: Draft, data: dict[str, Any]) -> None:
    """Read a whole response or one event."""
    output = data.get("output")
    message = output.get("message") if isinstance(output, dict) else None
    blocks = message.get("content") if isinstance(message, dict) else None
    for position, block in enumerate(blocks if isinstance(blocks, list) else ()):
        if isinstance(block, dict):
            _read_block(draft, block, ("block", position))
    draft.ended(data.get("stopReason"))
    _read_usage(draft, data.get("usage"))
    for name, event in data.items():
        if isinstance(event, dict):
            _read_event(draft, name, event)


def _read_usage(draft: Draft, usage: Any) -> None:
    if isinstance(usage, dict) and usage:
        cached = count(usage.get("cacheReadInputTokens"))
        written = count(usage.get("cacheWriteInputTokens"))
        total = count(usage.get("inputTokens")) + written + cached
        draft.usage = Usage(total, count(usage.get("outputTokens")), cached)


def _read_block(draft: Draft, block: dict[str, Any], by: Any) -> None:
    draft.say(block.get("text"))
    reasoning = block.get("reasoningContent")
    if isinstance(reasoning, dict):
        said = reasoning.get("reasoningText")
        draft.think(said.get("text") if isinstance(said, dict) else reasoning.get("text"))
        draft.keep("bedrock", {"reasoningContent": _in_json(reasoning)})
    use = block.get("toolUse")
    if isinstance(use, dict) and use.get("type") != "server_tool_use":
        draft.add(draft.open(by, use.get("name"), use.get("toolUseId"), use), use.get("input"))


def _read_event(draft: Draft, name: str, event: dict[str, Any]) -> None:
    by = key(event.get("contentBlockIndex"))
    match name:
        case "contentBlockStart":
            start = event.get("start")
            if isinstance(start, dict):
                _read_block(draft, start, by)
        case "contentBlockDelta":
            _read_delta(draft, event.get("delta"), by)
        case "messageStop":
            draft.ended(event.get("stopReason"))
        case "metadata":
            _read_usage(draft, event.get("usage"))
        case _:
            pass


def _read_delta(draft: Draft, delta: Any, by: Any) -> None:
    if not isinstance(delta, dict):
        return
    draft.say(delta.get("text"))
    reasoning = delta.get("reasoningContent")
    if isinstance(reasoning, dict):
        _read_reasoning(draft, reasoning, ("reasoning", by))
    use = delta.get("toolUse")
    call = draft.by_key.get(by)
    if isinstance(use, dict) and call is not None:
        draft.add(call, use.get("input"))


def _read_reasoning(draft: Draft, reasoning: dict[str, Any], by: Any) -> None:
    draft.think(reasoning.get("text"))
    if "redactedContent" in reasoning:
        draft.keep("bedrock", {"reasoningContent": _in_json(reasoning)})
        return
    if not draft.keeps(by):
        draft.keep("bedrock", {"type": "reasoning"}, by)
    draft.extend(by, "text", reasoning.get("text"))
    draft.extend(by, "signature", reasoning.get("signature"))


def _in_json(reasoning: dict[str, Any]) -> dict[str, Any]:
    """Reasoning as the service writes it: boto3 hands over the redacted kind as bytes."""
    redacted = reasoning.get("redactedContent")
    if isinstance(redacted, bytes):
        return reasoning | {"redactedContent": base64.b64encode(redacted).decode()}
    return reasoning
