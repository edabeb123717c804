"""How much a workspace may hold: looked at before, while and after something is written there.

What this gives: no single file grows beyond what is left, a command that goes on writing is ended, and a full workspace
takes nothing more. What it does not: between two looks many small files can overshoot by what is written in a twentieth
of a second and while looking, and others may write there too.
"""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import BinaryIO

from msgspec.structs import replace

from toolwire.execute.used_bytes import BLOCK, used_bytes
from toolwire.protocol.files import Change, FileEntry, FileOps
from toolwire.protocol.operations import Command, ExecOps, Listener, Output, Ran

LIMIT = "workspace"
DISK_LIMIT = "disk"
LOOK_EVERY_S = 0.25
_GLANCE_EVERY_S = 0.05  # at what is free on the disk, which is told at once: when it shrinks too much, a look is due
_PATIENCE = 20  # looking takes at most so small a part of the time while there seems to be room
_KEPT = 64 * 1024
_LEAST_SHARE = 64 * 1024 * 1024
_SHARE_EVERY_S = 3_600.0

Measure = Callable[[str, int], int]
"""How many bytes a folder holds; it may stop counting when there are more than `enough`."""


class QuotaExec:
    """Runs commands as `ops` does, and ends one whose workspace holds more than `most` bytes.

    `engine` says which engine a command with some wish runs in, for those that cannot say it themselves any more.
    """

    def __init__(
        self,
        ops: ExecOps,
        most: int,
        *,
        engine: Callable[[str], str] = str,
        measure: Measure = used_bytes,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._ops = ops
        self._most = most
        self._engine = engine
        self._measure = measure
        self._look_every_s = look_every_s

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        if not command.workspace or not command.writable:
            return await self._ops.run(command, listener)
        before = await self._used(command, self._most)
        if before > self._most:
            before = await self._used(command, sys.maxsize)
        room = max(self._most - before, 0)
        tight = room < command.limits.file_bytes
        heard = _LastWords(listener)
        work = asyncio.ensure_future(self._ops.run(_cramped(command, room) if tight else command, heard))
        try:
            over = await self._watched(work, command, before)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait((work,))
        if over:
            return replace(heard.ended(self._sentence("ended")), engine=self._engine(command.engine))
        ran = work.result()
        if tight and ran.limit == "file_size":
            return replace(ran, limit=LIMIT)
        return _told(ran, self._sentence("full")) if await self._used(command, self._most) > self._most else ran

    async def _watched(self, work: "asyncio.Future[Ran]", command: Command, used: int) -> bool:
        """Wait for the work; True when the workspace grew too large first, or larger than it was if it already was."""
        most = max(self._most, used)
        free, due, pause = _free_bytes(command.workspace), perf_counter() + self._look_every_s, _GLANCE_EVERY_S
        while not (await asyncio.wait((work,), timeout=pause))[0]:
            left = await asyncio.to_thread(_free_bytes, command.workspace)
            if free - left <= most - used and perf_counter() < due:
                continue
            began = perf_counter()
            used = await self._used(command, most)
            if used > most:
                return not work.done()
            took = perf_counter() - began
            free, due, pause = left, began + max(self._look_every_s, _PATIENCE * took), max(_GLANCE_EVERY_S, took)
        return False

    async def _used(self, command: Command, enough: int) -> int:
        return await asyncio.to_thread(self._measure, command.workspace, enough)

    def _sentence(self, what: str) -> str:
        return f"\n[{what}: the workspace holds more than the {self._most:,} bytes that it may; remove something]\n"


class ShareExec:
    """Runs commands as `ops` does, and ends one that takes more than a `share` of what is free on the disk.

    Only what is free is looked at, which costs nothing worth counting: so what others take meanwhile counts too, and
    what a command writes into files without a name does as well. A long job has its share in every hour.
    """

    def __init__(self, ops: ExecOps, share: float, *, engine: Callable[[str], str] = str) -> None:
        self._ops = ops
        self._share = share
        self._engine = engine

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        if not command.workspace or not command.writable:
            return await self._ops.run(command, listener)
        free = _free_bytes(command.workspace)
        room = share_of(free, self._share)
        tight = room < command.limits.file_bytes
        heard = _LastWords(listener)
        work = asyncio.ensure_future(self._ops.run(_cramped(command, room) if tight else command, heard))
        try:
            over = await self._watched(work, command.workspace, free)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait((work,))
        if over:
            said = f"\n[ended: it took more than the {room:,} bytes of free disk space that one command may]\n"
            return replace(heard.ended(said, DISK_LIMIT), engine=self._engine(command.engine))
        ran = work.result()
        return replace(ran, limit=DISK_LIMIT) if tight and ran.limit == "file_size" else ran

    async def _watched(self, work: "asyncio.Future[Ran]", folder: str, free: int) -> bool:
        """Wait for the work; True when more than the share is gone first."""
        since = perf_counter()
        while not (await asyncio.wait((work,), timeout=_GLANCE_EVERY_S))[0]:
            left = await asyncio.to_thread(_free_bytes, folder)
            if free - left > share_of(free, self._share):
                return not work.done()
            if perf_counter() - since > _SHARE_EVERY_S:
                free, since = left, perf_counter()
        return False


def share_of(free: int, share: float) -> int:
    """How much of what is free may be taken: some room in any case, and never more than half."""
    return min(max(int(free * share), _LEAST_SHARE), free // 2)


def _cramped(command: Command, room: int) -> Command:
    """The command with files no larger than there is room for. Said inside the box: engines write files as well."""
    return replace(command, argv=("/bin/sh", "-c", 'ulimit -f "$0" && exec "$@"', str(room // BLOCK), *command.argv))


def _free_bytes(folder: str) -> int:
    """What is free on the disk of a folder, for the calling user; 0 where that is not told."""
    try:
        facts = os.statvfs(folder)
    except OSError:
        return 0
    return facts.f_bfree * facts.f_frsize


class _LastWords:
    """Keeps the end of what a command says, for one that has to be ended."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener
        self._tails = {"stdout": bytearray(), "stderr": bytearray()}
        self._sizes = {"stdout": 0, "stderr": 0}

    def __call__(self, stream: str, piece: bytes) -> None:
        tail = self._tails[stream]
        tail += piece
        self._sizes[stream] += len(piece)
        if len(tail) > 2 * _KEPT:
            del tail[:-_KEPT]
        if self._listener is not None:
            self._listener(stream, piece)

    def ended(self, sentence: str, limit: str = LIMIT) -> Ran:
        out, errors = (Output(b"", bytes(self._tails[name]), self._sizes[name]) for name in ("stdout", "stderr"))
        return _told(Ran(None, signal.SIGKILL, out, errors, limit=limit), sentence)


def _told(ran: Ran, sentence: str) -> Ran:
    said, errors = sentence.encode(), ran.stderr
    return replace(ran, stderr=replace(errors, tail=errors.tail + said, size=errors.size + len(said)))


class QuotaFiles:
    """Files as `files` has them, in folders that may hold no more than `most` bytes."""

    def __init__(self, files: FileOps, most: int, *, measure: Measure = used_bytes) -> None:
        self._files = files
        self._most = most
        self._measure = measure

    def open(self, root: str, path: str) -> BinaryIO:
        return self._files.open(root, path)

    def entries(self, root: str, path: str, most: int) -> list[FileEntry]:
        return self._files.entries(root, path, most)

    def stat(self, root: str, path: str) -> FileEntry:
        return self._files.stat(root, path)

    def real(self, root: str, path: str) -> str:
        return self._files.real(root, path)

    def change(self, root: str, changes: Sequence[Change], *, key: str = "", note: str = "") -> None:
        added = sum(self._growth(root, change) for change in changes)
        if added > 0 and self._measure(root, self._most) + added > self._most:
            raise OSError(errno.EDQUOT, f"the workspace may hold {self._most:,} bytes; remove something first")
        self._files.change(root, changes, key=key, note=note)

    def note(self, root: str, key: str) -> str | None:
        return self._files.note(root, key)

    def _growth(self, root: str, change: Change) -> int:
        try:
            before = self._files.stat(root, change.path).size
        except OSError:
            before = 0
        return len(change.content or b"") - before
