"""The tool that applies a patch to several files, all or none."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypedDict

from msgspec.structs import replace

from toolwire.define.fields import Field
from toolwire.protocol.context import Context
from toolwire.protocol.files import Change, FileOps
from toolwire.protocol.tools import Tool
from toolwire.toolbox.files.granted_paths import GrantedPath, destination, load, text_of, wrong
from toolwire.toolbox.files.patch_hunks import DoesNotApply, added_text, apply_patch_to
from toolwire.toolbox.files.patch_syntax import LONGEST_PATCH, BadPatch, FilePatch, read_patch
from toolwire.toolbox.files.protected import asks_about
from toolwire.toolbox.files.ruled_files import CHANGES, files_within_rules
from toolwire.toolbox.files.writing import digest, once
from toolwire.toolbox.kinds import changing

LARGEST_PATCHED = 4 * 1024 * 1024

DESCRIPTION = """\
Apply a patch to the files of the workspace: all of it, or nothing if any part does not fit. Takes a unified diff \
(--- a/file, +++ b/file, @@ -1,3 +1,4 @@) or an envelope: *** Begin Patch, then for each file *** Add File: path, \
*** Update File: path or *** Delete File: path with lines that begin with ' ', '-' or '+', then *** End Patch."""
UNIFIED = "--- a/greeting.txt\n+++ b/greeting.txt\n@@ -1 +1 @@\n-hello\n+good morning\n"
ENVELOPE = "*** Begin Patch\n*** Update File: greeting.txt\n-hello\n+good morning\n*** End Patch"


class PatchedFile(TypedDict):
    path: Annotated[str, Field(description="The file, as the patch names it.")]
    action: Annotated[Literal["added", "updated", "deleted", "moved"], Field(description="What was done to it.")]


class PatchOutput(TypedDict):
    files: Annotated[list[PatchedFile], Field(description="Every file that was changed, in the order of the patch.")]
    lines_added: Annotated[int, Field(description="Lines that the patch added.")]
    lines_removed: Annotated[int, Field(description="Lines that the patch removed.")]


def apply_patch_tool(files: FileOps) -> Tool:
    """The tool that applies a patch through `files`."""

    @changing(
        name="apply_patch",
        description=DESCRIPTION,
        writes=("workspace",),
        needs={"file_read", "file_write"},
        timeout_s=20,
        examples=({"patch": UNIFIED}, {"patch": ENVELOPE}),
    )
    def apply_patch(
        context: Context, patch: Annotated[str, Field(min_length=1, max_length=LONGEST_PATCH)]
    ) -> PatchOutput:
        """Apply a patch.

        Args:
            patch: The patch, whole, in one of the two forms. File names are relative to the workspace.
        """
        allowed = files_within_rules(files, context, CHANGES, *_named(patch))
        return once(allowed, context, lambda: _plan(allowed, context, patch))

    return replace(apply_patch, must_ask=_asks_about_patch)


def _asks_about_patch(arguments: Mapping[str, Any], roots: tuple[str, ...]) -> str:
    """Why a patch needs approval: a file in it does."""
    try:
        patches = read_patch(str(arguments.get("patch", "")))
    except BadPatch:
        return ""
    return asks_about([path for patch in patches for path in (patch.path, patch.target)], roots)


def _named(text: str) -> Iterator[str]:
    """The files that a patch names; none where it cannot be read, which is told later."""
    try:
        for patch in read_patch(text):
            yield from filter(None, (patch.path, patch.target))
    except BadPatch:
        return


def _plan(files: FileOps, context: Context, text: str) -> tuple[list[Change], GrantedPath, PatchOutput]:
    try:
        patches = read_patch(text)
        planned = [_changes(files, context, patch) for patch in patches]
    except BadPatch as reason:
        raise wrong(f"the patch cannot be read: {reason}") from None
    except DoesNotApply as reason:
        raise wrong(f"nothing was changed. {reason}") from None
    places = [place for place, _ in planned]
    if any(place.root != places[0].root for place in places):
        raise wrong("a patch changes files of one granted folder only; split it")
    changes = [change for _, some in planned for change in some]
    paths = [change.path for change in changes]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise wrong(f"the patch has more than one part about {twice!r}; put its hunks together in one")
    return changes, places[0], _output(patches)


def _changes(files: FileOps, context: Context, patch: FilePatch) -> tuple[GrantedPath, list[Change]]:
    if patch.action == "add":
        place = destination(files, patch.path, context)
        return place, [Change(place.inner, _encoded(added_text(patch)), before="")]
    loaded = load(files, patch.path, context, LARGEST_PATCHED)
    place, before = loaded.place, digest(loaded.body)
    if patch.action == "delete":
        if patch.hunks and apply_patch_to(patch, text_of(loaded)):
            raise DoesNotApply(
                f"{patch.path!r} has more lines than the patch deletes. Read it, then write the patch anew."
            )
        return place, [Change(place.inner, None, before=before)]
    body = _encoded(apply_patch_to(patch, text_of(loaded))) if patch.hunks else loaded.body
    if not patch.target:
        return place, [Change(place.inner, body, before=before, keep_mode=True)]
    target = destination(files, patch.target, context)
    if target.root != place.root:
        raise wrong("a file is moved inside one granted folder only")
    return place, [Change(place.inner, None, before=before), Change(target.inner, body, before="")]


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise wrong("the patch has half a character in it (a lone surrogate), which no file can hold") from None


def _output(patches: list[FilePatch]) -> PatchOutput:
    hunks = [hunk for patch in patches for hunk in patch.hunks]
    changed: list[PatchedFile] = [{"path": patch.target or patch.path, "action": _done(patch)} for patch in patches]
    return {
        "files": changed,
        "lines_added": sum(hunk.added for hunk in hunks),
        "lines_removed": sum(hunk.removed for hunk in hunks),
    }


def _done(patch: FilePatch) -> Literal["added", "updated", "deleted", "moved"]:
    match patch.action:
        case "add":
            return "added"
        case "delete":
            return "deleted"
        case _:
            return "moved" if patch.target else "updated"
