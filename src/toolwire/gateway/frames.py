"""Server-sent events as bytes."""

from typing import Any

from toolwire.wire.encode.outbound import Json, to_json

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": still working\n\n"


def data(value: Any) -> bytes:
    """An event without a name, as OpenAI's chat completions send them."""
    return b"data: " + to_json(value) + b"\n\n"


def verbatim(payload: bytes) -> bytes:
    """A payload passed on as it came."""
    return b"".join(b"data: " + line + b"\n" for line in payload.split(b"\n")) + b"\n"


def event(value: Json) -> bytes:
    """An event whose name is its `type`, as Anthropic and the Responses API send them."""
    return named_frame(value.get("type"), to_json(value))


def named_frame(kind: Any, payload: bytes) -> bytes:
    """A payload passed on as it came, under its name."""
    safe = kind if isinstance(kind, str) and kind.isascii() and kind.isprintable() else "message"
    return b"event: " + safe[:100].encode() + b"\n" + verbatim(payload)
