"""Reading one value as models write it: JSON, a Python or JavaScript literal, or something between.

Strict JSON never comes here; this is the second reading, for what a strict reader refused. Every character is read
a bounded number of times, nesting is bounded, and whatever is wrong ends as `Unreadable`.
"""

import re
from json import decoder
from typing import Any

MAX_DEPTH = 100
MAX_DIGITS = 400
MAX_STEPS = 20_000
_LOOK_AHEAD = 240
_scan_string = decoder.scanstring  # type: ignore[attr-defined]  # the type stubs leave it out

_SPACE = re.compile(r"[\s\ufeff]*+")
_COMMENT = re.compile(r"//[^\n]*+|#[^\n]*+|/\*")
_NUMBER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]++|(?:\d[\d_]*+)?(?:\.\d*+)?(?:[eE][-+]?\d++)?)")
_WORD = re.compile(r"[^\W\d][\w.$-]*+")
_BARE = re.compile(r"[^,\]}\n\"]*+")
_KEY = re.compile(r"[\w$][\w$. -]*+")
_PREFIX = re.compile(r"[rRbBuUfF]{1,2}(?=[\"'])")
_PLAIN = {quote: re.compile(f"[^{re.escape(quote)}\\\\]*+") for quote in ('"', "'", "”", "’", "`")}
_CLOSER = {"“": "”", "‘": "’", "„": "”"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\", "/": "/", "`": "`"}
_WORDS = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    "null": None, "None": None, "NULL": None, "nil": None, "undefined": None,
}  # fmt: skip


class Unreadable(ValueError):
    """No value can be read here."""


class CutShort(Unreadable):
    """The text ended inside the value."""


class PartObject(dict[str, Any]):
    """An object whose end was cut off: only its finished entries are here."""


class PartList(list[Any]):
    """A list whose end was cut off; its last item may be a part itself."""


class ValueReader:
    """Reads values from `text` between `pos` and `end`; `pos` moves behind what was read.

    `fence` is a dialect's own string delimiter. With `close_at_end`, brackets missing at the very end are supplied,
    because the writer is known to have finished. With `partial`, what was cut off is given as PartObject and PartList.
    """

    __slots__ = ("close_at_end", "end", "fence", "partial", "pos", "repairs", "steps", "text")

    def __init__(
        self,
        text: str,
        pos: int = 0,
        end: int | None = None,
        *,
        fence: str = "",
        close_at_end: bool = False,
        partial: bool = False,
    ) -> None:
        self.text = text
        self.pos = pos
        self.end = len(text) if end is None else end
        self.fence = fence
        self.close_at_end = close_at_end
        self.partial = partial
        self.repairs = 0
        self.steps = 0

    def peek(self) -> str:
        """The next character that is neither white space nor comment; empty at the end."""
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

    def value(self, depth: int = 0, within: str = "") -> Any:
        """Read one value. `within` is the bracket it stands in. Raises Unreadable."""
        self._tick()
        if depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        char = self.peek()
        if not char:
            raise CutShort("the text ends where a value should stand")
        if self.fence and self.text.startswith(self.fence, self.pos):
            return self._fenced()
        if char == "{":
            return self._object(depth)
        if char in "[(":
            return self._array(depth, "]" if char == "[" else ")")
        if char in "\"'`“‘„":
            return self._string(char, within)
        return self._scalar(char)

    def _fenced(self) -> str:
        begin = self.pos + len(self.fence)
        close = self.text.find(self.fence, begin, self.end)
        if close < 0:
            raise CutShort("the text ends inside a string")
        self.pos = close + len(self.fence)
        return self.text[begin:close]

    def _scalar(self, char: str) -> Any:
        if char in "+-.0123456789":
            return self._number()
        prefix = _PREFIX.match(self.text, self.pos, self.end)
        if prefix is not None:
            raw = "r" in prefix.group().lower()
            self.pos = prefix.end()
            return self._raw_string() if raw else self._string(self.text[self.pos], "")
        word = _WORD.match(self.text, self.pos, self.end)
        if word is not None and word.group() in _WORDS:
            self.pos = word.end()
            return _WORDS[word.group()]
        return self._bare()

    def _bare(self) -> str:
        """An unquoted word or phrase, up to the next comma, bracket or line end."""
        match = _BARE.match(self.text, self.pos, self.end)
        found = match.group().strip() if match else ""
        if not found or not match or (found[0] in "}])>:=,;" or "{" in found or "(" in found or ":" in found):
            raise Unreadable("no value here")
        self.pos = match.end()
        if self.pos >= self.end:
            raise CutShort("the text ends inside a word")
        self.repairs += 1
        return found

    def _number(self) -> Any:
        match = _NUMBER.match(self.text, self.pos, self.end)
        digits = match.group() if match else ""
        following = self.text[self.pos + len(digits) : self.pos + len(digits) + 1]
        padded = len(digits.lstrip("+-")) > 1 and digits.lstrip("+-")[0] == "0" and digits.lstrip("+-")[1].isdigit()
        if len(digits) > MAX_DIGITS:
            raise Unreadable("a number with too many digits")
        if (
            not any(char.isdigit() for char in digits)
            or padded
            or (following and (following.isalnum() or following in ":-/"))
        ):
            return self._bare()
        self.pos += len(digits)
        return _as_number(digits)

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
        inner = ValueReader(f'"{body.replace(chr(34), chr(92) + chr(34))}"')
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
        key = _KEY.match(self.text, at, self.end)
        return key is not None and self.text[key.end() : key.end() + 1] in (":", "")

    def _array(self, depth: int, closer: str) -> list[Any]:
        self.pos += 1
        found: list[Any] = []
        while True:
            char = self.peek()
            if char == closer:
                self.pos += 1
                return found
            if char == ",":
                self._tick()
                self.pos += 1
                continue
            if not char or char in "}])":
                return found if self._supplied(char) else PartList(found)
            try:
                item = self.value(depth + 1, closer)
            except CutShort:
                if not self.partial:
                    raise
                return PartList(found)
            found.append(item)
            if isinstance(item, PartObject | PartList):
                return PartList(found)

    def _object(self, depth: int) -> dict[str, Any]:
        self.pos += 1
        if self.peek() == "{":
            return self._doubled(depth)
        found: dict[str, Any] = {}
        while True:
            char = self.peek()
            if char == "}":
                self.pos += 1
                return found
            if char == ",":
                self._tick()
                self.pos += 1
                continue
            if not char or char in "])":
                return found if self._supplied(char) else PartObject(found)
            try:
                key, item = self._pair(char, depth)
            except CutShort:
                if not self.partial:
                    raise
                return PartObject(found)
            found[key] = item
            if isinstance(item, PartObject | PartList):
                return PartObject(found)

    def _pair(self, char: str, depth: int) -> tuple[str, Any]:
        key = self._key(char)
        after = self.peek()
        if not after:
            raise CutShort("the text ends at a key")
        if after not in ":=":
            raise Unreadable("a key without a value")
        self.pos += 1
        return key, self.value(depth + 1, "{")

    def _doubled(self, depth: int) -> dict[str, Any]:
        """`{{…}}`: a template's escaped braces that the model copied."""
        self.repairs += 1
        found = self._object(depth + 1) if depth < MAX_DEPTH else {}
        if self.peek() == "}":
            self.pos += 1
        return found

    def _supplied(self, char: str) -> bool:
        """A bracket is missing here: before another's closing bracket it is supplied, at the end only if allowed."""
        self.repairs += 1
        if char or self.close_at_end:
            return True
        if not self.partial:
            raise CutShort("the text ends before its closing bracket")
        return False

    def _key(self, char: str) -> str:
        if self.fence and self.text.startswith(self.fence, self.pos):
            return self._fenced()
        if char in "\"'`“‘„":
            return self._string(char, "key")
        match = _KEY.match(self.text, self.pos, self.end)
        if match is None:
            raise Unreadable("no key here")
        self.pos = match.end()
        if self.pos >= self.end:
            raise CutShort("the text ends inside a key")
        return match.group().strip()


def _as_number(digits: str) -> int | float:
    bare = digits.replace("_", "")
    try:
        if bare.lstrip("+-")[:2] in ("0x", "0X"):
            return int(bare, 16)
        if bare.lstrip("+-").isdigit():
            return int(bare)
        number = float(bare)
    except ValueError:
        raise Unreadable("no number") from None
    if number - number != 0:
        raise Unreadable("a number that is not finite")
    return number
