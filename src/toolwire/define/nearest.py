"""The names that someone may have meant."""

import difflib
from collections.abc import Iterable
from itertools import islice

MAX_NAME = 128
MAX_NAMES = 2_000
_ALIKE = 0.6
# Only so many names are compared letter by letter, which takes time with the square of their length.
_FINALISTS = 24


def nearest(name: str, among: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """At most `most` of the given names that look like this one, the closest first. Bounded in time for any name."""
    wanted = _folded(name)
    letters = set(wanted)
    matcher: difflib.SequenceMatcher[str] | None = None
    hopeful: list[tuple[float, str, str]] = []
    for known in islice(among, MAX_NAMES):
        folded = _folded(known)
        if _shares_letters(letters, set(folded)):
            matcher = matcher or difflib.SequenceMatcher(None, "", wanted, autojunk=False)
            matcher.set_seq1(folded)
            if matcher.real_quick_ratio() > _ALIKE and (at_best := matcher.quick_ratio()) > _ALIKE:
                hopeful.append((-at_best, known, folded))
    if matcher is None:
        return ()
    return tuple(known for score, known in _compared(matcher, hopeful)[:most] if score < -_ALIKE)


def _compared(matcher: difflib.SequenceMatcher[str], hopeful: list[tuple[float, str, str]]) -> list[tuple[float, str]]:
    scored = []
    for _, known, folded in sorted(hopeful)[:_FINALISTS]:
        matcher.set_seq1(folded)
        scored.append((-matcher.ratio(), known))
    return sorted(scored)


def _shares_letters(some: set[str], others: set[str]) -> bool:
    """A cheap look that spares the comparison of words with little in common."""
    return bool(some) and 2 * len(some & others) >= min(len(some), len(others))


def _folded(name: str) -> str:
    """A name without what models get wrong most often: case, and the choice of separators."""
    return name[:MAX_NAME].casefold().replace("-", "").replace("_", "").replace(".", "").replace(" ", "")
