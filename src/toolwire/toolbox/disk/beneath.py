"""Reaching files that lie beneath a folder, whatever the path says and whatever is moved meanwhile.

On Linux the kernel resolves the whole path at once (`openat2` with RESOLVE_BENEATH): links may be followed as long as
they stay inside, and no folder can be swapped between a check and its use. Elsewhere the path is walked folder by
folder and no link is followed at all, inside or not. Writing follows no link anywhere, since a link could give a
protected folder another name. Systems without `dir_fd` (Windows) get no file.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from itertools import islice

from toolwire.protocol.files import FileEntry, NotAFile

DEEPEST = 100
_OPENAT2 = 437
_NO_MAGIC_LINKS = 0x02
_NO_LINKS = 0x04
_BENEATH = 0x08
_TRIES = 32  # the kernel says EAGAIN when a rename happens while it resolves
_EXCHANGE = 2
_NO_REPLACE = 1

# Never wait for the other end of a FIFO, never become the owner of a terminal.
_READ = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_FOLDER = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_DIRECTORY", 0)


class BeneathDir:
    """A folder held open. Everything is reached from its descriptor, and nothing that lies outside. Raises OSError."""

    def __init__(self, root: str) -> None:
        refuse_controls(root)
        if os.open not in os.supports_dir_fd:
            raise OSError(errno.ENOTSUP, "this system cannot open files safely beneath a folder")
        self.root = root
        self.fd = os.open(root, _FOLDER)

    def __enter__(self) -> "BeneathDir":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def file(self, path: str, *, links: bool = True) -> int:
        """A descriptor of a regular file."""
        return self._opened(path, _READ, _regular, links)

    def folder(self, path: str, *, links: bool = True) -> int:
        """A descriptor of a folder."""
        return self._opened(path, _FOLDER, stat.S_ISDIR, links)

    def stat(self, path: str) -> FileEntry:
        """What lies at a path, without following a link at its end."""
        refuse_controls(path)
        if path in {"", "."}:
            return _entry(".", os.fstat(self.fd))
        above, _, name = plain_path(path).rpartition("/")
        folder = self.folder(above)
        try:
            return _entry(name, os.stat(name, dir_fd=folder, follow_symlinks=False))
        finally:
            os.close(folder)

    def parent(self, path: str, *, make: bool = False) -> tuple[int, str]:
        """A descriptor of the folder in which a path ends, reached without any link, and the last name.

        With `make`, missing folders are made on the way.
        """
        refuse_controls(path)
        *above, name = _steps(path)
        here = os.dup(self.fd)
        for part in above:
            try:
                deeper = _step(here, part, make=make)
            finally:
                os.close(here)
            here = deeper
        return here, name

    def _opened(self, path: str, flags: int, wanted: Callable[[int], bool], links: bool) -> int:
        refuse_controls(path)
        descriptor = _beneath(self.fd, path or ".", flags, links)
        try:
            if not wanted(os.fstat(descriptor).st_mode):
                raise NotAFile
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def refuse_controls(path: str) -> None:
    """Raise OSError for a path with NUL, where C would silently stop reading, or another control character."""
    if not path.isprintable() and any(ord(char) < 32 or 127 <= ord(char) < 160 for char in path):
        raise OSError(errno.EINVAL, "control character in a path")


def plain_path(path: str) -> str:
    """The path in its one spelling. Raises OSError for one that is absolute, goes upward or names the root itself."""
    return "/".join(_steps(path))


def exchange(one: tuple[int, str], other: tuple[int, str]) -> None:
    """Swap two names at once; each is a folder's descriptor and a name in it. Links are swapped, not followed."""
    try:
        _renameat2(one, other, _EXCHANGE)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}:
            raise
        aside = (one[0], f"{one[1]}.old")
        os.link(other[1], aside[1], src_dir_fd=other[0], dst_dir_fd=aside[0], follow_symlinks=False)
        os.rename(one[1], other[1], src_dir_fd=one[0], dst_dir_fd=other[0])
        os.rename(aside[1], one[1], src_dir_fd=aside[0], dst_dir_fd=one[0])


def move(source: tuple[int, str], target: tuple[int, str]) -> None:
    """Give a file another name. Raises FileExistsError rather than replacing anything."""
    try:
        _renameat2(source, target, _NO_REPLACE)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}:
            raise
        os.link(source[1], target[1], src_dir_fd=source[0], dst_dir_fd=target[0], follow_symlinks=False)
        os.unlink(source[1], dir_fd=source[0])


def walk(folder: int, path: str, flags: int) -> int:
    """Open `path` one folder at a time, refusing every link and every step upward. `folder` stays open."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    here = os.dup(folder)
    for position, part in enumerate(parts, 1):
        step = flags if position == len(parts) else _FOLDER
        try:
            deeper = os.open(part, step | os.O_NOFOLLOW, dir_fd=here)
        finally:
            os.close(here)
        here = deeper
    return here


def entries_of(folder: int, most: int) -> list[FileEntry]:
    """What an open folder holds, sorted by name, at most so many. Raises OSError."""
    with os.scandir(folder) as found:
        return sorted(_entries(islice(found, most)), key=lambda entry: entry.name)


def _entries(found: Iterator["os.DirEntry[str]"]) -> Iterator[FileEntry]:
    for entry in found:
        try:
            yield _entry(entry.name, entry.stat(follow_symlinks=False))
        except FileNotFoundError:
            continue


def _entry(name: str, status: os.stat_result) -> FileEntry:
    mode = status.st_mode
    kind = (
        "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"
    )
    return FileEntry(name, kind, status.st_size, status.st_mtime, mode & 0o777)


def _regular(mode: int) -> bool:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    return stat.S_ISREG(mode)


def _steps(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    if not parts:
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    if len(parts) > DEEPEST:  # folders are made as needed, and few programs can remove thousands in one another
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    return parts


def _step(here: int, part: str, *, make: bool) -> int:
    try:
        return _beneath(here, part, _FOLDER, links=False)
    except FileNotFoundError:
        if not make:
            raise
    try:
        os.mkdir(part, 0o755, dir_fd=here)
    except FileExistsError:
        pass  # made by someone else meanwhile; opening it says what it is
    else:
        _own(here, part)
        os.fsync(here)
    return _beneath(here, part, _FOLDER, links=False)


def _own(here: int, part: str) -> None:
    """Give a new folder to the owner of the one it lies in, so that root's work can be used by whom it is for."""
    if os.geteuid() == 0:
        owner = os.fstat(here)
        os.chown(part, owner.st_uid, owner.st_gid, dir_fd=here, follow_symlinks=False)


def _beneath(folder: int, path: str, flags: int, links: bool) -> int:
    if sys.platform == "linux":
        try:
            return _resolved_by_kernel(folder, path, flags, links)
        except OSError as error:
            # Older kernels do not know the call, and some containers forbid it.
            if error.errno not in {errno.ENOSYS, errno.EPERM}:
                raise
    return walk(folder, path, flags)


def _resolved_by_kernel(folder: int, path: str, flags: int, links: bool) -> int:
    how = struct.pack("QQQ", flags, 0, _BENEATH | (_NO_MAGIC_LINKS if links else _NO_LINKS | _NO_MAGIC_LINKS))
    arguments = ctypes.c_long(_OPENAT2), ctypes.c_long(folder), os.fsencode(path), how, ctypes.c_size_t(len(how))
    for _ in range(_TRIES):
        descriptor = _syscall(*arguments)
        if descriptor >= 0:
            return int(descriptor)
        if ctypes.get_errno() not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _renameat2(source: tuple[int, str], target: tuple[int, str], flags: int) -> None:
    number = _RENAMEAT2.get(os.uname().machine) if sys.platform == "linux" else None
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    names = os.fsencode(source[1]), os.fsencode(target[1])
    places = ctypes.c_long(source[0]), ctypes.c_long(target[0])
    if _syscall(ctypes.c_long(number), places[0], names[0], places[1], names[1], ctypes.c_ulong(flags)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _libc_syscall() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call


# openat2 has one number everywhere; renameat2 is older than that agreement.
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}
_syscall: Callable[..., int] = _libc_syscall() if sys.platform == "linux" else lambda *_: -1
