"""Where keys lie in a workspace, so that a box which no person was asked about shows none of them.

The first few hundred folders are looked through, the nearest first; what other people's packages bring is passed by.
A file that git tracks is not hidden: its content is in the history anyway, and git would call it changed.
"""

import mmap
import os
import stat
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from toolwire.protocol.key_files import is_key_file, is_key_folder

MOST_FOLDERS = 300
_PASSED_BY = frozenset(
    ".git .hg .svn node_modules .venv venv env __pycache__ site-packages target dist build .tox .nox .mypy_cache "
    ".pytest_cache .ruff_cache .gradle .idea .toolwire vendor".split()
)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Keys(NamedTuple):
    """Paths in a workspace that hold keys."""

    folders: tuple[str, ...]
    files: tuple[str, ...]


NO_KEYS = Keys((), ())


def find_keys(root: int) -> Keys:
    """The folders and files with keys beneath an open workspace. A link to one hides what it leads to."""
    folders: list[str] = []
    files: list[str] = []
    for path, kind in _key_paths(root):
        if kind == stat.S_IFDIR:
            folders.append(path)
        elif kind == stat.S_IFREG:
            files.append(path)
    tracked = _tracked(root, files) if files else frozenset()
    return Keys(tuple(dict.fromkeys(folders)), tuple(path for path in dict.fromkeys(files) if path not in tracked))


def _key_paths(root: int) -> Iterator[tuple[str, int]]:
    waiting = deque([("", "")])
    for _ in range(MOST_FOLDERS):
        if not waiting:
            return
        above, name = waiting.popleft()
        for entry, is_folder, is_link in _entries(root, above):
            path = f"{above}/{entry}" if above else entry
            if is_key_folder(entry, name) or is_key_file(entry):
                yield from _target(root, path) if is_link else [(path, stat.S_IFDIR if is_folder else stat.S_IFREG)]
            elif is_folder and entry not in _PASSED_BY:
                waiting.append((path, entry))


def _entries(root: int, folder: str) -> list[tuple[str, bool, bool]]:
    try:
        opened = os.open(folder or ".", _FOLDER, dir_fd=root)
    except OSError:
        return []
    try:
        with os.scandir(opened) as found:
            return [
                (one.name, one.is_dir(follow_symlinks=False), one.is_symlink())
                for one in found
                if one.is_dir(follow_symlinks=False) or one.is_file(follow_symlinks=False) or one.is_symlink()
            ]
    except OSError:
        return []
    finally:
        os.close(opened)


def _target(root: int, path: str) -> list[tuple[str, int]]:
    """Where a link leads, if that is in the workspace; from a box no other place can be reached by it."""
    top = os.path.realpath(f"/proc/self/fd/{root}")
    target = os.path.realpath(f"{top}/{path}")
    if not target.startswith(f"{top}/"):
        return []
    try:
        return [(target[len(top) + 1 :], stat.S_IFMT(os.lstat(target).st_mode))]
    except OSError:
        return []


def _tracked(root: int, paths: list[str]) -> frozenset[str]:
    """Those of these paths that are in git's index: each stands there behind its length, and before a NUL."""
    try:
        index = os.open(".git/index", _FILE, dir_fd=root)
    except OSError:
        return frozenset()
    try:
        with mmap.mmap(index, 0, access=mmap.ACCESS_READ) as data:
            return frozenset(path for path in paths if data.find(_entry(path)) >= 0)
    except (OSError, ValueError):
        return frozenset()
    finally:
        os.close(index)


def _entry(path: str) -> bytes:
    name = os.fsencode(path)
    return min(len(name), 0xFFF).to_bytes(2, "big") + name + b"\0"
