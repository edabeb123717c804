"""The far end of `RemoteFiles`: answers messages with the files of the machine it runs on.

`python -m toolwire.toolbox.remote_files.server ROOT…` answers messages on its standard input, each after a line with
its length.
"""

import base64
import errno
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import orjson
from msgspec.structs import asdict

from toolwire.protocol.files import Change, FileOps, Protected, Stale
from toolwire.toolbox.disk.local_files import LocalFiles
from toolwire.toolbox.remote_files.client import BLOCK, LARGEST_MESSAGE, MOST_ENTRIES

_LONGEST_HEAD = 20


def answer(files: FileOps, roots: Iterable[str], message: bytes) -> bytes:
    """Do what one message asks for, in one of these roots and nowhere else. Never raises for what a message says."""
    try:
        asked = orjson.loads(message)
        root = asked["root"]
        if not isinstance(asked.get("path", ""), str):
            raise TypeError("a path is text")
        if root not in set(roots):
            raise PermissionError(errno.EACCES, "this folder is not offered here")
        return orjson.dumps({"is": _OPERATIONS[asked["do"]](files, root, asked)})
    except OSError as error:
        text = (
            error.name if isinstance(error, Protected) else error.path if isinstance(error, Stale) else error.strerror
        )
        said = {"kind": type(error).__name__, "errno": error.errno or errno.EIO, "text": text or str(error)}
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        said = {
            "kind": "OSError",
            "errno": errno.EPROTO,
            "text": f"a message that makes no sense: {type(error).__name__}",
        }
    return orjson.dumps({"error": said})


def serve(files: FileOps, roots: Iterable[str], source: BinaryIO, sink: BinaryIO) -> None:
    """Answer messages until the source ends."""
    offered = tuple(roots)
    while (message := read_message(source)) is not None:
        write_message(sink, answer(files, offered, message))


def read_message(source: BinaryIO) -> bytes | None:
    """The next message; None at the end. Raises OSError for what is not one."""
    head = source.readline(_LONGEST_HEAD)
    if not head:
        return None
    if not head.strip().isdigit() or int(head) > LARGEST_MESSAGE:
        raise OSError(errno.EPROTO, "the other end does not speak our way")
    body = source.read(int(head))
    if len(body) != int(head):
        raise OSError(errno.EPIPE, "the other end stopped in the middle of a message")
    return body


def write_message(sink: BinaryIO, message: bytes) -> None:
    sink.write(b"%d\n" % len(message))
    sink.write(message)
    sink.flush()


def _size(files: FileOps, root: str, asked: Mapping[str, Any]) -> int:
    with files.open(root, asked["path"]) as file:
        return file.seek(0, 2)


def _part(files: FileOps, root: str, asked: Mapping[str, Any]) -> str:
    with files.open(root, asked["path"]) as file:
        file.seek(max(int(asked["at"]), 0))
        return base64.b64encode(file.read(min(max(int(asked["length"]), 0), BLOCK))).decode()


def _entries(files: FileOps, root: str, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    most = min(max(int(asked["most"]), 0), MOST_ENTRIES)
    return [asdict(entry) for entry in files.entries(root, asked["path"], most)]


def _stat(files: FileOps, root: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    return asdict(files.stat(root, asked["path"]))


def _real(files: FileOps, root: str, asked: Mapping[str, Any]) -> str:
    return files.real(root, asked["path"])


def _change(files: FileOps, root: str, asked: Mapping[str, Any]) -> None:
    changes = [
        Change(
            str(one["path"]),
            None if one["content"] is None else base64.b64decode(one["content"], validate=True),
            one["before"],
            bool(one["keep_mode"]),
            one.get("approved") is True,
        )
        for one in asked["changes"]
    ]
    files.change(root, changes, key=str(asked["key"]), note=str(asked["note"]))


def _note(files: FileOps, root: str, asked: Mapping[str, Any]) -> str | None:
    return files.note(root, str(asked["key"]))


_OPERATIONS: Mapping[str, Callable[[FileOps, str, Mapping[str, Any]], Any]] = {
    "size": _size,
    "part": _part,
    "entries": _entries,
    "stat": _stat,
    "real": _real,
    "change": _change,
    "note": _note,
}


if __name__ == "__main__":
    serve(LocalFiles(), sys.argv[1:], sys.stdin.buffer, sys.stdout.buffer)
