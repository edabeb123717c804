"""Where a path of a call lies among the granted folders, and what the model reads when it lies nowhere."""

import errno
import os
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple

from toolwire.define.nearest import nearest
from toolwire.errors import ToolFailure
from toolwire.execute.changed_files import version_of
from toolwire.protocol.context import Context
from toolwire.protocol.files import FileEntry, FileOps, NotAFile, Protected, RuledOut, Stale, UntrustedState
from toolwire.protocol.outcomes import Code

LARGEST_TEXT_FILE = 16 * 1024 * 1024
MOST_NAMES = 1000
SHOWN_NAMES = 20
# Characters that cannot be seen or that turn text around; a new name with one of them is made to deceive.
_UNSEEN = frozenset(map(chr, [*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x061C, 0xFEFF]))


class GrantedPath(NamedTuple):
    """A path inside one of the granted folders; `shown` is how the call wrote it."""

    root: str
    inner: str
    shown: str


class LoadedText(NamedTuple):
    """A whole text file, its digest being that of the bytes on the disk."""

    place: GrantedPath
    body: bytes
    entry: FileEntry


def wrong(sentence: str) -> ToolFailure:
    return ToolFailure(sentence, code=Code.INVALID_PARAMS)


def denied_failure(sentence: str) -> ToolFailure:
    return ToolFailure(sentence, code=Code.PERMISSION_DENIED)


def places(path: str, context: Context) -> list[GrantedPath]:
    """The granted folders in which the path may lie, each with the path inside it. Raises ToolFailure."""
    roots = context.grant.roots
    if any(ord(char) < 32 or 127 <= ord(char) < 160 or "\ud800" <= char <= "\udfff" for char in path):
        raise wrong("a path cannot contain control characters or broken Unicode")
    if not roots:
        raise denied_failure("no folder is granted, so no file may be read or written")
    pure = without_detours(PurePosixPath(path or "."))
    if pure is None:
        raise wrong(f"{path!r} is outside of the workspace: its '..' leads above it. Give a path that stays inside.")
    if not pure.is_absolute():
        return [GrantedPath(root, str(pure), path) for root in roots]
    inside = [GrantedPath(root, str(pure.relative_to(root)), path) for root in roots if pure.is_relative_to(root)]
    if not inside:
        raise denied_failure(f"{path!r} is outside of the workspace; give a path relative to it")
    return inside


def without_detours(path: PurePosixPath) -> PurePosixPath | None:
    """The path with each `..` taken back, as rules read it too; None for one that leads above where it begins.

    It goes by names alone: `link/../x` is `x` wherever the link leads. So it names a place inside, whatever lies there.
    """
    if ".." not in path.parts:
        return path
    steps: list[str] = []
    for part in path.parts:
        if part != "..":
            steps.append(part)
        elif not steps or steps == ["/"]:
            return None
        else:
            steps.pop()
    return PurePosixPath(*steps)


def find_granted(files: FileOps, path: str, context: Context, kind: str = "") -> tuple[GrantedPath, FileEntry]:
    """Where the path exists, in the first of the granted folders that has it. Raises ToolFailure."""
    tried = places(path, context)
    for place in tried:
        try:
            entry = files.stat(place.root, place.inner)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise refusal(path, error) from None
        if kind == "file" and entry.kind == "folder":
            raise wrong(f"{path!r} is a folder. {contents(files, place)}")
        return place, entry
    raise ToolFailure(not_found(files, tried, path), code=Code.NOT_FOUND)


def destination(files: FileOps, path: str, context: Context) -> GrantedPath:
    """Where a file that is written will lie: where it is, or else in the first granted folder. Raises ToolFailure."""
    tried = places(path, context)
    if _UNSEEN & set(path):
        raise wrong("the name of a file that is written cannot contain invisible characters")
    for place in tried:
        try:
            files.stat(place.root, place.inner)
        except OSError:
            continue
        return place
    return tried[0]


def load(files: FileOps, path: str, context: Context, most: int = LARGEST_TEXT_FILE) -> LoadedText:
    """A whole file. Raises ToolFailure, also for one that is too large."""
    place, entry = find_granted(files, path, context, "file")
    try:
        with files.open(place.root, place.inner) as file:
            note_read(context, place.root, place.inner, file)
            body = file.read(most + 1)
    except OSError as error:
        raise refusal(path, error) from None
    if len(body) > most:
        raise wrong(f"{path!r} is larger than {most // 2**20} MiB, which is the most that is taken whole")
    return LoadedText(place, body, entry)


def note_read(context: Context, root: str, path: str, file: BinaryIO) -> None:
    """Tell the context which file was read: the one that is open, whatever takes its place."""
    try:
        status = os.fstat(file.fileno())
    except OSError:  # in memory, or on another machine
        context.read_file(root, path)
    else:
        context.read_file(root, path, str(status.st_ino), version_of(status))


def text_of(loaded: LoadedText) -> str:
    """The file as text. Raises ToolFailure for a binary file or one that is not UTF-8."""
    try:
        if b"\0" in loaded.body:
            raise wrong(f"{loaded.place.shown!r} is a binary file, not text")
        return loaded.body.decode()
    except UnicodeDecodeError as error:
        raise wrong(f"{loaded.place.shown!r} is not UTF-8 text (byte {error.start})") from None


def refusal(path: str, error: OSError, verb: str = "read") -> ToolFailure:
    """What the model reads when a file cannot be read, written or changed."""
    match error:
        case NotAFile():
            return wrong(f"{path!r} is a device, pipe or socket, not a file")
        case Protected():
            return denied_failure(
                f"{path!r} is protected: no tool may {verb} {error.name!r}, because other programs obey what is in it. "
                "Tell the user what you wanted to do there."
            )
        case RuledOut():
            return denied_failure(f"{path!r} may not be {_done(verb)}: {error.strerror}.")
        case UntrustedState():
            return denied_failure(f"{path!r} cannot be {_done(verb)}: {error.sentence}")
        case Stale():
            return ToolFailure(f"{error.path!r} was changed by someone else meanwhile; read it again, then repeat")
        case IsADirectoryError():
            return wrong(f"{path!r} is a folder, not a file")
        case NotADirectoryError():
            return wrong(f"a part of {path!r} is a file, not a folder")
        case FileExistsError():
            return wrong(f"{path!r} exists already")
        case FileNotFoundError():
            return ToolFailure(f"there is no file {path!r}", code=Code.NOT_FOUND)
    return _by_number(path, error, verb)


def _by_number(path: str, error: OSError, verb: str) -> ToolFailure:
    match error.errno:
        case errno.ELOOP if verb != "read":
            return denied_failure(
                f"{path!r} goes through a link; nothing is written through links. Give the real path."
            )
        case errno.EXDEV | errno.ELOOP:
            return denied_failure(f"{path!r} leads out of the workspace")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return denied_failure(f"{path!r} may not be {_done(verb)} by this process")
        case errno.ENAMETOOLONG:
            return wrong("the path, or a name in it, is too long")
        case errno.EAGAIN:
            return ToolFailure("another change of this workspace is under way; try again", code=Code.UNAVAILABLE)
        case _:
            return ToolFailure(f"{path!r} cannot be {_done(verb)}: {error.strerror or type(error).__name__}")


def _done(verb: str) -> str:
    return {"read": "read", "write": "written"}.get(verb, f"{verb}d")


def contents(files: FileOps, place: GrantedPath) -> str:
    """What a folder holds, in one sentence."""
    try:
        names = [entry.name for entry in files.entries(place.root, place.inner, MOST_NAMES)]
    except OSError:
        return "Give the path of a file in it."
    shown = ", ".join(names[:SHOWN_NAMES]) or "nothing"
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"It holds {shown}{more}."


def not_found(files: FileOps, tried: list[GrantedPath], path: str) -> str:
    """What is missing, and what was perhaps meant."""
    near: list[str] = []
    for place in tried:
        folder, _, name = place.inner.rpartition("/")
        try:
            names = [entry.name for entry in files.entries(place.root, folder, MOST_NAMES)]
        except OSError:
            continue
        near += [f"{folder}/{one}" if folder else one for one in nearest(name, names)]
    if near:
        return f"there is no file {path!r}; did you mean {' or '.join(near[:3])}?"
    return f"there is no file {path!r} in the workspace"
