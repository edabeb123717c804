"""Reading HTML in one pass: tags, text and nothing else. Time grows with the length of the page, whatever is in it.

This is not a browser's parser: it builds no tree and repairs nothing. It knows where tags and comments end, and which
elements hold text that is not markup, as browsers do; so what a browser would not show is not taken for text.
"""

import html
from collections.abc import Iterator

from msgspec import Struct, field

_SPACE = " \t\n\r\f"
# Elements whose content is text up to their own end tag.
_RAW = frozenset("script style textarea title xmp iframe noembed noframes noscript".split())
_LONGEST_NAME = 64
_MOST_ATTRIBUTES = 64


class Start(Struct, frozen=True):
    name: str
    attributes: dict[str, str] = field(default_factory=dict)


class End(Struct, frozen=True):
    name: str


class MarkupText(Struct, frozen=True):
    """Text between tags, with its character references resolved."""

    text: str


Piece = Start | End | MarkupText


def pieces(page: str) -> Iterator[Piece]:
    """What a page consists of, in order. Comments and declarations are left out."""
    at, end = 0, len(page)
    while at < end:
        opening = page.find("<", at)
        if opening < 0:
            opening = end
        if opening > at:
            yield MarkupText(html.unescape(page[at:opening]))
        if opening == end:
            return
        piece, at = _tag(page, opening)
        if piece is not None:
            yield piece
        if isinstance(piece, Start) and piece.name in _RAW:
            yield from _raw(page, at, piece.name)
            at = _raw_end(page, at, piece.name)


def _tag(page: str, at: int) -> tuple[Piece | None, int]:
    """The tag, comment or lone "<" at this place, and where it ends."""
    after = page[at + 1 : at + 2]
    if after == "!" or after == "?":
        closing = "-->" if page.startswith("<!--", at) else ">"
        return None, _past(page, closing, at + 2)
    if after == "/":
        end = _past(page, ">", at)
        name = _name(page, at + 2)
        return (End(name) if name else None), end
    if not after.isascii() or not after.isalpha():
        return MarkupText("<"), at + 1
    name = _name(page, at + 1)
    attributes, end = _attributes(page, at + 1 + len(name))
    return Start(name, attributes), end


def _past(page: str, mark: str, at: int) -> int:
    found = page.find(mark, at)
    return len(page) if found < 0 else found + len(mark)


def _name(page: str, at: int) -> str:
    end = at
    limit = min(len(page), at + _LONGEST_NAME)
    while end < limit and page[end] not in "/> \t\n\r\f":
        end += 1
    return page[at:end].lower()


def _attributes(page: str, at: int) -> tuple[dict[str, str], int]:
    """What a start tag says, up to and past its ">". A page that ends inside of a tag has no such tag."""
    found: dict[str, str] = {}
    end = len(page)
    while at < end:
        char = page[at]
        if char == ">":
            return found, at + 1
        if char in _SPACE or char in "/=":
            at += 1
            continue
        start = at
        while at < end and page[at] not in "=>/ \t\n\r\f":
            at += 1
        name = page[start:at].lower()
        value, at = _value(page, at)
        if len(found) < _MOST_ATTRIBUTES:
            found.setdefault(name[:_LONGEST_NAME], value)
    return found, end


def _value(page: str, at: int) -> tuple[str, int]:
    end = len(page)
    while at < end and page[at] in _SPACE:
        at += 1
    if at >= end or page[at] != "=":
        return "", at
    at += 1
    while at < end and page[at] in _SPACE:
        at += 1
    if at < end and page[at] in "\"'":
        closing = page.find(page[at], at + 1)
        closing = end if closing < 0 else closing
        return html.unescape(page[at + 1 : closing]), closing + 1
    start = at
    while at < end and page[at] not in "> \t\n\r\f":
        at += 1
    return html.unescape(page[start:at]), at


def _raw(page: str, at: int, name: str) -> Iterator[MarkupText]:
    text = page[at : _raw_end(page, at, name)]
    if text:
        yield MarkupText(html.unescape(text) if name in ("title", "textarea") else text)


def _raw_end(page: str, at: int, name: str) -> int:
    """Where the end tag of a raw element begins; the end of the page if there is none."""
    while True:
        found = page.find("</", at)
        if found < 0:
            return len(page)
        if page[found + 2 : found + 2 + len(name)].lower() == name:
            return found
        at = found + 2
