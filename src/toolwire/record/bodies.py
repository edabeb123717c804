"""Where large bodies lie: in a folder, or in the database, for a store that several machines share.

Both keep a body by its content. Nothing is found under a handle before all of it is there, so that a process that is
killed half-way leaves nothing that could be read as whole; what it left is removed an hour later. What is read is
compared with its digest first, once in each process. However long a body is, a piece of it is in memory at a time.
"""

import asyncio
import hashlib
import re
import sqlite3
import time
from collections import OrderedDict
from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import partial
from typing import TypeVar

from msgspec import Struct

from toolwire.errors import StoreError
from toolwire.record import refusals
from toolwire.record.artifacts import STAGING_S, Artifacts
from toolwire.record.contract import BodyStore
from toolwire.record.faults import to_store_error
from toolwire.record.reader import Reader
from toolwire.record.retention import KeptBody
from toolwire.record.rows import new_id
from toolwire.record.transaction import Transaction
from toolwire.record.writer import Writer

T = TypeVar("T")
PIECE = 512 * 1024
_MOST_CHECKED = 1_024
_UPLOADS_AT_ONCE = 100
_HANDLE = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)

_BODY = "SELECT upload, size FROM bodies WHERE digest = ?"
_ADD_PART = "INSERT INTO body_parts (upload, part, data, at) VALUES (?, ?, ?, ?)"
_ADD_BODY = "INSERT INTO bodies (digest, upload, size, at) VALUES (?, ?, ?, ?)"
_TOUCH = "UPDATE bodies SET at = ? WHERE digest = ?"
_DROP_BODY = "DELETE FROM bodies WHERE digest = ? AND at = ?"
# Of an upload that fails with its last step, nothing says whether that was made all the same.
_DROP_PARTS = """
    DELETE FROM body_parts WHERE upload = ?1 AND NOT EXISTS (SELECT 1 FROM bodies WHERE upload = ?1)
"""
_PART = "SELECT data FROM body_parts WHERE upload = ? AND part = ?"
_HAS_PART = "SELECT 1 FROM body_parts WHERE upload = ? AND part = ?"
_HAS_PARTS = "SELECT count(*), coalesce(sum(length(data)), 0) FROM body_parts WHERE upload = ?"
# The newest part says since when an upload has been left. The first one, of which there is an index, is older.
_LEFT = """
    SELECT p.upload FROM body_parts p LEFT JOIN bodies b ON b.upload = p.upload
    WHERE p.part = 0 AND p.at < ?1 AND b.upload IS NULL AND ?1 > (
        SELECT newest.at FROM body_parts newest WHERE newest.upload = p.upload ORDER BY newest.part DESC LIMIT 1
    ) LIMIT ?2
"""
_ALL = "SELECT digest, at, size FROM bodies"


class FolderBodies(Struct, frozen=True):
    """Bodies as files of this machine; see `artifacts.py`."""

    artifacts: Artifacts

    async def keep(self, data: bytes) -> str:
        return await self._on_files(partial(self.artifacts.keep, data))

    async def keep_pieces(self, pieces: AsyncIterable[bytes]) -> str:
        draft = await self._on_files(self.artifacts.draft)
        try:
            async for piece in pieces:
                await self._on_files(partial(draft.write, piece))
            return await self._on_files(draft.finish)
        finally:
            await self._on_files(draft.discard)

    async def fetch(self, handle: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return await self._on_files(partial(self.artifacts.fetch, handle, offset, length))

    async def _on_files(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise to_store_error(error, self.artifacts.folder) from error


class DatabaseBodies:
    """Bodies as rows of the store's own database, in pieces; those that `before` keeps are found, too."""

    def __init__(
        self, writer: Writer, reader: Reader, clock: Callable[[], float], before: BodyStore | None = None
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._before = before
        self._checked: OrderedDict[str, None] = OrderedDict()
        self._swept_at = float("-inf")

    async def keep(self, data: bytes) -> str:
        digest = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
        if not await self._writer.write(partial(_touched, digest=digest, at=self._clock())):
            await self.keep_pieces(_cut(data))
        return f"sha256:{digest}"

    async def keep_pieces(self, pieces: AsyncIterable[bytes]) -> str:
        await self._sweep()
        upload, whole, size, part = new_id(), hashlib.sha256(), 0, 0
        try:
            async for piece in _even(pieces):
                await asyncio.to_thread(whole.update, piece)
                add = partial(_add_part, row=(upload, part, piece, self._clock()))
                await self._writer.write(add)
                size, part = size + len(piece), part + 1
            digest = whole.hexdigest()
            finish = partial(_finish, digest=digest, upload=upload, parts=part, size=size, at=self._clock())
            await self._writer.write(finish)
        except BaseException:
            self._writer.after(partial(_drop_parts, upload=upload), asyncio.get_running_loop())
            raise
        return f"sha256:{digest}"

    async def fetch(self, handle: str, *, offset: int = 0, length: int | None = None) -> bytes:
        match = _HANDLE.fullmatch(handle)
        if match is None:
            raise refusals.no_body(handle)
        digest = match[1]
        if digest in self._checked or await self._check(handle, digest):
            found = await self._reader.read(_range, digest, max(offset, 0), length)
            if found is not None:
                return found
        if self._before is None:
            raise refusals.no_body(handle)
        return await self._before.fetch(handle, offset=offset, length=length)

    async def kept(self) -> list[KeptBody]:
        """All bodies in the database."""
        return await self._reader.read(lambda connection: [KeptBody(*row) for row in connection.execute(_ALL)])

    async def drop(self, body: KeptBody) -> bool:
        """Remove a body, unless it was needed again since it was found; whether it was removed."""
        self._checked.pop(body.digest, None)
        return await self._writer.write(partial(_drop, body=body))

    async def _check(self, handle: str, digest: str) -> bool:
        """Compare a body with its digest, piece by piece, so that other questions come in between.

        False if it is not there, or is dropped meanwhile. Raises StoreError for one that is damaged.
        """
        whole, start = hashlib.sha256(), 0
        while piece := await self._reader.read(_range, digest, start, PIECE):
            whole.update(piece)
            start += len(piece)
        if piece is None:
            return False
        if whole.hexdigest() != digest:
            raise refusals.damaged_body(handle)
        self._checked[digest] = None
        while len(self._checked) > _MOST_CHECKED:
            self._checked.popitem(last=False)
        return True

    async def _sweep(self) -> None:
        """Once an hour, remove what dead processes left."""
        if time.monotonic() - self._swept_at >= STAGING_S:
            self._swept_at = time.monotonic()
            await self._writer.write(partial(_sweep_left, before=self._clock() - STAGING_S))


def _touched(tx: Transaction, digest: str, at: float) -> bool:
    """Whether a body is kept; one that is needed again is not pruned."""
    return bool(tx.connection.execute(_TOUCH, (at, digest)).rowcount)


def _add_part(tx: Transaction, row: tuple[str, int, bytes, float]) -> StoreError | None:
    """Add a part behind the one before, so that no upload lacks its first one, by which a sweep finds it."""
    upload, part, *_ = row
    if part and tx.connection.execute(_HAS_PART, (upload, part - 1)).fetchone() is None:
        return refusals.upload_removed()
    tx.connection.execute(_ADD_PART, row)
    return None


def _finish(tx: Transaction, digest: str, upload: str, parts: int, size: int, at: float) -> StoreError | None:
    """From here on the body is found. Another process may have kept the same one meanwhile."""
    if _touched(tx, digest, at):
        tx.connection.execute(_DROP_PARTS, (upload,))
        return None
    if tuple(tx.connection.execute(_HAS_PARTS, (upload,)).fetchone()) != (parts, size):
        return refusals.upload_removed()
    tx.connection.execute(_ADD_BODY, (digest, upload, size, at))
    return None


def _drop_parts(tx: Transaction, upload: str) -> None:
    tx.connection.execute(_DROP_PARTS, (upload,))


def _drop(tx: Transaction, body: KeptBody) -> bool:
    row = tx.connection.execute(_BODY, (body.digest,)).fetchone()
    if row is None or not tx.connection.execute(_DROP_BODY, (body.digest, body.at)).rowcount:
        return False
    tx.connection.execute(_DROP_PARTS, (row[0],))
    return True


def _sweep_left(tx: Transaction, before: float) -> None:
    for (upload,) in tx.connection.execute(_LEFT, (before, _UPLOADS_AT_ONCE)).fetchall():
        tx.connection.execute(_DROP_PARTS, (upload,))


def _range(connection: sqlite3.Connection, digest: str, start: int, length: int | None) -> bytes | None:
    """Bytes of a body that is kept, found and read in one view of the store. Raises StoreError if a part is missing."""
    found = connection.execute(_BODY, (digest,)).fetchone()
    if found is None:
        return None
    upload, size = found
    end = size if length is None else min(start + max(length, 0), size)
    pieces = []
    for part in range(start // PIECE, (end + PIECE - 1) // PIECE if start < end else 0):
        row, begin = connection.execute(_PART, (upload, part)).fetchone(), part * PIECE
        pieces.append(bytes(row[0])[max(start - begin, 0) : end - begin] if row else b"")
    if sum(map(len, pieces)) != max(end - start, 0):
        raise refusals.damaged_body(f"sha256:{digest}")
    return b"".join(pieces)


async def _cut(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


async def _even(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of one size, whatever sizes they come in; the last one is shorter."""
    rest = bytearray()
    async for piece in pieces:
        for start in range(0, len(piece), PIECE):
            rest += piece[start : start + PIECE]
            while len(rest) >= PIECE:
                yield bytes(rest[:PIECE])
                del rest[:PIECE]
    if rest:
        yield bytes(rest)
