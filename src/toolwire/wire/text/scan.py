"""What a reader of text works on and what it hands back."""

import re
from typing import Any

from msgspec import Struct, field

from toolwire.protocol.calls import CallOptions
from toolwire.wire.replies.offered import Offer, Offered

_SPACE = re.compile(r"\s*+")
_ALLOWANCE = 16_000
_CHARS_PER_RETRY = 20
_SEARCHED_PER_UNIT = 250
_AT_END = 8
ATTEMPT = 10
MAX_CALLS = 4_096
UNKNOWN = "unknown_tool"
CONTEXT = 600


class Found(Struct):
    """A call as it stands in the text: the tool, its arguments as written or read, and where they were.

    With a `fault` it is answered, never run.
    """

    offer: Offer
    arguments: Any
    dialect: str
    span: tuple[int, int]
    alias: str | None = None
    note: str = ""
    weak: bool = False
    fault: str = ""
    options: CallOptions | None = None


class TextFlow(Struct, frozen=True):
    """Plain words from a position on until one of some markers, so that they can be shown while they come.

    The marker itself is shown where it `keeps_end`.
    """

    begin: int
    ends: tuple[str, ...]
    reasoning: bool = False
    keeps_end: bool = False


class Step(Struct):
    """What one reader took from the text: everything up to `end` is accounted for.

    `cut` says that the text ended inside a call; `retro` that everything before was reasoning.
    """

    end: int
    found: list[Found] = field(default_factory=list)
    content: str = ""
    reasoning: str = ""
    cut: bool = False
    retro: bool = False
    flow: "TextFlow | None" = None
    problems: list[tuple[str, str]] = field(default_factory=list)


class Scan:
    """One text, the tools that may be called in it, and how much work may still be spent on false starts.

    A stretch of a longer text begins at `offset` of it and has the words `before` it; while it is `growing`, nothing
    is guessed that more text could refute. It is `cut` when the length limit is known to have ended it. No value can be
    read at `hopeless`, where it was tried last.
    """

    __slots__ = (
        "_looked_back",
        "before",
        "cut",
        "end",
        "finished",
        "growing",
        "hopeless",
        "notes",
        "offered",
        "offset",
        "text",
        "work_left",
    )  # fmt: skip

    def __init__(self, text: str, offered: Offered, *, end: int | None = None, finished: bool = False) -> None:
        self.text = text
        self.end = len(text) if end is None else end
        self.offered = offered
        self.finished = finished
        self.before = ""
        self.offset = 0
        self.growing = False
        self.cut = False
        self.hopeless = -1
        self._looked_back = False
        self.notes: list[tuple[str, str]] = []
        self.work_left = _ALLOWANCE + self.end // _CHARS_PER_RETRY

    def space(self, at: int) -> int:
        """The position of the next character that is not white space."""
        match = _SPACE.match(self.text, at, self.end)
        return match.end() if match else at

    def at(self, pos: int, marker: str) -> bool:
        return self.text.startswith(marker, pos, self.end)

    def past(self, at: int, marker: str) -> int:
        """The position behind a marker that follows, white space before it or not; where it was asked if none does."""
        begin = self.space(at)
        return begin + len(marker) if self.at(begin, marker) else at

    def find(self, marker: str, pos: int, end: int | None = None) -> int:
        """Where a marker stands next. The characters searched are paid for."""
        end = self.end if end is None else end
        at = self.text.find(marker, pos, end)
        self.work_left -= ((end if at < 0 else at) - pos) // _SEARCHED_PER_UNIT
        return at

    def last(self, marker: str) -> int:
        """Where a marker ends the text, give or take a few characters; -1 if none does, or if it was asked before."""
        if self._looked_back:
            return -1
        self._looked_back = True
        return self.text.rfind(marker, max(0, self.end - len(marker) - _AT_END), self.end)

    def spend(self, units: int = ATTEMPT) -> bool:
        """Count work done in vain, a unit for about a microsecond. False once no more may be spent."""
        self.work_left -= units
        return self.work_left > 0

    @property
    def spent(self) -> bool:
        """Whether no more work may be spent: loops stop then."""
        return self.work_left <= 0

    def note(self, code: str, message: str) -> None:
        """Report something about text that stays text."""
        if len(self.notes) < 32:
            self.notes.append((code, message))

    def cut_inside(self, why: str, step: Step | None = None) -> Step:
        """The text ended inside a call: nothing of it is called or shown. What a step found before it stands."""
        step = Step(self.end) if step is None else step
        step.cut, step.end = True, self.end
        step.problems.append(("truncated", why))
        return step


def unclosed_call(name: str, end: int) -> Step:
    """A call without arguments that nothing closes: they may have been lost, so it is reported and never run."""
    return Step(end, problems=[("truncated", f"a call of {name[:80]!r} has neither arguments nor an end")])


def not_offered(name: str) -> tuple[str, str]:
    """The problem of a call to a tool that was not offered."""
    return UNKNOWN, f"no tool named {name[:80]!r} was offered"


def without_half(text: str, *markers: str) -> str:
    """The text without the beginning of a marker at its very end."""
    for marker in markers:
        for size in range(len(marker) - 1, 1, -1):
            if text.endswith(marker[:size]):
                return text[:-size]
    return text
