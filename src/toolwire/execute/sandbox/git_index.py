"""Which folders an index of git calls submodules. Read here, since git itself may be led by what lies beside an index.

An index may be of a box's making, so it is read in bounded memory and in time proportional to its length: what has more
in it than any project has is `excessive`, and its reader is told so instead of being shown a part.
"""

import errno
import os
import stat
import struct
from collections.abc import Iterator
from threading import Lock

from msgspec import Struct

MOST_LINKS = 50_000
_MOST_CANDIDATES = 400_000
_MOST_SHARED = 500
_LONGEST_IN_ORDER = 64 * 1024 * 1024
_PIECE, _LONGEST_ENTRY = 1024 * 1024, 8192
_LONGEST_PATH = 65_536
_MOST_KEPT = 64
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SUBMODULE = struct.pack(">I", 0o160000)  # how the index writes the mode of one
_MODE_AT, _DIGEST_AT = 24, 40
_DIGESTS = (20, 32)  # SHA-1 and SHA-256
_EXTENDED, _NAME_LENGTH = 0x4000, 0x0FFF


class Links(Struct, frozen=True):
    """The paths at which git would look for a repository of its own; `excessive` where these are not all."""

    paths: tuple[str, ...] = ()
    excessive: bool = False


_seen: dict[tuple[int, ...], Links] = {}
_alone = Lock()


def links_of(folder: int) -> Links:
    """What the index in an opened git folder names, with the files on which it may build (a split index)."""
    try:
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return _of_file(folder, "index")
    try:
        names = os.listdir(listed)  # noqa: PTH208 - by descriptor
        shared = [name for name in names if name.startswith("sharedindex.")]
    finally:
        os.close(listed)
    if not shared:
        return _of_file(folder, "index")
    found = [_of_file(folder, name) for name in ("index", *shared[:_MOST_SHARED])]
    paths = dict.fromkeys(path for links in found for path in links.paths)
    return Links(tuple(paths), len(shared) > _MOST_SHARED or any(links.excessive for links in found))


def _of_file(folder: int, name: str) -> Links:
    """The links of one file; looked at once while it stays the same.

    Git follows an index that is itself a symbolic link, to a place that may be another one by then: it counts as one
    that cannot be looked at.
    """
    try:
        file = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        return Links(excessive=error.errno == errno.ELOOP)
    try:
        facts = os.fstat(file)
        # Its own time of change, which no program can set, is among these.
        key = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        with _alone:
            known = _seen.get(key)
        if known is None:
            known = _read(file, facts.st_size) if stat.S_ISREG(facts.st_mode) and facts.st_size > 12 else Links()
            with _alone:
                while len(_seen) >= _MOST_KEPT:
                    _seen.pop(next(iter(_seen)))
                _seen[key] = known
        return known
    finally:
        os.close(file)


def _read(file: int, size: int) -> Links:
    """Read by pieces, never by a map of the file: a box that cuts it short meanwhile would end this process."""
    try:
        header = os.pread(file, 12, 0)
        if header[:4] != b"DIRC" or not _has_submodules(file):
            return Links()
        if int.from_bytes(header[4:8]) != 4:
            return _collect(_anywhere(file))
        if size > _LONGEST_IN_ORDER:
            return Links(excessive=True)
        data = os.pread(file, size, 0)
    except OSError:
        return Links()
    found = [_collect(_in_order(data, digest)) for digest in _DIGESTS]
    paths = dict.fromkeys(path for links in found for path in links.paths)
    return Links(tuple(paths), any(links.excessive for links in found))


def _collect(found: Iterator[bytes | None]) -> Links:
    """The plain ones among paths, each once; None among them stands for too many."""
    paths: dict[str, None] = {}
    for path in found:
        if path is None or len(paths) >= MOST_LINKS:
            return Links(tuple(paths), excessive=True)
        if _is_plain(name := os.fsdecode(path)):
            paths[name] = None
    return Links(tuple(paths))


def _has_submodules(file: int) -> bool:
    return any(_SUBMODULE in piece for _, piece in pieces(file))


def pieces(file: int) -> Iterator[tuple[int, bytes]]:
    """Overlapping pieces, and how much of each is not in the next one: no entry is cut."""
    at = 0
    while piece := os.pread(file, _PIECE + _LONGEST_ENTRY, at):
        yield min(len(piece), _PIECE), piece
        at += _PIECE


def _anywhere(file: int) -> Iterator[bytes | None]:
    """Wherever the mode of a submodule stands and a path of the length that is written there follows."""
    looked = 0
    for own, piece in pieces(file):
        at = piece.find(_SUBMODULE)
        while 0 <= at < own:
            looked += 1
            if looked > _MOST_CANDIDATES:
                yield None
                return
            yield from (path for digest in _DIGESTS if (path := _path_at(piece, at, digest)))
            at = piece.find(_SUBMODULE, at + 1)


def _path_at(piece: bytes, at: int, digest: int) -> bytes:
    """The path of an entry whose mode stands at a place; empty where this is no entry."""
    flags_at = at - _MODE_AT + _DIGEST_AT + digest
    flags = int.from_bytes(piece[flags_at : flags_at + 2])
    start = flags_at + (4 if flags & _EXTENDED else 2)
    end = piece.find(b"\0", start, start + 4097)
    return piece[start:end] if end > start and flags & _NAME_LENGTH == min(end - start, _NAME_LENGTH) else b""


def _in_order(data: bytes, digest: int) -> Iterator[bytes | None]:
    """In version 4 a path is told by how it differs from the one before."""
    at, path = 12, b""
    try:
        for _ in range(int.from_bytes(data[8:12])):
            flags_at = at + _DIGEST_AT + digest
            flags = int.from_bytes(data[flags_at : flags_at + 2])
            cut, start = _number(data, flags_at + (4 if flags & _EXTENDED else 2))
            end = data.find(b"\0", start, start + 4097)
            if end < 0 or cut > len(path):
                return
            path = path[: len(path) - cut] + data[start:end]
            if len(path) > _LONGEST_PATH:
                yield None
                return
            if data[at + _MODE_AT : at + _MODE_AT + 4] == _SUBMODULE:
                yield path
            at = end + 1
    except IndexError:
        return


def _number(data: bytes, at: int) -> tuple[int, int]:
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
