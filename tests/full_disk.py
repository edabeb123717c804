"""A disk that is really full: a file system in memory of a few pages, mounted nowhere but at a descriptor."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from toolwire.execute.sandbox.syscalls import call

_SET_STRING, _CREATE, _CLOSE_ON_EXEC = 1, 6, 1
_BYTES = 256 * 1024


class FullDisk:
    """It has a folder, and not a byte left, until `make_room`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"
        self.fill()

    def fill(self) -> None:
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        assert os.statvfs(self.folder).f_bavail == 0

    def make_room(self) -> None:
        self._filler.unlink()


@contextmanager
def full_disk() -> Iterator[FullDisk]:
    if os.geteuid() != 0:
        pytest.skip("only root may make a file system")
    made = call("fsopen", b"tmpfs", _CLOSE_ON_EXEC)
    try:
        call("fsconfig", made, _SET_STRING, b"size", b"%d" % _BYTES, 0)
        call("fsconfig", made, _CREATE, 0, 0, 0)
        mounted = call("fsmount", made, _CLOSE_ON_EXEC, 0)
    finally:
        os.close(made)
    try:
        yield FullDisk(Path(f"/proc/self/fd/{mounted}"))
    finally:
        os.close(mounted)
