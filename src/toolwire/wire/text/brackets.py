"""Following a JSON value through the pieces it comes in, each character once."""

import re

_TOKENS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\]]', re.DOTALL)
_WORDS = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


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
        at = 0
        if self._in_string and text:
            at = self._past_string(text, int(self._escaped))
        end = self._find_end(text, at) if at < len(text) else -1
        self.in_words = self._in_string and not self._escaped
        return end

    def _past_string(self, text: str, at: int) -> int:
        """Where an open string ends, or the end of the text."""
        words = _WORDS.match(text, at)
        at = words.end() if words else at
        self._escaped = text.startswith("\\", at)
        self._in_string = at >= len(text) or self._escaped
        return len(text) if self._in_string else at + 1

    def _find_end(self, text: str, at: int) -> int:
        if '"' not in text:
            closing = text.count("}") + text.count("]")
            if closing < self._depth:
                self._depth += text.count("{") + text.count("[") - closing
                return -1
        for token in _TOKENS.finditer(text, at):
            found = token.group()
            if found[0] == '"':
                if token.end() >= len(text):
                    self._past_string(text, token.start() + 1)
            else:
                self._depth += 1 if found in "{[" else -1
                if self._depth <= 0:
                    return token.end()
        return -1
