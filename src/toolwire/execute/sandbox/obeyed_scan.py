"""Finds, in a whole workspace, the names that other programs obey, keys, and sockets and pipes of other programs.

It is done before and after every box, so what a folder held is remembered for as long as the folder stays the same.
A folder's own time of change tells: it moves whenever a name appears or goes, and no program can set it. A folder that
was changed a moment ago is not remembered, since clocks of file systems tick slowly. What is remembered says nothing of
the folders above, which may be moved meanwhile.

Names count only where a program would look for them: not in packages, and not in what is sealed as a whole. A `.git`
counts at every place but within another one: git makes a submodule of it wherever it lies.
"""

import os
import stat
import time
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from threading import Lock

from msgspec import Struct, field

from toolwire.protocol.key_files import is_key_file, is_key_folder
from toolwire.protocol.obeyed import Obeyed, class_in, is_ordinary, is_own_state, plain_name

MOST_FOLDERS = 100_000
_MOST_REMEMBERED = 300_000
_SETTLED_NS = 100_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PACKAGES, _GIT, _OBJECTS, _HOOKS = "node_modules", ".git", "objects", "hooks"


class _Counts(IntEnum):
    """Which names count in a folder, and in those within it."""

    NONE = 0  # within git's own folder
    REPOSITORIES = 1
    ALL = 2


class FoundName(Struct, frozen=True):
    """A name of the list as it lies in a workspace. `target` is where it leads if it is a link."""

    path: str
    obeyed: Obeyed
    kind: int
    identity: tuple[int, int]
    times: tuple[int, int]
    target: str = ""


class WorkspaceScan(Struct):
    """What was found. `links` lie in folders that are obeyed as a whole.

    `put_off` are folders in which only repositories count, see `look_into_packages`. `whole` is False where the
    workspace has more folders than are looked at.
    """

    names: dict[str, FoundName] = field(default_factory=dict)
    endpoints: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    put_off: list[str] = field(default_factory=list)
    whole: bool = True


class _Listing(Struct, frozen=True):
    folders: tuple[str, ...]
    names: tuple[tuple[str, Obeyed], ...]
    endpoints: tuple[str, ...]
    keys: tuple[str, ...]
    links: tuple[str, ...]


_remembered: dict[tuple[int, int, int], _Listing] = {}
_alone = Lock()


def scan(root: int, *, force: bool = False, most: int = MOST_FOLDERS) -> WorkspaceScan:
    """Look at a workspace, its top first. What cannot be read is passed by, or with `force` made readable."""
    found = WorkspaceScan()
    waiting = [("", _Counts.ALL, False)]
    looked_at = 0
    while waiting:
        deeper: list[tuple[str, _Counts, bool]] = []
        for place, counts, within in waiting:
            looked_at += 1
            if looked_at > most:
                found.whole = False
                return found
            listing = _listing(root, place, force=force)
            if listing is None:
                continue
            if within and listing.links and (counts or place.rpartition("/")[2] == _HOOKS):
                found.links += [f"{place}/{name}" for name in listing.links]
            if listing.folders or listing.names or listing.endpoints or listing.keys:
                deeper += _take(root, place, listing, found, counts=counts, within=within)
        waiting = deeper
    return found


def _take(
    root: int, place: str, listing: _Listing, found: WorkspaceScan, *, counts: _Counts, within: bool
) -> Iterator[tuple[str, _Counts, bool]]:
    """Take what a folder holds, and say which folders in it are to be looked into."""
    prefix = f"{place}/" if place else ""
    found.endpoints += [prefix + name for name in listing.endpoints]
    found.keys += [prefix + name for name in listing.keys]
    sealed = _take_names(root, prefix, listing, found, counts)
    in_packages = place.rpartition("/")[2] == _PACKAGES
    for name in listing.folders:
        if in_packages and not name.startswith("."):
            found.put_off.append(prefix + name)
        elif name == _GIT:
            yield prefix + name, _Counts.NONE, within or name in sealed
        elif counts is _Counts.NONE:
            if name != _OBJECTS:
                yield prefix + name, counts, within
        elif not is_own_state(name):
            # Within what is sealed only repositories, sockets, pipes and keys count.
            below = _Counts.REPOSITORIES if name in sealed or name == _PACKAGES else counts
            yield prefix + name, below, within or name in sealed
        elif place:  # what is at the top is not shown to a box
            found.put_off.append(prefix + name)


def _take_names(root: int, prefix: str, listing: _Listing, found: WorkspaceScan, counts: _Counts) -> set[str]:
    """Take the names that count; those in which nothing can be made."""
    sealed = set()
    for name, kind in listing.names if counts else ():
        if counts is _Counts.REPOSITORIES and name != _GIT:
            continue
        sighting = _sighting(root, prefix + name, kind)
        if sighting is not None:
            found.names[sighting.path] = sighting
            if kind is not Obeyed.TOLD:
                sealed.add(name)
    return sealed


def look_into_packages(root: int, found: WorkspaceScan, *, most: int = MOST_FOLDERS) -> None:
    """Look for repositories where nothing else counts: tens of thousands of folders, so only when a box has closed."""
    waiting, looked_at = list(found.put_off), 0
    while waiting:
        place = waiting.pop()
        looked_at += 1
        if looked_at > most:
            found.whole = False
            return
        try:
            folders, is_repository = _packages_in(root, place)
        except OSError:
            continue
        if is_repository and (sighting := _sighting(root, f"{place}/{_GIT}", Obeyed.REFUSED)) is not None:
            found.names[sighting.path] = sighting
        waiting += [f"{place}/{name}" for name in folders]


def _packages_in(root: int, place: str) -> tuple[list[str], bool]:
    """The folders in a folder, and whether it is the top of a repository. Raises OSError."""
    try:
        opened = os.open(place, _FOLDER, dir_fd=root)
    except PermissionError:
        make_accessible(root, place)
        opened = os.open(place, _FOLDER, dir_fd=root)
    folders, is_repository = [], False
    try:
        with os.scandir(opened) as entries:
            for entry in entries:
                if entry.name == _GIT:
                    is_repository = True
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
    finally:
        os.close(opened)
    return folders, is_repository


def _sighting(root: int, path: str, obeyed: Obeyed) -> FoundName | None:
    try:
        facts = os.stat(path, dir_fd=root, follow_symlinks=False)
        target = os.readlink(path, dir_fd=root) if stat.S_ISLNK(facts.st_mode) else ""
    except OSError:
        return None
    kind, times = stat.S_IFMT(facts.st_mode), (facts.st_mtime_ns, facts.st_ctime_ns)
    return FoundName(path, obeyed, kind, (facts.st_dev, facts.st_ino), times, target)


def _listing(root: int, place: str, *, force: bool) -> _Listing | None:
    """What a folder holds that matters, read only if it has changed."""
    try:
        facts = os.stat(place or ".", dir_fd=root, follow_symlinks=False)
        key = facts.st_dev, facts.st_ino, facts.st_ctime_ns
        if (known := _remembered.get(key)) is not None:
            return known
        now = time.time_ns()
        if force and facts.st_mode & 0o700 != 0o700 and facts.st_uid == os.geteuid() != 0:
            make_accessible(root, place)
        listing = _read(root, place)
    except OSError:
        return None
    if now - facts.st_ctime_ns > _SETTLED_NS:
        with _alone:
            if len(_remembered) >= _MOST_REMEMBERED:
                _remembered.clear()
            _remembered[key] = listing
    return listing


def _read(root: int, place: str) -> _Listing:
    folders, names, endpoints, keys, links = [], [], [], [], []
    inner = place.rpartition("/")[2]
    is_forge = plain_name(inner) == ".github"
    opened = os.open(place or ".", _FOLDER, dir_fd=root)
    try:
        with os.scandir(opened) as entries:
            for entry in entries:
                name = entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder:
                    folders.append(name)
                elif entry.is_symlink():
                    links.append(name)
                elif not entry.is_file(follow_symlinks=False) and _is_endpoint(entry):
                    endpoints.append(name)  # a program would read from a pipe as from a file
                if (is_forge or not is_ordinary(name)) and (kind := class_in(inner, name)) is not None:
                    names.append((name, kind))
                if is_key_file(name) or is_key_folder(name, inner):
                    keys.append(name)
    finally:
        os.close(opened)
    return _Listing(tuple(folders), tuple(names), tuple(endpoints), tuple(keys), tuple(links))


def make_accessible(root: int, place: str) -> None:
    """Let its owner into a folder from which a command has shut him out. Raises OSError."""
    folder = os.open(place or ".", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    try:
        through = f"/proc/self/fd/{folder}"  # the only way to a folder that can be neither read nor entered
        Path(through).chmod(stat.S_IMODE(os.fstat(folder).st_mode) | 0o700)
    finally:
        os.close(folder)


def _is_endpoint(entry: "os.DirEntry[str]") -> bool:
    mode = entry.stat(follow_symlinks=False).st_mode
    return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)


def new_names(before: WorkspaceScan, now: WorkspaceScan) -> Iterator[FoundName]:
    """What can be obeyed now and could not before. Something that was only moved with its folder is not new."""
    known = {_same(one) for one in before.names.values() if one.obeyed is not Obeyed.TOLD}
    for one in now.names.values():
        if one.obeyed is not Obeyed.TOLD and _same(one) not in known:
            yield one


def _same(one: FoundName) -> tuple[object, ...]:
    """What is the same of a name whose folder was moved. A link that was moved leads elsewhere, so it is another.

    One that was put back where it was is not: where it leads is looked at by `link_routes.py`.
    """
    if stat.S_ISLNK(one.kind):
        return one.kind, one.path, one.target
    return one.identity, one.kind, one.path.rpartition("/")[2], one.target


def told_names(before: WorkspaceScan, now: WorkspaceScan, *, sealed: bool) -> Iterator[tuple[FoundName, bool]]:
    """Documents that agents read, and the like: those that are new (True) or changed (False).

    Where names could not be sealed, all that were changed.
    """
    known = {one.identity: one.times for one in before.names.values()}
    for one in now.names.values():
        is_known = one.identity in known
        if known.get(one.identity) != one.times and (one.obeyed is Obeyed.TOLD or (is_known and not sealed)):
            yield one, not is_known
