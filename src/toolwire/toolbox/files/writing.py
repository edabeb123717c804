"""Tools that change single files: write and edit."""

import errno
import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypedDict, TypeVar, cast

import orjson
from msgspec.structs import replace

from toolwire.decide.families import RuleReach
from toolwire.define.fields import Field
from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.files import Change, FileOps, NoteForgotten
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool
from toolwire.toolbox.files.granted_paths import GrantedPath, destination, load, places, refusal, text_of, wrong
from toolwire.toolbox.files.protected import asks_about_path
from toolwire.toolbox.files.reading import PathArgument
from toolwire.toolbox.files.replacing import replace_text
from toolwire.toolbox.files.ruled_files import CHANGES, files_within_rules
from toolwire.toolbox.kinds import changing

LARGEST_TEXT = 4_000_000
# What is said when the machine with the files went silent, and not what it said.
_NO_WORD = {errno.ETIMEDOUT, errno.EPIPE, errno.ECONNRESET, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.EPROTO}

Output = TypeVar("Output")
TextArgument = Annotated[str, Field(max_length=LARGEST_TEXT)]


class WriteOutput(TypedDict):
    path: Annotated[str, Field(description="The file that was written.")]
    created: Annotated[bool, Field(description="Whether the file is new.")]
    bytes: Annotated[int, Field(description="Its size now.")]
    lines: Annotated[int, Field(description="Its number of lines now.")]
    sha256: Annotated[str, Field(description="The digest of its content now.")]


def write_tool(files: FileOps) -> Tool:
    """The tool that creates or overwrites a text file through `files`."""

    @changing(
        name="write",
        reads=("workspace",),
        writes=("file:{path}",),
        needs={"file_write"},
        examples=(
            {"path": "notes.md", "content": "# Notes\n"},
            {"path": "log.txt", "content": "x\n", "mode": "append"},
        ),
    )
    def write(
        context: Context,
        path: PathArgument,
        content: TextArgument,
        mode: Literal["rewrite", "append"] = "rewrite",
    ) -> WriteOutput:
        """Create or overwrite a text file, or append to it. Folders are made as needed.

        Args:
            path: The file, relative to the workspace.
            content: The text to write, all of it.
            mode: rewrite replaces what the file held, append adds to its end.
        """
        allowed = files_within_rules(files, context, RuleReach.CHANGES, path)
        return once(allowed, context, lambda: _write(allowed, context, path, _encoded(content), mode == "append"))

    return replace(write, must_ask=asks_about_path)


class EditOutput(TypedDict):
    path: Annotated[str, Field(description="The file that was changed.")]
    replacements: Annotated[int, Field(description="How many places were changed.")]
    first_line: Annotated[int, Field(description="The line of the first change.")]
    now: Annotated[str, Field(description="The lines around the first change as they are now.")]
    sha256: Annotated[str, Field(description="The digest of the file's content now.")]


def edit_tool(files: FileOps) -> Tool:
    """The tool that replaces an exact piece of text in a file through `files`."""

    @changing(
        name="edit",
        reads=("workspace",),
        writes=("file:{path}",),
        needs={"file_read", "file_write"},
        examples=(
            {"path": "src/main.py", "old_text": "timeout = 5\n", "new_text": "timeout = 10\n"},
            {"path": "README.md", "old_text": "colour", "new_text": "color", "replace_all": True},
        ),
    )
    def edit(
        context: Context,
        path: PathArgument,
        old_text: Annotated[str, Field(min_length=1, max_length=LARGEST_TEXT)],
        new_text: TextArgument,
        replace_all: bool = False,
    ) -> EditOutput:
        """Replace an exact piece of text in a file. It must occur exactly once, unless all are to be replaced.

        Args:
            path: The file, relative to the workspace.
            old_text: The text to replace, exactly as in the file, with enough around it to be unique.
            new_text: The text to put in its place.
            replace_all: Whether to replace every occurrence.
        """
        allowed = files_within_rules(files, context, CHANGES, path)
        return once(allowed, context, lambda: _edit(allowed, context, path, (old_text, new_text), replace_all))

    return replace(edit, must_ask=asks_about_path)


def once(files: FileOps, context: Context, work: Callable[[], tuple[list[Change], GrantedPath, Output]]) -> Output:
    """Do the work that `work` plans, under the key of the call. What an earlier attempt has done is not done again."""
    if context.attempt > 1 and (earlier := _earlier(files, context)) is not None:
        output = orjson.loads(earlier)
        for path in _paths(output):  # the attempt that died may not have said so
            for place in places(path, context):
                context.wrote_file(place.root, place.inner)
        return cast("Output", output)
    changes, place, output = work()
    key = context.idempotency_key if context.call_id else ""
    try:
        approved = [replace(change, approved=context.approved) for change in changes]
        files.change(place.root, approved, key=key, note=orjson.dumps(output).decode())
    except OSError as error:
        if error.errno not in _NO_WORD:
            raise refusal(place.shown, error, "write") from None
        _make_sure(files, place, key)
    for change in changes:
        context.wrote_file(place.root, change.path)
    return output


def _paths(output: Mapping[str, Any]) -> list[str]:
    """The files that an output of one of these tools names."""
    return [str(one["path"]) for one in (output, *output.get("files", ())) if "path" in one]


def _make_sure(files: FileOps, place: GrantedPath, key: str) -> None:
    """Ask whether a change has happened that the far end gave no word about. Raises ToolFailure unless it has."""
    try:
        happened = bool(key) and files.note(place.root, key) is not None
    except OSError:
        key = ""
    if not key:
        raise ToolFailure(
            f"it is unknown whether {place.shown!r} was written: the machine with the files stopped answering. "
            "Look at the file before you repeat this.",
            code=Code.OUTCOME_UNKNOWN,
        )
    if not happened:
        raise ToolFailure(f"{place.shown!r} was not written: the machine with the files stopped answering; try again")


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _earlier(files: FileOps, context: Context) -> str | None:
    """What an attempt that died noted, if it took effect. Raises ToolFailure when that cannot be known."""
    for root in context.grant.roots:
        try:
            note = files.note(root, context.idempotency_key)
        except NoteForgotten:
            raise ToolFailure(
                "it is not known whether an earlier attempt of this call took effect: its process died, and the notes "
                "of old changes were removed. Look at the files before you repeat this.",
                code=Code.OUTCOME_UNKNOWN,
            ) from None
        except OSError as error:
            raise refusal(root, error) from None
        if note is not None:
            return note
    return None


def _write(
    files: FileOps, context: Context, path: str, content: bytes, append: bool
) -> tuple[list[Change], GrantedPath, WriteOutput]:
    place = destination(files, path, context)
    created = not _is_there(files, place)
    expected = None
    if append:  # must not lose what someone else appends; rewriting replaces whatever is there
        before = b"" if created else load(files, place.shown, context).body
        content, expected = before + content, "" if created else digest(before)
    change = Change(place.inner, content, before=expected, keep_mode=append)
    lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    output: WriteOutput = {
        "path": path,
        "created": created,
        "bytes": len(content),
        "lines": lines,
        "sha256": digest(content),
    }
    return [change], place, output


def _is_there(files: FileOps, place: GrantedPath) -> bool:
    try:
        files.stat(place.root, place.inner)
    except OSError:
        return False
    return True


def _edit(
    files: FileOps, context: Context, path: str, texts: tuple[str, str], replace_all: bool
) -> tuple[list[Change], GrantedPath, EditOutput]:
    loaded = load(files, path, context)
    made = replace_text(path, text_of(loaded), *texts, replace_all=replace_all)
    content = _encoded(made.text)
    output: EditOutput = {
        "path": path,
        "replacements": made.replacements,
        "first_line": made.first_line,
        "now": made.around,
        "sha256": digest(content),
    }
    change = Change(loaded.place.inner, content, before=digest(loaded.body), keep_mode=True)
    return [change], loaded.place, output


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise wrong("the text has half a character in it (a lone surrogate), which no file can hold") from None
