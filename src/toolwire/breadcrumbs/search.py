"""Search for records by their words and by their meaning, in one order.

    words  → candidates from the store's index, the rarest words first → ranked here
    vector → candidates from the signs in memory → ranked by the vectors that the store keeps

Each method gives places to records that the query means and the caller may see, and to no others: so neither a score
nor the order says anything about what was left out. Where vectors cannot be had, words are enough, and results say so.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolwire.breadcrumbs.found import FoundRecord
from toolwire.breadcrumbs.project_vectors import LONGEST_EMBEDDED, Embedding, ProjectVectors
from toolwire.breadcrumbs.rules.ranking import fuse, rank_by_words, word_weights
from toolwire.breadcrumbs.rules.words import WordMatch, match_of, narrowed, search_words
from toolwire.errors import ModelError, SettingsError
from toolwire.lazy import lazy_module
from toolwire.protocol.breadcrumbs import RecordQuery
from toolwire.record.contract import RecordIndexStore
from toolwire.record.record_rules import NUMBERS_AT_ONCE, number_of

if TYPE_CHECKING:
    from toolwire.breadcrumbs import vectors
    from toolwire.models import embeddings
else:
    embeddings = lazy_module("toolwire.models.embeddings")
    vectors = lazy_module("toolwire.breadcrumbs.vectors")

STATIC, NONE = "static", "none"
"""Embeddings that are not models of a provider: the one that comes with the extra, and none at all."""
MOST_RANKED = 100
_CANDIDATES = 200
_MOST_COUNTED = 2_000
_MOST_READ = 500
_MOST_REQUIRED = 8
_NEAR = 1_500
_LOOKED_AT = 300
_FEW = 4_000
_MOST_PROJECTS = 32
_IN_THREAD = 50_000
_RETRY_S = 30.0
NEEDS_EXTRA = "search by meaning needs an extra: pip install 'toolwire[records]'"


def open_embedding(name: str = STATIC, base_url: str = "") -> Embedding | None:
    """The embedding that a setting names: `static`, `none`, or `provider:model` of a server with the OpenAI API.

    Raises SettingsError for another name, and ImportError where the extra is missing.
    """
    if name == NONE:
        return None
    if name == STATIC:
        return vectors.StaticEmbedding()
    return vectors.ServerEmbedding(embeddings.open_embeddings(name, base_url=base_url))


class HybridSearch:
    """Finds records of any project in a store. `problem` says why vectors are not used, where they are not."""

    def __init__(
        self,
        store: RecordIndexStore,
        embedding: Callable[[], Embedding | None] = open_embedding,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problem = ""
        self._store = store
        self._open = embedding
        self._opened: Embedding | None = None
        self._was_opened = False
        self._monotonic = monotonic
        self._skip_until = float("-inf")
        self._projects: OrderedDict[str, ProjectVectors] = OrderedDict()

    async def find(self, text: str, query: RecordQuery, *, nn: int, project: str) -> list[FoundRecord]:
        """The `nn` records that fit best, the best first; none for a text without a word. Raises StoreError."""
        words = search_words(text)
        if not words or nn < 1:
            return []
        by_words = await self.find_by_words(words, query, project)
        by_vector = await self.find_by_vector(text, query, project)
        ranked = fuse(by_words, by_vector)[:nn]
        rows = await self._store.records_numbered([one.number for one in ranked], query, project=project)
        records = {row.cursor: row.value for row in rows}
        return [FoundRecord(records[one.number], one.score, one.method) for one in ranked if one.number in records]

    async def finish(self, project: str) -> None:
        """Wait until all records of a project have vectors; at once, where they cannot have any."""
        if (embedding := await self._embedding()) is not None:
            await (await self._vectors_of(project, embedding)).finish()

    def stop(self) -> None:
        """Stop what is done in the background."""
        for project in self._projects.values():
            project.stop()

    async def close(self) -> None:
        """Stop what is done in the background, and let go of connections. Harmless when called twice."""
        for project in self._projects.values():
            await project.close()
        self._projects.clear()
        opened, self._opened, self._was_opened = self._opened, None, False
        if opened is not None:
            await opened.close()

    async def find_by_words(self, words: Sequence[str], query: RecordQuery, project: str) -> list[int]:
        """The numbers of the records whose words fit best. A word is as rare as in what the caller may see."""
        seen = RecordQuery(
            reader=query.reader, public_only=query.public_only, without_sensitive=query.without_sensitive
        )  # fmt: skip
        whole = match_of(seen, project)
        matches = [narrowed(whole, [word]) for word in words]
        total, *counts = await self._store.count_matching([whole, *matches], most=_MOST_COUNTED, project=project)
        weights = word_weights(words, counts, total)
        having = dict(zip(words, counts, strict=True))
        fitting = await self._candidates({word: having[word] for word in weights if having[word]}, query, project)
        lines = await self._store.words_of_records(fitting, project=project)
        return rank_by_words(lines, weights, MOST_RANKED)

    async def _candidates(self, words: Mapping[str, int], query: RecordQuery, project: str) -> list[int]:
        """Records that fit and have some of these words: the rarest first, each with how many records have it.

        Who may read a record is looked at afterwards, where that is cheap, unless it leaves little of what was found.
        """
        if not words:
            return []
        match, loose = match_of(query, project), match_of(replace(query, reader=None, without_sensitive=False), project)
        found = await self._with_words(words, loose, query)
        fitting = await self._store.fitting_records(found, query, project=project)
        if match != loose and len(fitting) < len(found) // 2:
            found = await self._with_words(words, match, query)
            fitting = await self._store.fitting_records(found, query, project=project)
        return fitting

    async def _with_words(self, words: Mapping[str, int], within: WordMatch, query: RecordQuery) -> list[int]:
        """All that a narrow query means, or all that have rare words; else what has all words, or at least some."""
        if _narrows(query):
            all_of_it = await self._matching(within, query, _MOST_READ)
            if len(all_of_it) < _MOST_READ:
                return all_of_it
        rare = [word for word, sum_of in zip(words, accumulate(words.values()), strict=True) if sum_of < _MOST_READ]
        if rare:  # records with all words are among those with the rarest
            return await self._matching(narrowed(within, any_of=rare), query, _MOST_READ)
        required = list(words)[:_MOST_REQUIRED]
        tiers = [narrowed(within, required[:size]) for size in dict.fromkeys((len(required), 2)) if size <= len(words)]
        tiers.append(narrowed(within, any_of=list(words)))
        found: dict[int, None] = {}
        for tier in tiers:
            if len(found) < _CANDIDATES // 2:
                found |= dict.fromkeys(await self._matching(tier, query, _CANDIDATES))
        return list(found)

    async def _matching(self, match: WordMatch, query: RecordQuery, limit: int) -> list[int]:
        since, until = _numbers_of(query)
        return await self._store.matching_records(match, limit=limit, since=since, until=until, project=match.project)

    async def find_by_vector(self, text: str, query: RecordQuery, project: str) -> list[int] | None:
        """The numbers of the records that are nearest to a text; None where vectors cannot be had now."""
        embedding = await self._embedding()
        if embedding is None or self._monotonic() < self._skip_until:
            return None
        try:
            (vector,) = await embedding.vectors([text[:LONGEST_EMBEDDED]])
            held = await self._vectors_of(project, embedding)
            await held.refresh()
        except ModelError as failure:
            self.problem, self._skip_until = str(failure), self._monotonic() + _RETRY_S
            return None
        self.problem = ""
        (bits,) = vectors.signs(vector[None])
        return await self._nearest(held, vector, bits, query, project) if bits else []

    async def _nearest(
        self, held: ProjectVectors, vector: Any, bits: bytes, query: RecordQuery, project: str
    ) -> list[int]:
        """The records that are nearest and fit. A narrow query is asked for all that it means, a wide one for a few."""
        narrowed: list[int] | None = None
        if _narrows(query):
            narrowed = await self._matching(match_of(query, project), query, _FEW)
        if narrowed is None or len(narrowed) >= _FEW:
            near = await self._in_time(held, held.index.nearest, bits, _NEAR, *_numbers_of(query))
            ranked, is_all = await self._rank(near, vector, held, query)
            if len(ranked) >= MOST_RANKED // 4 or len(near) < _NEAR or is_all:
                return ranked
            narrowed = narrowed or await self._matching(match_of(query, project), query, _FEW)
            narrowed = [*narrowed, *ranked]
        near = await self._in_time(held, held.index.nearest_among, bits, _NEAR, narrowed)
        ranked, _ = await self._rank(near, vector, held, query)
        return ranked

    async def _rank(
        self, numbers: Sequence[int], vector: Any, held: ProjectVectors, query: RecordQuery
    ) -> tuple[list[int], bool]:
        """Those of the records that fit, the nearest first, and whether all that are near enough were looked at."""
        most = _NEAR if _narrows(query) else _LOOKED_AT
        kept = await self._store.vectors_of_records(numbers, model=held.embedding.name, project=held.project)
        ranked = vectors.rank(vector, sorted(kept.items(), reverse=True), held.embedding.floor, most)
        fitting = set(await self._store.fitting_records(ranked, query, project=held.project))
        return [number for number in ranked if number in fitting][:MOST_RANKED], len(ranked) < most

    async def _in_time(self, held: ProjectVectors, look: Callable[..., list[int]], *args: Any) -> list[int]:
        """Among so many vectors that it takes milliseconds, look beside the event loop."""
        return await asyncio.to_thread(look, *args) if len(held.index) > _IN_THREAD else look(*args)

    async def _embedding(self) -> Embedding | None:
        if not self._was_opened:
            self._was_opened = True
            try:
                self._opened = await asyncio.to_thread(self._open)
            except ImportError:
                self.problem = NEEDS_EXTRA
            except (SettingsError, OSError, ValueError) as wrong:
                self.problem = f"the embedding cannot be loaded: {wrong}"
        return self._opened

    async def _vectors_of(self, project: str, embedding: Embedding) -> ProjectVectors:
        held = self._projects.get(project)
        if held is None:
            held = self._projects[project] = ProjectVectors(self._store, embedding, project, self._monotonic)
        self._projects.move_to_end(project)
        if len(self._projects) > _MOST_PROJECTS:
            _, oldest = self._projects.popitem(last=False)
            await oldest.close()
        return held


def _narrows(query: RecordQuery) -> bool:
    """Whether the query asks for more than what its caller may see, and when it was created."""
    return replace(query, since=None, until=None, reader=None, without_sensitive=False) != RecordQuery()


def _numbers_of(query: RecordQuery) -> tuple[int | None, int | None]:
    """From which number on, and below which one, records of the time are that the query asks for."""
    since, until = (None if at is None or not math.isfinite(at) else number_of(at) for at in (query.since, query.until))
    return since, None if until is None else until + NUMBERS_AT_ONCE
