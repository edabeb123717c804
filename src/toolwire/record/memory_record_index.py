"""The words and vectors by which records in the memory store are found."""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from heapq import nsmallest

from msgspec import Struct

from toolwire.breadcrumbs.rules.words import WordMatch, is_found, record_words
from toolwire.protocol.breadcrumbs import Record
from toolwire.record.contract import NewVector, VectorRow

MOST_DROPPED = 10_000
"""Records that are gone, and which those who follow the index are told about."""


class _Vector(Struct):
    cursor: int
    model: str = ""
    bits: bytes | None = None
    vector: bytes = b""


class MemoryRecordIndex:
    """Which records have a word, and what is known of their vectors."""

    def __init__(self) -> None:
        self._lines: dict[int, str] = {}
        self._having: dict[str, set[int]] = {}
        self._vectors: dict[str, dict[int, _Vector]] = {}
        self._dropped: deque[tuple[str, int]] = deque()

    def put(self, number: int, record: Record, cursor: int) -> None:
        self._drop_words(number)
        self._lines[number] = record_words(record)
        for word in self.words_of(number):
            self._having.setdefault(word, set()).add(number)
        self._change(record.project, number, _Vector(cursor, bits=None if is_found(record) else b""))

    def drop(self, number: int, project: str, cursor: int) -> None:
        self._drop_words(number)
        self._change(project, number, _Vector(cursor, bits=b""))
        self._dropped.append((project, number))
        if len(self._dropped) > MOST_DROPPED:
            project, number = self._dropped.popleft()
            if (gone := self._vectors[project].get(number)) is not None and gone.bits == b"":
                del self._vectors[project][number]

    def words_of(self, number: int) -> Collection[str]:
        return frozenset(self._lines.get(number, "").split())

    def lines_of(self, numbers: Sequence[int], project: str) -> Mapping[int, str]:
        own = self._vectors.get(project, {})
        return {number: self._lines[number] for number in numbers if number in own and number in self._lines}

    def matching(self, match: WordMatch, since: int | None = None, until: int | None = None) -> list[int]:
        groups = [set().union(*(self._with(word) for word in group)) for group in match.groups]
        sets = sorted([*(self._with(word) for word in match.every), *groups], key=len)
        found = set.intersection(*sets) if sets else set()
        return sorted(
            (n for n in found if (since is None or n >= since) and (until is None or n < until)), reverse=True
        )

    def changed_after(self, cursor: int, model: str, limit: int, project: str) -> list[VectorRow]:
        rows = (
            VectorRow(one.cursor, number, one.bits if one.model == model or one.bits == b"" else None)
            for number, one in reversed(self._vectors.get(project, {}).items())
        )
        newer = []
        for row in rows:
            if row.cursor <= cursor:
                break
            newer.append(row)
        return nsmallest(limit, newer)

    def vectors_of(self, numbers: Sequence[int], model: str, project: str) -> Mapping[int, bytes]:
        own = self._vectors.get(project, {})
        known = ((number, own[number]) for number in numbers if number in own)
        return {number: one.vector for number, one in known if one.model == model and one.vector}

    def put_vectors(self, new: Sequence[NewVector], model: str, project: str) -> None:
        own = self._vectors.get(project, {})
        for number, cursor, bits, vector in new:
            if (one := own.get(number)) is not None and one.cursor == cursor and one.bits != b"":
                one.model, one.bits, one.vector = model, bits, vector

    def _with(self, word: str) -> set[int]:
        return self._having.get(word, set())

    def _drop_words(self, number: int) -> None:
        for word in self.words_of(number):
            having = self._having[word]
            having.discard(number)
            if not having:
                del self._having[word]
        self._lines.pop(number, None)

    def _change(self, project: str, number: int, vector: _Vector) -> None:
        """Keep it behind all others: rows stand in the order of their cursors."""
        vectors = self._vectors.setdefault(project, {})
        vectors.pop(number, None)
        vectors[number] = vector
