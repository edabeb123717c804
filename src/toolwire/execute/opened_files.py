"""Which of some files are opened while a command runs, as the kernel tells it (inotify).

It works for every engine, since a box sees the same files, and for ordinary users. Opening a file is what counts: to
look at its name or size opens nothing.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from typing import Self

_IN_OPEN, _IN_Q_OVERFLOW = 0x20, 0x4000
_EVENT = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class OpenedFiles:
    """Watches files while the block lasts. Where the kernel cannot tell, a file counts as opened."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = tuple(paths)
        self._watches: dict[int, str] = {}
        self._opened: set[str] = set()
        self._fd = -1

    def __enter__(self) -> Self:
        if not self._paths:
            return self
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for path in self._paths:
            watch = -1 if self._fd < 0 else _libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_OPEN)
            if watch >= 0:
                self._watches[watch] = path
            elif self._fd < 0 or ctypes.get_errno() not in (errno.ENOENT, errno.ENOTDIR):
                self._opened.add(path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def opened(self) -> set[str]:
        """The files that were opened until now."""
        while self._fd >= 0:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                break
            at = 0
            while at < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                self._opened |= set(self._paths) if mask & _IN_Q_OVERFLOW else {self._watches.get(watch, "")} - {""}
        return set(self._opened)
