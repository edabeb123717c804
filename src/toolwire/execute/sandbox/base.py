"""What is the same in every box: programs, made-up files, devices. Root mounts it once instead of for each box.

It lies in a mount namespace that is kept; a launcher enters it, then copies it for itself and adds what is the box's
own. All of it is read-only there, so that boxes share nothing that one of them could change.
"""

import os
import stat
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from toolwire.execute.sandbox.namespaces import enter_namespace
from toolwire.execute.sandbox.plan import LaunchPlan
from toolwire.execute.sandbox.starter import Descriptors
from toolwire.execute.sandbox.syscalls import call
from toolwire.execute.sandbox.workspace import BASE, DEVICES, NEW_MOUNT_NAMESPACE, ready_stage

_MOST_KEPT = 16
_BIND_ALL, _HERE, _FROM_DESCRIPTOR, _RECURSIVE, _CLOSE_ON_EXEC = 0x1000 | 0x4000, -100, 0x4, 0x8000, 1
_FOLLOWING = 0x80000 | 0x4000  # what the machine mounts or unmounts later is seen here, and nothing the other way
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 0x1, 0x2, 0x4, 0x8
_SET_STRING, _CREATE = 1, 6
_NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "core": "/proc/kcore",
    "ptmx": "pts/ptmx",
}


class NamespaceCache(Struct):
    """Kept namespaces, one for each set of places where something can be mounted. For the thread that starts boxes."""

    files: Mapping[str, bytes]
    links: Mapping[str, str]
    programs: tuple[str, ...]
    _kept: dict[tuple[object, ...], int | None] = field(default_factory=dict)

    def at(self, folders: Iterable[str], files: Iterable[str] = (), shared: Iterable[str] = ()) -> int | None:
        """A namespace with the base at BASE, in which these are empty; None where the kernel cannot give it.

        Folders of the host that are `shared` are in it for all boxes, like its programs.
        """
        ready_stage()
        # What is mounted on a removed folder is gone, and so is what was mounted from one.
        lent = tuple((path, Path(path).stat().st_ino) for path in shared)
        key = (Path(BASE).stat().st_ino, tuple(folders), tuple(files), lent)
        if key not in self._kept:
            while len(self._kept) >= _MOST_KEPT:
                _close(self._kept.pop(next(iter(self._kept))))
            try:
                programs = (*self.programs, *(path for path, _ in lent))
                self._kept[key] = self._made(programs, key[1], {**self.files, **dict.fromkeys(key[2], b"")})
            except OSError:
                self._kept[key] = None
        return self._kept[key]

    def _made(self, programs: tuple[str, ...], folders: tuple[str, ...], files: Mapping[str, bytes]) -> int:
        with Descriptors() as held:
            base, devices = held.keep(_empty(_NO_SUID | _NO_DEVICES)), held.keep(_empty(_NO_SUID | _NO_EXEC))
            _fill(base, (*programs, *folders), files, self.links)
            _fill(devices, ("/pts", "/shm"), {}, _LINKS)
            for name, numbers in _NODES.items():
                os.mknod(name, stat.S_IFCHR, os.makedev(*numbers), dir_fd=devices)
                os.chmod(name, 0o666, dir_fd=devices)  # noqa: S103 - as these devices are everywhere
            plan = _mounting(base, devices, programs)
            # A process in a chroot finds another root when it enters the namespace, and the base is not there.
            plan.return_to_namespace().enter(BASE + self.programs[0])
            return enter_namespace(plan, (base, devices), "mnt")


def _mounting(base: int, devices: int, programs: tuple[str, ...]) -> LaunchPlan:
    plan = LaunchPlan().call("unshare", NEW_MOUNT_NAMESPACE).call("mount", "none", "/", 0, _FOLLOWING, 0)
    plan.call("move_mount", base, "", _HERE, BASE, _FROM_DESCRIPTOR)
    plan.call("move_mount", devices, "", _HERE, DEVICES, _FROM_DESCRIPTOR)
    for path in programs:
        plan.call("mount", path, BASE + path, 0, _BIND_ALL, 0)
    for place, never in ((BASE, _NO_DEVICES), (DEVICES, _NO_EXEC)):
        wanted = struct.pack("QQQQ", _READ_ONLY | _NO_SUID | never, 0, 0, 0)
        plan.call("mount_setattr", _HERE, place, _RECURSIVE, wanted, len(wanted))
    return plan


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _empty(never: int) -> int:
    """A filesystem in memory that is mounted nowhere yet."""
    made = call("fsopen", b"tmpfs", _CLOSE_ON_EXEC)
    try:
        for key, value in ((b"size", b"8m"), (b"mode", b"0755")):
            call("fsconfig", made, _SET_STRING, key, value, 0)
        call("fsconfig", made, _CREATE, 0, 0, 0)
        return call("fsmount", made, _CLOSE_ON_EXEC, never)
    finally:
        os.close(made)


def _fill(root: int, folders: Iterable[str], files: Mapping[str, bytes], links: Mapping[str, str]) -> None:
    for folder in (*folders, *(os.path.dirname(path) for path in files)):  # noqa: PTH120 - a path in the box
        _make(root, folder)
    for path, content in files.items():
        made = os.open(path.lstrip("/"), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, dir_fd=root)
        with os.fdopen(made, "wb") as file:
            os.fchmod(made, 0o444)
            file.write(content)
    for name, target in links.items():
        os.symlink(target, name.lstrip("/"), dir_fd=root)


def _make(root: int, folder: str) -> None:
    """A folder with those above it, open to all whatever this process usually allows."""
    parts = folder.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        with suppress(FileExistsError):
            os.mkdir(path, dir_fd=root)
            os.chmod(path, 0o755, dir_fd=root)  # noqa: S103 - to be read by the box's user
