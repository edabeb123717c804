"""What file tools do to the world, as a contract: this disk, a device, another machine, or a test."""

import errno
from collections.abc import Sequence
from typing import BinaryIO, Protocol

from msgspec import Struct


class NotAFile(OSError):
    """What the path leads to is neither a regular file nor a folder."""

    def __init__(self) -> None:
        super().__init__(errno.EINVAL, "is not a regular file")


class Protected(OSError):
    """The path has a name that tools may not touch; the text is that name."""

    def __init__(self, name: str) -> None:
        super().__init__(errno.EPERM, name)
        self.name = name


class RuledOut(OSError):
    """A rule of the grant keeps the file from this call; the text says which."""


class Stale(OSError):
    """The file is not what it was when the change was worked out. Nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EBUSY, "was changed by someone else meanwhile")
        self.path = path


class NoteForgotten(OSError):
    """No note is kept under a key, but there may have been one: old ones were removed."""

    def __init__(self) -> None:
        super().__init__(errno.ENODATA, "notes of old changes were removed")


class UntrustedState(OSError):
    """A folder of toolwire's own state cannot be taken for this user's; the sentence says why and what to do."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EPERM, sentence)
        self.sentence = sentence


class FileEntry(Struct, frozen=True):
    """What lies at a path. `kind` is file, folder, link or other; a link is not followed."""

    name: str
    kind: str
    size: int = 0
    modified_at: float = 0.0
    mode: int = 0o644


class Change(Struct, frozen=True):
    """What a file is to become: this content, or with None its removal.

    `before` is the SHA-256 that the file must have when the change happens, "" if it must not exist, None if
    anything may be there. A new file gets mode 0644; `keep_mode` keeps the permissions of the one it replaces.
    Only an `approved` change may be of a name that other programs obey and that may be written after approval.
    """

    path: str
    content: bytes | None
    before: str | None = None
    keep_mode: bool = False
    approved: bool = False


class FileOps(Protocol):
    """The files beneath a folder `root`. Paths are relative to it, with `/` and without `..`.

    An implementation lets no link lead out of the root, opens regular files only, and changes nothing whose name is
    protected. Only `change` and `note` finish what an interrupted change left; reading settles nothing. Failures are
    OSError: FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError, errno EXDEV or ELOOP for a path
    that leads out, and the ones above.
    """

    def open(self, root: str, path: str) -> BinaryIO:
        """A regular file, to read and seek in."""
        ...

    def entries(self, root: str, path: str, most: int) -> list[FileEntry]:
        """What a folder holds, sorted by name, at most so many."""
        ...

    def stat(self, root: str, path: str) -> FileEntry:
        """What lies at a path, without following a link at its end."""
        ...

    def real(self, root: str, path: str) -> str:
        """Where a path leads beneath the root, every link followed."""
        ...

    def change(self, root: str, changes: Sequence[Change], *, key: str = "", note: str = "") -> None:
        """Make all changes or none, durably; a crash in between leaves all or none too. Folders are made as needed.

        With a `key`, `note` is kept under it from the moment the changes are certain to happen.
        """
        ...

    def note(self, root: str, key: str) -> str | None:
        """The note of the change with this key, or None if no such change took effect. Raises NoteForgotten."""
        ...
