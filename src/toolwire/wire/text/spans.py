"""Which part of a text was read as what: the same pass as always, with its steps written down."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from toolwire.wire.replies.offered import index_tools
from toolwire.wire.text.reading import ReadingPass
from toolwire.wire.text.scan import Scan, Step
from toolwire.wire.text.triggers import end_of_turn


class Span(Struct, frozen=True):
    """A stretch of a text: `kind` is text, reasoning, call, refused or markup; `what` says more where there is more."""

    start: int
    end: int
    kind: str
    what: str = ""


def spans(text: str, tools: Sequence[Any] = (), *, cut: bool = False) -> list[Span]:
    """The whole text in order, every character in exactly one span."""
    end, finished = end_of_turn(text)
    scan = Scan(text, index_tools(tools), end=end, finished=finished)
    scan.cut = cut
    watched = _Watched(scan)
    watched.run()
    return _joined([*watched.seen, *_rest(watched.upto, end, "text"), *_rest(end, len(text), "markup")])


class _Watched(ReadingPass):
    """A pass that remembers where its steps began and ended."""

    def __init__(self, scan: Scan) -> None:
        super().__init__(scan)
        self.seen: list[Span] = []
        self.upto = 0

    def _apply(self, step: Step, at: int, begin: int) -> None:
        super()._apply(step, at, begin)
        if step.retro:
            self.seen = [Span(0, begin, "reasoning")]
        else:
            self.seen += _rest(self.upto, begin, "text")
        kind, what = _said(step)
        self.seen += _rest(begin, step.end, kind, what)
        self.upto = max(self.upto, step.end)


def _said(step: Step) -> tuple[str, str]:
    if step.found:
        return "call", ", ".join(f"{found.offer.name} ({found.dialect})" for found in step.found)
    if step.problems:
        return "refused", "; ".join(message for _, message in step.problems)
    if step.reasoning and not step.retro:
        return "reasoning", ""
    return ("text", "") if step.content else ("markup", "")


def _rest(start: int, end: int, kind: str, what: str = "") -> list[Span]:
    return [Span(start, end, kind, what)] if start < end else []


def _joined(parts: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for part in parts:
        if joined and (joined[-1].kind, joined[-1].what) == (part.kind, part.what) and part.kind in ("text", "markup"):
            joined[-1] = Span(joined[-1].start, part.end, part.kind, part.what)
        else:
            joined.append(part)
    return joined
