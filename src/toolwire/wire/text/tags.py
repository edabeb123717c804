"""Calls written as tags: `<function=f><parameter=k>v`, `<invoke name="f">`, key/value tags, one tag for each argument.

No XML parser: values are raw text that may hold any markup, so an end tag counts only where structure follows it.
"""

import re
from typing import Any

from msgspec import Struct

from toolwire.wire.lenient.arguments import Read, read_arguments, twice
from toolwire.wire.lenient.coerce import literal, typed_value
from toolwire.wire.lenient.values import PartObject
from toolwire.wire.replies.offered import Offer
from toolwire.wire.text.json_values import read_value
from toolwire.wire.text.marks import AFTER_CALL, Markers
from toolwire.wire.text.scan import Found, Scan, Step, not_offered, unclosed_call

_ATTRIBUTE = r"""(?:"(?P<{0}d>[^"<>]{{1,200}})"|'(?P<{0}s>[^'<>]{{1,200}})'|(?P<{0}b>[^\s"'<>=/]{{1,200}}))"""
_SPACE_NAME = r"(?P<space>[a-z]{1,12}:|｜DSML｜)?"
CDATA = "<![CDATA["
HALF_END = re.compile(r"<[/|]")  # of the call, or of the turn; another letter opens a parameter
_CLOSERS_ONLY = re.compile(r"(?>\s*+</[\w:｜]{1,40}>)++\s*+")
_ANY_OPENER = re.compile(
    r"<(?:tool_call|function_calls|(?:[a-z]{1,12}:|｜DSML｜)?(?:function|invoke|param(?:eter)?))[\s=>]"
)
LOOKED_BEHIND = 320
_STRUCTURE = re.compile(r"\s*+(?:<|\Z|]<]minimax)")


class TagStyle(Struct, frozen=True):
    """How one family writes the tag of a call and the tags of its parameters."""

    call: re.Pattern[str]
    parameter: re.Pattern[str]
    close_parameter: str
    close_call: str
    trim: bool = False


STYLES = (
    TagStyle(
        re.compile(r"<function\s*+=\s*+(?P<kb>[^>\n<]{1,200})>"),
        re.compile(r"<parameter\s*+=\s*+(?P<kb>[^>\n<]{1,200})>"),
        "</parameter>",
        "</function>",
        trim=True,
    ),
    TagStyle(
        re.compile(rf"<{_SPACE_NAME}invoke\s++name\s*+=\s*+{_ATTRIBUTE.format('k')}[^<>/]{{0,200}}(?P<empty>/)?>"),
        re.compile(
            rf"<(?:[a-z]{{1,12}}:|｜DSML｜)?parameter\s++name\s*+=\s*+{_ATTRIBUTE.format('k')}"
            r"(?:\s++string\s*+=\s*+[\"']?(?P<string>\w{1,9})[\"']?)?[^<>]{0,200}>"
        ),
        "</{}parameter>",
        "</{}invoke>",
    ),
    TagStyle(
        re.compile(rf"<function\s*+name\s*+=\s*+{_ATTRIBUTE.format('k')}\s*+(?P<empty>/)?>"),
        re.compile(rf"<param(?:eter)?\s*+name\s*+=\s*+{_ATTRIBUTE.format('k')}\s*+>"),
        "</param>",
        "</function>",
    ),
)


def attribute(match: re.Match[str]) -> str:
    """The name that a tag gives: of a call, or of a parameter."""
    groups = match.groupdict()
    return next((groups[key] for key in ("kd", "ks", "kb") if groups.get(key)), "").strip(" \t\"'")


def read_tag_call(scan: Scan, pos: int, envelope: Markers) -> Step | None:
    """A call whose name is in its tag."""
    for style in STYLES:
        head = style.call.match(scan.text, pos, scan.end)
        if head is not None:
            return _TagCall(scan, head, style, envelope).read()
    return None


class _TagCall:
    """One call in tags: its head is read, its parameters follow."""

    __slots__ = (
        "arguments",
        "begin",
        "body",
        "close",
        "close_parameter",
        "empty",
        "envelope",
        "fault",
        "name",
        "offer",
        "scan",
        "style",
    )

    def __init__(self, scan: Scan, head: re.Match[str], style: TagStyle, envelope: Markers) -> None:
        groups = head.groupdict()
        space = groups.get("space") or ""
        self.scan = scan
        self.style = style
        self.envelope = envelope
        self.begin, self.body = head.span()
        self.empty = bool(groups.get("empty"))
        self.close_parameter = style.close_parameter.format(space)
        self.close = style.close_call.format(space)
        self.name = attribute(head)
        self.offer = scan.offered.get(self.name)
        self.arguments: dict[str, Any] = {}
        self.fault = ""

    def read(self) -> Step | None:
        if self.empty:
            return self._step(self.body)
        at = self.scan.space(self.body)
        while not self.scan.at(at, self.close):
            parameter = self.style.parameter.match(self.scan.text, at, self.scan.end)
            if parameter is None:
                return self._without_close(at)
            value = self._value(parameter)
            if value is None or self.scan.spent:
                return self._cut()
            self._keep(parameter, value[0])
            at = self.scan.space(value[1])
        return self._step(at + len(self.close))

    def _step(self, end: int, note: str = "") -> Step:
        return called(self.name, self.offer, self.arguments, self.envelope, (self.begin, end), note, self.fault)

    def _cut(self) -> Step:
        return self.scan.cut_inside(f"a call of {self.name[:80]!r} was cut off")

    def _keep(self, parameter: re.Match[str], text: str) -> None:
        key = attribute(parameter)
        if key in self.arguments:
            self.fault = twice(key)
        if self.style.trim and not self.envelope.tight:
            text = strip_line_breaks(text)
        self.arguments[key] = typed_text(text, key, self.offer, parameter.groupdict().get("string"))

    def _without_close(self, at: int) -> Step | None:
        """Neither a parameter nor the end of the call: a JSON body, a missing end tag, or the end of the text."""
        scan = self.scan
        body = self._json_body(at) if not self.arguments and scan.at(at, "{") else None
        if body is not None:
            return body
        complete = self.offer is not None and self.offer.required <= self.arguments.keys()
        at_end = at >= scan.end or (scan.at(at, "<") and scan.find(">", at) < 0)
        if not at_end and self.offer is None and not self.arguments and scan.find(self.close, at) < 0:
            return None  # the tag is spoken of
        if not at_end:
            if complete and not self.arguments and not AFTER_CALL.match(scan.text, at, scan.end):
                return unclosed_call(self.name, at)
            return self._step(at) if complete or scan.find("</", at) >= 0 else self._cut()
        ending = at >= scan.end or HALF_END.match(scan.text, at, scan.end) is not None
        whole = complete and ending and not scan.cut and bool(self.arguments)
        return self._step(scan.end) if whole else self._cut()

    def _json_body(self, at: int) -> Step | None:
        body = read_value(self.scan, at, (self.close,))
        if body is None or not isinstance(body.value, dict):
            return None
        if isinstance(body.value, PartObject):
            return self._cut()
        self.arguments, self.fault = body.value, body.fault
        return self._step(self.scan.past(body.end, self.close), body.note)

    def _value(self, parameter: re.Match[str]) -> tuple[str, int] | None:
        """The raw text of a parameter and where it ends; None when the text ended inside it."""
        scan, begin, close = self.scan, parameter.end(), self.close_parameter
        if scan.at(begin, CDATA):
            end = scan.find("]]>" + close, begin)
            if end < 0:
                return None
            return scan.text[begin + len(CDATA) : end], end + 3 + len(close)
        end = self._last_sensible(begin, closing(scan, begin, close))
        following = self._forgotten(begin, end if end >= 0 else scan.end)
        if following >= 0:
            return scan.text[begin:following], following
        if end >= 0:
            return scan.text[begin:end], end + len(close)
        closed = scan.find(self.close, begin)
        return (scan.text[begin:closed], closed) if closed >= 0 else None

    def _last_sensible(self, begin: int, end: int) -> int:
        """The end of a value that holds the end tags of its own format: the last one, where only that can be meant.

        So it is where the call seems to end, words follow, the same end tags close the text behind them and no other
        call opens in between. Behind more words than are waited for in a stream nothing is guessed.
        """
        scan, text = self.scan, self.scan.text
        if end < 0 or not scan.at(scan.space(end + len(self.close_parameter)), self.close):
            return end
        behind = scan.space(end + len(self.close_parameter)) + len(self.close)
        while (closer := AFTER_CALL.match(text, behind, scan.end)) is not None:
            behind = closer.end()
        if scan.growing or not 0 < scan.end - behind <= LOOKED_BEHIND or scan.space(behind) >= scan.end:
            return end
        last = text.rfind(self.close_parameter, behind, scan.end)
        between = text[begin:last] if last >= 0 else "<"
        ends = scan.at(scan.space(last + len(self.close_parameter)), self.close)
        whole = ends and _CLOSERS_ONLY.fullmatch(text, last, scan.end) is not None
        return last if whole and not _ANY_OPENER.search(between) else end

    def _forgotten(self, begin: int, end: int) -> int:
        """Where the next parameter opens inside this one, because the writer forgot to close it; -1 if it did not."""
        at = self.scan.find("\n<param", begin, end)
        match = self.style.parameter.match(self.scan.text, at + 1, self.scan.end) if at >= 0 else None
        key = attribute(match) if match else ""
        known = self.offer is not None and key in self.offer.properties and key not in self.arguments
        return at + 1 if known else -1


def strip_line_breaks(text: str) -> str:
    """Exactly one line break on each side is markup."""
    text = text.removeprefix("\r").removeprefix("\n")
    return text.removesuffix("\n").removesuffix("\r")


def closing(scan: Scan, begin: int, close: str) -> int:
    """The end tag behind which structure goes on; the first one when none is such."""
    first = at = scan.find(close, begin)
    while at >= 0:
        if _STRUCTURE.match(scan.text, at + len(close), scan.end):
            return at
        if not scan.spend(1):
            return first
        at = scan.find(close, at + 1)
    return -1 if scan.growing else first


def typed_text(text: str, key: str, offer: Offer | None, is_string: str | None = None) -> Any:
    """A raw text as the schema types it; a dialect that says `string` is believed."""
    if is_string == "true" or offer is None:
        return text
    allowed = offer.types(key)
    value = typed_value(text, allowed)
    return literal_or_text(text) if not allowed or (is_string == "false" and value is text) else value


def literal_or_text(text: str) -> Any:
    """What a text means where no schema speaks: a JSON literal, or itself."""
    bare = text.strip()
    if bare[:1] in ("{", "["):
        return literal(bare, text)
    read = read_arguments(f'{{"v": {bare}}}', finished=False) if bare[:1] in "-0123456789tfnTFN" and bare else None
    if isinstance(read, Read) and not read.repaired:
        return read.objects[0].get("v", text)
    return text


def called(
    name: str, offer: Offer | None, arguments: Any, envelope: Markers, span: tuple[int, int],
    note: str = "", fault: str = "",
) -> Step:  # fmt: skip
    """The step of a call that was read, or of one whose tool was not offered."""
    if offer is None:
        return Step(span[1], problems=[not_offered(name)])
    return Step(span[1], [Found(offer, arguments, envelope.slug, span, note=note, fault=fault)])
