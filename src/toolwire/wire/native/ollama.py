"""Ollama's own chat API: one object, or one line after another. Calls arrive whole, arguments as objects."""

from typing import Any

from toolwire.protocol.chat import Usage
from toolwire.wire.native import openai_chat
from toolwire.wire.replies.draft import Draft, count


def read(draft: Draft, data: dict[str, Any]) -> None:
    """Read a whole answer or one line of a stream."""
    model = data.get("model")
    if isinstance(model, str):
        draft.model = model
    message = data.get("message")
    if isinstance(message, dict):
        openai_chat.read_message(draft, message)
    else:
        draft.think(data.get("thinking"))
        draft.say(data.get("response"))
    if "prompt_eval_count" in data or "eval_count" in data:
        draft.usage = Usage(count(data.get("prompt_eval_count")), count(data.get("eval_count")))
    draft.ended(data.get("done_reason"))
