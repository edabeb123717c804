"""Large bodies as files named by their content."""

import hashlib
import os
import re
import tempfile
from pathlib import Path

from toolwire.record import refusals

_HANDLE = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)


class Artifacts:
    """A folder of bodies. What `keep` has answered is on the disk under its digest, whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def keep(self, data: bytes) -> str:
        """Write the body unless it is kept already, and give back its handle. Raises OSError."""
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        if not path.exists():
            self._write(path, data)
        # Also for a body found here: whoever wrote it may have died before the folder reached the disk.
        _sync_folder(path.parent)
        return f"sha256:{digest}"

    def fetch(self, handle: str, offset: int, length: int | None) -> bytes:
        """Read a range of a body. Raises NotKept for an unknown or malformed handle."""
        match = _HANDLE.fullmatch(handle)
        if match is None:
            raise refusals.no_body(handle)
        try:
            with self._path(match[1]).open("rb") as file:
                file.seek(max(offset, 0))
                return file.read(-1 if length is None else max(length, 0))
        except FileNotFoundError:
            raise refusals.no_body(handle) from None

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest[2:]

    def _write(self, path: Path, data: bytes) -> None:
        fd, name = tempfile.mkstemp(prefix="new-", dir=self.folder)
        unfinished = Path(name)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            if not path.parent.exists():
                path.parent.mkdir(mode=0o700, exist_ok=True)
                _sync_folder(self.folder)
            unfinished.rename(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
