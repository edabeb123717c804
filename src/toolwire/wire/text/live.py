"""The view of a text that is still being written."""

from toolwire.protocol.chat import Delta, TextDelta
from toolwire.wire.offered import Offered


class LiveText:
    """Takes text as it comes and shows what is certain."""

    __slots__ = ("_offered", "_parts")

    def __init__(self, offered: Offered) -> None:
        self._offered = offered
        self._parts: list[str] = []

    def feed(self, text: str) -> list[Delta]:
        """Take more text; say what became certain."""
        self._parts.append(text)
        return [TextDelta(text)]

    def whole(self) -> str:
        """Everything so far."""
        return "".join(self._parts)
