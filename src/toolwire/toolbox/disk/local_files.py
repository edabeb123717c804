"""The disk of this machine as file tools see it."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec.structs import replace

from toolwire.protocol.files import Change, FileEntry
from toolwire.toolbox.disk.beneath import BeneathDir, entries_of, plain_path
from toolwire.toolbox.disk.journal import Journal
from toolwire.toolbox.disk.journal_folder import FOLDER
from toolwire.toolbox.files.protected import is_own_state, refuse_own_state


class LocalFiles:
    """FileOps on this disk. `sync` brings a descriptor's content to the disk; tests may watch it.

    Reading touches nothing in the journal: only `change` and `note` finish what a process left that died in a change.
    """

    def __init__(self, sync: Callable[[int], None] = os.fsync) -> None:
        self._sync = sync

    def open(self, root: str, path: str) -> BinaryIO:
        refuse_own_state(path)
        with BeneathDir(root) as place:
            return open(_opened(place, place.file, path), "rb")

    def entries(self, root: str, path: str, most: int) -> list[FileEntry]:
        refuse_own_state(path)
        with BeneathDir(root) as place:
            folder = _opened(place, place.folder, path)
            try:
                return [entry for entry in entries_of(folder, most) if not is_own_state(entry.name)]
            finally:
                os.close(folder)

    def stat(self, root: str, path: str) -> FileEntry:
        refuse_own_state(path)
        with BeneathDir(root) as place:
            return place.stat(path)

    def real(self, root: str, path: str) -> str:
        refuse_own_state(path)
        with BeneathDir(root) as place:
            try:
                descriptor = _opened(place, place.folder, path)
            except NotADirectoryError:
                descriptor = _opened(place, place.file, path)
            try:
                return _real(place, descriptor).lstrip("/") or "."
            finally:
                os.close(descriptor)

    def change(self, root: str, changes: Sequence[Change], *, key: str = "", note: str = "") -> None:
        plain = [replace(change, path=plain_path(change.path)) for change in changes]
        with BeneathDir(root) as place, Journal(place, self._sync) as journal:
            journal.change(plain, key, note)

    def note(self, root: str, key: str) -> str | None:
        with BeneathDir(root) as place:
            if not _has_journal(place):
                return None
            with Journal(place, self._sync) as journal:
                return journal.note(key)


class _Opener(Protocol):
    def __call__(self, path: str, *, links: bool) -> int: ...


def _opened(place: BeneathDir, opener: _Opener, path: str) -> int:
    """A file or folder, through links only where there are some, and then not into our own state by another name."""
    try:
        return opener(path, links=False)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    descriptor = opener(path, links=True)
    try:
        refuse_own_state(_real(place, descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _real(place: BeneathDir, descriptor: int) -> str:
    """Where something open lies, from the root on."""
    where, top = (str(Path(f"/proc/self/fd/{one}").readlink()) for one in (descriptor, place.fd))
    return where.removeprefix(top)


def _has_journal(place: BeneathDir) -> bool:
    try:
        os.close(place.folder(FOLDER, links=False))
    except OSError:
        return False
    return True
