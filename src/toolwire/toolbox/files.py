"""Reading files inside the folders that a grant names."""

import errno
import os
from itertools import islice
from pathlib import PurePosixPath
from typing import Annotated, Protocol, TypedDict

from pydantic import Field

from toolwire.define.functions import tool
from toolwire.define.nearest import nearest
from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.beneath import NotAFile, open_file, open_folder
from toolwire.toolbox.excerpts import Excerpt, NotText, PastTheEnd, read_excerpt

MOST_NAMES = 1000
SHOWN_NAMES = 20


class FileOps(Protocol):
    """What file tools need of the place where files are: this disk, a device, another machine, a test.

    Paths are relative to `root` and have no `..`; an implementation must not let links lead out of it. Failures are
    OSError: FileNotFoundError, IsADirectoryError, PermissionError, errno EXDEV or ELOOP for a path that leads out.
    """

    def read(self, root: str, path: str, first_line: int, lines: int) -> Excerpt:
        """Some lines of a text file. Raises OSError, NotText or PastTheEnd."""
        ...

    def names(self, root: str, path: str) -> list[str]:
        """What a folder holds, a bounded number of names. Raises OSError."""
        ...


class LocalFiles:
    """The disk of this machine."""

    def read(self, root: str, path: str, first_line: int, lines: int) -> Excerpt:
        with open(open_file(root, path), "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            return read_excerpt(file, first_line, lines)

    def names(self, root: str, path: str) -> list[str]:
        folder = open_folder(root, path)
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in islice(entries, MOST_NAMES))
        finally:
            os.close(folder)


class ReadOutput(TypedDict):
    path: Annotated[str, Field(description="The path that was read.")]
    text: Annotated[str, Field(description="The text of the lines, as it is in the file.")]
    first_line: Annotated[int, Field(description="Number of the first line in text; the file's first line is 1.")]
    last_line: Annotated[int, Field(description="Number of the last line in text.")]
    total_lines: Annotated[int | None, Field(description="Lines in the file; null if it is too long to count.")]
    truncated: Annotated[bool, Field(description="Whether the file goes on after last_line or a line was cut.")]
    note: Annotated[str, Field(description="What differs from the file, and how to go on; empty if nothing.")]


def read_tool(files: FileOps) -> Tool:
    """The tool that reads text files through `files`."""

    @tool(
        name="read",
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category="file",
        reads=("file:{path}",),
        needs={"file_read"},
        examples=({"path": "README.md"}, {"path": "src/main.py", "offset": 200, "limit": 100}),
    )
    def read(
        context: Context,
        path: Annotated[str, Field(min_length=1, max_length=4096)],
        offset: Annotated[int, Field(ge=1, le=2**53)] = 1,
        limit: Annotated[int, Field(ge=1, le=10_000)] = 2000,
    ) -> ReadOutput:
        """Read lines of a UTF-8 text file in the workspace.

        Args:
            path: The file, relative to the workspace, such as src/main.py.
            offset: Number of the first line to read.
            limit: How many lines to read at most.
        """
        return _read(files, _places(path, context.grant.roots), path, offset, limit)

    return read


def _read(files: FileOps, places: list[tuple[str, str]], path: str, offset: int, limit: int) -> ReadOutput:
    for root, inner in places:
        try:
            return _output(path, files.read(root, inner, offset, limit))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except NotText as reason:
            raise _wrong(f"{path!r} {reason}") from None
        except PastTheEnd as reason:
            raise _wrong(f"{path!r} {reason}, so there is no line {offset}") from None
        except IsADirectoryError:
            raise _wrong(f"{path!r} is a folder. {_contents(files, root, inner)}") from None
        except OSError as error:
            raise _refusal(path, error) from None
    raise ToolFailure(_not_found(files, places, path), code=Code.NOT_FOUND)


def _output(path: str, part: Excerpt) -> ReadOutput:
    return {
        "path": path,
        "text": part.text,
        "first_line": part.first_line,
        "last_line": part.last_line,
        "total_lines": part.total_lines,
        "truncated": part.truncated,
        "note": " ".join(part.notes),
    }


def _wrong(sentence: str) -> ToolFailure:
    return ToolFailure(sentence, code=Code.INVALID_PARAMS)


def _places(path: str, roots: tuple[str, ...]) -> list[tuple[str, str]]:
    """The roots in which the path may lie, each with the path inside it."""
    if any(ord(char) < 32 or ord(char) == 127 or "\ud800" <= char <= "\udfff" for char in path):
        raise _wrong("a path cannot contain control characters or broken Unicode")
    if not roots:
        raise ToolFailure("no folder is granted, so no file may be read", code=Code.PERMISSION_DENIED)
    pure = PurePosixPath(path)
    if ".." in pure.parts:
        raise _wrong("a path cannot contain '..'; give it relative to the workspace")
    if not pure.is_absolute():
        return [(root, str(pure)) for root in roots]
    inside = [(root, str(pure.relative_to(root))) for root in roots if pure.is_relative_to(root)]
    if not inside:
        raise ToolFailure(
            f"{path!r} is outside of the workspace; give a path relative to it", code=Code.PERMISSION_DENIED
        )
    return inside


def _refusal(path: str, error: OSError) -> ToolFailure:
    if isinstance(error, NotAFile):
        return _wrong(f"{path!r} is a device, pipe or socket, not a file")
    match error.errno:
        case errno.EXDEV | errno.ELOOP:
            return ToolFailure(f"{path!r} leads out of the workspace", code=Code.PERMISSION_DENIED)
        case errno.EACCES | errno.EPERM:
            return ToolFailure(f"{path!r} may not be read by this process", code=Code.PERMISSION_DENIED)
        case errno.ENAMETOOLONG:
            return _wrong("the path, or a name in it, is too long")
        case _:
            return ToolFailure(f"{path!r} cannot be read: {error.strerror or type(error).__name__}")


def _contents(files: FileOps, root: str, inner: str) -> str:
    try:
        names = files.names(root, inner)
    except OSError:
        return "Give the path of a file in it."
    shown = ", ".join(names[:SHOWN_NAMES]) or "nothing"
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"It holds {shown}{more}."


def _not_found(files: FileOps, places: list[tuple[str, str]], path: str) -> str:
    """What is missing, and what was perhaps meant."""
    near: list[str] = []
    for root, inner in places:
        folder, _, name = inner.rpartition("/")
        try:
            names = files.names(root, folder)
        except OSError:
            continue
        near += [f"{folder}/{found}" if folder else found for found in nearest(name, names)]
    if near:
        return f"there is no file {path!r}; did you mean {' or '.join(near[:3])}?"
    return f"there is no file {path!r} in the workspace"
