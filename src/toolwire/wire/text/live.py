"""The view of a text that is still being written: what is certain is shown, the rest is held.

The reply itself is read from the whole text at the end, so nothing here can change it. An open block is read again
only when its end may have come or when it has grown by half, so that the work stays linear in the text.
"""

import re

import orjson

from toolwire.protocol.chat import CallDelta, Delta, ReasoningDelta, TextDelta
from toolwire.wire.offered import Offered
from toolwire.wire.text.brackets import Brackets
from toolwire.wire.text.fences import may_call
from toolwire.wire.text.labels import read_start, start_undecided
from toolwire.wire.text.marks import CLOSER_PREFIXES, END_OF_TURN, ENVELOPES
from toolwire.wire.text.openers import CALL_OPENERS, LONGEST, PREFIXES, STRONG, opened
from toolwire.wire.text.reading import Pass, end_of_turn
from toolwire.wire.text.scan import Flow, Found, Scan, Step

_QUIET = re.compile(r"[^<\[{`✿>\]\nf]*+\Z")
_UNDECIDED = 400
_SMALL = 600
_EARLY_READS = 12
_GROWTH = 2
_FOLLOWS = re.compile(r"(?:`{1,3}|✿.{0,8}|[^\W\d][\w.-]{0,63})\Z")
_CONTEXT = 160
_PATIENCE = 60_000
_CHARACTERS_PER_COIN = 8
_LABEL_WORDS = ("Thought:", "Action:", "Final Answer:", "Observation:", "Call:", "**Thought:", "**Action:")
_NAMED = re.compile(
    r'"(?:name|tool_name|tool|function)"\s*+:\s*+"(?P<name>[^"\\]{1,128})"\s*+,\s*+'
    r'"(?:arguments|parameters|input|args)"\s*+:\s*+(?=\{)'
    r"|to=(?:functions\.)?(?P<to>[\w.-]{1,128})[^{]{0,80}<\|message\|>\s*+(?=\{)"
)
_HEADS = {opener: envelope.head for envelope in ENVELOPES for opener in envelope.opens if envelope.head is not None}


def _prefixes(words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(word[:size] for word in words for size in range(1, len(word)))


_MARKER_PREFIXES = PREFIXES | _prefixes(END_OF_TURN)


class LiveText:
    """Takes text as it comes and shows what is certain."""

    __slots__ = (
        "_all", "_announced", "_arguments", "_before", "_brackets", "_calls", "_credit", "_draft_held", "_early",
        "_flow", "_fresh",
        "_held",
        "_offered", "_offset", "_pass", "_position", "_size", "_spent", "_started", "_tags",
        "_tired", "_waiting",
    )  # fmt: skip

    def __init__(self, offered: Offered) -> None:
        self._offered = offered
        self._all: list[str] = []
        self._held: list[str] = []
        self._size = 0
        self._before = ""
        self._offset = 0
        self._pass = Pass(Scan("", offered))
        self._tags = _prefixes(tuple(f"<{name}/>" for name in offered.by_name))
        self._spent = 0
        self._tired = False
        self._draft_held = ""
        self._fresh = True
        self._started = False
        self._waiting = False
        self._flow: Flow | None = None
        self._position = 0
        self._calls = 0
        self._credit = 0
        self._early = _EARLY_READS
        self._brackets: Brackets | None = None
        self._arguments: Brackets | None = None
        self._announced = False

    def whole(self) -> str:
        """Everything so far."""
        return "".join(self._all)

    def feed(self, text: str, position: int = 0) -> list[Delta]:
        """Take more text; say what became certain. `position` counts the calls that stand elsewhere."""
        self._all.append(text)
        self._position = position
        if self._tired:
            return [TextDelta(text)] if text else []
        arguments = self._arguments
        if arguments is not None:
            self._held.append(text)
            self._size += len(text)
            if arguments.in_words and '"' not in text and "\\" not in text:
                return [CallDelta(position + self._calls, "", text)]
            return self._argue(text)
        if not self._waiting and not self._held and not self._fresh and self._flow is None and _QUIET.match(text):
            self._before = (self._before + text)[-_CONTEXT:]
            self._offset += len(text)
            return [TextDelta(text)] if text else []
        self._held.append(text)
        self._size += len(text)
        out: list[Delta] = []
        if self._waiting and not self._worth_reading(text):
            return out
        if self._draft_held and not self._draft_ends(text):
            return out
        self._read(out)
        return out

    def _draft_from(self, text: str, stop: int) -> int:
        """Where a call opens inside reasoning: it may be a draft or the end of it, only the closing marker tells."""
        for match in STRONG.finditer(text):
            if match.group() in CALL_OPENERS:
                self._draft_held = text[max(match.start(), len(text) - LONGEST) :]
                return match.start()
        return stop

    def _draft_ends(self, text: str) -> bool:
        """Whether the marker that ends the reasoning around a held call has come."""
        assert self._flow is not None
        recent = self._draft_held + text
        self._draft_held = recent[-LONGEST:]
        return any(end in recent for end in self._flow.ends)

    def _argue(self, text: str) -> list[Delta]:
        """Show a piece of the arguments that are being written, up to their last bracket."""
        assert self._arguments is not None
        out: list[Delta] = []
        end = self._arguments.feed(text)
        shown = text if end < 0 else text[:end]
        if shown:
            out.append(CallDelta(self._position + self._calls, "", shown))
        if end >= 0:
            self._arguments = None
            self._brackets = None
            self._early = _EARLY_READS
            self._read(out)
        return out

    def _worth_reading(self, text: str) -> bool:
        """Whether reading the open block again may say more: it is small, has grown by half, or seems to end."""
        self._credit += _GROWTH * len(text)
        closed = self._brackets is not None and self._brackets.feed(text) >= 0
        if self._size < _SMALL or self._credit >= self._size:
            self._credit = max(0, self._credit - self._size)
            return True
        if self._early > 0 and (closed or (self._brackets is None and ">" in text)):
            self._early -= 1
            return True
        return False

    def _read(self, out: list[Delta]) -> None:
        text = "".join(self._held)
        rest = self._show_flow(text, out) if self._flow is not None else text
        if self._flow is None:
            rest = self._advance(rest, out, len(text) - len(rest))
        if self._spent > _PATIENCE + (self._offset + len(text)) // _CHARACTERS_PER_COIN:
            self._tired = True  # so many false starts are no answer: what comes is shown as it is
            _speak(rest, out)
            rest = ""
        consumed = len(text) - len(rest)
        self._before = (self._before + text[:consumed])[-_CONTEXT:]
        self._offset += consumed
        self._held = [rest] if rest else []
        self._size = len(rest)

    def _advance(self, text: str, out: list[Delta], behind: int) -> str:
        """Take whatever is decided from the front of the text; give back what is still open."""
        scan = Scan(text, self._offered)
        scan.growing = True
        scan.before, scan.offset = self._before, self._offset + behind
        self._pass.rebase(scan)
        at = 0
        if not self._started:
            if scan.end < 256 and start_undecided(text):
                return text
            first = read_start(scan, opened)
            if first is not None and self._undecided(scan, 0, 0, first):
                self._started = first.flow is not None
                return self._wait(text, 0, first, out) if self._started else text
            self._started = True
            if first is not None:
                self._take(first, out)
                at = first.end
        purse = scan.purse
        rest = self._go_through(scan, at, out)
        self._spent += purse - scan.purse
        return rest

    def _go_through(self, scan: Scan, at: int, out: list[Delta]) -> str:
        text, look, fresh = scan.text, at, self._fresh
        while (found := self._pass.next(look, fresh=fresh)) is not None:
            begin, after, step = found
            scan.spend()
            if self._undecided(scan, begin, after, step):
                self._say(text[at:begin], out)
                return self._wait(text[begin:], begin, step, out)
            if step is None:
                look, fresh = max(after, look + (not fresh)), False
                continue
            self._say(text[at:begin], out)
            self._take(step, out)
            at = look = max(step.end, begin + 1)
            fresh = self._fresh = True
        held = self._ambiguous(text, at)
        self._say(text[at:held], out)
        self._waiting = False
        return text[held:]

    def _undecided(self, scan: Scan, begin: int, after: int, step: Step | None) -> bool:
        """Whether more text could still change what was read at a position."""
        if scan.text[begin:] in _MARKER_PREFIXES:
            return True
        if step is None:
            return scan.end - after < _UNDECIDED and self._may_become(scan, begin)
        rest = scan.space(step.end)
        if step.flow is not None and rest >= scan.end:
            return not any(scan.text.endswith(end) for end in step.flow.ends)
        if step.cut:
            return True
        if not (step.found or step.problems or step.content or step.reasoning):
            return False
        return rest >= scan.end or (bool(step.found or step.problems) and self._goes_on(scan, rest))

    def _goes_on(self, scan: Scan, rest: int) -> bool:
        """Whether what follows a call may still belong to it or to its block."""
        following = scan.text[rest : rest + 80]
        if following[0] in ",;{[" or following in CLOSER_PREFIXES or _FOLLOWS.match(following):
            return scan.end - rest < _UNDECIDED
        return following[0] == "<" and ">" not in following and scan.end - rest < 80

    def _may_become(self, scan: Scan, begin: int) -> bool:
        if scan.at(begin, "```"):
            return may_call(scan, begin)
        return True

    def _wait(self, text: str, begin: int, step: Step | None, out: list[Delta]) -> str:
        """Hold an open block, showing of it what is plain words or arguments."""
        if step is not None and step.flow is not None and not step.found:
            self._flow = step.flow
            return self._show_flow(text[step.flow.begin - begin :], out)
        if text.startswith("```") and not may_call(Scan(text, self._offered), 0):
            self._flow = Flow(0, ("\n```",))
            return self._show_flow(text, out)
        if not self._waiting:
            self._waiting = True
            self._credit = 0
            self._early = _EARLY_READS
            self._brackets = Brackets() if text[:1] in "{[" else None
            if self._brackets is not None:
                self._brackets.feed(text)
        self._begin_arguments(text, out)
        return text

    def _begin_arguments(self, text: str, out: list[Delta]) -> None:
        """Show the arguments of a marked call from the moment its tool is known."""
        if self._announced or len(text) > 4 * _SMALL or text[:1] in "{`" or (text[:1] == "[" and text[1:2] != "T"):
            return
        marker = STRONG.match(text)
        head = _HEADS.get(marker.group()) if marker else None
        match = (head.match(text, marker.end()) if head and marker else None) or _NAMED.search(text)
        if match is None:
            return
        groups = match.groupdict()
        offer = self._offered.get(groups.get("name") or groups.get("to") or "")
        if offer is None:
            return
        self._arguments = Brackets()
        self._announced = True
        position = self._position + self._calls
        out.append(CallDelta(position, offer.name))
        rest = text[match.end() :]
        end = self._arguments.feed(rest)
        shown = rest if end < 0 else rest[:end]
        if shown:
            out.append(CallDelta(position, "", shown))
        if end >= 0:
            self._arguments = None

    def _show_flow(self, text: str, out: list[Delta]) -> str:
        """Show words up to the marker that ends them; hold what may be its beginning or a call's."""
        assert self._flow is not None
        reasoning, ends = self._flow.reasoning, self._flow.ends
        found = [(at, end) for end in ends if (at := text.find(end)) >= 0]
        if not found:
            stop = _hold_from(text, ends)
            if reasoning:
                stop = self._draft_from(text, min(stop, _hold_from(text, ())))
            _speak(text[:stop], out, reasoning=reasoning)
            return text[stop:]
        stop, end = min(found)
        keeps = end == "\n```"
        _speak(text[: stop + len(end)] if keeps else text[:stop], out, reasoning=reasoning)
        self._flow = None
        self._draft_held = ""
        self._fresh = True
        stays = end == "<|start|>" or (end[0] == "\n" and not keeps)
        return text[stop if stays else stop + len(end) :]

    def _say(self, text: str, out: list[Delta]) -> None:
        if text:
            out.append(TextDelta(text))
            self._fresh = text.endswith("\n") or (self._fresh and not text.strip())

    def _take(self, step: Step, out: list[Delta]) -> None:
        if not step.retro:
            _speak(step.reasoning, out, reasoning=True)
        _speak(step.content, out)
        for found in step.found:
            self._show_call(found, out)
        self._pass.found += step.found
        if step.reasoning:
            self._pass.thoughts.append("")
        self._waiting = self._announced = False
        self._arguments = self._brackets = None

    def _show_call(self, found: Found, out: list[Delta]) -> None:
        position = self._position + self._calls
        self._calls += 1
        if not self._announced:
            out.append(CallDelta(position, found.offer.name, _written(found.arguments)))
        self._announced = False

    def _ambiguous(self, text: str, at: int) -> int:
        """Where the end of the text may be the beginning of something."""
        stop = _hold_from(text[: end_of_turn(text)[0]], (), at, self._tags)
        line = text.rfind("\n", at) + 1 if "\n" in text[at:] else (at if self._fresh else -1)
        if line < 0:
            return stop
        word = text[line:].lstrip(" \t")
        if word and (self._names(word) or any(label.startswith(word) for label in _LABEL_WORDS)):
            return min(stop, line)
        return stop

    def _names(self, word: str) -> bool:
        """Whether a line so far may be the beginning of a tool's name standing alone."""
        bare = word.rstrip(" \t")
        return len(bare) < 130 and any(name.startswith(bare) or bare == name for name in self._offered.by_name)


def _speak(text: str, out: list[Delta], *, reasoning: bool = False) -> None:
    if text:
        out.append(ReasoningDelta(text) if reasoning else TextDelta(text))


def _hold_from(text: str, ends: tuple[str, ...], at: int = 0, more: frozenset[str] = frozenset()) -> int:
    """Where the longest end of the text begins that is the beginning of a marker."""
    for begin in range(max(at, len(text) - LONGEST), len(text)):
        rest = text[begin:]
        if (rest in _MARKER_PREFIXES or rest in more) if not ends else any(end.startswith(rest) for end in ends):
            return begin
    return len(text)


def _written(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    try:
        return orjson.dumps(arguments, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return "{}"
