"""Taint that outlives its turn: what an untrusted turn writes is marked, and reading it later makes a result untrusted.

A call that was made in a tainted turn, or has itself read something untrusted, marks every file and list that it
writes. A later call that reads a marked one is untrusted by it, in whatever turn or process. A file is known by its
path and inode, so that one put in its place by anybody else is clean, and by inode, size and time under another name.
Files written in bulk are marked as one folder. Nothing of this costs a project anything that has no marks.
"""

import asyncio
import os
import posixpath
from collections.abc import Callable, Iterable, Sequence

from toolwire.execute.changed_files import changed_files, version_of
from toolwire.protocol.context import Context
from toolwire.protocol.provenance import FILE, FOLDER, Touched, UntrustedMark
from toolwire.protocol.records import AuditRow
from toolwire.protocol.traffic import Traffic
from toolwire.record.contract import Store

MOST_IN_FOLDER = 100
"""A command that writes more files than this below one entry of the workspace has that entry marked as a whole."""

MOST_MARKS = 5_000
"""Where there are more marks in a project, the workspace is marked as a whole."""

_MOST_ORIGINS = 5


class ContextRecorder:
    """Puts on record what calls tell in their contexts; see `Recorder`. `clean` takes secrets out of a text."""

    def __init__(self, store: Store, clock: Callable[[], float], clean: Callable[[str], str]) -> None:
        self._store = store
        self._clock = clock
        self._clean = clean

    async def record_told(self, context: Context, tool: str) -> None:
        """Write down where a call went on the network, and what it wrote if it had read anything untrusted."""
        traffic = [one.cleaned(self._clean) for one in context.told if isinstance(one, Traffic)]
        if traffic:
            await self._store.audit([self._network_row(context, tool, one) for one in traffic])
        await self._tell_marked_reads(context)
        read = [one for one in context.told if isinstance(one, str)]
        read += [host for one in traffic for host in one.origins]
        if read or context.tainted_by:
            await self._mark_writes(context, [*map(self._clean, read), *context.tainted_by])
        else:
            await self._follow_renames(context)

    async def marks(self, project: str) -> Sequence[UntrustedMark]:
        """What turns of a project wrote after they had read untrusted content."""
        return await self._store.untrusted(project)

    def _network_row(self, context: Context, tool: str, traffic: Traffic) -> AuditRow:
        return AuditRow(
            at=self._clock(),
            event="network",
            project=context.project,
            agent=context.agent,
            turn_id=context.turn_id,
            call_id=context.call_id,
            tool=tool,
            detail=traffic.detail(),
        )

    async def _tell_marked_reads(self, context: Context) -> None:
        """Where the call has read what an untrusted turn wrote, say so in the context."""
        read = {one for one in context.told if isinstance(one, Touched) and not one.writes}
        if not read:
            return
        marks = await self._store.untrusted(context.project)
        if marks:
            for mark in await asyncio.to_thread(_marked, marks, read):
                _tell(context, mark)

    async def _mark_writes(self, context: Context, origins: Sequence[str]) -> None:
        """Mark what the call has written, since it was made by a turn that had read `origins`."""
        written = [one for one in context.told if isinstance(one, Touched) and one.writes]
        if written:
            known = await self._store.untrusted(context.project)
            named = tuple(dict.fromkeys(origins))[:_MOST_ORIGINS]
            marks = await asyncio.to_thread(_marks, written, named, self._clock())
            await self._keep(context, known, marks)

    async def _follow_renames(self, context: Context) -> None:
        """Mark files again that a command has given another name; they were not opened for that."""
        folders = [one for one in context.told if isinstance(one, Touched) and one.since_ns]
        known = await self._store.untrusted(context.project) if folders else ()
        if known:
            marks = await asyncio.to_thread(_renamed, folders, known)
            await self._keep(context, known, marks)

    async def _keep(self, context: Context, known: Sequence[UntrustedMark], marks: Sequence[UntrustedMark]) -> None:
        if not marks:
            return
        gone: Sequence[UntrustedMark] = ()
        if len(known) + len(marks) > MOST_MARKS:
            gone = await asyncio.to_thread(lambda: [one for one in known if not _is_there(one)])
            if len(known) - len(gone) + len(marks) > MOST_MARKS:
                origins = marks[0].origins
                marks = [_folder_mark(root, origins, self._clock()) for root in context.grant.roots]
                gone = [one for one in known if any(_is_beneath(one, root) for root in context.grant.roots)]
        await self._store.mark_untrusted(context.project, marks, [one.resource for one in gone])


def _tell(context: Context, mark: UntrustedMark) -> None:
    """Name a marked resource and what the turn that wrote it had read."""
    root = next((root for root in context.grant.roots if mark.resource.removeprefix(FILE).startswith(f"{root}/")), "")
    context.read_from(f"{FILE}{posixpath.relpath(mark.resource.removeprefix(FILE), root)}" if root else mark.resource)
    for origin in mark.origins:
        context.read_from(origin)


def _marked(marks: Sequence[UntrustedMark], read: Iterable[Touched]) -> list[UntrustedMark]:
    by_name = {one.resource: one for one in marks}
    by_inode = {(one.inode, one.version): one for one in marks if one.inode}
    folders = [one for one in marks if one.resource.startswith(FOLDER) and _is_there(one)]
    found = (_mark_of(one, by_name, by_inode, folders) for one in sorted(read, key=lambda one: one.resource))
    return list(dict.fromkeys(one for one in found if one is not None))


def _mark_of(
    touched: Touched,
    by_name: dict[str, UntrustedMark],
    by_inode: dict[tuple[str, str], UntrustedMark],
    folders: list[UntrustedMark],
) -> UntrustedMark | None:
    named = by_name.get(touched.resource)
    if not touched.resource.startswith(FILE):
        return named
    path = touched.resource.removeprefix(FILE)
    inside = next((one for one in folders if _beneath(path, one.resource.removeprefix(FOLDER))), None)
    inode, version = (touched.inode, touched.version) if touched.inode else _identity(path)
    if named is not None and (not inode or named.inode in ("", inode)):
        return named  # without an inode, it lies on another machine
    return (by_inode.get((inode, version)) if inode else None) or inside


def _identity(path: str) -> tuple[str, str]:
    try:
        status = os.stat(path)  # noqa: PTH116 - a path may be any text
    except (OSError, ValueError):
        return "", ""
    return str(status.st_ino), version_of(status)


def _marks(written: Sequence[Touched], origins: tuple[str, ...], at: float) -> list[UntrustedMark]:
    marks: dict[str, UntrustedMark] = {}
    for one in written:
        found = _in_folder(one, origins, at) if one.since_ns else [_mark(one.resource, origins, at)]
        marks |= {mark.resource: mark for mark in found}
    return list(marks.values())


def _in_folder(touched: Touched, origins: tuple[str, ...], at: float) -> list[UntrustedMark]:
    root = touched.resource.removeprefix(FOLDER)
    changed, complete = changed_files(root, touched.since_ns)
    if not complete:
        return [_folder_mark(root, origins, at)]
    groups: dict[str, list[str]] = {}
    for path in changed:
        groups.setdefault(posixpath.relpath(path, root).partition("/")[0], []).append(path)
    marks = []
    for name, paths in groups.items():
        if len(paths) > MOST_IN_FOLDER:
            marks.append(_folder_mark(posixpath.join(root, name), origins, at))
        else:
            marks += [_of_status(path, changed[path], origins, at) for path in paths]
    if len(marks) > MOST_MARKS:
        return [_folder_mark(root, origins, at)]
    return marks


def _renamed(folders: Sequence[Touched], known: Sequence[UntrustedMark]) -> list[UntrustedMark]:
    lost = {(one.inode, one.version): one for one in known if one.inode and not _is_there(one)}
    marks: list[UntrustedMark] = []
    for one in folders if lost else ():
        changed, _ = changed_files(one.resource.removeprefix(FOLDER), one.since_ns)
        for path, status in changed.items():
            if mark := lost.get((str(status.st_ino), version_of(status))):
                marks.append(_of_status(path, status, mark.origins, mark.at))
    return marks


def _mark(resource: str, origins: tuple[str, ...], at: float) -> UntrustedMark:
    if resource.startswith(FILE):
        try:
            return _of_status(path := resource.removeprefix(FILE), os.stat(path), origins, at)  # noqa: PTH116
        except (OSError, ValueError):
            pass  # removed, or on another machine
    return UntrustedMark(resource, origins, at=at)


def _of_status(path: str, status: os.stat_result, origins: tuple[str, ...], at: float) -> UntrustedMark:
    return UntrustedMark(FILE + path, origins, str(status.st_ino), version_of(status), at)


def _folder_mark(path: str, origins: tuple[str, ...], at: float) -> UntrustedMark:
    try:
        inode = str(os.stat(path).st_ino)  # noqa: PTH116
    except OSError:
        inode = ""
    return UntrustedMark(FOLDER + path, origins, inode, at=at)


def _is_there(mark: UntrustedMark) -> bool:
    """Whether what was marked still lies where it lay."""
    if not mark.inode:
        return True
    try:
        return str(os.stat(mark.resource.partition(":")[2]).st_ino) == mark.inode  # noqa: PTH116
    except (OSError, ValueError):
        return False


def _is_beneath(mark: UntrustedMark, root: str) -> bool:
    return mark.resource.startswith((FILE, FOLDER)) and _beneath(mark.resource.partition(":")[2], root)


def _beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
