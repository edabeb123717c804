"""Reaching names beneath a folder without following a link, also where modes were taken away from their owner.

What runs in a box may do `chmod 555` on a folder of its own, so that nothing in it can be moved or removed. The owner
of the folder may change that back, so it is done before tidying is given up.
"""

import errno
import os
import stat
from pathlib import Path

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 4096


def open_folder(root: int, path: str, *, force: bool = True) -> int:
    """A descriptor (O_PATH) of a folder beneath `root`, reached without following a link. Raises OSError.

    With `force` its owner is let into folders on the way from which a command has shut them out.
    """
    here = root
    try:
        for part in path.split("/"):
            if not part:
                continue
            if part == "..":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            deeper = _open(part, _FOLDER, here) if force else os.open(part, _FOLDER, dir_fd=here)
            if here != root:
                os.close(here)
            here = deeper
    except BaseException:
        if here != root:
            os.close(here)
        raise
    return os.dup(root) if here == root else here


def _open(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        unlock(folder)
        return os.open(name, flags, dir_fd=folder)


def unlock(folder: int) -> None:
    """Give the owner of an opened folder back what modes allow. Raises OSError for one that belongs to others."""
    # By this name, since a descriptor that was opened with O_PATH cannot be changed itself.
    Path(f"/proc/self/fd/{folder}").chmod(stat.S_IMODE(os.fstat(folder).st_mode) | stat.S_IRWXU)


def read_beneath(root: int, path: str, most: int) -> bytes | None:
    """The content of a file beneath `root`, up to `most` bytes; None where there is no file that can be read."""
    folder, _, name = path.rpartition("/")
    try:
        file = _open_in(root, folder, name, _FILE)
    except OSError:
        return None
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode):
            return None
        pieces, left = [], most
        while left > 0 and (piece := os.read(file, min(left, max(facts.st_size, _PIECE)))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(file)


def lstat_beneath(root: int, path: str) -> os.stat_result | None:
    """What lies at a path beneath `root`, without following a link; None where nothing does."""
    folder, _, name = path.rpartition("/")
    try:
        if not folder:
            return os.stat(name, dir_fd=root, follow_symlinks=False)
        opened = open_folder(root, folder)
        try:
            return os.stat(name, dir_fd=opened, follow_symlinks=False)
        finally:
            os.close(opened)
    except OSError:
        return None


def names_beneath(root: int, path: str) -> list[str]:
    """The names in a folder beneath `root`, in order; none where there is no folder."""
    try:
        listed = _open_to_list(root, path)
    except OSError:
        return []
    try:
        return sorted(os.listdir(listed))  # noqa: PTH208 - by descriptor
    finally:
        os.close(listed)


def _open_to_list(root: int, path: str) -> int:
    above, _, name = path.rpartition("/")
    try:
        return _open_in(root, above, name or ".", _LISTED)
    except PermissionError:
        opened = open_folder(root, path)
    try:
        return _open(".", _LISTED, opened)
    finally:
        os.close(opened)


def _open_in(root: int, folder: str, name: str, flags: int) -> int:
    """A descriptor of what has a name in a folder beneath `root`. Raises OSError."""
    if name == "..":
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    if not folder:
        return os.open(name, flags, dir_fd=root)
    opened = open_folder(root, folder)
    try:
        return os.open(name, flags, dir_fd=opened)
    finally:
        os.close(opened)


def remove_beneath(root: int, path: str) -> None:
    """Remove a file or an empty folder, also from a folder that was made read-only. Raises OSError."""
    folder, _, name = path.rpartition("/")
    opened = open_folder(root, folder)
    try:
        is_folder = stat.S_ISDIR(os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode)
        remove = os.rmdir if is_folder else os.unlink
        try:
            remove(name, dir_fd=opened)
        except PermissionError:
            unlock(opened)
            remove(name, dir_fd=opened)
    finally:
        os.close(opened)


def write_beneath(root: int, path: str, content: bytes, mode: int) -> None:
    """Put a file at a path where nothing is, owned like the folder that it lies in. Raises OSError."""
    folder, _, name = path.rpartition("/")
    opened = open_folder(root, folder)
    try:
        unlock(opened)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, mode, dir_fd=opened), "wb") as file:
            os.fchmod(file.fileno(), mode)
            if os.geteuid() == 0:
                owner = os.fstat(opened)
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(content)
    finally:
        os.close(opened)
