"""Sets of answers written without a look at the rules: calls made or only shown, and calls in every text format."""

import json
from pathlib import Path
from typing import Any

from toolwire.protocol.chat import Reply, TextDelta
from toolwire.wire.replies.reply import StreamParser

_DATA = Path(__file__).parents[1] / "data"
TOOLS: list[dict[str, Any]] = json.loads((_DATA / "shown_or_meant_tools.json").read_text(encoding="utf-8"))
FOURTH_TOOLS: list[dict[str, Any]] = json.loads(
    (_DATA / "shown_or_meant_fourth_tools.json").read_text(encoding="utf-8")
)


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_DATA / name).read_text(encoding="utf-8").splitlines()]


ANSWERS = _lines("shown_or_meant.jsonl") + _lines("shown_or_meant_second.jsonl")
THIRD = _lines("shown_or_meant_third.jsonl")
BY_WRITER = {
    name: _lines(f"shown_or_meant_{name}.jsonl")
    for name in ("fourth", "chatty", "coding", "european", "scripts", "plain", "mixed", "unseen")
}
"""Sets of independent writers, all with the tools of the fourth. `wire.text.intent` was not trained on the last."""
LEAKS = _lines("leaks_unseen.jsonl")


def stream(text: str, size: int, finish_reason: str | None = None) -> tuple[Reply, str]:
    """The reply to a text that comes in pieces, and the text that was shown on the way."""
    parser = StreamParser(TOOLS, finish_reason=finish_reason)
    deltas = [delta for at in range(0, len(text), size) for delta in parser.feed(text[at : at + size])]
    return parser.finish(), "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def calls_in(reply: Reply) -> list[dict[str, Any]]:
    """The calls that would run."""
    return [{"name": call.name, "arguments": call.arguments} for call in reply.calls if not call.fault]


def bare(text: str) -> str:
    """A text without its white space."""
    return "".join(text.split())
