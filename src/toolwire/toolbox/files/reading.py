"""The tool that reads text files inside the folders that a grant names."""

from typing import Annotated, TypedDict

from toolwire.define.fields import Field
from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.files import FileOps
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool
from toolwire.toolbox.files.excerpts import Excerpt, NotText, PastTheEnd, read_excerpt
from toolwire.toolbox.files.granted_paths import GrantedPath, contents, not_found, places, refusal, wrong
from toolwire.toolbox.files.ruled_files import LOOKS, files_within_rules
from toolwire.toolbox.kinds import looking

PathArgument = Annotated[str, Field(min_length=1, max_length=4096)]


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

    @looking(
        name="read",
        examples=({"path": "README.md"}, {"path": "src/main.py", "offset": 200, "limit": 100}),
    )
    def read(
        context: Context,
        path: PathArgument,
        offset: Annotated[int, Field(ge=1, le=2**53)] = 1,
        limit: Annotated[int, Field(ge=1, le=10_000)] = 2000,
    ) -> ReadOutput:
        """Read lines of a UTF-8 text file in the workspace.

        Args:
            path: The file, relative to the workspace, such as src/main.py.
            offset: Number of the first line to read.
            limit: How many lines to read at most.
        """
        allowed = files_within_rules(files, context, LOOKS, path)
        tried = places(path, context)
        for place in tried:
            try:
                excerpt = _excerpt(allowed, place, offset, limit)
                context.read_file(place.root, place.inner)
                return _output(path, excerpt)
            except (FileNotFoundError, NotADirectoryError):
                continue
        raise ToolFailure(not_found(allowed, tried, path), code=Code.NOT_FOUND)

    return read


def _excerpt(files: FileOps, place: GrantedPath, offset: int, limit: int) -> Excerpt:
    """Some lines of a text file. Raises ToolFailure, or FileNotFoundError and NotADirectoryError."""
    try:
        with files.open(place.root, place.inner) as file:
            return read_excerpt(file, offset, limit)
    except NotText as reason:
        raise wrong(f"{place.shown!r} {reason}") from None
    except PastTheEnd as reason:
        raise wrong(f"{place.shown!r} {reason}, so there is no line {offset}") from None
    except IsADirectoryError:
        raise wrong(f"{place.shown!r} is a folder. {contents(files, place)}") from None
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise refusal(place.shown, error) from None


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
