"""The names that someone may have meant."""

import difflib
from collections.abc import Iterable
from itertools import islice

MAX_NAME = 128
MAX_NAMES = 2_000
_ALIKE = 0.6


def nearest(name: str, among: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """At most `most` of the given names that look like this one, the closest first. Bounded in time for any name."""
    wanted = _folded(name)
    letters = set(wanted)
    matcher: difflib.SequenceMatcher[str] | None = None
    scored: list[tuple[float, str]] = []
    for known in islice(among, MAX_NAMES):
        folded = _folded(known)
        if folded == wanted:
            scored.append((-1.0, known))
        elif _shares_letters(letters, set(folded)):
            matcher = matcher or difflib.SequenceMatcher(None, "", wanted, autojunk=False)
            matcher.set_seq1(folded)
            if matcher.real_quick_ratio() > _ALIKE and matcher.quick_ratio() > _ALIKE:
                scored.append((-matcher.ratio(), known))
    return tuple(known for score, known in sorted(scored)[:most] if score < -_ALIKE)


def _shares_letters(some: set[str], others: set[str]) -> bool:
    """A cheap look that spares the comparison of words with little in common."""
    return 2 * len(some & others) >= min(len(some), len(others))


def _folded(name: str) -> str:
    """A name without what models get wrong most often: case, and the choice of separators."""
    return name[:MAX_NAME].casefold().replace("-", "").replace("_", "").replace(".", "").replace(" ", "")
