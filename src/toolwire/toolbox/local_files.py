"""The disk of this machine as file tools see it."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from toolwire.protocol.files import Change, Entry
from toolwire.toolbox.beneath import BeneathDir, plain_path
from toolwire.toolbox.journal import FOLDER, Journal
from toolwire.toolbox.protected import is_own_state, refuse_own_state


class LocalFiles:
    """FileOps on this disk. `sync` brings a descriptor's content to the disk; tests may watch it."""

    def __init__(self, sync: Callable[[int], None] = os.fsync) -> None:
        self._sync = sync
        self._settled: set[str] = set()

    def open(self, root: str, path: str) -> BinaryIO:
        refuse_own_state(path)
        with self._place(root) as place:
            file = open(place.file(path), "rb")  # noqa: PTH123, SIM115 - a descriptor that the caller closes
            try:
                refuse_own_state(_inside(place.fd, file.fileno()))
            except OSError:
                file.close()
                raise
            return file

    def entries(self, root: str, path: str, most: int) -> list[Entry]:
        refuse_own_state(path)
        with self._place(root) as place:
            return [entry for entry in place.entries(path, most) if not is_own_state(entry.name)]

    def stat(self, root: str, path: str) -> Entry:
        refuse_own_state(path)
        with self._place(root) as place:
            return place.stat(path)

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

    def _place(self, root: str) -> BeneathDir:
        """The root, after a change that a dead process left in its middle has been settled."""
        if root not in self._settled:
            with suppress(OSError), BeneathDir(root) as place:
                if _has_journal(place):
                    with Journal(place, self._sync):
                        pass
            self._settled.add(root)
        return BeneathDir(root)


def _inside(root: int, opened: int) -> str:
    """Where an open file really lies, since links inside the root may have been followed; "" where that is unknown."""
    try:
        where, top = (str(Path(f"/proc/self/fd/{descriptor}").readlink()) for descriptor in (opened, root))
    except OSError:
        return ""
    return where.removeprefix(top)


def _has_journal(place: BeneathDir) -> bool:
    try:
        os.close(place.folder(FOLDER, links=False))
    except OSError:
        return False
    return True
