"""The names that someone may have meant."""

import difflib
from collections.abc import Iterable
from itertools import islice

MAX_NAME = 128
MAX_NAMES = 2_000
_ALIKE = 0.6
# Only so many names are compared letter by letter, which takes time with the square of their length.
_FINALISTS = 24


class Names:
    """Known names, made ready once to be compared with what someone writes."""

    __slots__ = ("_known",)

    def __init__(self, known: Iterable[str]) -> None:
        folded = [(name, _folded(name)) for name in islice(known, MAX_NAMES)]
        self._known = [(name, word, letters := frozenset(word), _half(letters)) for name, word in folded]

    def nearest(self, name: str, most: int = 3) -> tuple[str, ...]:
        """At most `most` of the names that look like this one, the closest first. Bounded in time for any name."""
        wanted = _folded(name)
        letters = frozenset(wanted)
        enough = _half(letters)
        # A cheap look at the letters spares the comparison of words with little in common.
        alike = [
            (known, word)
            for known, word, others, half in self._known
            if (shared := len(letters & others)) >= enough or shared >= half
        ]
        return _closest(wanted, alike, most) if alike and letters else ()


def nearest(name: str, among: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """At most `most` of the given names that look like this one, the closest first. Bounded in time for any name."""
    return Names(among).nearest(name, most)


def _closest(wanted: str, alike: list[tuple[str, str]], most: int) -> tuple[str, ...]:
    matcher = difflib.SequenceMatcher(None, "", wanted, autojunk=False)
    hopeful: list[tuple[float, str, str]] = []
    for known, folded in alike:
        matcher.set_seq1(folded)
        if matcher.real_quick_ratio() > _ALIKE and (at_best := matcher.quick_ratio()) > _ALIKE:
            hopeful.append((-at_best, known, folded))
    return tuple(known for score, known in _compared(matcher, hopeful)[:most] if score < -_ALIKE)


def _compared(matcher: difflib.SequenceMatcher[str], hopeful: list[tuple[float, str, str]]) -> list[tuple[float, str]]:
    scored = []
    for _, known, folded in sorted(hopeful)[:_FINALISTS]:
        matcher.set_seq1(folded)
        scored.append((-matcher.ratio(), known))
    return sorted(scored)


def _half(letters: frozenset[str]) -> int:
    return (len(letters) + 1) // 2


def _folded(name: str) -> str:
    """A name without what models get wrong most often: case, and the choice of separators."""
    folded = name[:MAX_NAME].casefold()
    if folded.isalnum():
        return folded
    return folded.replace("-", "").replace("_", "").replace(".", "").replace(" ", "")
