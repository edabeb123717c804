"""Large bodies as files named by their content."""

import hashlib
import math
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from toolwire.record import refusals
from toolwire.record.ownership import FOLDER_FLAGS

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
STAGING_S = 3_600.0
_STAGING = "new-"
_MOST_CHECKED = 1_024
_HANDLE = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)


class Artifacts:
    """A folder of bodies, made with the first of them. What `keep` has answered is on the disk under its digest, whole.

    No link is followed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._swept_at = -math.inf
        self._checked: dict[str, tuple[int, int, int]] = {}

    def keep(self, data: bytes) -> str:
        """Write the body unless it is kept already, and give back its handle. Raises OSError."""
        digest = hashlib.sha256(data).hexdigest()
        self._sweep()
        with self.opened(digest, make=True) as (top, shelf):
            if not _is_there(digest[2:], shelf):
                _write(top, shelf, digest[2:], data)
            else:
                os.utime(digest[2:], dir_fd=shelf, follow_symlinks=False)  # it is in use again, so it is not pruned
            # Also for a body found here: its writer may have died before the folder reached the disk.
            os.fsync(shelf)
        return f"sha256:{digest}"

    def draft(self) -> "BodyDraft":
        """A body that comes in pieces. Raises OSError."""
        self._sweep()
        return BodyDraft(self)

    def fetch(self, handle: str, offset: int, length: int | None) -> bytes:
        """Read a range of a body. Raises NotFound for an unknown or malformed handle, StoreError for a damaged one."""
        match = _HANDLE.fullmatch(handle)
        if match is None:
            raise refusals.no_body(handle)
        try:
            with self.opened(match[1], make=False) as (_, shelf):
                found = os.open(match[1][2:], _READ, dir_fd=shelf)
        except FileNotFoundError:
            raise refusals.no_body(handle) from None
        with open(found, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise refusals.no_body(handle)
            self._check(file, handle, match[1])
            file.seek(max(offset, 0))
            return file.read(-1 if length is None else max(length, 0))

    def _check(self, file: BufferedReader, handle: str, digest: str) -> None:
        """Compare a file with its digest, unless that was done since it was changed."""
        about = os.fstat(file.fileno())
        stamp = (about.st_ino, about.st_size, about.st_mtime_ns)
        if self._checked.get(digest) == stamp:
            return
        if hashlib.file_digest(file, "sha256").hexdigest() != digest:
            raise refusals.damaged_body(handle)
        if len(self._checked) >= _MOST_CHECKED:
            self._checked.clear()
        self._checked[digest] = stamp

    def left_staging(self, now: float) -> list[Path]:
        """Files that a process died while writing."""
        found = []
        for path in self.folder.glob(f"{_STAGING}*"):
            with suppress(FileNotFoundError):
                if path.lstat().st_mtime < now - STAGING_S:
                    found.append(path)
        return found

    def _sweep(self) -> None:
        """Once an hour, remove what dead processes left. A living one needs a moment for a file, not an hour."""
        if time.monotonic() - self._swept_at < STAGING_S:
            return
        self._swept_at = time.monotonic()
        for path in self.left_staging(time.time()):
            path.unlink(missing_ok=True)

    def open_top(self, *, make: bool) -> int:
        """A descriptor of the folder. Raises OSError."""
        try:
            return os.open(self.folder, FOLDER_FLAGS)
        except FileNotFoundError:
            if not make:
                raise
        home = os.open(self.folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(FileExistsError):
                os.mkdir(self.folder.name, 0o700, dir_fd=home)
            os.fsync(home)  # no body is on the disk before its folder is
            return os.open(self.folder.name, FOLDER_FLAGS, dir_fd=home)
        finally:
            os.close(home)

    @contextmanager
    def opened(self, digest: str, *, make: bool) -> Iterator[tuple[int, int]]:
        """Descriptors of the folder and of the one in it that holds the body."""
        top, shelf = self.open_top(make=make), -1
        try:
            if make and not _is_there(digest[:2], top):
                with suppress(FileExistsError):
                    os.mkdir(digest[:2], 0o700, dir_fd=top)
                os.fsync(top)
            shelf = os.open(digest[:2], FOLDER_FLAGS, dir_fd=top)
            yield top, shelf
        finally:
            for descriptor in (shelf, top):
                if descriptor >= 0:
                    os.close(descriptor)


class BodyDraft:
    """A file that is written piece by piece, and found under its digest once it is whole. Raises OSError."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._digest = hashlib.sha256()
        self._name = f"{_STAGING}{os.urandom(8).hex()}"
        self._top = artifacts.open_top(make=True)
        try:
            descriptor = os.open(self._name, _NEW, 0o600, dir_fd=self._top)
        except BaseException:
            os.close(self._top)
            raise
        self._file = open(descriptor, "wb")  # noqa: PTH123, SIM115 - a descriptor, which `discard` closes

    def write(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._file.write(piece)

    def finish(self) -> str:
        """Give back the handle; from here on the body is found under it."""
        self._file.flush()
        os.fsync(self._file.fileno())
        digest = self._digest.hexdigest()
        with self._artifacts.opened(digest, make=True) as (_, shelf):
            os.rename(self._name, digest[2:], src_dir_fd=self._top, dst_dir_fd=shelf)
            os.fsync(shelf)
        return f"sha256:{digest}"

    def discard(self) -> None:
        """Let go of the file, and remove it unless it is found as a body by now."""
        with suppress(OSError):  # a full disk, which `write` or `finish` has told of, does not take what is buffered
            self._file.close()
        with suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._top)
        os.close(self._top)


def _is_there(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _write(top: int, shelf: int, name: str, data: bytes) -> None:
    draft = f"{_STAGING}{os.urandom(8).hex()}"
    descriptor = os.open(draft, _NEW, 0o600, dir_fd=top)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.rename(draft, name, src_dir_fd=top, dst_dir_fd=shelf)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=top)
        raise
