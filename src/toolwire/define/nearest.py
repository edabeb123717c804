"""The names that someone may have meant."""

import difflib
from collections.abc import Iterable
from itertools import islice

MAX_NAME = 128
MAX_NAMES = 2_000


def nearest(name: str, among: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """At most `most` of the given names that look like this one, the closest first. Bounded in time for any name."""
    wanted = _folded(name)
    names = {known: _folded(known) for known in islice(among, MAX_NAMES)}
    alike = [known for known, folded in names.items() if folded == wanted]
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    scored = []
    for known, folded in names.items():
        matcher.set_seq1(folded)
        if folded != wanted and matcher.real_quick_ratio() > 0.6 and matcher.quick_ratio() > 0.6:
            scored.append((-matcher.ratio(), known))
    close = [known for score, known in sorted(scored) if score < -0.6]
    return tuple((alike + close)[:most])


def _folded(name: str) -> str:
    """A name without what models get wrong most often: case, and the choice of separators."""
    return name[:MAX_NAME].casefold().replace("-", "").replace("_", "").replace(".", "").replace(" ", "")
