"""A workspace that can be written and stays as it is: what a trial changes lies in a layer above it, and is discarded.

The layer is an overlay. Root keeps it in memory, mounted where only the launcher sees it; an ordinary user keeps it in
a temporary folder and mounts it in a user namespace. What lies in the layer afterwards is what the command would have
changed, so a trial tells exactly whether a command writes, whatever program it is.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox.cgroups import PREFIX, own_name, owner_lives
from toolwire.execute.sandbox.plan import LaunchPlan
from toolwire.execute.sandbox.starter import Descriptors
from toolwire.execute.sandbox.syscalls import call
from toolwire.lazy import lazy_module

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = lazy_module("tempfile")  # only trials have a layer of their own

MOST_CHANGES = 5
UPPER, WORK = "upper", "work"
_ENDING = "-trial"
# Programs keep them beside what they look at, make them again at any time, and mean nothing by them.
_CACHES = frozenset({".pytest_cache", ".mypy_cache", ".ruff_cache"})
_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")
_SET_STRING, _CREATE, _CLOSE_ON_EXEC = 1, 6, 1
_NO_SUID, _NO_DEVICES = 0x2, 0x4
_NEW_USER_AND_MOUNTS = 0x10000000 | 0x00020000
_PRIVATE = 0x00040000 | 0x4000
_MOVE_FROM_DESCRIPTOR = 0x4
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Scratch(Struct, frozen=True):
    """The layer of one trial: `root` is its folder, `passed` the mount that a launcher of root's takes along."""

    root: int
    passed: int = -1
    path: str = ""

    def changes(self, workspace: int) -> tuple[str, ...]:
        """The first few names that the trial has changed so far, sorted; `workspace` is the folder below the layer."""
        upper = os.open(UPPER, _FOLDER, dir_fd=self.root)
        try:
            return tuple(sorted(islice(_changed(upper, workspace, ""), MOST_CHANGES)))
        finally:
            os.close(upper)

    def close(self) -> None:
        os.close(self.root)
        if self.path:
            _remove(Path(self.path))


def open_scratch(workspace: int, user: int, group: int, held: Descriptors, most_bytes: int) -> Scratch:
    """A layer for a trial, as its workspace looks from outside. Raises SandboxUnavailable."""
    mode = stat.S_IMODE(os.fstat(workspace).st_mode)
    try:
        if os.geteuid() != 0:
            return _in_a_folder(mode)
        mounted = held.keep(_in_memory(most_bytes))
        for name in (UPPER, WORK):
            os.mkdir(name, dir_fd=mounted)
            os.chown(name, user, group, dir_fd=mounted)
            os.chmod(name, mode, dir_fd=mounted)
        return Scratch(os.dup(mounted), mounted)
    except OSError as error:
        raise SandboxUnavailable(f"this machine cannot give a command a trial: {error.strerror}") from None


def _in_a_folder(mode: int) -> Scratch:
    _sweep()
    path = str(Path(tempfile.gettempdir(), own_name() + _ENDING))
    Path(path).mkdir(mode=0o700)
    for name in (UPPER, WORK):
        Path(path, name).mkdir()
        Path(path, name).chmod(mode)
    return Scratch(os.open(path, _FOLDER), path=path)


@cache
def _sweep() -> None:
    """Remove, once, what the trials of processes have left behind that were killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*{_ENDING}"):
        if left.lstat().st_uid == os.geteuid() and not left.is_symlink() and not owner_lives(left.name):
            _remove(left)


def _remove(folder: Path) -> None:
    with suppress(OSError):  # the kernel leaves a folder there that its owner cannot enter
        (folder / WORK / "work").chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _in_memory(most_bytes: int) -> int:
    made = call("fsopen", b"tmpfs", _CLOSE_ON_EXEC)
    try:
        for key, value in ((b"size", b"%d" % most_bytes), (b"mode", b"0711")):
            call("fsconfig", made, _SET_STRING, key, value, 0)
        call("fsconfig", made, _CREATE, 0, 0, 0)
        return call("fsmount", made, _CLOSE_ON_EXEC, _NO_SUID | _NO_DEVICES)
    finally:
        os.close(made)


def lay_over(plan: LaunchPlan, scratch: Scratch, workspace: str, place: str) -> LaunchPlan:
    """Root only: put the layer over the workspace that is staged there; `place` is where the layer is mounted."""
    plan.call("move_mount", scratch.passed, "", -100, place, _MOVE_FROM_DESCRIPTOR)
    layers = f"lowerdir={workspace},upperdir={place}/{UPPER},workdir={place}/{WORK}"
    return plan.call("mount", "overlay", workspace, "overlay", _NO_SUID | _NO_DEVICES, layers)


def lay_over_as_user(plan: LaunchPlan, scratch: Scratch, workspace: str, user: int, group: int) -> LaunchPlan:
    """Put the layer over the workspace where it lies, in a namespace of the launcher's own.

    The workspace is named by `.`, since its path may have letters that mean something in options of a mount.
    """
    plan.call("unshare", _NEW_USER_AND_MOUNTS).write("/proc/self/setgroups", "deny")
    plan.write("/proc/self/uid_map", f"{user} {user} 1").write("/proc/self/gid_map", f"{group} {group} 1")
    plan.call("mount", "none", "/", 0, _PRIVATE, 0).enter(workspace)
    layers = f"lowerdir=.,upperdir={scratch.path}/{UPPER},workdir={scratch.path}/{WORK},userxattr"
    return plan.call("mount", "overlay", workspace, "overlay", _NO_SUID | _NO_DEVICES, layers).enter("/")


def _changed(upper: int, lower: int | None, above: str) -> Iterator[str]:
    with os.scandir(upper) as entries:
        for entry in entries:
            path, facts = f"{above}{entry.name}", entry.stat(follow_symlinks=False)
            before = _facts(lower, entry.name)
            if entry.name in _CACHES:
                continue
            if before is None or stat.S_IFMT(before.st_mode) != stat.S_IFMT(facts.st_mode):
                if before is not None or not _is_whiteout(facts):
                    yield path
            elif not stat.S_ISDIR(facts.st_mode):
                if _of_content(before) != _of_content(facts):
                    yield path
            else:
                yield from _changed_folder(upper, lower, entry.name, path)


def _changed_folder(upper: int, lower: int | None, name: str, path: str) -> Iterator[str]:
    """What was changed in a folder that was there before; all of it, where it was removed and made again."""
    inside = os.open(name, _FOLDER, dir_fd=upper)
    below = os.open(name, _FOLDER, dir_fd=lower)
    try:
        other_mode = os.fstat(inside).st_mode != os.fstat(below).st_mode
        if other_mode or any(_has(inside, attribute) for attribute in _OPAQUE):
            yield path
        else:
            yield from _changed(inside, below, f"{path}/")
    finally:
        os.close(inside)
        os.close(below)


def _facts(folder: int | None, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _of_content(facts: os.stat_result) -> tuple[int, ...]:
    """What differs once a file was written. One that was only opened for writing was copied with its time."""
    return (facts.st_size, facts.st_mtime_ns, facts.st_mode)


def _is_whiteout(facts: os.stat_result) -> bool:
    return stat.S_ISCHR(facts.st_mode) and facts.st_rdev == 0


def _has(folder: int, attribute: str) -> bool:
    try:
        return bool(os.getxattr(folder, attribute))
    except OSError:
        return False
