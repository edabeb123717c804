"""Reading a string as models write it: any kind of quotes, forgotten escapes, a dialect's own delimiter."""

import re
from json import decoder

MAX_STEPS = 8_000
_LOOK_AHEAD = 240
_scan_string = decoder.scanstring  # type: ignore[attr-defined]  # the type stubs leave it out

_SPACE = re.compile(r"[\s\ufeff]*+")
_COMMENT = re.compile(r"//[^\n]*+|#[^\n]*+|/\*")
KEY = re.compile(r"[\w$][\w$. -]*+")
QUOTES = "\"'`“‘„"
_PLAIN = {quote: re.compile(f"[^{re.escape(quote)}\\\\]*+") for quote in ('"', "'", "”", "’", "`")}
_CLOSER = {"“": "”", "‘": "’", "„": "”"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "/": "/", "`": "`"}


class Unreadable(ValueError):
    """No value can be read here."""


class CutShort(Unreadable):
    """The text ended inside the value."""


class StringReader:
    """Reads strings from `text` between `pos` and `end`; `pos` moves behind what was read."""

    __slots__ = ("end", "fence", "pos", "repairs", "repeated", "steps", "text")

    def __init__(self, text: str, pos: int = 0, end: int | None = None, *, fence: str = "") -> None:
        self.text = text
        self.pos = pos
        self.end = len(text) if end is None else end
        self.fence = fence
        self.repairs = 0
        self.repeated: str | None = None
        self.steps = 0

    def peek(self) -> str:
        """The next character that is neither white space nor comment; empty at the end."""
        char = self.text[self.pos] if self.pos < self.end else ""
        if "#" < char < "\x7f" and char != "/":
            return char
        while True:
            match = _SPACE.match(self.text, self.pos, self.end)
            self.pos = match.end() if match else self.pos
            comment = _COMMENT.match(self.text, self.pos, self.end)
            if comment is None:
                return self.text[self.pos] if self.pos < self.end else ""
            self.pos = comment.end()
            self._tick()
            if comment.group() == "/*":
                closed = self.text.find("*/", self.pos, self.end)
                self.pos = self.end if closed < 0 else closed + 2

    def _tick(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Unreadable("too much to repair")

    def _fenced(self) -> str:
        begin = self.pos + len(self.fence)
        close = self.text.find(self.fence, begin, self.end)
        if close < 0:
            raise CutShort("the text ends inside a string")
        self.pos = close + len(self.fence)
        return self.text[begin:close]

    def _raw_string(self) -> str:
        quote = self.text[self.pos]
        close = self.text.find(quote, self.pos + 1, self.end)
        if close < 0:
            raise CutShort("the text ends inside a string")
        found = self.text[self.pos + 1 : close]
        self.pos = close + 1
        return found

    def _string(self, opener: str, within: str) -> str:
        text, quote = self.text, _CLOSER.get(opener, opener)
        triple = quote * 3
        if text.startswith(triple, self.pos):
            return self._triple(triple)
        if opener == '"' and (found := self._strict_string(within)) is not None:
            return found
        parts: list[str] = []
        at = self.pos + 1
        plain = _PLAIN[quote]
        while True:
            match = plain.match(text, at, self.end)
            stop = match.end() if match else at
            parts.append(text[at:stop])
            if stop >= self.end:
                raise CutShort("the text ends inside a string")
            self._tick()
            if text[stop] == "\\":
                piece, at = self._escape(stop)
                parts.append(piece)
            elif self._closes(stop + 1, within):
                self.pos = stop + 1
                return "".join(parts)
            else:
                self.repairs += 1
                parts.append(quote)
                at = stop + 1

    def _strict_string(self, within: str) -> str | None:
        """A string that needs no repair, read by the standard library."""
        try:
            found, stop = _scan_string(self.text, self.pos + 1, False)
        except ValueError:
            return None
        if stop > self.end or not self._closes(stop, within):
            return None
        self.pos = stop
        return str(found)

    def _triple(self, triple: str) -> str:
        close = self.text.find(triple, self.pos + 3, self.end)
        if close < 0:
            raise CutShort("the text ends inside a string")
        body = self.text[self.pos + 3 : close]
        self.pos = close + 3
        if "\\" not in body:
            return body
        inner = StringReader(f'"{body.replace(chr(34), chr(92) + chr(34))}"')
        return str(inner._string('"', ""))

    def _escape(self, at: int) -> tuple[str, int]:
        """The character that an escape stands for; a backslash that escapes nothing is kept (paths, patterns)."""
        text = self.text
        if at + 1 >= self.end:
            raise CutShort("the text ends inside an escape")
        char = text[at + 1]
        if char in "ux":
            width = 4 if char == "u" else 2
            digits = text[at + 2 : min(at + 2 + width, self.end)]
            if len(digits) == width and all(digit in "0123456789abcdefABCDEF" for digit in digits):
                return self._unit(int(digits, 16), at + 2 + width)
            return "\\", at + 1
        if char == "\n":
            return "", at + 2
        # Strict reading failed, so backslashes here may be meant as such: a form feed before a letter is a path.
        if char in "fb" and text[at + 2 : at + 3].isalpha():
            return "\\", at + 1
        if char in _ESCAPES:
            return _ESCAPES[char], at + 2
        return "\\", at + 1

    def _unit(self, unit: int, at: int) -> tuple[str, int]:
        if 0xD800 <= unit < 0xDC00 and self.text.startswith("\\u", at):
            low = self.text[at + 2 : at + 6]
            if len(low) == 4 and low[0] in "dD" and low[1] in "cdefCDEF":
                try:
                    return chr(0x10000 + ((unit - 0xD800) << 10) + (int(low, 16) - 0xDC00)), at + 6
                except ValueError:
                    return "\ufffd", at
        return ("\ufffd" if 0xD800 <= unit < 0xE000 else chr(unit)), at

    def _closes(self, at: int, within: str) -> bool:
        """Whether a quote just before `at` ends its string, or is one that the writer forgot to escape."""
        match = _SPACE.match(self.text, at, self.end)
        at = match.end() if match else at
        if at >= self.end or not within:
            return True
        char = self.text[at]
        if within == "key":
            return char in ":="
        if char == ",":
            return within != "{" or self._key_follows(at + 1)
        return char in "}])" or (char in "/#" and at + 1 < self.end)

    def _key_follows(self, at: int) -> bool:
        """Whether what stands behind a comma looks like the next key of an object."""
        match = _SPACE.match(self.text, at, self.end)
        at = match.end() if match else at
        if at >= self.end or self.text[at] in "}/#":
            return True
        opener = self.text[at]
        if opener in "\"'“‘":
            close = self.text.find(_CLOSER.get(opener, opener), at + 1, min(at + _LOOK_AHEAD, self.end))
            if close < 0:
                return at + _LOOK_AHEAD >= self.end
            return self.text[close + 1 : close + 8].lstrip()[:1] in (":", "")
        key = KEY.match(self.text, at, self.end)
        return key is not None and self.text[key.end() : key.end() + 1] in (":", "")
