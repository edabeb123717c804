"""Empty folders that stand in for a missing one while a box is open, kept from one box to the next.

Removing a folder takes ext4 milliseconds, moving it takes microseconds. So a few are kept in the state folder of this
user. Where that is on another file system than the workspace, or the workspace belongs to another user, a folder is
made and removed for each box.
"""

import errno
import os
from contextlib import suppress

from toolwire.execute.sandbox.git_notes import notes_folder
from toolwire.execute.sandbox.syscalls import call

_MOST_KEPT = 4
_NO_REPLACE = 1
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def move_in(folder: int, name: str) -> bool:
    """Give a kept folder this name; whether there was one. Raises FileExistsError where the name is taken."""
    kept = _open_kept(make=False)
    if kept is None:
        return False
    try:
        for number in map(str, range(_MOST_KEPT)):
            if _is_own_and_empty(kept, number):
                _rename(kept, number, folder, name)
                return True
    except FileExistsError:
        raise
    except OSError:
        return False
    finally:
        os.close(kept)
    return False


def move_out(folder: int, name: str) -> bool:
    """Keep an empty folder for the next box; False where it has to be removed. Raises OSError.

    What another program puts into it at the same moment stays where that program put it.
    """
    kept = _open_kept(make=True) if _is_own_and_empty(folder, name) else None
    if kept is None:
        return False
    try:
        for number in map(str, range(_MOST_KEPT)):
            with suppress(FileExistsError):
                _rename(folder, name, kept, number)
                if not _is_own_and_empty(kept, number):
                    _rename(kept, number, folder, name)
                return True
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSYS, errno.EINVAL}:
            raise
    finally:
        os.close(kept)
    return False


def _open_kept(*, make: bool) -> int | None:
    path = f"{notes_folder()}.spare"
    try:
        return os.open(path, _FOLDER)
    except FileNotFoundError:
        if not make:
            return None
    except OSError:
        return None
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102 - as it is opened
        return os.open(path, _FOLDER)
    except OSError:
        return None


def _is_own_and_empty(folder: int, name: str) -> bool:
    """Whether a folder belongs to this user, so that no other can have left itself a way into it, and is empty."""
    try:
        opened = os.open(name, _FOLDER, dir_fd=folder)
    except OSError:
        return False
    try:
        return os.fstat(opened).st_uid == os.geteuid() and not os.listdir(opened)  # noqa: PTH208 - by descriptor
    finally:
        os.close(opened)


def _rename(source: int, name: str, target: int, new_name: str) -> None:
    """Move a name; unlike `os.rename` this replaces nothing, not even an empty folder. Raises OSError."""
    call("renameat2", source, os.fsencode(name), target, os.fsencode(new_name), _NO_REPLACE)
