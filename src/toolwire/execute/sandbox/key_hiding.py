"""Which of the names with keys in a workspace are hidden from a box that no person was asked about.

A link hides what it leads to, and a file is hidden under all names that it has in the workspace. It is not hidden while
git's index holds this very content: it is in the history anyway, and git would call it changed or deleted. One that was
filled in since, or that a filter decrypts, is hidden.
"""

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from toolwire.execute.sandbox.beneath import lstat_beneath, names_beneath, read_beneath
from toolwire.execute.sandbox.git_index import pieces
from toolwire.protocol.obeyed import is_own_state

_LONGEST = 1024 * 1024
_MOST_FILES = 1_000
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
            others = beside_tracked(root, path)
            if others is None:
                folders[path] = None
            else:
                files |= dict.fromkeys(others)
        elif kind == stat.S_IFREG:
            files[path] = None
    files |= dict.fromkeys(
        _twins(root, [*files, *_files_in(root, (*folders, *(one for one in hidden if not is_own_state(one))))])
    )
    above = tuple(f"{path}/" for path in (*hidden, *folders))
    outer = tuple(path for path in folders if not path.startswith(above))
    shown = [path for path in files if not path.startswith(above)]
    tracked = _tracked(root, shown) if shown else frozenset()
    return Keys(outer, tuple(path for path in shown if path not in tracked))


def beside_tracked(root: int, folder: str) -> tuple[str, ...] | None:
    """The files of a folder whose content git does not hold; None where it holds none of them."""
    files = _files_in(root, [folder])
    tracked = _tracked(root, files) if files else frozenset()
    return tuple(path for path in files if path not in tracked) if tracked else None


def _files_in(root: int, folders: Iterable[str]) -> list[str]:
    found: list[str] = []
    waiting = list(folders)
    while waiting and len(found) < _MOST_FILES:
        folder = waiting.pop()
        for name in names_beneath(root, folder):
            facts = lstat_beneath(root, f"{folder}/{name}")
            if facts is not None and stat.S_ISDIR(facts.st_mode):
                waiting.append(f"{folder}/{name}")
            elif facts is not None and stat.S_ISREG(facts.st_mode):
                found.append(f"{folder}/{name}")
    return found


def _twins(root: int, files: list[str]) -> list[str]:
    """Other names of the same files, anywhere in the workspace. Nearly all files have one name, which costs nothing."""
    facts = [one for path in files if (one := lstat_beneath(root, path)) is not None and one.st_nlink > 1]
    sought = {(one.st_dev, one.st_ino) for one in facts}
    numbers = {inode for _, inode in sought}
    found: list[str] = []
    for place, _, names, opened in os.fwalk(".", dir_fd=root) if sought else ():
        with os.scandir(opened) as entries:
            same = [entry.name for entry in entries if entry.inode() in numbers and entry.name in names]
        paths = [f"{place}/{name}".removeprefix("./") for name in same]
        found += [path for path in paths if _identity(root, path) in sought and path not in files]
    return found


def _identity(root: int, path: str) -> tuple[int, int] | None:
    facts = lstat_beneath(root, path)
    return None if facts is None else (facts.st_dev, facts.st_ino)


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
    """Those of these paths whose content is in git's index."""
    try:
        index = os.open(".git/index", _FILE, dir_fd=root)
    except OSError:
        return frozenset()
    try:
        if not stat.S_ISREG(os.fstat(index).st_mode):
            return frozenset()
        return frozenset(path for _, piece in pieces(index) for path in paths if _is_in(piece, root, path))
    except OSError:
        return frozenset()
    finally:
        os.close(index)


def _is_in(piece: bytes, root: int, path: str) -> bool:
    """Whether an entry is there: the digest of the content, the length of the path, the path, and a NUL.

    The bits of an entry that git is told not to compare with the file stand beside the length, so none is found.
    """
    name = os.fsencode(path)
    entry = min(len(name), 0xFFF).to_bytes(2, "big") + name + b"\0"
    at = piece.find(entry)
    digests = _digests(root, path) if at >= 0 else ()
    while at >= 0 and not piece.endswith(digests, 0, at):
        at = piece.find(entry, at + 1)
    return at >= 0


def _digests(root: int, path: str) -> tuple[bytes, ...]:
    """What git calls the content of a file, in either kind of repository; nothing for one that cannot be read."""
    content = read_beneath(root, path, _LONGEST + 1)
    if content is None or len(content) > _LONGEST:
        return ()
    blob = b"blob %d\0" % len(content) + content
    return hashlib.sha1(blob, usedforsecurity=False).digest(), hashlib.sha256(blob).digest()
