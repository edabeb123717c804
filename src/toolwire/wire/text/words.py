"""Words that come until a marker ends them: reasoning, or an answer that a dialect wraps."""

from toolwire.protocol.chat import Delta, ReasoningDelta, TextDelta
from toolwire.wire.text.certain import before_marker
from toolwire.wire.text.channels import STAYS
from toolwire.wire.text.openers import CALL_OPENERS, LONGEST, STRONG
from toolwire.wire.text.scan import TextFlow

FENCE_END = "\n```"


def speak(text: str, out: list[Delta], *, reasoning: bool = False) -> None:
    """Show words, if there are any."""
    if text:
        out.append(ReasoningDelta(text) if reasoning else TextDelta(text))


class StreamedText:
    """Shows a flow of words as it comes, holding only what may be the end of it."""

    __slots__ = ("_draft", "_flow", "ended")

    def __init__(self, flow: TextFlow) -> None:
        self._flow = flow
        self._draft = ""
        self.ended = False

    def worth_reading(self, text: str) -> bool:
        """Whether a held draft of a call can be told by now. Only the marker that ends the reasoning tells."""
        if not self._draft:
            return True
        recent = self._draft + text
        self._draft = recent[-LONGEST:]
        return any(end in recent for end in self._flow.ends)

    def show(self, text: str, out: list[Delta]) -> str:
        """Show what is certain of a text and give back the rest; `ended` is set when the marker has come."""
        found = [(at, end) for end in self._flow.ends if (at := text.find(end)) >= 0]
        if not found:
            stop = self._certain_until(text)
            speak(text[:stop], out, reasoning=self._flow.reasoning)
            return text[stop:]
        self.ended = True
        stop, end = min(found)
        shown = stop + len(end) if self._flow.keeps_end else stop
        speak(text[:shown], out, reasoning=self._flow.reasoning)
        stays = end in STAYS or (end[0] == "\n" and not self._flow.keeps_end)
        return text[stop if stays else stop + len(end) :]

    def _certain_until(self, text: str) -> int:
        stop = _before_any(text, self._flow.ends)
        if not self._flow.reasoning:
            return stop
        for match in STRONG.finditer(text):
            if match.group() in CALL_OPENERS:
                self._draft = text[max(match.start(), len(text) - LONGEST) :]
                return match.start()
        return min(stop, before_marker(text))


def _before_any(text: str, ends: tuple[str, ...]) -> int:
    longest = max(map(len, ends))
    for begin in range(max(0, len(text) - longest), len(text)):
        if any(end.startswith(text[begin:]) for end in ends):
            return begin
    return len(text)
