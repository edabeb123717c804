"""Which files beneath a folder have changed since a moment, in one bounded walk."""

import os
import time
from collections.abc import Iterator

MOST_LOOKED_AT = 200_000
"""Names that are looked at; beyond them nobody can say what has changed."""

_FILE_CLOCK = 5  # CLOCK_REALTIME_COARSE: the clock that ticks behind the times of files

_OWN_STATE, _GIT = ".toolwire", ".git"


def file_time_ns() -> int:
    """Now, by the clock that dates files: what is changed from here on is not older."""
    return time.clock_gettime_ns(_FILE_CLOCK)


def changed_files(folder: str, since_ns: int) -> tuple[dict[str, os.stat_result], bool]:
    """The regular files whose content, name or mode changed, by path, and whether that is all of them.

    Our own state is left out, and what git keeps for itself.
    """
    found: dict[str, os.stat_result] = {}
    for count, (path, status) in enumerate(_entries(folder)):
        if count >= MOST_LOOKED_AT:
            return found, False
        if status is not None and status.st_ctime_ns >= since_ns:
            found[path] = status
    return found, True


def _entries(folder: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """Everything beneath a folder; only regular files come with their status."""
    folders = [folder]
    while folders:
        try:
            entries = os.scandir(folders.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False) and entry.name not in (_OWN_STATE, _GIT):
                        folders.append(entry.path)
                    regular = entry.is_file(follow_symlinks=False)
                    yield entry.path, entry.stat(follow_symlinks=False) if regular else None
                except OSError:
                    continue


def version_of(status: os.stat_result) -> str:
    """What changes with the content of a file: its size and its time."""
    return f"{status.st_size}:{status.st_mtime_ns}"
