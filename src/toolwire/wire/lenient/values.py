"""Reading one value as models write it: JSON, a Python or JavaScript literal, or something between.

Strict JSON never comes here; this is the second reading, for what a strict reader refused. Every character is read
a bounded number of times, nesting is bounded, and whatever is wrong ends as `Unreadable`.
"""

import re
from typing import Any

from toolwire.wire.lenient.strings import KEY, QUOTES, CutShort, StringReader, Unreadable

MAX_DEPTH = 100
MAX_DIGITS = 400

_NUMBER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]++|(?:\d[\d_]*+)?(?:\.\d*+)?(?:[eE][-+]?\d++)?)")
_WORD = re.compile(r"[^\W\d][\w.$-]*+")
_BARE = re.compile(r"[^,\]}\n\"]*+")
_PREFIX = re.compile(r"[rRbBuUfF]{1,2}(?=[\"'])")
_WORDS = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    "null": None, "None": None, "NULL": None, "nil": None, "undefined": None,
}  # fmt: skip


class PartObject(dict[str, Any]):
    """An object whose end was cut off: only its finished entries are here."""


class PartList(list[Any]):
    """A list whose end was cut off; its last item may be a part itself."""


class ValueReader(StringReader):
    """Reads values from `text` between `pos` and `end`; `pos` moves behind what was read.

    `fence` is a dialect's own string delimiter. With `close_at_end`, brackets missing at the very end are supplied,
    because the writer is known to have finished. With `partial`, what was cut off is given as PartObject and PartList.
    `repeated` is a key that stood twice in one object; `supplied` says that brackets were missing at the end.
    """

    __slots__ = ("close_at_end", "partial", "supplied")

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
        super().__init__(text, pos, end, fence=fence)
        self.close_at_end = close_at_end
        self.partial = partial
        self.supplied = False

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
        if char in QUOTES:
            return self._string(char, within)
        return self._scalar(char)

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

    def _array(self, depth: int, closer: str) -> list[Any]:
        self.pos += 1
        found: list[Any] = []
        while True:
            char = self._past_commas()
            if char == closer:
                self.pos += 1
                return found
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

    def _past_commas(self) -> str:
        """The first character of the next item, or of the end. Commas too many are forgiven, at a cost."""
        while (char := self.peek()) == ",":
            self._tick()
            self.pos += 1
        return char

    def _object(self, depth: int) -> dict[str, Any]:
        self.pos += 1
        if self.peek() == "{":
            return self._doubled(depth)
        found: dict[str, Any] = {}
        while True:
            char = self._past_commas()
            if char == "}":
                self.pos += 1
                return found
            if not char or char in "])":
                return found if self._supplied(char) else PartObject(found)
            try:
                key, item = self._pair(char, depth)
            except CutShort:
                if not self.partial:
                    raise
                return PartObject(found)
            if key in found:
                self.repeated = key
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
            self.supplied = self.supplied or not char
            return True
        if not self.partial:
            raise CutShort("the text ends before its closing bracket")
        return False

    def _key(self, char: str) -> str:
        if self.fence and self.text.startswith(self.fence, self.pos):
            return self._fenced()
        if char in QUOTES:
            return self._string(char, "key")
        match = KEY.match(self.text, self.pos, self.end)
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
