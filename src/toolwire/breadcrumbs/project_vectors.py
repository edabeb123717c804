"""The vectors of a project's records, as this process holds them, kept current from the store.

The store says what has changed since a cursor. A version without a vector is embedded by the process that meets it
first, and its vector is kept for all. A few are embedded while a search waits, so what was written a moment ago is
found; many are embedded beside it, page by page, and found by their words until then.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from toolwire.breadcrumbs.rules.words import record_text
from toolwire.lazy import lazy_module
from toolwire.protocol.breadcrumbs import RecordQuery
from toolwire.record.contract import NewVector, RecordIndexStore, VectorRow

if TYPE_CHECKING:
    from toolwire.breadcrumbs import vectors
else:
    vectors = lazy_module("toolwire.breadcrumbs.vectors")

LONGEST_EMBEDDED = 2_000
"""Characters of a record, and of a query, that its vector is about."""
ROWS_AT_ONCE = 10_000
EMBEDDED_AT_ONCE = 64
"""So many are embedded while a search waits, and in one request to a server."""
STALE_S = 86_400.0
"""Stores tell about records that are gone for longer than this. What has not looked for as long begins anew."""


class Embedding(Protocol):
    """What gives vectors to texts. `name` is kept with them: vectors of another name are not compared with these.

    Vectors whose cosine is below `floor` have nothing to do with each other.
    """

    @property
    def name(self) -> str: ...

    @property
    def floor(self) -> float: ...

    async def vectors(self, texts: Sequence[str]) -> Any:
        """A row of numbers for each text. Raises ModelError."""
        ...

    async def close(self) -> None: ...


class ProjectVectors:
    """The vector index of one project."""

    def __init__(
        self, store: RecordIndexStore, embedding: Embedding, project: str, monotonic: Callable[[], float]
    ) -> None:
        self.index = vectors.VectorIndex()
        self._store = store
        self.embedding = embedding
        self.project = project
        self._monotonic = monotonic
        self._cursor = 0
        self._looked = monotonic()
        self._lock = asyncio.Lock()
        self._rest: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Take in what has changed; leaves to the background what takes long. Raises ModelError and StoreError."""
        if self._rest is not None:
            if not self._rest.done():
                return
            rest, self._rest = self._rest, None
            if not rest.cancelled():
                rest.result()
        async with self._lock:
            if self._monotonic() - self._looked > STALE_S:
                self.index, self._cursor = vectors.VectorIndex(), 0
            while rows := await self._changes(ROWS_AT_ONCE):
                if sum(row.bits is None for row in rows) > EMBEDDED_AT_ONCE:
                    # Also a process that ends after this search has done some of it.
                    await self._take(rows[:EMBEDDED_AT_ONCE])
                    self._rest = asyncio.create_task(self._embed_rest())
                    self._rest.add_done_callback(_look_at)
                    return
                await self._take(rows)
            self._looked = self._monotonic()

    async def finish(self) -> None:
        """Wait until everything is embedded. Raises ModelError and StoreError."""
        await self.refresh()
        if self._rest is not None:
            await self._rest
            await self.finish()

    def stop(self) -> None:
        """Stop what is done in the background. The next process goes on with it."""
        if self._rest is not None:
            self._rest.cancel()

    async def close(self) -> None:
        """The same, and wait until it has stopped."""
        self.stop()
        if self._rest is not None:
            await asyncio.gather(self._rest, return_exceptions=True)

    async def _changes(self, limit: int) -> list[VectorRow]:
        return await self._store.record_vectors(
            self._cursor, model=self.embedding.name, limit=limit, project=self.project
        )

    async def _embed_rest(self) -> None:
        while rows := await self._changes(EMBEDDED_AT_ONCE * 16):
            await self._take(rows)

    async def _take(self, rows: Sequence[VectorRow]) -> None:
        missing = {row.number: row.cursor for row in rows if row.bits is None}
        new = await self._embed(missing) if missing else []
        if new:
            await self._store.put_record_vectors(new, model=self.embedding.name, project=self.project)
        known = [(row.number, row.bits) for row in rows if row.bits is not None]
        self.index.put([*known, *((row.number, row.bits) for row in new)])
        self._cursor = rows[-1].cursor

    async def _embed(self, missing: Mapping[int, int]) -> list[NewVector]:
        """The vectors of records, as many at once as a server takes. Records that are gone by now have none."""
        found = await self._store.records_numbered(list(missing), RecordQuery(), project=self.project)
        rows: list[NewVector] = []
        for at in range(0, len(found), EMBEDDED_AT_ONCE):
            some = found[at : at + EMBEDDED_AT_ONCE]
            new = await self.embedding.vectors([record_text(one.value, LONGEST_EMBEDDED) for one in some])
            signs, small = vectors.signs(new), vectors.small(new)
            rows += [
                NewVector(one.cursor, missing[one.cursor], *both) for one, *both in zip(some, signs, small, strict=True)
            ]
        return rows


def _look_at(task: asyncio.Task[None]) -> None:
    """Without this, asyncio complains about a failure that the next search is told about."""
    if not task.cancelled():
        task.exception()
