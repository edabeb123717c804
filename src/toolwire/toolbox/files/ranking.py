"""Which lines of code answer a question in words: all of its words count, rare places first, definitions above uses."""

import re
from typing import NamedTuple

from toolwire.deliver.envelope_ranking import is_definition, is_test

MOST_OF_A_FILE = 3
_WORD = re.compile(r"[^\W\d_]+|\d+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_FILLER = frozenset(
    "a an and are do does for from how i in is it of on or the to what when where which who with".split()
)


class RankedLine(NamedTuple):
    """A line that fits, and how well."""

    path: str
    line: int
    text: str
    kind: str
    score: float


def rank(hit: RankedLine) -> tuple[float, str, int]:
    """The key that puts the best first, and equals in order."""
    return -hit.score, hit.path, hit.line


def words_of(query: str) -> frozenset[str]:
    """The words that matter, in small letters; a name made of several words counts as each of them."""
    found = frozenset(word.lower() for word in _WORD.findall(_HUMP.sub(" ", query)))
    return found - _FILLER or found


def best(text: str, path: str, words: frozenset[str]) -> list[RankedLine]:
    """The few lines of a file that fit best."""
    low = text.lower()
    present = [word for word in words if word in low]
    if not present:
        return []
    in_path = sum(word in path.lower() for word in words)
    hits: list[RankedLine] = []
    lines = zip(text.split("\n"), low.split("\n"), strict=False)
    for number, (line, small) in enumerate(lines, 1):
        if any(word in small for word in present):
            hits.append(_hit(path, number, line[:400], words, in_path))
    hits.sort(key=rank)
    return hits[:MOST_OF_A_FILE]


def _hit(path: str, number: int, line: str, words: frozenset[str], in_path: int) -> RankedLine:
    whole = frozenset(word.lower() for word in _WORD.findall(_HUMP.sub(" ", line)))
    score = 3.0 * len(words & whole) + sum(word in line.lower() for word in words) + 0.5 * in_path
    if is_test(path):
        return RankedLine(path, number, line, "test", score * 0.5)
    if is_definition(line):
        return RankedLine(path, number, line, "definition", score * 2)
    return RankedLine(path, number, line, "use", score)
