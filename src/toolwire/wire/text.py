"""Calls written into text: `<tool_call>` blocks with JSON inside."""

from toolwire.protocol.chat import Delta, TextDelta
from toolwire.wire.arguments import NotRead, read_arguments
from toolwire.wire.settle import Settled

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"


class TextStream:
    """Takes text as it comes; shows what cannot be part of a call; gives content and calls at the end."""

    __slots__ = ("_parts", "_shown", "_text")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._shown = 0

    def feed(self, text: str) -> list[Delta]:
        self._parts.append(text)
        if len(self._parts) > 1 and self._shown < 0:
            return []
        joined = "".join(self._parts)
        self._parts = [joined]
        at = joined.find(_OPEN, max(0, self._shown))
        until = at if at >= 0 else len(joined) - _held(joined)
        fresh = joined[self._shown : until]
        self._shown = -1 if at >= 0 else until
        return [TextDelta(fresh)] if fresh else []

    def finish(self, settled: Settled, *, cut: bool) -> str:
        """Settle the calls and return the text around them."""
        text = "".join(self._parts)
        content: list[str] = []
        at = 0
        while (begin := text.find(_OPEN, at)) >= 0:
            content.append(text[at:begin])
            close = text.find(_CLOSE, begin)
            body = text[begin + len(_OPEN) : close if close >= 0 else len(text)]
            at = close + len(_CLOSE) if close >= 0 else len(text)
            _settle(settled, body.strip(), finished=close >= 0 and not cut)
        content.append(text[at:])
        return "".join(content).strip() if settled.calls or len(content) > 1 else text


def _held(text: str) -> int:
    """How many characters at the end may be the beginning of a marker."""
    return next((size for size in range(len(_OPEN) - 1, 0, -1) if text.endswith(_OPEN[:size])), 0)


def _settle(settled: Settled, body: str, *, finished: bool) -> None:
    read = read_arguments(body, finished=finished)
    if isinstance(read, NotRead):
        settled.report("truncated" if read.cut else "malformed", read.why)
        return
    for entry in read.objects:
        name = entry.get("name")
        inner = read_arguments(entry.get("arguments", entry.get("parameters")), finished=True)
        offer = settled.offered.get(name) if isinstance(name, str) else None
        if offer is None or isinstance(inner, NotRead):
            settled.report(
                "unknown_tool" if offer is None else "malformed", f"no call could be made of {str(name)[:80]!r}"
            )
            continue
        settled.accept(offer, offer.name, inner.objects[0], None, body, note=read.repaired, dialect="hermes")
