"""Changing several files at once: all of them or none, also when the process dies in between.

New contents are written beside the files first, in a folder of our own. A plan that names every swap is the point of
no return: once it is on the disk, the change happens, if need be by the next process that writes. Files are swapped,
not overwritten, so what was there before can be looked at and put back.

A plan is carried out later, so it is signed: a clone can bring a folder with a plan in it, and `git pull` can add one.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from toolwire.protocol.files import Change, NoteForgotten, Stale
from toolwire.toolbox.disk.beneath import BeneathDir, exchange, move
from toolwire.toolbox.disk.journal_folder import forget_oldest, has_forgotten, lock_journal, mend, own_folder
from toolwire.toolbox.disk.journal_plans import ChangePlan, Swap, encode_plan, read_plan, slot_name
from toolwire.toolbox.files.protected import refuse_protected

LARGEST_CHANGE = 100 * 1024 * 1024
MOST_FILES = 1000
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Journal:
    """The journal beneath one folder. Hold it with `with`: one process at a time, and what a dead one left is settled.

    `sync` brings a descriptor's content to the disk. Raises OSError.
    """

    def __init__(self, place: BeneathDir, sync: Callable[[int], None] = os.fsync) -> None:
        self._place = place
        self._sync = sync
        self._fd = -1
        self._lock = -1
        self._where = ""

    def __enter__(self) -> "Journal":
        self._fd, self._where = own_folder(self._place)
        try:
            self._lock = lock_journal(self._fd)
            self._settle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._lock, self._fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._fd = -1

    def note(self, key: str) -> str | None:
        """The note that was kept with the change of this key. Raises NoteForgotten where it may be gone."""
        plan = read_plan(self._fd, f"done/{_digest(key.encode())}", self._where)
        if plan is not None and plan.key == key:
            return plan.note
        if has_forgotten(self._fd):
            raise NoteForgotten
        return None

    def change(self, changes: Sequence[Change], key: str, note: str) -> None:
        """Make all changes or none."""
        _refuse_too_much(changes)
        try:
            plan = self._planned(changes, key, note)
            self._write("plan.part", encode_plan(plan, self._where), 0o600)
            os.rename("plan.part", "plan", src_dir_fd=self._fd, dst_dir_fd=self._fd)
            self._sync(self._fd)
        except BaseException:
            self._sweep()
            raise
        self._carry_out(plan)

    def _planned(self, changes: Sequence[Change], key: str, note: str) -> ChangePlan:
        swaps = [self._swap(number, change) for number, change in enumerate(changes)]
        folders = dict.fromkeys(folder for change in changes for folder in _above(change.path))
        missing = tuple(folder for folder in folders if not self._is_there(folder))
        return ChangePlan(tuple(swaps), missing, key, note)

    def _swap(self, number: int, change: Change) -> Swap:
        refuse_protected(change.path, approved=change.approved)
        slot = slot_name(number)
        old = _seen(self._place, change)
        if change.content is None:
            if old is None:
                raise FileNotFoundError(errno.ENOENT, "is not there")
            return Swap(change.path, "remove", slot, old.st_ino, _identity(old))
        mode = stat.S_IMODE(old.st_mode) & 0o777 if old is not None and change.keep_mode else 0o644
        inode = self._write(slot, change.content, mode, owned=True)
        if old is None:
            return Swap(change.path, "create", slot, inode)
        return Swap(change.path, "replace", slot, inode, _identity(old))

    def _carry_out(self, plan: ChangePlan) -> None:
        """Do what is left of a plan; what cannot be done takes everything back."""
        try:
            for swap in plan.swaps:
                self._apply(swap)
        except OSError:
            self._take_back(plan)
            raise
        if plan.key:
            name = _digest(plan.key.encode())
            os.rename("plan", f"done/{name}", src_dir_fd=self._fd, dst_dir_fd=self._fd)
            with suppress(OSError):
                forget_oldest(self._fd, name)
        self._sweep()
        self._sync(self._fd)

    def _apply(self, swap: Swap) -> None:
        refuse_protected(swap.path, approved=True)  # what is in a plan was looked at when it was made
        with self._parent(swap.path, make=swap.action != "remove") as target:
            if self._is_applied(swap, target):
                return
            slot = (self._fd, swap.slot)
            if swap.action != "remove" and self._inode(swap.slot) != swap.inode:
                raise Stale(swap.path)
            match swap.action:
                case "create":
                    _unless_taken(slot, target, swap.path)
                case "remove":
                    move(target, slot)
                case _:
                    exchange(slot, target)
            if swap.seen and _identity(os.stat(swap.slot, dir_fd=self._fd, follow_symlinks=False)) != swap.seen:
                self._undo(swap, target)
                raise Stale(swap.path)
            self._sync(target[0])

    def _take_back(self, plan: ChangePlan) -> None:
        for swap in reversed(plan.swaps):
            with suppress(OSError), self._parent(swap.path) as target:
                if self._is_applied(swap, target):
                    self._undo(swap, target)
                    self._sync(target[0])
        for folder in reversed(plan.folders):
            with suppress(OSError), self._parent(folder) as (above, name):
                os.rmdir(name, dir_fd=above)
        self._sweep()

    def _undo(self, swap: Swap, target: tuple[int, str]) -> None:
        slot = (self._fd, swap.slot)
        match swap.action:
            case "create":
                move(target, slot)
            case "remove":
                move(slot, target)
            case _:
                exchange(slot, target)

    def _is_applied(self, swap: Swap, target: tuple[int, str]) -> bool:
        folder, name = target
        try:
            there = os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
        except FileNotFoundError:
            return swap.action == "remove"
        return swap.action != "remove" and there == swap.inode

    def _inode(self, slot: str) -> int:
        """The number of the file in a slot; 0 for anything but a file."""
        about = os.stat(slot, dir_fd=self._fd, follow_symlinks=False)
        return about.st_ino if stat.S_ISREG(about.st_mode) else 0

    @contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        folder, name = self._place.parent(path, make=make)
        try:
            yield folder, name
        finally:
            os.close(folder)

    def _is_there(self, path: str) -> bool:
        try:
            with self._parent(path) as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _settle(self) -> None:
        """Finish the change that a dead process had promised; forget the one it had only prepared."""
        plan = read_plan(self._fd, "plan", self._where)
        if plan is None:
            self._sweep()
            return
        for swap in plan.swaps:
            mend(self._fd, swap.slot)
        with suppress(OSError):
            self._carry_out(plan)

    def _sweep(self) -> None:
        names = os.listdir(self._fd)  # noqa: PTH208 - a descriptor, not a path
        for name in names:
            if name.startswith(("new-", "plan")):
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._fd)

    def _write(self, name: str, content: bytes, mode: int, *, owned: bool = False) -> int:
        """Write a file of the journal and bring it to the disk; its inode."""
        descriptor = os.open(name, _NEW, 0o600, dir_fd=self._fd)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(content)
            file.flush()
            os.fchmod(descriptor, mode)
            if owned and os.geteuid() == 0:
                owner = os.fstat(self._place.fd)
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            self._sync(descriptor)
            return os.fstat(descriptor).st_ino


def _seen(place: BeneathDir, change: Change) -> os.stat_result | None:
    """What is there now, if it is what the change expects."""
    try:
        descriptor = place.file(change.path, links=False)
    except FileNotFoundError:
        if change.before:
            raise Stale(change.path) from None
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        if change.before == "":
            raise FileExistsError(errno.EEXIST, "is there already")
        if change.before is not None and hashlib.file_digest(file, "sha256").hexdigest() != change.before:
            raise Stale(change.path)
        return os.fstat(descriptor)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    if not stat.S_ISREG(status.st_mode):
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _unless_taken(slot: tuple[int, str], target: tuple[int, str], path: str) -> None:
    try:
        move(slot, target)
    except FileExistsError:
        raise Stale(path) from None


def _refuse_too_much(changes: Sequence[Change]) -> None:
    if len(changes) > MOST_FILES:
        raise OSError(errno.E2BIG, f"at most {MOST_FILES} files are changed at once")
    if sum(len(change.content or b"") for change in changes) > LARGEST_CHANGE:
        raise OSError(errno.EFBIG, f"at most {LARGEST_CHANGE // 2**20} MiB are written at once")
    paths = [change.path for change in changes]
    if len(set(paths)) != len(paths):
        raise OSError(errno.EINVAL, "a file is changed twice at once")


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: length + 1]) for length in range(len(parts))]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
