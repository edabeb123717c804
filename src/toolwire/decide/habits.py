"""Which options of a command are known to do no more than read. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from toolwire.decide.shell_words import UNKNOWN


class OptionTable(Struct, frozen=True):
    """What a command may be given: letters without a value, letters with one, long names, and so many other words.

    A letter among `valued` must take a value wherever it stands, since what is behind it is not looked at. Where words
    are counted, options come first: some commands take what begins with a dash behind a word for a word, too.
    """

    flags: str = ""
    valued: str = ""
    long: str = ""
    words: int | None = None

    def hold(self, words: Sequence[str]) -> bool:
        """Whether these words keep to that. One that is made at run time could be any option, so it does not."""
        others, names = 0, self.long.split()
        ended = False
        for word in words:
            if UNKNOWN in word:
                return False
            if ended or not word.startswith("-") or word == "-" or (others and self.words is not None):
                others += 1
            elif word == "--":
                ended = True
            elif not (word[2:].partition("=")[0] in names if word.startswith("--") else self._knows(word)):
                return False
        return self.words is None or others <= self.words

    def _knows(self, option: str) -> bool:
        rest = option[1:].lstrip(self.flags)
        return not rest or rest[0] in self.valued
