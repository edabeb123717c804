"""Finding known values in text, however a program may have written them, and putting a name in their place. Pure.

Text is compared without regard to case, first as it stands and then without anything between its letters and digits:
so `s-e-c`, `115, 101, 99`, `\\x73\\x65\\x63` and a value that is wrapped over several lines are found by one search.
What is compressed, encrypted, encoded twice or cut into parts is not found.
"""

import base64
import binascii
import codecs
import json
import quopri
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

SHORTEST = 6
"""Shorter values cannot be told from ordinary text and are not looked for."""

LONG_LINE = 16
"""Lines of a value that are at least this long are looked for by themselves."""

SHORTEST_SPREAD = 12
"""From this many letters and digits on, something may stand between them."""

_SHARED = 3
# As `html.escape` writes them; loading its module takes a millisecond, for a table of all entities.
_MARKUP = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
_QUOTES = {ord('"'): "&quot;", ord("'"): "&#x27;"}
_LOWER_CODES = re.compile("%[0-9A-F]{2}")
# Everything that is neither a letter nor a digit in ASCII, and what wraps, joins or shows nothing beyond it.
_SEPARATORS = "".join(char for char in map(chr, range(128)) if not char.isalnum()) + (
    "\u00a0\u00ad\u00b7\u2002\u2003\u2009\u200a\u200b\u200c\u200d\u200e\u200f\u2010\u2011\u2012\u2013\u2014\u2022\u2026"
    "\u2028\u2029\u202f\u2060\ufeff\ufffd"
)
_NOTHING = dict.fromkeys(map(ord, _SEPARATORS))
_GAP = f"[{re.escape(_SEPARATORS)}]*+"


class Redaction:
    """Known values by their names, and what is shown in their place."""

    def __init__(self, values: Mapping[str, str], shown: str = "[secret {}]") -> None:
        self._shown = shown
        self._names: dict[str, str] = {}
        self._spread: dict[str, str] = {}
        for name, value in values.items():
            for form in map(_lowered, _forms(value)):
                self._names.setdefault(form, name)
            for form in _spread_forms(value):
                self._spread.setdefault(form, name)
        self._found = _any_of(self._names)
        self._squeezed = _any_of(self._spread)

    def finds(self, text: str) -> bool:
        """Whether any of the values is in the text."""
        if self._found is None and self._squeezed is None:
            return False
        lowered = _lowered(text)
        return bool(self._found and self._found.search(lowered)) or bool(self._spread_in(lowered))

    def clean(self, text: str) -> str:
        """The text with `[secret NAME]`, or what else is shown, where a value was."""
        if self._found is not None:
            text = _replaced(text, self._found, lambda match: self._shown.format(self._names[match[0]]))
        for form in self._spread_in(_lowered(text)):
            shown = self._shown.format(self._spread[form])
            text = _replaced(text, re.compile(_GAP.join(form)), lambda _, shown=shown: shown)  # type: ignore[misc]
        return text

    def _spread_in(self, lowered: str) -> set[str]:
        """The values in a text whose letters or digits have something between them."""
        if self._squeezed is None or len(lowered) < SHORTEST_SPREAD:
            return set()
        return set(self._squeezed.findall(lowered.translate(_NOTHING)))


def _any_of(forms: Iterable[str]) -> re.Pattern[str] | None:
    """One expression for all forms, the longest first; those that begin alike share their beginning, which is fast."""
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile(_branches(longest_first, _SHARED)) if longest_first else None


def _branches(forms: list[str], shared: int) -> str:
    if shared == 0 or len(forms) == 1 or "" in forms:
        return "|".join(map(re.escape, forms))
    by_first: dict[str, list[str]] = {}
    for form in forms:
        by_first.setdefault(form[0], []).append(form[1:])
    return "|".join(f"{re.escape(first)}(?:{_branches(rest, shared - 1)})" for first, rest in by_first.items())


def _replaced(text: str, found: re.Pattern[str], shown: Callable[[re.Match[str]], str]) -> str:
    """The text with something else in each place that fits; the text is compared in lower case, letter by letter."""
    pieces, at = [], 0
    for match in found.finditer(_lowered(text)):
        pieces += [text[at : match.start()], shown(match)]
        at = match.end()
    return "".join([*pieces, text[at:]]) if pieces else text


def _lowered(text: str) -> str:
    """The text in lower case, as many characters as it had."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := char.lower()) == 1 else char for char in text)


def _forms(value: str) -> Iterator[str]:
    """A value as it may show up: whole or without the blanks around it, and every long line of it."""
    for whole in {value, value.strip()}:
        if len(whole) >= SHORTEST:
            yield from _spellings(whole)
    lines = [line.strip() for line in value.splitlines()]
    yield from (line for line in lines if len(line) >= LONG_LINE and not line.startswith("-----"))


def _spread_forms(value: str) -> Iterator[str]:
    """The letters and digits of every form, in lower case, and those of its numeric codes."""
    if len(value.strip()) < SHORTEST:
        return
    for form in (*_forms(value), *_numeric_codes(value.strip())):
        tight = _lowered(form).translate(_NOTHING)
        if len(tight) >= SHORTEST_SPREAD:
            yield tight


def _spellings(value: str) -> Iterator[str]:
    """Plain, as text in JSON, Python, HTML or mail (quoted-printable), in URLs, in hexadecimal, in base32, in base64 at
    any of its offsets, backwards, in rot13 and in wide characters.
    """
    data = value.encode("utf-8", "surrogatepass")
    yield value
    yield from {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    yield from {value.translate(_MARKUP | _QUOTES), value.translate(_MARKUP)}
    yield quopri.encodestring(data, quotetabs=True).decode()
    urls = {quote(data, safe=""), quote(data), quote_plus(data), quote(data).replace("%", "%25")}
    yield from urls | {_LOWER_CODES.sub(lambda code: code[0].lower(), url) for url in urls}
    yield base64.b32encode(data).decode().rstrip("=")
    yield binascii.hexlify(data).decode()
    for offset in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * offset + data).decode()
            # The first and last letters also depend on what stands around the value.
            yield text[(0, 2, 3)[offset] : len(text) - (0, 3, 2)[(offset + len(data)) % 3] or None]
    yield from (value[::-1], codecs.encode(value, "rot13"))
    yield from (_misread(value, encoding) for encoding in ("utf-16-le", "utf-16-be", "utf-32-le"))


def _numeric_codes(value: str) -> Iterator[str]:
    """The codes of a value's bytes and characters in the usual bases, as programs and languages write them."""
    data = value.encode("utf-8", "surrogatepass")
    for form in ("d", "03d", "o", "03o", "04o", "x", "02x", "08b"):
        yield from ("".join(f"{prefix}{byte:{form}}" for byte in data) for prefix in _PREFIXES[form[-1]])
    for prefix, form in (("u", "04x"), ("u", "x"), ("u", "08x"), ("", "d"), ("x", "x")):
        yield "".join(f"{prefix}{ord(char):{form}}" for char in value)


_PREFIXES = {"d": ("",), "o": ("", "0o", "0"), "x": ("", "0x", "x"), "b": ("", "0b")}


def _misread(value: str, encoding: str) -> str:
    """Text in wide characters as it looks when it is taken for UTF-8: with NULs between its letters."""
    return value.encode(encoding, "surrogatepass").decode("utf-8", "replace").strip("\0")
