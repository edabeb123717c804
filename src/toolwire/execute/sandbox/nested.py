"""Repositories within a repository, and what is done about those that a box has planted.

`git status` at the top of a workspace runs git in every folder that the index calls a submodule, and obeys the
configuration that lies there. A box may write both. So whatever became such a folder while a box was open is held back:
its `.git` is moved aside, nothing of it is lost, and git passes it by until someone moves it back.
"""

import mmap
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from secrets import token_hex
from threading import Lock

HELD_BACK = "held-back"
MOST = 200
DEEPEST = 4
_MOST_ENTRIES = 300_000
_MOST_KEPT = 64
_MOST_LINKS = 2_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SUBMODULE = struct.pack(">I", 0o160000)  # how the index writes the mode of one
_MODE_AT, _DIGEST_AT = 24, 40
_DIGESTS = (20, 32)  # SHA-1 and SHA-256
_EXTENDED, _NAME_LENGTH = 0x4000, 0x0FFF
_BARE_HAS = ("HEAD", "objects", "refs")
BARE = "/"
"""What stands for the workspace itself among paths, where it is a repository without a `.git`."""

_seen: dict[tuple[int, ...], tuple[str, ...]] = {}
_alone = Lock()


def submodules(root: int) -> list[str]:
    """The paths at which git would look for a repository of its own, to some depth, whether one is there or not."""
    found: list[str] = []
    waiting = [("", 0)]
    while waiting and len(found) < MOST:
        place, depth = waiting.pop()
        for path in _of_index(root, f"{place}.git/")[: MOST - len(found)]:
            found.append(place + path)
            if depth < DEEPEST:
                waiting.append((f"{place}{path}/", depth + 1))
    return found


def is_populated(root: int, path: str) -> bool:
    """Whether there is a repository, or something that names one."""
    folder = _opened(root, path)
    if folder is None:
        return False
    try:
        return _exists(folder, ".git")
    finally:
        os.close(folder)


def hold_back(root: int, path: str, name: str = ".git") -> None:
    """Move a name in a folder of the workspace aside, so that git does not find it."""
    folder = _opened(root, path)
    if folder is None:
        return
    try:
        with suppress(OSError):
            os.rename(name, f"{name}.{HELD_BACK}-{token_hex(4)}", src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


def is_bare(root: int) -> bool:
    """Whether git would take the workspace itself for a repository without a `.git`."""
    return all(_exists(root, name) for name in _BARE_HAS)


def _of_index(root: int, git: str) -> tuple[str, ...]:
    """The submodules in the index of a repository whose folder is `git`; looked at once while it stays the same."""
    folder = _opened(root, git)
    if folder is None:
        return ()
    try:
        found = list(_of_file(folder, "index"))
        for name in [one[1:] for one in found if one.startswith("/")]:  # a part of it may be in another file
            found += _of_file(folder, name)
        return tuple(dict.fromkeys(path for path in found if _is_plain(path)))
    finally:
        os.close(folder)


def _of_file(folder: int, name: str) -> tuple[str, ...]:
    try:
        file = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return ()
    try:
        facts = os.fstat(file)
        # Its own time of change, which nobody can set, is among these.
        key = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        with _alone:
            known = _seen.get(key)
        if known is None:
            known = _read(file) if stat.S_ISREG(facts.st_mode) and facts.st_size > 12 else ()
            with _alone:
                while len(_seen) >= _MOST_KEPT:
                    _seen.pop(next(iter(_seen)))
                _seen[key] = known
        return known
    finally:
        os.close(file)


def _read(file: int) -> tuple[str, ...]:
    try:
        with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as data:
            if data[:4] != b"DIRC":
                return ()
            paths = list(_shared(data))
            if data.find(_SUBMODULE) >= 0:
                way = _in_order if int.from_bytes(data[4:8]) == 4 else _anywhere
                paths += [path for digest in _DIGESTS for path in way(data, digest)]
    except (OSError, ValueError, IndexError):
        return ()
    return tuple(os.fsdecode(path) for path in dict.fromkeys(paths))


def _shared(data: mmap.mmap) -> Iterator[bytes]:
    """After a slash, the names that another file may have on which this index builds."""
    at, looked = data.find(b"link"), 0
    while at >= 0 and looked < _MOST_LINKS:
        looked += 1
        yield from (b"/sharedindex." + data[at + 8 : at + 8 + digest].hex().encode() for digest in _DIGESTS)
        at = data.find(b"link", at + 1)


def _anywhere(data: mmap.mmap, digest: int) -> Iterator[bytes]:
    """Wherever the mode of a submodule stands and a path of the length that is written there follows."""
    at, found = data.find(_SUBMODULE), 0
    while at >= 0 and found < MOST:
        flags_at = at - _MODE_AT + _DIGEST_AT + digest
        flags = int.from_bytes(data[flags_at : flags_at + 2])
        start = flags_at + (4 if flags & _EXTENDED else 2)
        end = data.find(b"\0", start, start + 4096)
        if end > start and flags & _NAME_LENGTH == min(end - start, _NAME_LENGTH):
            found += 1
            yield data[start:end]
        at = data.find(_SUBMODULE, at + 1)


def _in_order(data: mmap.mmap, digest: int) -> Iterator[bytes]:
    """In version 4 a path is told by how it differs from the one before."""
    at, path, found = 12, b"", 0
    for _ in range(min(int.from_bytes(data[8:12]), _MOST_ENTRIES)):
        flags_at = at + _DIGEST_AT + digest
        flags = int.from_bytes(data[flags_at : flags_at + 2])
        cut, start = _number(data, flags_at + (4 if flags & _EXTENDED else 2))
        end = data.find(b"\0", start, start + 4096)
        if end < 0 or cut > len(path) or found >= MOST:
            return
        path = path[: len(path) - cut] + data[start:end]
        if data[at + _MODE_AT : at + _MODE_AT + 4] == _SUBMODULE:
            found += 1
            yield path
        at = end + 1


def _number(data: mmap.mmap, at: int) -> tuple[int, int]:
    """A number of several bytes, in the way git writes offsets, and where it ends."""
    byte = data[at]
    value = byte & 0x7F
    while byte & 0x80 and value < 2**31:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at + 1


def _is_plain(path: str) -> bool:
    return not {"", ".", ".."} & set(path.split("/"))


def _opened(root: int, path: str) -> int | None:
    """A folder of the workspace, reached without following a link."""
    here = os.dup(root)
    try:
        for part in path.strip("/").split("/") if path.strip("/") else ():
            deeper = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = deeper
    except OSError:
        os.close(here)
        return None
    return here


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True
