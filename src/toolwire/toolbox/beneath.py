"""Opening a file that lies beneath a folder, whatever the path says and whoever moves things meanwhile.

On Linux the kernel resolves the whole path at once (`openat2` with RESOLVE_BENEATH): links may be followed as long as
they stay inside, and nobody can swap a folder between a check and its use. Elsewhere the path is walked folder by
folder and no link is followed at all, inside or not. Systems without `dir_fd` (Windows) get no file.
"""

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Callable

_OPENAT2 = 437
_NO_MAGIC_LINKS = 0x02
_BENEATH = 0x08
_TRIES = 32  # the kernel says EAGAIN when a rename happens while it resolves

# Never wait for the other end of a FIFO, never become the owner of a terminal.
_READ = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_FOLDER = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_DIRECTORY", 0)


class NotAFile(OSError):
    """What the path leads to is neither a regular file nor a folder."""


def open_file(root: str, path: str) -> int:
    """A descriptor of the regular file at `path` beneath `root`. Raises OSError."""
    return _opened(root, path, _READ, _regular)


def open_folder(root: str, path: str) -> int:
    """A descriptor of the folder at `path` beneath `root`. Raises OSError."""
    return _opened(root, path, _FOLDER, stat.S_ISDIR)


def _regular(mode: int) -> bool:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    return stat.S_ISREG(mode)


def _opened(root: str, path: str, flags: int, wanted: Callable[[int], bool]) -> int:
    if "\0" in root or "\0" in path:  # C would silently stop reading there
        raise OSError(errno.EINVAL, "NUL in a path")
    if os.open not in os.supports_dir_fd:
        raise OSError(errno.ENOTSUP, "this system cannot open files safely beneath a folder")
    folder = os.open(root, _FOLDER)
    try:
        descriptor = _beneath(folder, path or ".", flags)
    finally:
        os.close(folder)
    try:
        if not wanted(os.fstat(descriptor).st_mode):
            raise NotAFile(errno.EINVAL, "is not a regular file")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _beneath(folder: int, path: str, flags: int) -> int:
    if sys.platform == "linux":
        try:
            return _resolved_by_kernel(folder, path, flags)
        except OSError as error:
            # Older kernels do not know the call, and some containers forbid it.
            if error.errno not in {errno.ENOSYS, errno.EPERM}:
                raise
    return walk(folder, path, flags)


def _resolved_by_kernel(folder: int, path: str, flags: int) -> int:
    how = struct.pack("QQQ", flags, 0, _BENEATH | _NO_MAGIC_LINKS)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    arguments = ctypes.c_long(_OPENAT2), ctypes.c_long(folder), os.fsencode(path), how, ctypes.c_size_t(len(how))
    for _ in range(_TRIES):
        descriptor = call(*arguments)
        if descriptor >= 0:
            return int(descriptor)
        if ctypes.get_errno() not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


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
