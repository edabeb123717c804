"""Folders of a run of the tests: others leave them alone while it runs, and the next one removes what it has left."""

import fcntl
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from _pytest.pathlib import rm_rf

MEMORY = Path("/dev/shm")
"""A file system in memory, where there is one: nothing in it waits for a disk."""
_PREFIX = "toolwire-tests-"
_ROOM = 2**30


def own_folder(parent: Path) -> tuple[Path, IO[str]]:
    """A new folder for a run, and its lock. The lock gets its name once it is held: a free one is of a killed run."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    lock = (folder / "new-lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "new-lock").rename(folder / "lock")
    return folder, lock


def sweep(folder: Path) -> None:
    """Remove what killed runs have left: their lock is free."""
    for lock in folder.glob(f"{_PREFIX}*/lock"):
        with suppress(OSError), lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rm_rf(lock.parent)


def in_memory() -> Path:
    """Where to put files that need no disk: in memory, if there is room. Programs in it may not be executable."""
    with suppress(OSError):
        if shutil.disk_usage(MEMORY).free >= _ROOM:
            return MEMORY
    return Path(tempfile.gettempdir())
