"""Files in memory, so that tools can be tried without a disk."""

import errno
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

from toolwire.protocol.files import Change, FileEntry, Stale
from toolwire.toolbox.disk.beneath import plain_path, refuse_controls
from toolwire.toolbox.files.protected import refuse_own_state, refuse_protected


class MemoryFiles:
    """FileOps on a dictionary from path to content, all beneath one `root`. There are no links.

    As on a disk, a folder stays when its last file is removed.
    """

    def __init__(self, files: Mapping[str, bytes | str] | None = None, *, root: str = "/workspace") -> None:
        given = files or {}
        self.root = root
        self.files = {path: body.encode() if isinstance(body, str) else body for path, body in given.items()}
        self._folders = {"", *(folder for path in self.files for folder in _above(path))}
        self._notes: dict[str, str] = {}

    def open(self, root: str, path: str) -> BinaryIO:
        name = self._name(root, path)
        if name not in self.files:
            raise self._missing(name)
        return io.BytesIO(self.files[name])

    def entries(self, root: str, path: str, most: int) -> list[FileEntry]:
        folder = self._name(root, path)
        if folder in self.files:
            raise NotADirectoryError(errno.ENOTDIR, "is not a folder")
        if folder not in self._folders:
            raise self._missing(folder)
        inner = f"{folder}/" if folder else ""
        beneath = (name.removeprefix(inner) for name in {*self.files, *self._folders} if name.startswith(inner))
        names = sorted(name for name in beneath if name and "/" not in name)
        return [self._entry(inner + name) for name in names[:most]]

    def stat(self, root: str, path: str) -> FileEntry:
        name = self._name(root, path)
        if name not in self.files and name not in self._folders:
            raise self._missing(name)
        return self._entry(name)

    def real(self, root: str, path: str) -> str:
        return self._name(root, path)

    def change(self, root: str, changes: Sequence[Change], *, key: str = "", note: str = "") -> None:
        self._refuse_other(root)
        names = [plain_path(change.path) for change in changes]
        if len(set(names)) != len(names):
            raise OSError(errno.EINVAL, "a file is changed twice at once")
        after = dict(self.files)
        for name, change in zip(names, changes, strict=True):
            self._check(name, change)
            if change.content is None:
                del after[name]
            else:
                after[name] = change.content
        made = {folder for name in names if name in after for folder in _above(name)}
        if made & after.keys():
            raise NotADirectoryError(errno.ENOTDIR, "is not a folder")
        self.files = after
        self._folders |= made
        if key:
            self._notes[key] = note

    def note(self, root: str, key: str) -> str | None:
        self._refuse_other(root)
        return self._notes.get(key)

    def _check(self, name: str, change: Change) -> None:
        refuse_controls(name)
        refuse_protected(name, approved=change.approved)
        now = self.files.get(name)
        if now is None and not isinstance(missing := self._missing(name), FileNotFoundError):
            raise missing
        if now is None and (change.before or change.content is None):
            raise Stale(name) if change.before else self._missing(name)
        if now is not None and change.before == "":
            raise FileExistsError(errno.EEXIST, "is there already")
        if now is not None and change.before and hashlib.sha256(now).hexdigest() != change.before:
            raise Stale(name)

    def _missing(self, name: str) -> OSError:
        """What to say about a name that is not a file."""
        if name in self._folders:
            return IsADirectoryError(errno.EISDIR, "is a folder")
        if any(folder in self.files for folder in _above(name)):
            return NotADirectoryError(errno.ENOTDIR, "is not a folder")
        return FileNotFoundError(errno.ENOENT, "is not there")

    def _entry(self, name: str) -> FileEntry:
        last = name.rpartition("/")[2] or "."
        if name not in self.files:
            return FileEntry(last, "folder", mode=0o755)
        return FileEntry(last, "file", len(self.files[name]))

    def _name(self, root: str, path: str) -> str:
        self._refuse_other(root)
        refuse_controls(path)
        refuse_own_state(path)
        return "" if path in {"", "."} else plain_path(path)

    def _refuse_other(self, root: str) -> None:
        if root != self.root:
            raise FileNotFoundError(errno.ENOENT, "there is no such folder")


def _above(path: str) -> Iterator[str]:
    """The folders in which a path lies, without the root."""
    parts = path.split("/")
    return ("/".join(parts[:length]) for length in range(1, len(parts)))
