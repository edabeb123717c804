"""Who is alive on this machine: each store locks a file of its own, keeps a lease in it, and notes which calls begin.

The system unlocks the file of a process that is gone. A process that is stopped, or a child that it forked, keeps the
lock, but renews the lease no more. What is written here survives `kill -9` and no power cut, so notes count only until
the machine is started again.
"""

import ctypes
import fcntl
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from weakref import WeakSet

from toolwire.record.liveness import LEASE_S, Alive
from toolwire.record.ownership import open_folder

_HEADER = 128
_KEY = 16
_SLOTS = 1024
_SIZE = _HEADER + _KEY * _SLOTS
_BOOT = Path("/proc/sys/kernel/random/boot_id")
# Unlike os.pwrite this keeps the interpreter's lock: between a note and its tool no other thread gets in, so that
# hardly any call is killed there, noted and not begun.
_pwrite = ctypes.PyDLL(None).pwrite
_pwrite.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long)
_pwrite.restype = ctypes.c_ssize_t
_IN_USE = "SELECT DISTINCT owner FROM turns INDEXED BY turns_running WHERE state = 'running' AND owner IS NOT NULL"
_READ = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Owners:
    """This store's own file, and a look at those of others; see `Liveness`."""

    def __init__(
        self, folder: Path, *, lease_s: float = LEASE_S, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Take a name that no other store has. Raises OSError when the folder cannot be written."""
        self._folder = folder
        self._lease_s = lease_s
        self._monotonic = monotonic
        self._lapses = 0
        self._marks: dict[tuple[str, str], int] = {}
        self._free: list[int] | None = None
        self._guard = threading.Lock()
        self._closed = threading.Event()
        os.close(open_folder(folder))
        self.name, self._lock = self._take_name()
        self._until = monotonic() + lease_s
        self._renew()
        self._reserve()
        _all.add(self)
        threading.Thread(target=self._keep_renewing, name="toolwire-store-lease", daemon=True).start()

    @property
    def lapses(self) -> int:
        if self._monotonic() > self._until:
            self._renew()
        return self._lapses

    def alive(self, owner: str) -> bool:
        """A name without a file is dead: its file was swept."""
        if owner == self.name:
            return self._lock >= 0
        lock = _try_lock(self._folder / owner)
        if lock is None:
            return False
        fd, gone = lock
        try:
            return not gone and self._holds_lease(fd)
        finally:
            os.close(fd)

    def alive_on(self, connection: sqlite3.Connection) -> Alive:  # noqa: ARG002 -- files say it, at any time
        return self.alive

    def join(self, connection: sqlite3.Connection) -> None:
        """The file was there before any change."""

    def rolled_back(self) -> None:
        """It stays."""

    def is_gone(self, owner: str) -> bool:
        """Whether an owner surely has ended: its file was written since this machine was started, and is not locked."""
        lock = _try_lock(self._folder / owner)
        if lock is None:
            return False
        fd, gone = lock
        try:
            return gone and bool(_boot()) and os.pread(fd, _HEADER, 0).startswith(_boot())
        finally:
            os.close(fd)

    def mark(self, turn_id: str, call_id: str) -> None:
        call = (turn_id, call_id)
        with self._guard:
            if self._free is None or call in self._marks:
                return
            place = self._marks[call] = self._free.pop() if self._free else -1
            # The write comes last: a process that is killed behind it and before the tool has noted a call for nothing.
            if place < 0 or _pwrite(self._lock, mark_key(turn_id, call_id), _KEY, place) != _KEY:
                self._stop_marking()

    def unmark(self, turn_id: str, call_id: str) -> None:
        place, free = self._marks.pop((turn_id, call_id), None), self._free
        if place is not None and free is not None:
            free.append(place)

    def erase(self, turn_id: str, call_id: str) -> None:
        with self._guard:
            place = self._marks.get((turn_id, call_id))
            if place is not None and _pwrite(self._lock, bytes(_KEY), _KEY, place) == _KEY:
                self.unmark(turn_id, call_id)

    def begun(self, owner: str) -> Collection[bytes] | None:
        if owner == self.name:
            with self._guard:
                if self._free is None:
                    return None
                begun = tuple(self._marks)
            return frozenset(mark_key(*call) for call in begun)
        lock = _try_lock(self._folder / owner)
        if lock is None:
            return None
        fd, gone = lock
        try:
            kept = os.pread(fd, _SIZE, 0) if gone else b""
        finally:
            os.close(fd)
        header, _, _ = kept[:_HEADER].partition(b" ")
        if len(kept) != _SIZE or not _boot() or header != _boot():
            return None
        return frozenset(kept[at : at + _KEY] for at in range(_HEADER, _SIZE, _KEY))

    def sweep(self, in_use: Collection[str]) -> None:
        for path in self._folder.iterdir():
            if path.name != self.name and path.name not in in_use and (lock := _try_lock(path)) is not None:
                fd, gone = lock
                if gone:
                    path.unlink(missing_ok=True)
                os.close(fd)

    def close(self) -> None:
        self._closed.set()
        with self._guard:
            if self._lock >= 0:
                (self._folder / self.name).unlink(missing_ok=True)
                os.close(self._lock)
                self._lock = -1
                self._free = None

    def forked(self) -> None:
        """In a child that shares the lock: let go of it, so that it ends with the process that owns it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self._free = None
        self._guard = threading.Lock()

    def _take_name(self) -> tuple[str, int]:
        while True:
            name = uuid.uuid4().hex
            path = self._folder / name
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if path.exists():
                return name, fd
            os.close(fd)  # a sweeper found the file between its making and its locking

    def _reserve(self) -> None:
        """Make room for notes, so that none fails for want of it; without room there are none."""
        try:
            os.posix_fallocate(self._lock, 0, _SIZE)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._lock, _HEADER)
        else:
            self._free = list(range(_HEADER, _SIZE, _KEY))

    def _stop_marking(self) -> None:
        """Let others see that there are no notes: all calls that were written down as started count as begun."""
        os.ftruncate(self._lock, _HEADER)
        self._free = None

    def _keep_renewing(self) -> None:
        while not self._closed.wait(self._lease_s / 3):
            self._renew()

    def _renew(self) -> None:
        with self._guard:
            now = self._monotonic()
            if now > self._until:
                self._lapses += 1
            self._until = now + self._lease_s
            if self._lock >= 0:
                header = _boot() + f" {self._until:.3f}\n".encode()
                with suppress(OSError):  # a lease that cannot be renewed runs out, and what it owns is fenced
                    os.pwrite(self._lock, header.ljust(_HEADER), 0)

    def _holds_lease(self, fd: int) -> bool:
        """Whether a locked file has a lease that has not run out. A process of an earlier version writes none."""
        boot, _, until = os.pread(fd, _HEADER, 0).partition(b" ")
        if boot != _boot():
            return True
        try:
            return self._monotonic() <= float(until)
        except ValueError:
            return True


def owners_in_use(connection: sqlite3.Connection) -> frozenset[str]:
    """The names of those who own turns, alive or not."""
    return frozenset(owner for (owner,) in connection.execute(_IN_USE))


def mark_key(turn_id: str, call_id: str) -> bytes:
    """The note about a call."""
    return blake2b(f"{turn_id}\0{call_id}".encode("utf-8", "backslashreplace"), digest_size=_KEY).digest()


@cache
def _boot() -> bytes:
    """What this start of the machine is called; empty where the system does not say."""
    try:
        return _BOOT.read_bytes().strip()
    except OSError:
        return b""


def _try_lock(path: Path) -> tuple[int, bool] | None:
    """The open file and whether its owner has let go of it; None when there is no such file.

    The lock is a shared one, so that those who only look do not take each other for the owner.
    """
    try:
        fd = os.open(path, _READ)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return fd, False
    return fd, True


_all: "WeakSet[Owners]" = WeakSet()


def _let_go_in_child() -> None:
    for owners in list(_all):
        owners.forked()


os.register_at_fork(after_in_child=_let_go_in_child)
