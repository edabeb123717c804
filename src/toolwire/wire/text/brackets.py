"""Following a JSON value through the pieces it comes in, each character once."""

import re

_STRING = r'"[^"\\]*+(?>\\.[^"\\]*+)*+"'
_BRACKET = re.compile(rf'[^"{{}}\[\]]*+(?>{_STRING}[^"{{}}\[\]]*+)*+([{{}}\[\]])', re.DOTALL)
_STRINGS = re.compile(rf'[^"]*+(?>{_STRING}[^"]*+)*+', re.DOTALL)
_WORDS = re.compile(r'[^"\\]*+(?>\\.[^"\\]*+)*+', re.DOTALL)


class Brackets:
    """Says where a bracketed value that comes in pieces ends. Only a piece with a closing bracket can end it."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_pieces")

    def __init__(self) -> None:
        self._depth = 0
        self._escaped = False
        self._in_string = False
        self._pieces: list[str] = []

    def feed(self, piece: str) -> int:
        """Take more of the value. The position in this piece behind the last bracket, or -1 while it is open."""
        self._pieces.append(piece)
        if "}" not in piece and "]" not in piece:
            return -1
        text = "".join(self._pieces)
        self._pieces.clear()
        end = self._find_end(text, self._past_string(text, int(self._escaped)) if self._in_string else 0)
        return end if end < 0 else end - len(text) + len(piece)

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
        while (bracket := _BRACKET.match(text, at)) is not None:
            at = bracket.end()
            self._depth += 1 if bracket[1] in "{[" else -1
            if self._depth <= 0:
                return at
        strings = _STRINGS.match(text, at)
        if strings is not None and strings.end() < len(text):
            self._past_string(text, strings.end() + 1)
        return -1
