"""Who is alive on this machine: each store locks a file of its own, and the system unlocks it for the dead."""

import fcntl
import os
import uuid
from pathlib import Path

from toolwire.record.ownership import open_folder


class Owners:
    """This store's own lock, and a look at those of others. A lock ends with its process, however that ends.

    A child that was forked without starting another program shares the lock and keeps it held.
    """

    def __init__(self, folder: Path) -> None:
        """Take a name that no other store has. Raises OSError when the folder cannot be written."""
        self._folder = folder
        os.close(open_folder(folder))
        self.name, self._lock = self._take_name()
        self._sweep()

    def alive(self, owner: str) -> bool:
        """Whether the process behind a name still runs. A name without a file is dead: its file was swept."""
        if owner == self.name:
            return self._lock >= 0
        lock = _try_lock(self._folder / owner)
        if lock is None:
            return False
        fd, taken = lock
        os.close(fd)
        return not taken

    def close(self) -> None:
        """Give up the name, so that others may take over what it owns. Harmless when called twice."""
        if self._lock >= 0:
            (self._folder / self.name).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1

    def _take_name(self) -> tuple[str, int]:
        while True:
            name = uuid.uuid4().hex
            path = self._folder / name
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if path.exists():
                return name, fd
            os.close(fd)  # a sweeper found the file between its making and its locking

    def _sweep(self) -> None:
        for path in self._folder.iterdir():
            if path.name != self.name and (lock := _try_lock(path)) is not None:
                fd, taken = lock
                if taken:
                    path.unlink(missing_ok=True)
                os.close(fd)


def _try_lock(path: Path) -> tuple[int, bool] | None:
    """The open file and whether its owner has let go of it; None when there is no such file.

    The lock is a shared one, so that those who only look do not take each other for the owner.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return fd, False
    return fd, True
