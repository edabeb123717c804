"""Tools that find files by name: list, glob, find, stat."""

from datetime import UTC, datetime
from typing import Annotated, Literal, TypedDict

from toolwire.define.fields import Field
from toolwire.protocol.context import Context
from toolwire.protocol.files import FileEntry, FileOps
from toolwire.protocol.tools import Tool
from toolwire.toolbox.files.granted_paths import find_granted, refusal, wrong
from toolwire.toolbox.files.patterns import LONGEST_PATTERN, glob
from toolwire.toolbox.files.reading import PathArgument
from toolwire.toolbox.files.ruled_files import LOOKS, files_within_rules, left_out
from toolwire.toolbox.files.tree import Walk, starts
from toolwire.toolbox.kinds import looking, walking

MOST_LISTED = 1000

PatternArgument = Annotated[str, Field(min_length=1, max_length=LONGEST_PATTERN)]
MostResults = Annotated[int, Field(ge=1, le=MOST_LISTED)]
Kind = Literal["file", "dir", "link", "other"]
_KINDS: dict[str, Kind] = {"file": "file", "folder": "dir", "link": "link"}


class Listed(TypedDict):
    name: Annotated[str, Field(description="The name in the folder.")]
    type: Annotated[Kind, Field(description="What it is.")]
    size: Annotated[int, Field(description="Bytes, for a file.")]
    modified: Annotated[str, Field(description="When it was last changed, in UTC.")]


class ListOutput(TypedDict):
    path: Annotated[str, Field(description="The folder that was listed.")]
    entries: Annotated[list[Listed], Field(description="What it holds, by name.")]
    truncated: Annotated[bool, Field(description="Whether it holds more than is shown.")]
    note: Annotated[str, Field(description="What was left out and why; empty if nothing.")]


def list_tool(files: FileOps) -> Tool:
    """The tool that lists a folder through `files`."""

    @looking(
        name="list",
        examples=({}, {"path": "src", "include_hidden": True}),
    )
    def list_folder(
        context: Context,
        path: PathArgument = ".",
        include_hidden: bool = False,
    ) -> ListOutput:
        """List the files in a folder.

        Args:
            path: The folder, relative to the workspace.
            include_hidden: Whether to show names that begin with a dot.
        """
        allowed = files_within_rules(files, context, LOOKS, path)
        place, entry = find_granted(allowed, path, context)
        if entry.kind == "file":
            raise wrong(f"{path!r} is a file, not a folder; use read to see what is in it")
        try:
            entries = allowed.entries(place.root, place.inner, MOST_LISTED + 1)
        except OSError as error:
            raise refusal(path, error) from None
        shown = [_listed(each) for each in entries[:MOST_LISTED] if include_hidden or not each.name.startswith(".")]
        note = " ".join(left_out(allowed))
        return {"path": path, "entries": shown, "truncated": len(entries) > MOST_LISTED, "note": note}

    return list_folder


class GlobOutput(TypedDict):
    paths: Annotated[list[str], Field(description="The files that match, relative to the workspace.")]
    truncated: Annotated[bool, Field(description="Whether there may be more.")]
    note: Annotated[str, Field(description="What was left out and why; empty if nothing.")]


def glob_tool(files: FileOps) -> Tool:
    """The tool that finds files by a pattern of paths through `files`."""

    @walking(
        name="glob",
        examples=({"pattern": "**/*.py"}, {"pattern": "test_*.{py,pyi}", "path": "tests", "max_results": 50}),
    )
    def glob_files(
        context: Context,
        pattern: PatternArgument,
        path: PathArgument = ".",
        max_results: MostResults = 200,
    ) -> GlobOutput:
        """Find files whose paths match a pattern. A pattern without a slash, such as *.py, matches in every folder.

        Args:
            pattern: Such as src/**/*.py. * and ? stay in one folder, ** crosses folders, {a,b} and [ab] choose.
            path: The folder to look in, relative to the workspace.
            max_results: How many files to show at most.
        """
        wanted = glob(pattern)
        allowed = files_within_rules(files, context, LOOKS, path)
        walk = Walk(allowed, starts(allowed, path, context), context)
        paths: list[str] = []
        prefix = "" if path in {".", ""} else f"{path.strip('/')}/"
        for each in walk:
            inner = each.path.removeprefix(prefix)
            if each.entry.kind != "folder" and (wanted.matches(inner) or wanted.matches(each.path)):
                paths.append(each.path)
                if len(paths) > max_results:
                    break
        more = len(paths) > max_results
        note = [f"There are more than {max_results}."] if more else []
        return {
            "paths": paths[:max_results],
            "truncated": more or walk.cut_short,
            "note": " ".join([*note, *walk.notes]),
        }

    return glob_files


class FoundFile(TypedDict):
    path: Annotated[str, Field(description="Where it is, relative to the workspace.")]
    type: Annotated[Kind, Field(description="What it is.")]
    size: Annotated[int, Field(description="Bytes, for a file.")]


class FindOutput(TypedDict):
    found: Annotated[list[FoundFile], Field(description="What has such a name.")]
    truncated: Annotated[bool, Field(description="Whether there may be more.")]
    note: Annotated[str, Field(description="What was left out and why; empty if nothing.")]


def find_tool(files: FileOps) -> Tool:
    """The tool that finds files and folders by name through `files`."""

    @walking(
        name="find",
        examples=({"pattern": "config"}, {"pattern": "*.toml", "type": "file"}),
    )
    def find(
        context: Context,
        pattern: PatternArgument,
        path: PathArgument = ".",
        type: Literal["file", "dir"] | None = None,  # noqa: A002 - the name in the tool's protocol
        max_results: MostResults = 200,
    ) -> FindOutput:
        """Find files and folders by name, whatever the case of its letters.

        Args:
            pattern: A part of the name, or the whole name with the wildcards * and ?.
            path: The folder to look in, relative to the workspace.
            type: Find only files, or only folders (dir).
            max_results: How many to show at most.
        """
        has_wildcards = any(char in pattern for char in "*?[{")
        wanted = glob(pattern if has_wildcards else f"*{pattern}*", ignore_case=True)
        allowed = files_within_rules(files, context, LOOKS, path)
        walk = Walk(allowed, starts(allowed, path, context), context)
        hits: list[FoundFile] = []
        for each in walk:
            kind = _KINDS.get(each.entry.kind, "other")
            if (type is None or kind == type) and wanted.matches(each.path if "/" in pattern else each.entry.name):
                hits.append({"path": each.path, "type": kind, "size": each.entry.size if kind == "file" else 0})
                if len(hits) > max_results:
                    break
        more = len(hits) > max_results
        return {"found": hits[:max_results], "truncated": more or walk.cut_short, "note": " ".join(walk.notes)}

    return find


class StatOutput(TypedDict):
    path: Annotated[str, Field(description="The path that was asked about.")]
    type: Annotated[Kind, Field(description="What it is; a link is not followed.")]
    size: Annotated[int, Field(description="Bytes, for a file.")]
    modified: Annotated[str, Field(description="When it was last changed, in UTC.")]
    mode: Annotated[str, Field(description="Its permissions in octal, such as 644.")]


def stat_tool(files: FileOps) -> Tool:
    """The tool that describes a file through `files`."""

    @looking(
        name="stat",
        examples=({"path": "README.md"},),
    )
    def stat(context: Context, path: PathArgument) -> StatOutput:
        """Tell size, type and times of a file.

        Args:
            path: The file or folder, relative to the workspace.
        """
        _, entry = find_granted(files_within_rules(files, context, LOOKS, path), path, context)
        kind = _KINDS.get(entry.kind, "other")
        size = entry.size if kind == "file" else 0
        return {"path": path, "type": kind, "size": size, "modified": _when(entry), "mode": f"{entry.mode:o}"}

    return stat


def _listed(entry: FileEntry) -> Listed:
    kind = _KINDS.get(entry.kind, "other")
    return {
        "name": entry.name,
        "type": kind,
        "size": entry.size if kind == "file" else 0,
        "modified": _when(entry),
    }


def _when(entry: FileEntry) -> str:
    try:
        return datetime.fromtimestamp(entry.modified_at, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a file may claim any time at all
        return ""
