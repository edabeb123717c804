"""A block that has opened and not yet closed: when to read it again, and its arguments on the way."""

import re
from collections.abc import Iterator

from toolwire.protocol.chat import CallDelta, Delta
from toolwire.wire.replies.offered import Offer, Offered
from toolwire.wire.text.brackets import Brackets
from toolwire.wire.text.marks import ENVELOPES
from toolwire.wire.text.openers import STRONG
from toolwire.wire.text.parameters import Parameters, follow

_SMALL = 600
_EARLY_READS = 12
_GROWTH = 8
_NAMED = re.compile(
    r'"(?:name|tool_name|tool|function)"\s*+:\s*+"(?P<name>[^"\\]{1,128})"\s*+,\s*+'
    r'"(?:arguments|parameters|input|args)"\s*+:\s*+(?=\{)'
    r"|to=(?:functions\.)?(?P<to>[\w.-]{1,128})[^{]{0,80}<\|message\|>\s*+(?=\{)"
)
_HEADS = {opener: envelope.head for envelope in ENVELOPES for opener in envelope.opens if envelope.head is not None}


class OpenBlock:
    """Follows one open block. It is read again when it is small, has grown eightfold, or seems to end.

    It has a `position` once the call in it is shown.
    """

    __slots__ = ("_brackets", "_due", "_early", "arguments", "parameters", "position")

    def __init__(self, text: str) -> None:
        self.position: int | None = None
        self.arguments: Brackets | Parameters | None = None
        self.parameters: Parameters | None = None
        self._due = _GROWTH * len(text)
        self._early = _EARLY_READS
        self._brackets = Brackets() if text[:1] in "{[" else None
        if self._brackets is not None:
            self._brackets.feed(text)

    def worth_reading(self, text: str, size: int) -> bool:
        """Whether reading the whole block of that size again, now that `text` has come, may say more."""
        closed = self._brackets is not None and self._brackets.feed(text) >= 0
        if size < _SMALL or size >= self._due:
            self._due = _GROWTH * size
            return True
        if self._early > 0 and (closed or (self._brackets is None and ">" in text)):
            self._early -= 1
            return True
        return False

    def announce(self, text: str, offered: Offered, positions: Iterator[int], out: list[Delta]) -> None:
        """Show a marked call from the moment its tool is known."""
        if (
            self.position is not None
            or len(text) > 4 * _SMALL
            or text[:1] in "{`"
            or (text[:1] == "[" and text[1:2] != "T")
        ):
            return
        marker = STRONG.match(text)
        head = _HEADS.get(marker.group()) if marker else None
        followed = follow(text, offered) if "<" in text[:1] else None
        if followed is not None:
            self.parameters, rest = followed
            self._show(self.parameters, self.parameters.offer, positions, out)
            self.argue(rest, out)
            return
        match = (head.match(text, marker.end()) if head and marker else None) or _NAMED.search(text)
        groups = match.groupdict() if match else {}
        offer = offered.get(groups.get("name") or groups.get("to") or "")
        if match is None or offer is None:
            return
        self._show(Brackets(), offer, positions, out)
        self.argue(text[match.end() :], out)

    def _show(self, arguments: Brackets | Parameters, offer: Offer, positions: Iterator[int], out: list[Delta]) -> None:
        self.arguments = arguments
        self.position = next(positions)
        out.append(CallDelta(self.position, offer.name))

    def argue(self, text: str, out: list[Delta]) -> bool:
        """Show a piece of the arguments that are being written. Whether nothing more of them can be shown."""
        arguments, position = self.arguments, self.position
        assert arguments is not None
        assert position is not None
        if isinstance(arguments, Parameters):
            shown, ended = arguments.feed(text), arguments.over
        else:
            end = arguments.feed(text)
            shown, ended = (text, False) if end < 0 else (text[:end], True)
        if shown:
            out.append(CallDelta(position, "", shown))
        if ended:
            self.arguments = self._brackets = None
            self._early = _EARLY_READS
        return ended

    def missing(self, written: str) -> str:
        """What was not shown yet of the arguments of the announced call."""
        return self.parameters.missing(written) if self.parameters is not None else ""
