"""The view of a text that is still being written: what is certain is shown, the rest is held.

The reply itself is read from the whole text at the end, so nothing here can change it. An open block is read again
only when its end may have come or when it has grown eightfold, so that the work stays linear in the text.
"""

import re
from collections.abc import Iterator

from toolwire.protocol.chat import CallDelta, Delta, TextDelta
from toolwire.wire.encode.outbound import to_json
from toolwire.wire.replies.offered import Offered
from toolwire.wire.text.block import OpenBlock
from toolwire.wire.text.certain import certain_until, may_still_change
from toolwire.wire.text.fences import may_call
from toolwire.wire.text.labels import read_start, start_undecided
from toolwire.wire.text.openers import read_opener
from toolwire.wire.text.reading import ReadingPass
from toolwire.wire.text.scan import ATTEMPT, CONTEXT, MAX_CALLS, Scan, Step, TextFlow
from toolwire.wire.text.triggers import triggers
from toolwire.wire.text.words import FENCE_END, StreamedText, speak

_NEVER = (re.compile("(?!)"), re.compile("(?!)"))
_HEADER = 256
_PATIENCE = 12_000
_CHARS_PER_RETRY = 32
_READ = 20
_ENOUGH = 256


class LiveText:
    """Takes text as it comes and shows what is certain. Every call that it shows takes the next of `positions`."""

    __slots__ = (
        "_all",
        "_before",
        "_block",
        "_calls",
        "_fresh",
        "_held",
        "_offered",
        "_offset",
        "_pass",
        "_positions",
        "_quiet",
        "_size",
        "_skip_until",
        "_spent",
        "_unread",
        "_words",
        "_work",
    )  # fmt: skip

    def __init__(self, offered: Offered, positions: Iterator[int]) -> None:
        self._offered = offered
        self._positions = positions
        self._pass = ReadingPass(Scan("", offered))
        self._all: list[str] = []
        self._held: list[str] = []
        self._size = 0
        self._before = ""
        self._offset = 0
        self._calls = self._spent = self._work = self._unread = self._skip_until = 0
        self._fresh = True
        self._quiet = _NEVER
        self._words: StreamedText | None = None
        self._block: OpenBlock | None = None

    def whole(self) -> str:
        """Everything so far."""
        return "".join(self._all)

    def feed(self, text: str) -> list[Delta]:
        """Take more text; say what became certain."""
        self._all.append(text)
        if self._calls >= MAX_CALLS:
            return []
        if self._block is not None:
            return self._feed_block(self._block, text)
        if not self._held and self._words is None:
            if self._offset < self._skip_until:
                self._before, self._fresh = text[-CONTEXT:], False
                self._offset += len(text)
                return [TextDelta(text)] if text else []
            if self._quiet[self._fresh].match(text):
                if self._fresh or "\n" in text:
                    self._fresh = _ends_fresh(text, fresh=self._fresh)
                self._before = (self._before + text)[-CONTEXT:]
                self._offset += len(text)
                return [TextDelta(text)] if text else []
        self._held.append(text)
        self._size += len(text)
        if self._words is not None and not self._words.worth_reading(text):
            return []
        return self._read([]) if self._affords_reading(text) else []

    def _affords_reading(self, text: str) -> bool:
        """Whether to look now. Small pieces are looked at one by one only as long as that takes little time."""
        self._unread += len(text)
        if self._work > _PATIENCE + self._offset // _CHARS_PER_RETRY and self._unread < _ENOUGH:
            return False
        self._unread = 0
        self._work += _READ
        return True

    def _feed_block(self, block: OpenBlock, text: str) -> list[Delta]:
        self._held.append(text)
        self._size += len(text)
        if block.arguments is not None:
            out: list[Delta] = []
            ended = block.argue(text, out)
            return self._read(out) if ended else out
        return self._read([]) if block.worth_reading(text, self._size) and self._affords_reading(text) else []

    def _read(self, out: list[Delta]) -> list[Delta]:
        text = rest = "".join(self._held)
        if self._words is not None:
            rest = self._flow_on(self._words, text, out)
            self._pass.boundary = self._offset + len(text) - len(rest)
        if self._words is None:
            rest = self._advance(rest, out, len(text) - len(rest))
        consumed = len(text) - len(rest)
        self._before = (self._before + text[:consumed])[-CONTEXT:]
        self._offset += consumed
        self._held = [rest] if rest else []
        self._size = len(rest)
        return out

    def _flow_on(self, words: StreamedText, text: str, out: list[Delta]) -> str:
        rest = words.show(text, out)
        self._words = None if words.ended else words
        self._fresh = self._fresh or words.ended
        return rest

    def _advance(self, text: str, out: list[Delta], behind: int) -> str:
        """Take whatever is decided from the front of the text; give back what is still open."""
        scan = Scan(text, self._offered)
        scan.growing = True
        scan.before, scan.offset = self._before, self._offset + behind
        self._pass.rebase(scan)
        at = 0
        if self._quiet is _NEVER:
            if scan.end < _HEADER and start_undecided(text):
                return text
            first = read_start(scan, read_opener)
            if first is not None and may_still_change(scan, 0, 0, first):
                if first.flow is None:
                    return text
                self._quiet = triggers(self._offered).quiet
                return self._wait(text, 0, first, out)
            self._quiet = triggers(self._offered).quiet
            if first is not None:
                self._take(first, out)
                self._pass.boundary = scan.offset + first.end
                at = first.end
        before = scan.work_left = min(scan.work_left, self._patience())
        rest = self._go_through(scan, at, out)
        self._spent += before - scan.work_left
        self._work += before - scan.work_left
        if self._patience() <= 0 and self._words is None:
            # So many false starts are no answer: what comes is shown as it is until there is more of it.
            self._skip_until = _CHARS_PER_RETRY * (self._spent - _PATIENCE // 2)
            self._block = None
            self._say(rest, out)
            return ""
        return rest

    def _patience(self) -> int:
        """The work that may still be spent on false starts: some to begin with, and more as the text grows."""
        return _PATIENCE + self._offset // _CHARS_PER_RETRY - self._spent

    def _go_through(self, scan: Scan, at: int, out: list[Delta]) -> str:
        text, look, fresh = scan.text, at, self._fresh
        while True:
            before = scan.work_left
            found = self._pass.next(look, fresh=fresh)
            if found is None:
                break
            begin, after, step = found
            if may_still_change(scan, begin, after, step):
                self._work += before - scan.work_left
                scan.work_left = before  # waiting is no false start, and reading a block again is bounded anyway
                self._say(text[at:begin], out)
                return self._wait(text[begin:], begin, step, out)
            if step is None:
                if not scan.spend():
                    break
                look, fresh = max(after, look + (not fresh)), False
                continue
            self._say(text[at:begin], out)
            self._take(step, out)
            self._pass.boundary = scan.offset + step.end
            at = look = max(step.end, begin + 1)
            fresh = self._fresh = True
            if self._calls >= MAX_CALLS:
                return ""
            if not scan.spend(0 if step.found else ATTEMPT):
                break
        held = certain_until(text, at, self._offered, fresh=self._fresh)
        self._say(text[at:held], out)
        self._block = None
        return text[held:]

    def _wait(self, text: str, begin: int, step: Step | None, out: list[Delta]) -> str:
        """Hold an open block, showing of it what is plain words or arguments."""
        flow = step.flow if step is not None and not step.found else None
        if flow is None and text.startswith("```") and not may_call(Scan(text, self._offered), 0):
            flow = TextFlow(begin, (FENCE_END,), keeps_end=True)
        if flow is not None:
            self._block = None
            return self._flow_on(StreamedText(flow), text[flow.begin - begin :], out)
        if self._block is None:
            self._block = OpenBlock(text)
        self._block.announce(text, self._offered, self._positions, out)
        return text

    def _say(self, text: str, out: list[Delta]) -> None:
        if text:
            out.append(TextDelta(text))
            self._fresh = _ends_fresh(text, fresh=self._fresh)

    def _take(self, step: Step, out: list[Delta]) -> None:
        if not step.retro:
            speak(step.reasoning, out, reasoning=True)
        speak(step.content, out)
        block = self._block
        for found in step.found:
            written = _written(found.arguments)
            if block is None or block.position is None:
                out.append(CallDelta(next(self._positions), found.offer.name, written))
            elif missing := block.missing(written):
                out.append(CallDelta(block.position, "", missing))
            block = None
        self._calls += len(step.found)
        self._pass.found += step.found
        if step.reasoning:
            self._pass.thoughts.append("")
        self._block = None


def _ends_fresh(text: str, *, fresh: bool) -> bool:
    """Whether nothing but white space stands on the last line."""
    line = text.rfind("\n")
    return (line >= 0 or fresh) and not text[line + 1 :].strip()


def _written(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    try:
        return to_json(arguments).decode()
    except ValueError:
        return "{}"
