"""A command in a box is watched for what it opens of files that untrusted turns wrote, and for where it could write."""

import platform
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from toolwire.execute.changed_files import file_time_ns
from toolwire.execute.opened_files import OpenedFiles
from toolwire.protocol.context import Context
from toolwire.protocol.operations import Command
from toolwire.protocol.provenance import FILE, FOLDER, Touched, UntrustedMark

Look = Callable[[], list[Touched]]
"""The marked files that were opened so far."""


@asynccontextmanager
async def watch_command(context: Context, command: Command) -> AsyncIterator[Look]:
    """Tell the context, at the end, what the command has touched in its workspace."""
    if not command.workspace:
        yield list
        return
    marks = await context.recorder.marks(context.project)
    named = [Touched(FILE + folder) for folder in _named_folders(command, marks)]
    files = {one.resource.removeprefix(FILE): one for one in marks if one.resource.startswith(FILE) and _is_there(one)}
    with OpenedFiles(files) as watch:

        def look() -> list[Touched]:
            unseen = files if command.trial and not _overlays_tell(platform.release()) else ()
            opened = (files[path] for path in sorted({*watch.opened(), *unseen}))
            return [*named, *(Touched(one.resource, inode=one.inode, version=one.version) for one in opened)]

        began_ns = file_time_ns()
        try:
            yield look
        finally:
            context.told.extend(look())
            if command.writable:
                context.told.append(Touched(FOLDER + command.workspace, writes=True, since_ns=began_ns))


def _overlays_tell(release: str) -> bool:
    """Whether this kernel tells of a file that is opened through the layer of a trial; before 6.5 none does."""
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0]
    return major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= (6, 5)


def _is_there(mark: UntrustedMark) -> bool:
    """Whether the file is still the one that was marked."""
    try:
        return str(Path(mark.resource.removeprefix(FILE)).stat().st_ino) == mark.inode
    except (OSError, ValueError):
        return False


def _named_folders(command: Command, marks: Sequence[UntrustedMark]) -> list[str]:
    """The folders marked as a whole that the command's words name; all of the workspace needs no name.

    Files in them are too many to be watched, and a program that loads an installed package does not read it aloud.
    """
    folders = (one.resource.removeprefix(FOLDER) for one in marks if one.resource.startswith(FOLDER))
    text = "\0".join(command.argv)
    return [each for each in folders if each == command.workspace or _word_for(each.rpartition("/")[2]) in text]


def _word_for(folder: str) -> str:
    """What git keeps is read by naming git, not its folder."""
    return "git" if folder == ".git" else folder
