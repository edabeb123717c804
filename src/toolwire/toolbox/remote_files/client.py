"""Files of another machine: every operation is a message to a far end, which does it as this machine would.

Whatever carries messages will do: a process with pipes (and so SSH, or a sandbox), or HTTP. The far end is
`toolwire.toolbox.remote_files.server`; links, protected names and the journal are its business, where the files are.
"""

import base64
import binascii
import errno
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import orjson
from typing_extensions import Buffer

from toolwire.protocol.files import Change, FileEntry, NotAFile, NoteForgotten, Protected, Stale, UntrustedState

BLOCK = 256 * 1024
MOST_ENTRIES = 50_000
LARGEST_MESSAGE = 160 * 1024 * 1024

Send = Callable[[bytes], bytes]
"""Carries a message to the far end and gives back its answer. Raises OSError when that cannot be done."""

ERRORS: Mapping[str, type[OSError]] = {
    kind.__name__: kind
    for kind in (
        FileNotFoundError,
        FileExistsError,
        IsADirectoryError,
        NotADirectoryError,
        PermissionError,
        BlockingIOError,
    )
}


class RemoteFiles:
    """FileOps on another machine, reached by `send`."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def open(self, root: str, path: str) -> BinaryIO:
        size = self._ask("size", root, path=path)
        if not isinstance(size, int) or size < 0:
            raise _nonsense()
        return io.BufferedReader(_FarFile(lambda at, length: self._part(root, path, at, length), size), BLOCK)

    def entries(self, root: str, path: str, most: int) -> list[FileEntry]:
        found = self._ask("entries", root, path=path, most=min(most, MOST_ENTRIES))
        if not isinstance(found, list) or len(found) > most:
            raise _nonsense()
        return [_entry(one) for one in found]

    def stat(self, root: str, path: str) -> FileEntry:
        return _entry(self._ask("stat", root, path=path))

    def real(self, root: str, path: str) -> str:
        found = self._ask("real", root, path=path)
        if not isinstance(found, str):
            raise _nonsense()
        return found

    def change(self, root: str, changes: Sequence[Change], *, key: str = "", note: str = "") -> None:
        written = [
            {
                "path": change.path,
                "content": None if change.content is None else base64.b64encode(change.content).decode(),
                "before": change.before,
                "keep_mode": change.keep_mode,
                "approved": change.approved,
            }
            for change in changes
        ]
        self._ask("change", root, changes=written, key=key, note=note)

    def note(self, root: str, key: str) -> str | None:
        found = self._ask("note", root, key=key)
        if found is not None and not isinstance(found, str):
            raise _nonsense()
        return found

    def _part(self, root: str, path: str, at: int, length: int) -> bytes:
        found = self._ask("part", root, path=path, at=at, length=length)
        try:
            body = base64.b64decode(found, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise _nonsense() from None
        if len(body) > length:
            raise _nonsense()
        return body

    def _ask(self, operation: str, root: str, **more: Any) -> Any:
        try:
            answer = orjson.loads(self._send(orjson.dumps({"do": operation, "root": root, **more})))
        except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError):
            raise _nonsense() from None
        if not isinstance(answer, dict):
            raise _nonsense()
        if (failed := answer.get("error")) is not None:
            raise _error(failed)
        return answer.get("is")


class _FarFile(io.RawIOBase):
    """A file that is fetched as it is read."""

    def __init__(self, part: Callable[[int, int], bytes], size: int) -> None:
        self._part = part
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        body = self._part(self._at, min(len(view), BLOCK))
        view[: len(body)] = body
        self._at += len(body)
        return len(body)


def _entry(found: Any) -> FileEntry:
    match found:
        case {"name": str(name), "kind": "file" | "folder" | "link" | "other" as kind, "size": int(size)}:
            when, mode = found.get("modified_at", 0.0), found.get("mode", 0)
            if isinstance(when, (int, float)) and isinstance(mode, int) and "/" not in name and "\0" not in name:
                return FileEntry(name, kind, size, float(when), mode & 0o777)
    raise _nonsense()


def _error(failed: Any) -> OSError:
    match failed:
        case {"kind": "Protected", "text": str(text)}:
            return Protected(text[:300])
        case {"kind": "Stale", "text": str(text)}:
            return Stale(text[:4096])
        case {"kind": "UntrustedState", "text": str(text)}:
            return UntrustedState(text[:4096])
        case {"kind": "NoteForgotten"}:
            return NoteForgotten()
        case {"kind": "NotAFile"}:
            return NotAFile()
        case {"kind": str(kind), "errno": int(number), "text": str(text)}:
            return ERRORS.get(kind, OSError)(number, text[:300])
        case _:
            return _nonsense()


def _nonsense() -> OSError:
    return OSError(errno.EPROTO, "the far end gave an answer that makes no sense")
