"""Which files beneath a folder have changed since a moment, in one bounded walk."""

import os
import re
import time
import zlib
from collections.abc import Iterator

MOST_LOOKED_AT = 200_000
"""Names that are looked at; beyond them it is unknown what has changed."""

_FILE_CLOCK = 5  # CLOCK_REALTIME_COARSE: the clock that ticks behind the times of files

_OWN_STATE, _GIT = ".toolwire", ".git"
_SHELF = re.compile("[0-9a-f]{2}")


def file_time_ns() -> int:
    """Now, by the clock that dates files: what is changed from here on is not older."""
    return time.clock_gettime_ns(_FILE_CLOCK)


def changed_files(folder: str, since_ns: int) -> tuple[dict[str, os.stat_result], bool]:
    """The regular files whose content, name or mode changed, by path, and whether that is all of them.

    Our own state is left out, and what git keeps for itself but for the content of files that it has taken in.
    """
    found: dict[str, os.stat_result] = {}
    repositories: list[str] = []
    for count, (path, status) in enumerate(_entries(folder, repositories)):
        if count >= MOST_LOOKED_AT:
            return found, False
        if status is not None and status.st_ctime_ns >= since_ns:
            found[path] = status
    for git in repositories:
        found |= _new_blobs(git, since_ns)
    return found, True


def _new_blobs(git: str, since_ns: int) -> dict[str, os.stat_result]:
    """The contents of files that a repository has taken in since, each an object of its own, not yet in a pack."""
    found: dict[str, os.stat_result] = {}
    try:
        with os.scandir(f"{git}/objects") as shelves:
            changed = [one.path for one in shelves if _SHELF.fullmatch(one.name) and _is_new(one, since_ns)]
        for shelf in changed:
            with os.scandir(shelf) as entries:
                for entry in entries:
                    if _is_new(entry, since_ns) and entry.is_file(follow_symlinks=False) and _is_blob(entry.path):
                        found[entry.path] = entry.stat(follow_symlinks=False)
    except OSError:
        pass  # no repository, or one that is being changed
    return found


def _is_new(entry: "os.DirEntry[str]", since_ns: int) -> bool:
    return entry.stat(follow_symlinks=False).st_ctime_ns >= since_ns


def _is_blob(path: str) -> bool:
    """Whether an object is the content of a file; commits and lists of names are read by nearly every use of git."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - done for many
            return zlib.decompressobj().decompress(file.read(64), 5) == b"blob "
    except (OSError, zlib.error):
        return False


def _entries(folder: str, repositories: list[str]) -> Iterator[tuple[str, os.stat_result | None]]:
    """Everything beneath a folder; only regular files come with their status. Git's own folders are put aside."""
    folders = [folder]
    while folders:
        try:
            entries = os.scandir(folders.pop())
        except OSError:
            continue
        with entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False) and entry.name != _OWN_STATE:
                        (repositories if entry.name == _GIT else folders).append(entry.path)
                    regular = entry.is_file(follow_symlinks=False)
                    yield entry.path, entry.stat(follow_symlinks=False) if regular else None
                except OSError:
                    continue


def version_of(status: os.stat_result) -> str:
    """What changes with the content of a file: its size and its time."""
    return f"{status.st_size}:{status.st_mtime_ns}"
