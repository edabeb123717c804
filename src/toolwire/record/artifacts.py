"""Large bodies as files named by their content."""

import hashlib
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from toolwire.record import refusals
from toolwire.record.ownership import FOLDER_FLAGS, open_folder

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
STAGING_S = 3_600.0
_STAGING = "new-"
_HANDLE = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)


class Artifacts:
    """A folder of bodies. What `keep` has answered is on the disk under its digest, whole. No link is followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._swept_at = -math.inf
        os.close(open_folder(folder))

    def keep(self, data: bytes) -> str:
        """Write the body unless it is kept already, and give back its handle. Raises OSError."""
        digest = hashlib.sha256(data).hexdigest()
        self._sweep()
        with self._opened(digest, make=True) as (top, shelf):
            if not _is_there(digest[2:], shelf):
                _write(top, shelf, digest[2:], data)
            else:
                os.utime(digest[2:], dir_fd=shelf, follow_symlinks=False)  # it is in use again, so it is not pruned
            # Also for a body found here: its writer may have died before the folder reached the disk.
            os.fsync(shelf)
        return f"sha256:{digest}"

    def fetch(self, handle: str, offset: int, length: int | None) -> bytes:
        """Read a range of a body. Raises NotFound for an unknown or malformed handle."""
        match = _HANDLE.fullmatch(handle)
        if match is None:
            raise refusals.no_body(handle)
        try:
            with self._opened(match[1], make=False) as (_, shelf):
                found = os.open(match[1][2:], _READ, dir_fd=shelf)
        except FileNotFoundError:
            raise refusals.no_body(handle) from None
        with open(found, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise refusals.no_body(handle)
            file.seek(max(offset, 0))
            return file.read(-1 if length is None else max(length, 0))

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

    @contextmanager
    def _opened(self, digest: str, *, make: bool) -> Iterator[tuple[int, int]]:
        """Descriptors of the folder and of the one in it that holds the body."""
        top, shelf = os.open(self.folder, FOLDER_FLAGS), -1
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


def _is_there(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _write(top: int, shelf: int, name: str, data: bytes) -> None:
    draft = f"{_STAGING}{secrets.token_hex(8)}"
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
