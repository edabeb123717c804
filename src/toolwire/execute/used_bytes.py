"""How many bytes a folder takes on the disk, however deep it is and whatever a command has put there."""

import errno
import os
import stat

from msgspec import Struct, field

from toolwire.execute.sandbox.git_guard import STAND_IN_TIME

BLOCK = 512
_OWN_STATE = ".toolwire"
_LONGEST = 2_000  # a path may have 4,096 bytes: below a longer one a new beginning is opened
_MOST_BEGINNINGS = 200
_FREE_NAMES = 1_000
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Beginning:
    """An open folder from which others are reached; closed when the last that needs it is done."""

    def __init__(self, descriptor: int, number: int) -> None:
        self.descriptor = descriptor
        self.number = number

    def __del__(self) -> None:
        os.close(self.descriptor)


class _Count(Struct):
    enough: int
    total: int = 0
    names: int = 0
    linked: set[tuple[int, int]] = field(default_factory=set)

    @property
    def bytes(self) -> int:
        """Names that take no block of their own take some room too, when there are many."""
        return self.total + max(self.names - _FREE_NAMES, 0) * BLOCK

    def add(self, facts: os.stat_result) -> None:
        if facts.st_nlink > 1 and not stat.S_ISDIR(facts.st_mode):
            if (facts.st_dev, facts.st_ino) in self.linked:
                return
            self.linked.add((facts.st_dev, facts.st_ino))
        self.total += facts.st_blocks * BLOCK
        self.names += not facts.st_blocks

    def too_much(self) -> None:
        self.total += self.enough + 1


def used_bytes(folder: str, enough: int) -> int:
    """The bytes that a folder takes on the disk, each file once however often it is linked, without our own state.

    Stops when there are more than `enough`. What another user owns and cannot be looked at counts as nothing; what
    this user has closed to itself, or hidden too deep, counts as too much. No link is followed.
    """
    try:
        top = _Beginning(os.open(folder, _FOLDER & ~os.O_NOFOLLOW), 0)
    except OSError:
        return 0
    count = _Count(enough)
    waiting = [(top, name, mine) for name, mine in _inside(top.descriptor, count, is_top=True)]
    del top
    while waiting and count.bytes <= enough:
        beginning, path, is_ours = waiting.pop()
        opened = _opened(beginning, path, count, is_ours=is_ours)
        if opened is None:
            continue
        if len(path) > _LONGEST:
            beginning, path = opened, "."
        waiting += [(beginning, f"{path}/{name}", mine) for name, mine in _inside(opened.descriptor, count)]
    return count.bytes


def _opened(above: _Beginning, path: str, count: _Count, *, is_ours: bool) -> _Beginning | None:
    if above.number > _MOST_BEGINNINGS:
        count.too_much()
        return None
    try:
        return _Beginning(os.open(path, _FOLDER, dir_fd=above.descriptor), above.number + 1)
    except PermissionError:
        if is_ours:
            count.too_much()
    except OSError as error:
        if error.errno not in _GONE:
            count.too_much()
    return None


def _is_ours(name: str, facts: os.stat_result) -> bool:
    """Whether a folder at the top is toolwire's: its state, or what stands for a missing `.git` while a box is open."""
    return name == _OWN_STATE or (name == ".git" and facts.st_mtime == STAND_IN_TIME)


def _inside(folder: int, count: _Count, *, is_top: bool = False) -> list[tuple[str, bool]]:
    """Count what is in a folder; the folders in it, and whether they are ours."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                facts = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(facts.st_mode):
                if is_top and _is_ours(entry.name, facts):
                    continue
                found.append((entry.name, facts.st_uid == os.geteuid()))
            count.add(facts)
            if count.bytes > count.enough:
                break
    return found
