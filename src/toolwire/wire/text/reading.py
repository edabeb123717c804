"""Reading a whole text: what is content, what is reasoning, which calls are in it."""

import re

from msgspec import Struct, field

from toolwire.wire.replies.offered import Offered
from toolwire.wire.text.fences import is_code
from toolwire.wire.text.labels import read_bare, read_label, read_recipient, read_start
from toolwire.wire.text.marks import AFTER_CALL, CLOSERS, LONE_ENDS
from toolwire.wire.text.openers import (
    ANSWERS,
    CALL_OPENERS,
    HANDLERS,
    LONGEST,
    PREFIXES,
    STRONG,
    THOUGHT_ENDS,
    Mark,
    past_closers,
    read_opener,
    tool_tag,
)
from toolwire.wire.text.scan import CONTEXT, MAX_CALLS, UNKNOWN, Found, Scan, Step, TextFlow, without_half
from toolwire.wire.text.shown import CallForm, CallSite, CallVerdict, is_announced, is_continued, judge
from toolwire.wire.text.triggers import end_of_turn, in_inline_code, mention_end, triggers

_PASSING = 5
_JUDGED = 60
_ANNOUNCEMENT = 4_000
_KEPT = frozenset({UNKNOWN, "malformed"})
_FORMS = {"`": CallForm.FENCED, "{": CallForm.BARE}
_QUESTION = re.compile(r"(?:\A|\n)Question:[^\n]*\s*\Z")
_MARKS = ("`", "'", '"', "“")
QUOTED = "a call in a quotation or in inline code was not run; to make it, send the call alone"
UNCLEAR = (
    "a call of {!r} was not run, because the text around it does not say whether it is made or only shown; to make it, "
    "send the call alone"
)


def _form(match: re.Match[str]) -> CallForm:
    return CallForm.LABEL if match.lastgroup == "label" else CallForm.BARE


class ParsedText(Struct):
    """What a text says: to the user, to itself, and to tools."""

    content: str = ""
    reasoning: str = ""
    found: list[Found] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)


def read_text(text: str, offered: Offered, *, cut: bool = False) -> ParsedText:
    """Read a text from front to back, each character a bounded number of times.

    `cut` says that the length limit ended it, so that an element without its end tag may lack something.
    """
    end, finished = end_of_turn(text)
    scan = Scan(text, offered, end=end, finished=finished)
    scan.cut = cut
    return ReadingPass(scan).run()


class ReadingPass:
    """One pass over one text, or over as much of it as has come."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self.triggers = triggers(scan.offered)
        self.pieces: list[str] = []
        self.thoughts: list[str] = []
        self.found: list[Found] = []
        self.problems: list[tuple[str, str]] = []
        self.changed = scan.end < len(scan.text)
        self.answer = ""
        self.said = False
        self._strong: re.Match[str] | None = None
        self._line: re.Match[str] | None = None
        self._strong_from = self._line_from = -1
        self.boundary = 0
        self._last: tuple[int, CallVerdict] | None = None
        self._shown = False

    def rebase(self, scan: Scan) -> None:
        """Go on with another stretch of the same text."""
        self.scan = scan
        self._strong_from = self._line_from = -1
        self.pieces.clear()

    def run(self) -> ParsedText:
        scan = self.scan
        at = look = 0
        fresh = True
        first = read_start(scan, read_opener)
        if first is not None:
            self._apply(first, 0, 0)
            at = look = first.end
        while True:
            found = self.next(look, fresh=fresh)
            if found is None:
                break
            begin, after, step = found
            if step is None:
                look, fresh = max(after, look + (not fresh)), False
                if not scan.spend():
                    self._give_up("too many things that look like calls: the rest is text")
                    break
                continue
            self._apply(step, at, begin)
            if not scan.spend(0 if step.found else _PASSING * (1 + 2 * bool(step.problems))):
                self._give_up("too many markers: the rest is text")
                at = step.end
                break
            if len(self.found) >= MAX_CALLS:
                self.problems.append(("too_many_calls", f"only the first {MAX_CALLS} calls were read"))
                del self.found[MAX_CALLS:]
                at = scan.end
                break
            at = look = max(step.end, begin + 1) if step.end > begin else after
            fresh = True
            if at >= scan.end:
                break
        self.pieces.append(scan.text[at : self._before_half_a_marker(at) if scan.cut else scan.end])
        return self._reading()

    def _give_up(self, why: str) -> None:
        """Leave the rest. What was found counts only where its end shows: a flood of beginnings calls nothing."""
        self.problems.append(("malformed", why))
        closed = [found for found in self.found if AFTER_CALL.match(self.scan.text, found.span[1], self.scan.end)]
        if len(closed) < len(self.found):
            self.problems.append(("truncated", f"{len(self.found) - len(closed)} calls without an end were left out"))
            self.found = closed

    def _before_half_a_marker(self, at: int) -> int:
        """Where the text ends without the beginning of a marker that was cut off."""
        scan = self.scan
        for begin in range(max(at, scan.end - LONGEST), scan.end - 2):
            if scan.text[begin : scan.end] in PREFIXES or scan.text[begin : scan.end] in self.triggers.tag_beginnings:
                self.problems.append(("truncated", "the text ends inside a marker"))
                self.changed = True
                return begin
        return scan.end

    def next(self, look: int, *, fresh: bool) -> tuple[int, int, Step | None] | None:
        """The next place that may be more than text, and what was read there."""
        found = self._next(look, fresh=fresh)
        if found is not None and found[2] is not None:
            self._keep_unknown(found[0], found[2])
        return found

    def _keep_unknown(self, begin: int, step: Step) -> None:
        """A call that cannot be made stays text: where it vanished, an answer would be empty."""
        if step.problems and not step.found and not step.cut and any(code in _KEPT for code, _ in step.problems):
            step.content = self.scan.text[begin : step.end]

    def _next(self, look: int, *, fresh: bool) -> tuple[int, int, Step | None] | None:
        scan = self.scan
        if fresh:
            here = self.triggers.here.match(scan.text, look, scan.end)
            if here is not None:
                begin, step = here.start(here.lastgroup or 0), self._weak(here)
                if step is not None or not self._marked(begin):
                    return self._judged(begin, begin, step, _form(here))
        strong, line = self._strong_after(look), self._line_after(look)
        if line is not None and (strong is None or line.start(line.lastgroup or 0) < strong.start()):
            return self._judged(line.start(line.lastgroup or 0), line.end(), self._weak(line), _form(line))
        if strong is None:
            return None
        mentioned = mention_end(scan, strong.start(), strong.end())
        if mentioned >= 0:
            self._note_quoted(strong)
            return strong.start(), self._past_quoted(strong, mentioned), None
        if scan.growing and in_inline_code(scan, strong.start(), strong.end()):
            return strong.start(), strong.end(), Step(scan.end, cut=True)
        step = self._handle(strong)
        return self._judged(strong.start(), strong.end(), step, _FORMS.get(strong.group()[0], CallForm.MARKED))

    def _judged(self, begin: int, after: int, step: Step | None, form: CallForm) -> tuple[int, int, Step | None]:
        """A step with calls as it is if they are made; as text if they are only shown, and told if that is unclear."""
        if step is None or not step.found:
            return self._thought_shown(begin, after, step, form)
        scan, before = self.scan, self._before(begin)
        if not scan.growing and not before.strip() and scan.space(step.end) >= scan.end:
            return begin, after, past_closers(scan, step) if form is not CallForm.MARKED else step
        if self._last is not None and self._last[0] >= scan.offset + begin - len(before):
            gap = before[self._last[0] - scan.offset - begin :] if self._last[0] < scan.offset + begin else ""
            verdict = self._last[1] if is_continued(gap) else None
        else:
            verdict = None
        if verdict is None:
            form = CallForm.CODE if form is CallForm.FENCED and is_code(scan, begin) else form
            first = not (self.said or self.found) and not before.strip()
            made = bool(self.found)
            verdict = judge(CallSite(scan, begin, step.end, form, before, step.found, first, self._shown, made))
        if verdict is CallVerdict.WAIT:
            return begin, after, Step(scan.end, cut=True)
        self._last = (scan.offset + step.end, verdict)
        if verdict is CallVerdict.MADE:
            return begin, after, past_closers(scan, step) if form is not CallForm.MARKED else step
        self._shown = True
        scan.spend(_JUDGED)
        if verdict is CallVerdict.UNCLEAR:
            scan.note("unclear", UNCLEAR.format(step.found[0].offer.name))
        return begin, step.end, None

    def _past_quoted(self, match: re.Match[str], mentioned: int) -> int:
        """The end of a quoted line, or of the call that begins on it: the lines behind belong to the quotation."""
        if match.group() not in CALL_OPENERS or self.scan.text[match.start() - 1 : match.start()] in _MARKS:
            return mentioned
        step = self._handle(match)
        return max(mentioned, step.end) if step is not None and step.found and not step.cut else mentioned

    def _note_quoted(self, match: re.Match[str]) -> None:
        """A call in inline code or in a block quote is not run; if the words announce it, the model is told."""
        if match.group() in CALL_OPENERS or match.group()[0] == "{":
            before = self._before(match.start()).rstrip("`> \t")
            self.scan.spend(_JUDGED)
            if is_announced(before):
                self.scan.note("unclear", QUOTED)

    def _thought_shown(self, begin: int, after: int, step: Step | None, form: CallForm) -> tuple[int, int, Step | None]:
        """A label for thoughts in a description of labels is text like the rest of it."""
        if form is CallForm.LABEL and step is not None and step.reasoning:
            before = self._before(begin)
            if before.strip() and not _QUESTION.search(before) and not is_announced(before, form):
                self._last = (self.scan.offset + step.end, CallVerdict.UNCLEAR)
                return begin, step.end, None
        return begin, after, step

    def _before(self, begin: int) -> str:
        """The text before a position that belongs to the answer, as far as it counts."""
        scan = self.scan
        start = max(self.boundary - scan.offset, begin - CONTEXT)
        return scan.text[start:begin] if start >= 0 else scan.before[start:] + scan.text[:begin]

    def _marked(self, at: int) -> bool:
        """Whether a marker stands exactly here, so that it decides."""
        return self.triggers.strong.match(self.scan.text, at, self.scan.end) is not None

    def _strong_after(self, look: int) -> re.Match[str] | None:
        if self._strong_from < 0 or (self._strong is not None and self._strong.start() < look):
            self._strong = self.triggers.strong.search(self.scan.text, look, self.scan.end)
            self._strong_from = look
        return self._strong

    def _line_after(self, look: int) -> re.Match[str] | None:
        if self._line_from < 0 or (self._line is not None and self._line.start(self._line.lastgroup or 0) < look):
            self._line = self.triggers.line.search(self.scan.text, look, self.scan.end)
            self._line_from = look
        return self._line

    def _weak(self, match: re.Match[str]) -> Step | None:
        scan, at = self.scan, match.start(match.lastgroup or 0)
        if match.lastgroup == "label":
            return self._label(match, at)
        if match.lastgroup == "name" and scan.text[match.end() : match.end() + 1] != "(":
            step = read_recipient(scan, at, marked=False)
        else:
            step = read_bare(scan, at)
        return step

    def _label(self, match: re.Match[str], at: int) -> Step | None:
        if "Observation" in match["label"]:
            return Step(self.scan.end) if self.found else None
        return read_label(self.scan, at, read_opener)

    def _handle(self, match: re.Match[str]) -> Step | None:
        scan, at, marker = self.scan, match.start(), match.group()
        if marker in ANSWERS:
            return self._answer(marker, match.end())
        if marker in THOUGHT_ENDS:
            return self._thought(match.end(), THOUGHT_ENDS[marker])
        if marker in LONE_ENDS:
            return self._lone_end(at, match.end())
        step = HANDLERS.get(marker, tool_tag)(scan, Mark(marker, at, match.end()))
        if step is not None and step.cut and not step.found and self._repeats_opener(marker, match):
            return Step(match.end(), cut=True)
        return step

    def _repeats_opener(self, marker: str, match: re.Match[str]) -> bool:
        """An opening marker at the very end, behind a call that was not closed, stands for the closing one."""
        scan, at = self.scan, match.start()
        last = bool(self.found) and scan.space(match.end()) >= scan.end and marker in CALL_OPENERS
        return last and not scan.text[max(0, at - 80) : at].rstrip().endswith(CLOSERS)

    def _answer(self, marker: str, after: int) -> Step | None:
        """`<response>…</response>` around the answer is a wrapper only where nothing was said before it."""
        tag = ANSWERS[marker]
        if marker.startswith("</"):
            wrapped, self.answer = self.answer == tag, ""
            return Step(after) if wrapped else None
        if self.answer or self.said or self._text_before(after - len(marker)):
            return None
        self.answer = tag
        return Step(after)

    def _text_before(self, at: int) -> bool:
        last = self.scan.text[max(0, at - 80) : at].rstrip()
        return bool(last) and not last.endswith((">", "]"))

    def _thought(self, after: int, close: str) -> Step:
        """A closed block is reasoning; an open one ends where a complete call begins."""
        scan = self.scan
        stop = scan.find(close, after)
        flow = TextFlow(after, (close,), reasoning=True)
        if stop >= 0:
            return Step(stop + len(close), reasoning=scan.text[after:stop], flow=flow)
        look = after
        while (match := STRONG.search(scan.text, look, scan.end)) is not None:
            if match.group() in CALL_OPENERS and mention_end(scan, match.start(), match.end()) < 0:
                step = HANDLERS[match.group()](scan, Mark(match.group(), match.start(), match.end()))
                if step is not None and step.found:
                    return Step(match.start(), reasoning=scan.text[after : match.start()], flow=flow)
            look = match.end()
            if not scan.spend():
                break
        return Step(scan.end, reasoning=without_half(scan.text[after : scan.end], close), flow=flow)

    def _lone_end(self, at: int, after: int) -> Step | None:
        """An end without a beginning: the prompt had opened the block, so all before it is reasoning."""
        if self.thoughts and (self.found or not self.said):
            return Step(after)
        before = self.scan.text[:at] if not self.thoughts else "".join(self.pieces)
        self.pieces.clear()
        self.said = False
        self.found.clear()
        self.problems.clear()
        self.scan.notes.clear()
        return Step(after, reasoning=before.removesuffix("\n"), retro=True)

    def _apply(self, step: Step, at: int, begin: int) -> None:
        if not step.retro:
            self._say(self.scan.text[at:begin])
        elif self.thoughts:
            step.reasoning += self.scan.text[at:begin]
        self._say(step.content)
        if step.reasoning:
            self.thoughts.append(step.reasoning.strip())
        self.boundary = self.scan.offset + step.end
        self.found += step.found
        self.problems += step.problems
        if len(step.content) != step.end - begin or step.content != self.scan.text[begin : step.end]:
            self.changed = True

    def _say(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            self.said = self.said or not text.isspace()

    def _note_announcement(self, content: str) -> None:
        """Words that announce a call but make none are no call; said so, the model can be asked to make it."""
        announced = self.triggers.announced
        match = announced.search(content, 0, _ANNOUNCEMENT) if announced else None
        if match is not None:
            self.problems.append(("mentioned", f"the text announces a call of {match['name']} but makes none"))

    def _reading(self) -> ParsedText:
        content = "".join(self.pieces)
        if not (self.found or self.problems or self.scan.notes) and content:
            self._note_announcement(content)
        return ParsedText(
            content.strip() if self.changed else content,
            "\n".join(thought for thought in self.thoughts if thought),
            self.found,
            self.problems + self.scan.notes,
        )
