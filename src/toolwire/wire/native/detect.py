"""Which provider's format a piece of JSON is in, and who reads it."""

from collections.abc import Callable
from typing import Any

import orjson

from toolwire.wire.native import anthropic, bedrock, cohere, gemini, ollama, openai_chat, openai_responses
from toolwire.wire.replies.draft import Draft

Reader = Callable[[Draft, dict[str, Any]], None]


def read_flat(draft: Draft, data: dict[str, Any]) -> None:
    """A message without an envelope: content and calls at the top. Other JSON is read as the text it would be."""
    if "content" in data or "tool_calls" in data or "function_call" in data:
        openai_chat.read_message(draft, data)
        draft.ended(data.get("finish_reason") or data.get("stop_reason"))
        return
    for name in ("text", "response", "output_text", "generated_text"):
        if isinstance(data.get(name), str):
            draft.say(data[name])
            return
    try:
        draft.say(orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS).decode())
    except TypeError:
        return


GENERIC = "generic"
"""A message of no provider in particular."""

READERS: dict[str, Reader] = {
    "openai": openai_chat.read,
    "openai_strict": openai_chat.read,
    "openai_responses": openai_responses.read,
    "mistral": openai_chat.read,
    "anthropic": anthropic.read,
    "gemini": gemini.read,
    "ollama": ollama.read,
    "cohere": cohere.read,
    "bedrock": bedrock.read,
    GENERIC: read_flat,
}
_BEDROCK_EVENTS = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"}
)
_SHARED = frozenset({"error", "ping"})
_ECHOES = ("content.", "refusal.", "tool_calls.", "logprobs.")
_ECHOES_WITH_SNAPSHOT = frozenset({"text", "thinking", "input_json", "citation"})


def unwrap_event(data: dict[str, Any]) -> dict[str, Any] | None:
    """What the provider sent inside an event that its SDK made; None for one that only repeats what another said.

    Mistral's SDK puts each chunk into `data`; the stream helpers of OpenAI and Anthropic add events of their own.
    """
    if len(data) == 1 and isinstance(data.get("data"), dict):
        inner: dict[str, Any] = data["data"]
        return inner
    kind = data.get("type")
    if not isinstance(kind, str):
        return data
    if kind == "chunk" and isinstance(data.get("chunk"), dict):
        chunk: dict[str, Any] = data["chunk"]
        return chunk
    repeated = kind.startswith(_ECHOES) or ("snapshot" in data and kind in _ECHOES_WITH_SNAPSHOT)
    return None if repeated or (kind == "signature" and len(data) == 2) else data


def provider_of(data: dict[str, Any]) -> str:
    """The provider whose format this is; empty when a stream cannot tell yet."""
    if "choices" in data:
        return "openai"
    kind = data.get("type")
    if isinstance(kind, str):
        if kind in _SHARED:
            return "anthropic"
        if kind == "message" or kind.startswith(("message_", "content_block_")):
            return "anthropic"
        if kind.startswith("response."):
            return "openai_responses"
        if kind.startswith(("tool-", "message-", "content-", "citation-")):
            return "cohere"
    if "candidates" in data or "usageMetadata" in data:
        return "gemini"
    output = data.get("output")
    if data.get("object") == "response" or isinstance(output, list):
        return "openai_responses"
    if isinstance(output, dict) or data.keys() & _BEDROCK_EVENTS:
        return "bedrock"
    return _by_message(data)


def _by_message(data: dict[str, Any]) -> str:
    message = data.get("message")
    if isinstance(message, dict):
        return "cohere" if "finish_reason" in data or "tool_plan" in message else "ollama"
    if "done" in data and ("response" in data or "model" in data):
        return "ollama"
    if "generation_id" in data or ("text" in data and "tool_calls" in data):
        return "cohere"
    return GENERIC


def reader_for(provider: str, data: dict[str, Any]) -> Reader:
    """The reader of a named provider; for `auto`, or an unknown name, the one whose format this is."""
    known = READERS.get(provider)
    if known is openai_chat.read and "choices" not in data:
        return READERS[provider_of(data)] if data.keys() & {"output", "message", "tool_calls", "content"} else known
    return known if known is not None else READERS[provider_of(data)]
