"""Reaching names beneath a folder without following a link, also where modes were taken away from their owner.

What runs in a box may do `chmod 555` on a folder of its own, so that nothing in it can be moved or removed. The owner
of the folder may change that back, so it is done before tidying is given up.
"""

import os
import stat
from pathlib import Path

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_folder(root: int, path: str) -> int | None:
    """A descriptor (O_PATH) of a folder beneath `root`; None where there is none, or a link on the way to it."""
    here = os.dup(root)
    try:
        for part in [part for part in path.split("/") if part]:
            if part == "..":
                raise FileNotFoundError(path)
            deeper = _open(part, _FOLDER, here)
            os.close(here)
            here = deeper
    except OSError:
        os.close(here)
        return None
    return here


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
    opened = open_folder(root, folder)
    if opened is None:
        return None
    try:
        file = os.open(name, _FILE, dir_fd=opened)
    except OSError:
        return None
    finally:
        os.close(opened)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    with os.fdopen(file, "rb") as content:
        return content.read(most)


def lstat_beneath(root: int, path: str) -> os.stat_result | None:
    """What lies at a path beneath `root`, without following a link; None where nothing does."""
    folder, _, name = path.rpartition("/")
    opened = open_folder(root, folder)
    if opened is None:
        return None
    try:
        return os.stat(name, dir_fd=opened, follow_symlinks=False)
    except OSError:
        return None
    finally:
        os.close(opened)


def names_beneath(root: int, path: str) -> list[str]:
    """The names in a folder beneath `root`, in order; none where there is no folder."""
    opened = open_folder(root, path)
    if opened is None:
        return []
    try:
        listed = _open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, opened)
    except OSError:
        return []
    finally:
        os.close(opened)
    try:
        return sorted(os.listdir(listed))  # noqa: PTH208 - by descriptor
    finally:
        os.close(listed)


def remove_beneath(root: int, path: str) -> None:
    """Remove a file or an empty folder, also from a folder that was made read-only. Raises OSError."""
    folder, _, name = path.rpartition("/")
    opened = open_folder(root, folder)
    if opened is None:
        raise FileNotFoundError(path)
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
    if opened is None:
        raise FileNotFoundError(path)
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
