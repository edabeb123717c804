"""Following a call in tags through the pieces it comes in: its arguments as JSON, as far as they are certain.

A parameter that the schema types as text is shown while it is written, any other when its tag closes. Where the
text stops being plain (a forgotten end tag, an end tag inside a value) nothing more is shown until the call is read.
"""

import json
import re
from typing import Any

import orjson

from toolwire.wire.replies.offered import Offer, Offered
from toolwire.wire.text.marks import ENVELOPES
from toolwire.wire.text.openers import STRONG
from toolwire.wire.text.tags import CDATA, STYLES, TagStyle, attribute, typed_text

_LONGEST_TAG = 700
_SPACE = re.compile(r"\s*+")
_TIGHT = frozenset(opener for envelope in ENVELOPES if envelope.tight for opener in envelope.opens)
_PAIRS = TagStyle(
    re.compile(r"(?P<kb>\w[\w.-]{0,127})\s*+(?=<arg_key>)"),
    re.compile(r"<arg_key>(?P<kb>[^<>\"']{1,200})</arg_key>\s*+<arg_value>"),
    "</arg_value>",
    "</tool_call>",
)
_TEXT = frozenset({"string"})


def follow(text: str, offered: Offered) -> "tuple[Parameters, str] | None":
    """What can follow the call in tags that a block begins with, and the text behind its head."""
    marker = STRONG.match(text)
    inside = _SPACE.match(text, marker.end() if marker else 0)
    for at, styles in ((0, STYLES), (inside.end() if inside else 0, (*STYLES, _PAIRS))):
        for style in styles:
            head = style.call.match(text, at)
            offer = offered.get(attribute(head)) if head else None
            if head is not None and offer is not None:
                space = head.groupdict().get("space") or ""
                trim = style.trim and not (marker and marker.group() in _TIGHT)
                return Parameters(offer, style, space, trim=trim), text[head.end() :]
    return None


class Parameters:
    """The arguments of one call in tags while they are written. `over` says that nothing more can be shown."""

    __slots__ = (
        "_begun", "_close", "_close_call", "_is_text", "_key", "_open", "_raw", "_rest", "_seen", "_string", "_style",
        "_trim", "offer", "over", "shown",
    )  # fmt: skip

    def __init__(self, offer: Offer, style: TagStyle, space: str, *, trim: bool) -> None:
        self.offer = offer
        self.over = False
        self.shown: list[str] = []
        self._style = style
        self._trim = trim
        self._close = style.close_parameter.format(space)
        self._close_call = style.close_call.format(space)
        self._open = "<arg_key>" if style is _PAIRS else f"<{space}param"
        self._seen: set[str] = set()
        self._key: str | None = None
        self._string: str | None = None
        self._is_text = self._begun = False
        self._raw: list[str] = []
        self._rest = ""

    def feed(self, piece: str) -> str:
        """Take more of the call; give the JSON that became certain."""
        before = len(self.shown)
        if self._begun and not self._rest and "<" not in piece and piece[-1:] not in "\r\n":
            self._keep(piece)
            return "".join(self.shown[before:])
        rest, goes_on = self._rest + piece, True
        try:
            while goes_on and not self.over:
                rest, goes_on = self._between(rest) if self._key is None else self._inside(rest)
        except TypeError:  # a value that only a slower writer can write
            self.over = True
        self._rest = rest
        return "".join(self.shown[before:])

    def _between(self, text: str) -> tuple[str, bool]:
        bare = text.lstrip()
        head = self._style.parameter.match(bare)
        if bare.startswith(self._close_call):
            self.shown.append("}" if self._seen else "{}")
            self.over = True
        if head is None:
            waits = any(self._may_be(bare, marker) for marker in (self._open, self._close_call))
            self.over = self.over or not waits or len(bare) > _LONGEST_TAG
            return bare, False
        key = attribute(head)
        if key in self._seen:
            self.over = True
            return bare, False
        self._string = head.groupdict().get("string")
        self._is_text = self._string == "true" or (self._string is None and self.offer.types(key) == _TEXT)
        self.shown.append(f"{',' if self._seen else '{'}{_written(key)}:" + '"' * self._is_text)
        self._seen.add(key)
        self._key, self._begun = key, False
        return bare[head.end() :], True

    def _may_be(self, text: str, marker: str) -> bool:
        return text.startswith(marker) or marker.startswith(text)

    def _inside(self, text: str) -> tuple[str, bool]:
        """Go through a value: up to its end tag, or to where more text must come."""
        if not self._begun:
            if len(text) < 2 or CDATA.startswith(text):
                return text, False
            if text.startswith(CDATA):
                self.over = True
                return text, False
            text = text.removeprefix("\r").removeprefix("\n") if self._trim else text
            self._begun = True
        at = text.find("<")
        while at >= 0:
            tail = text[at : at + _LONGEST_TAG]
            if tail.startswith(self._close):
                return self._at_end_tag(text, at)
            if tail.startswith((self._close_call, self._open)):
                self.over = True
                return text, False
            if any(marker.startswith(tail) for marker in (self._close, self._close_call, self._open)):
                break
            at = text.find("<", at + 1)
        return self._certain(text, at if at >= 0 else len(text)), False

    def _at_end_tag(self, text: str, at: int) -> tuple[str, bool]:
        """The value ends where another parameter follows its end tag; otherwise only the whole call can tell."""
        following = text[at + len(self._close) :].lstrip()
        if not following or (len(following) < len(self._close_call) and self._close_call.startswith(following)):
            return self._certain(text, at), False
        if following[0] != "<" or following.startswith(self._close_call):
            # Behind the end of the call its value may still go on, so the end is shown when the call was read.
            self._certain(text, at)
            self.over = True
            return text, False
        value = text[:at].removesuffix("\n").removesuffix("\r") if self._trim else text[:at]
        self._keep(value)
        if self._is_text:
            self.shown.append('"')
        else:
            typed = typed_text("".join(self._raw), self._key or "", self.offer, self._string)
            self.shown.append(_written(typed))
            self._raw.clear()
        self._key, self._begun = None, False
        return text[at + len(self._close) :], True

    def _certain(self, text: str, end: int) -> str:
        """Keep the text up to an end, without line breaks that may be markup; give back the rest."""
        if self._trim:
            end = len(text[:end].removesuffix("\n").removesuffix("\r"))
        elif self._style is _PAIRS:
            end = len(text[:end].rstrip("\n"))
        self._keep(text[:end])
        return text[end:]

    def _keep(self, text: str) -> None:
        if not text:
            return
        if self._is_text:
            self.shown.append(_written(text)[1:-1])
        else:
            self._raw.append(text)

    def missing(self, written: str) -> str:
        """What was not shown yet of the arguments as they were read in the end."""
        shown = "".join(self.shown)
        return written[len(shown) :] if written.startswith(shown) else ""


def _written(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # half a surrogate pair, or an integer beyond 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
