"""What lay in a workspace when a box was opened, written down for as long as the box is open.

A process that is killed cannot move aside what its box has planted. The next box on the workspace finds what it wrote
down, and does it then. A note belongs to a live process for as long as that process holds its lock, and says by its
time until when the box was surely alive: what appeared later was not made in it.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from toolwire.execute.sandbox.git_planted import GIT, Contents, changed_at, contents_of, is_older, unsafe_in
from toolwire.execute.sandbox.link_routes import Route, changed_routes
from toolwire.execute.sandbox.obeyed_scan import FoundName, WorkspaceScan, look_into_packages, new_names
from toolwire.protocol.obeyed import Obeyed

_LATER_NS = 3_000_000_000
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class OpenBoxNote(Struct, frozen=True):
    """The note about one open box."""

    path: str
    descriptor: int

    def touch(self) -> None:
        """Say that the box is still open."""
        with suppress(OSError):
            os.utime(self.descriptor)

    def close(self) -> None:
        with suppress(OSError):
            Path(self.path).unlink()
        os.close(self.descriptor)


class _Left(Struct, frozen=True):
    """A note whose process is dead. `unsafe` is what git obeyed already, by repository."""

    before: WorkspaceScan
    routes: list[Route]
    opened: int
    alive_until: int
    unsafe: dict[tuple[int, int], frozenset[str]]


def note_open_box(
    root: int,
    before: WorkspaceScan,
    routes: Iterable[Route],
    repositories: Mapping[tuple[int, int], Contents],
    opened: int,
) -> OpenBoxNote | None:
    """Write down what was there before a box; None where nothing can be written."""
    names = [
        [one.path, int(one.obeyed), one.kind, *one.identity, *one.times, one.target] for one in before.names.values()
    ]
    ways = [[one.path, int(one.obeyed), one.links, one.end, one.identity] for one in routes]
    unsafe = [[*identity, unsafe_in(contents, None)] for identity, contents in repositories.items()]
    try:
        path = f"{_folder()}/{_workspace(root)}-{os.urandom(8).hex()}"
        try:
            descriptor = os.open(path, _NEW_FILE, 0o600)
        except FileNotFoundError:
            Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, _NEW_FILE, 0o600)
    except OSError:
        return None
    note = OpenBoxNote(path, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        place = os.readlink(f"/proc/self/fd/{root}")  # noqa: PTH115 - text
        os.write(descriptor, json.dumps([names, ways, unsafe, opened, place]).encode("utf-8", "surrogateescape"))
    except OSError:
        note.close()
        return None
    return note


def planted_by_the_dead(root: int, now: WorkspaceScan) -> list[FoundName]:
    """What appeared in boxes whose process was killed, and repositories that were changed. Their notes are removed."""
    found: dict[str, FoundName] = {}
    for left in _left_behind(root):
        look_into_packages(root, now)
        packages = tuple(f"{place}/" for place in now.put_off)
        for one in (*new_names(left.before, now), *changed_routes(root, left.routes)):
            is_known = one.path.startswith(packages) and is_older(root, one.path, left.opened)
            if one.times[1] <= left.alive_until + _LATER_NS and not is_known:
                found[one.path] = one
        found |= {one.path: one for one in now.names.values() if _was_changed(root, one, left)}
    return list(found.values())


def _was_changed(root: int, one: FoundName, left: _Left) -> bool:
    """Whether git would obey something in a repository that was there, and that has changed while the box lived."""
    if not one.path.endswith(f"/{GIT}") or one.identity not in left.unsafe:
        return False
    changed = changed_at(root, one.path)
    if changed is not None and changed > left.alive_until + _LATER_NS:
        return False
    return not left.unsafe[one.identity].issuperset(unsafe_in(contents_of(root, one.path), None))


def _left_behind(root: int) -> Iterator[_Left]:
    try:
        folder, own = _folder(), f"{_workspace(root)}-"
        mine = [f"{folder}/{name}" for name in os.listdir(folder) if name.startswith(own)]  # noqa: PTH208 - done often
    except OSError:
        return
    for path in mine:
        with suppress(OSError, ValueError, TypeError), open(path, "rb") as file:  # noqa: PTH123 - a name of ours
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
            Path(path).unlink()
            listed, ways, unsafe, opened, *_ = json.loads(file.read())
            names = [_sighting(*one) for one in listed]
            known = {(device, inode): frozenset(texts) for device, inode, texts in unsafe}
            alive_until = os.fstat(file.fileno()).st_mtime_ns
            yield _Left(
                WorkspaceScan({one.path: one for one in names}),
                [_route(*one) for one in ways],
                opened,
                alive_until,
                known,
            )


def workspaces_of_the_dead() -> list[str]:
    """The workspaces of boxes whose process was killed, as far as they lie where they lay. Their notes stay."""
    try:
        names = os.listdir(_folder())  # noqa: PTH208 - as above
    except OSError:
        return []
    found = dict.fromkeys(_workspace_noted_in(name) for name in names)
    return [path for path in found if path]


def _workspace_noted_in(name: str) -> str:
    with suppress(OSError, ValueError, TypeError), open(f"{_folder()}/{name}", "rb") as file:  # noqa: PTH123 - a name of ours
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # fails while its process lives
        note = json.loads(file.read())
        path = note[4] if len(note) > 4 else ""  # earlier notes do not say it
        facts = os.stat(str(path))  # noqa: PTH116 - text
        if name.startswith(f"{facts.st_dev}-{facts.st_ino}-"):
            return str(path)
    return ""


def _sighting(
    path: str, obeyed: int, kind: int, device: int, inode: int, modified: int, changed: int, target: str
) -> FoundName:
    return FoundName(path, Obeyed(obeyed), kind, (device, inode), (modified, changed), target)


def _route(path: str, obeyed: int, links: dict[str, str], end: str, identity: list[int] | None) -> Route:
    return Route(path, Obeyed(obeyed), links, end, None if identity is None else (identity[0], identity[1]))


def _workspace(root: int) -> str:
    facts = os.fstat(root)
    return f"{facts.st_dev}-{facts.st_ino}"


def _folder() -> str:
    """Where the notes lie. It is made with the first of them."""
    if os.geteuid() == 0:
        return "/run/toolwire/open"
    return str(Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state", "toolwire", "open"))
