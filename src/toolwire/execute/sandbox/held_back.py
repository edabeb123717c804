"""Moving aside what other programs would obey, beside where it lay, and moving it back.

Nothing of it is lost: `.vscode` becomes `.vscode.held-back-1a2b3c4d` in the same folder, and `release` undoes that.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from toolwire.execute.sandbox.beneath import open_folder, unlock
from toolwire.protocol.obeyed import HELD_BACK

_NAMED = re.compile(rf"(?P<name>.+)\.{HELD_BACK}-[0-9a-f]{{8}}\Z", re.DOTALL)
_MOST_FOLDERS = 100_000
_PACKAGES, _GIT, _OBJECTS = "node_modules", "/.git/", "objects"


class HeldBack(Struct, frozen=True):
    """Something that was moved aside: what it was called, and where it lies now."""

    path: str
    lies_at: str


def move_aside(root: int, path: str) -> HeldBack | None:
    """Move a name of the workspace aside; None if it is gone meanwhile. Follows no link. Raises OSError."""
    above, _, name = path.rpartition("/")
    try:
        folder = open_folder(root, above)
    except (FileNotFoundError, NotADirectoryError):
        return None
    aside = f"{name}.{HELD_BACK}-{os.urandom(4).hex()}"
    try:
        _rename(folder, name, aside)
    except FileNotFoundError:
        return None
    finally:
        os.close(folder)
    return HeldBack(path, f"{above}/{aside}" if above else aside)


def is_held_back(name: str) -> bool:
    """Whether a name is one that something was moved to. In `.github` such a name would otherwise count as new."""
    return _NAMED.match(name) is not None


def release(root: int, lies_at: str) -> HeldBack:
    """Give something that was moved aside its name back. Raises OSError, FileExistsError if the name is taken."""
    above, _, aside = lies_at.rpartition("/")
    named = _NAMED.match(aside)
    if named is None:
        raise FileNotFoundError(errno.ENOENT, f"is not something that was held back (*.{HELD_BACK}-…)")
    folder = open_folder(root, above, force=False)
    try:
        os.stat(aside, dir_fd=folder, follow_symlinks=False)
        if _is_there(folder, named["name"]):
            raise FileExistsError(errno.EEXIST, "exists already")
        os.rename(aside, named["name"], src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
    return HeldBack(f"{above}/{named['name']}" if above else named["name"], lies_at)


def held_back_at(root: int, lies_at: str) -> HeldBack | None:
    """What was moved aside to this path; None where nothing of the kind is."""
    above, _, aside = lies_at.rpartition("/")
    named = _NAMED.match(aside)
    if named is None or ".." in above.split("/"):
        return None
    try:
        folder = open_folder(root, above, force=False)
    except OSError:
        return None
    try:
        found = HeldBack(f"{above}/{named['name']}" if above else named["name"], lies_at)
        return found if _is_there(folder, aside) else None
    finally:
        os.close(folder)


def all_held_back(root: int) -> Iterator[HeldBack]:
    """Everything in a workspace that was moved aside and is still there. Packages are passed by."""
    waiting, looked_at = [""], 0
    while waiting and looked_at < _MOST_FOLDERS:
        place = waiting.pop()
        looked_at += 1
        prefix = f"{place}/" if place else ""
        for name, is_folder in _entries(root, place):
            if (named := _NAMED.match(name)) is not None:
                yield HeldBack(prefix + named["name"], prefix + name)
            elif is_folder and not _is_passed_by(prefix, name):
                waiting.append(prefix + name)


def _entries(root: int, place: str) -> list[tuple[str, bool]]:
    """The names in a folder, in order, and which of them are folders; none where it cannot be listed."""
    try:
        folder = open_folder(root, place, force=False)
    except OSError:
        return []
    try:
        with os.scandir(f"/proc/self/fd/{folder}") as entries:
            return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError:
        return []
    finally:
        os.close(folder)


def _is_passed_by(prefix: str, name: str) -> bool:
    return name == _PACKAGES or (name == _OBJECTS and _GIT in f"/{prefix}")


def _rename(folder: int, name: str, aside: str) -> None:
    try:
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    except PermissionError:
        mode = stat.S_IMODE(os.fstat(folder).st_mode)
        unlock(folder)
        try:
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            Path(f"/proc/self/fd/{folder}").chmod(mode)


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
