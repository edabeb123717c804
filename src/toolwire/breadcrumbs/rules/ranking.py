"""Which of the records that were found fit best: by their words, and by what several methods say together."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from toolwire.breadcrumbs.rules.words import TITLE_END

TEXT, VECTOR, HYBRID = "text", "vector", "hybrid"
"""The methods by which a record is found: its words, its vector, or both."""

_TITLE_WEIGHT = 1.5
_LENGTH_WEIGHT = 0.3
_LEAST_WEIGHT = 0.01
_LEAST_SHARE = 0.2
_FIRST_PLACE = 60.0


class RankedRecord(NamedTuple):
    """A record by its number, how well it fits (at most 1), and the method that found it."""

    number: int
    score: float
    method: str


def word_weights(words: Sequence[str], counts: Sequence[int], total: int) -> dict[str, float]:
    """How much each word says, the rarest first."""
    weights = {
        word: max(math.log(1 + (total - min(count, total) + 0.5) / (count + 0.5)), _LEAST_WEIGHT)
        for word, count in zip(words, counts, strict=True)
    }
    return dict(sorted(weights.items(), key=lambda item: -item[1]))


def rank_by_words(lines: Mapping[int, str], weights: Mapping[str, float], most: int) -> list[int]:
    """The records whose words fit best, the best first; of equal ones the newest. Weak ones are left out.

    `lines` are the words that are kept of each. A long record has many words by chance, so they count for less.
    """
    split = {number: line.split() for number, line in lines.items()}
    usual = max(sum(map(len, split.values())) / max(len(split), 1), 1.0)
    scores: dict[int, float] = {}
    for number, words in split.items():
        title = set(words[: words.index(TITLE_END)])
        having = title.union(words)
        share = sum(weight for word, weight in weights.items() if word in having)
        extra = sum(weight for word, weight in weights.items() if word in title) * (_TITLE_WEIGHT - 1)
        if share >= _LEAST_SHARE * sum(weights.values()):
            scores[number] = (share + extra) / (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * len(words) / usual)
    return sorted(scores, key=lambda number: (-scores[number], -number))[:most]


def fuse(by_words: Sequence[int], by_vector: Sequence[int] | None) -> list[RankedRecord]:
    """One order out of two, by the places in both (reciprocal rank fusion). None is a method that was not there."""
    places: dict[int, dict[str, int]] = {}
    for method, numbers in ((TEXT, by_words), (VECTOR, by_vector or ())):
        for place, number in enumerate(numbers):
            places.setdefault(number, {})[method] = place
    best = (1 if by_vector is None else 2) / _FIRST_PLACE
    ranked = [
        RankedRecord(
            number,
            round(sum(1 / (_FIRST_PLACE + place) for place in found.values()) / best, 4),
            HYBRID if len(found) == 2 else next(iter(found)),
        )
        for number, found in places.items()
    ]
    return sorted(ranked, key=lambda one: (-one.score, -one.number))
