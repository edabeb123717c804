"""Which of the names with keys in a workspace are hidden from a box that no person was asked about.

A link hides what it leads to. A file that git tracks is not hidden: its content is in the history anyway, and git would
call it changed.
"""

import mmap
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Keys(NamedTuple):
    """Paths in a workspace that hold keys."""

    folders: tuple[str, ...]
    files: tuple[str, ...]


NO_KEYS = Keys((), ())


def find_keys(root: int, named: Iterable[str], hidden: tuple[str, ...]) -> Keys:
    """The folders and files to hide: those of the paths `named` that are there, and not `hidden` already."""
    folders: dict[str, None] = {}
    files: dict[str, None] = {}
    for name in named:
        path, kind = _end(root, name)
        if kind == stat.S_IFDIR and path not in hidden:
            folders[path] = None
        elif kind == stat.S_IFREG:
            files[path] = None
    above = tuple(f"{path}/" for path in (*hidden, *folders))
    outer = tuple(path for path in folders if not path.startswith(above))
    shown = [path for path in files if not path.startswith(above)]
    tracked = _tracked(root, shown) if shown else frozenset()
    return Keys(outer, tuple(path for path in shown if path not in tracked))


def _end(root: int, path: str) -> tuple[str, int]:
    """What lies at a path; of a link, where it leads, if that is in the workspace: no box reaches another place."""
    try:
        kind = stat.S_IFMT(os.stat(path, dir_fd=root, follow_symlinks=False).st_mode)
        if kind != stat.S_IFLNK:
            return path, kind
        top = os.path.realpath(f"/proc/self/fd/{root}")
        target = os.path.realpath(f"{top}/{path}")
        kind = stat.S_IFMT(Path(target).lstat().st_mode)
    except OSError:
        return path, 0
    return (target[len(top) + 1 :], kind) if target.startswith(f"{top}/") else (path, 0)


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
