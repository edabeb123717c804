"""Following a JSON value through the pieces it comes in, each character once."""

import re

_TOKENS = re.compile(r'[{}\[\]"\\]')


class Brackets:
    """Says where a bracketed value that comes in pieces ends.

    While `in_words`, the last piece ended inside a string and not behind a backslash: a piece without a quote or a
    backslash changes nothing then.
    """

    __slots__ = ("_depth", "_escaped", "_in_string", "in_words")

    def __init__(self) -> None:
        self._depth = 0
        self._escaped = False
        self._in_string = False
        self.in_words = False

    def feed(self, text: str) -> int:
        """Take more of the value. The position behind its last bracket, or -1 while it is open."""
        end = self._find_end(text)
        self.in_words = self._in_string and not self._escaped
        return end

    def _find_end(self, text: str) -> int:
        at = 0
        if self._escaped and text:
            at, self._escaped = 1, False
        while (token := _TOKENS.search(text, at)) is not None:
            char, at = token.group(), token.end()
            if char == "\\":
                self._escaped = self._in_string and at >= len(text)
                at += self._in_string
            elif char == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if char in "{[" else -1
                if self._depth <= 0:
                    return at
        return -1
