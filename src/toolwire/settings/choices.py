"""Settings that name a row of a table."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from toolwire.settings.sections import NotAllowed


class OneOf(Struct, frozen=True):
    """Accepts the words of a table, which is read when a value is compared or listed, not when settings are loaded.

    So a new row is allowed at once, and a table that takes time to load costs nothing where the usual word stands.
    """

    words: Callable[[], Iterable[str]]
    usual: str = "auto"

    def __call__(self, value: str) -> str:
        if value == self.usual or value in self.words():
            return value
        raise NotAllowed

    def in_words(self) -> str:
        """What is allowed, for messages and docs."""
        return "one of " + ", ".join((self.usual, *self.words()))
