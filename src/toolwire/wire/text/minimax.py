"""MiniMax M3: every tag follows a token, so values may hold any markup; nested values are nested tags."""

import re
from typing import Any

from toolwire.wire.lenient.arguments import twice
from toolwire.wire.lenient.coerce import coerced
from toolwire.wire.text.marks import Markers
from toolwire.wire.text.scan import Scan, Step
from toolwire.wire.text.tags import called

M3 = "]<]minimax[>["
_ENVELOPE = Markers("minimax_m3", ())
_TAG = re.compile(
    r"]<]minimax\[>\[\s*+<(?P<close>/)?(?P<tag>[\w:.-]{1,128})(?:\s++name\s*+=\s*+[\"']?(?P<name>[^\"'<>]{1,200})[\"']?)?\s*+>"
)
_HALF_END = re.compile(r"(?:]<]minimax\[>\[\s*+</[^<>]{0,128})?\Z")
_DEPTH = 24


def read_m3(scan: Scan, pos: int) -> Step | None:
    """The call, or the tag around calls, at a position."""
    tag = _TAG.match(scan.text, pos, scan.end)
    if tag is None:
        return scan.cut_inside("the text ends inside a tag") if scan.end - pos < 160 else None
    if tag["tag"] == "mm:think" or tag["tag"] == "think":
        return None
    if tag["tag"] != "invoke" or tag["close"]:
        return Step(tag.end())
    return _Invocation(scan, tag).read()


class _Invocation:
    """One call whose tag is read; its parameters follow as nested elements."""

    __slots__ = ("closed", "fault", "opened", "scan")

    def __init__(self, scan: Scan, opened: re.Match[str]) -> None:
        self.scan = scan
        self.opened = opened
        self.closed = True
        self.fault = ""

    def read(self) -> Step:
        name = self.opened["name"] or ""
        offer = self.scan.offered.get(name)
        read = self._children(self.opened.end(), _DEPTH)
        fields = read[0] if read is not None and isinstance(read[0], dict) else {}
        complete = self.closed or (offer is not None and offer.required <= fields.keys() and not self.scan.cut)
        if read is None or not complete:
            return self.scan.cut_inside(f"a call of {name[:80]!r} was cut off")
        arguments = coerced(fields, offer.schema) if offer is not None else fields
        return called(name, offer, arguments, _ENVELOPE, (self.opened.start(), read[1]), fault=self.fault)

    def _children(self, pos: int, depth: int) -> tuple[Any, int] | None:
        """The fields or items up to the closing tag, and the position behind it; None when the text ends first."""
        fields: dict[str, Any] = {}
        items: list[Any] = []
        at = pos
        while depth > 0:
            tag = _TAG.match(self.scan.text, self.scan.space(at), self.scan.end)
            if tag is None:
                return (fields, self.scan.end) if depth == _DEPTH and fields and self._ends_unclosed(at) else None
            if tag["close"]:
                return (items or fields), tag.end()
            read = self._value(tag, depth)
            if read is None or self.scan.spent:
                return None
            value, at = read
            if tag["tag"] == "item":
                items.append(value)
                continue
            if tag["tag"] in fields:
                self.fault = twice(tag["tag"])
            fields[tag["tag"]] = value
        return None

    def _ends_unclosed(self, at: int) -> bool:
        """Whether the text ends here, between two parameters or inside the end tag of the call."""
        if _HALF_END.match(self.scan.text, self.scan.space(at), self.scan.end):
            self.closed = False
        return not self.closed

    def _value(self, opened: re.Match[str], depth: int) -> tuple[Any, int] | None:
        following = _TAG.match(self.scan.text, self.scan.space(opened.end()), self.scan.end)
        if following is not None and not following["close"]:
            return self._children(opened.end(), depth - 1)
        stop = self.scan.find(M3, opened.end())
        closing = _TAG.match(self.scan.text, stop, self.scan.end) if stop >= 0 else None
        if closing is None or not closing["close"]:
            return None
        return self.scan.text[opened.end() : stop], closing.end()
