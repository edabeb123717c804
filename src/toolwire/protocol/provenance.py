"""What a call read and wrote, and what is known of things that a turn wrote after it had read untrusted content."""

from msgspec import Struct

FILE, FOLDER, TODOS = "file:", "folder:", "todos:"


class Touched(Struct, frozen=True):
    """Something that a call read or wrote: `file:/absolute/path`, or a list such as `todos:…`.

    With `since_ns` it is a folder in which a command could write: whatever has changed in it since then counts. `inode`
    and `version` are those of the file that was open, since another may have taken its place by now.
    """

    resource: str
    writes: bool = False
    since_ns: int = 0
    inode: str = ""
    version: str = ""


class UntrustedMark(Struct, frozen=True):
    """Says that a resource was written by a turn that had read `origins`.

    `inode` and `version` (size and time of the last change) tell the file from one that has taken its place, and
    find it under another name. Both are empty for what is not a file of this machine.
    """

    resource: str
    origins: tuple[str, ...] = ()
    inode: str = ""
    version: str = ""
    at: float = 0.0
