"""What lay in a workspace when a box was opened, written down for as long as the box is open.

A process that is killed cannot move aside what its box has planted. The next box on the workspace finds what it wrote
down, and does it then. A note belongs to a live process for as long as that process holds its lock, and says by its
time until when the box was surely alive: what appeared later was not made in it.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from toolwire.execute.sandbox.link_routes import Route, strayed
from toolwire.execute.sandbox.obeyed_scan import Scan, Sighting, new_names
from toolwire.protocol.obeyed import Obeyed
from toolwire.protocol.values import dataclass

_LATER_NS = 3_000_000_000
_LONGEST = 4 * 1024 * 1024
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class OpenBoxNote:
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


def note_open_box(root: int, before: Scan, routes: Iterable[Route]) -> OpenBoxNote | None:
    """Write down what was there before a box; None where nothing can be written."""
    names = [
        [one.path, int(one.obeyed), one.kind, *one.identity, *one.times, one.target] for one in before.names.values()
    ]
    ways = [[one.path, int(one.obeyed), one.links, one.end, one.identity] for one in routes]
    try:
        path = f"{_folder()}/{_workspace(root)}-{token_hex(8)}"
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
        os.write(descriptor, json.dumps([names, ways]).encode("utf-8", "surrogateescape"))
    except OSError:
        note.close()
        return None
    return note


def planted_by_the_dead(root: int, now: Scan) -> list[Sighting]:
    """What appeared in boxes whose process was killed. Their notes are removed."""
    found: dict[str, Sighting] = {}
    for before, routes, alive_until in _left_behind(root):
        for one in (*new_names(before, now), *strayed(root, routes)):
            if one.times[1] <= alive_until + _LATER_NS:
                found[one.path] = one
    return list(found.values())


def _left_behind(root: int) -> Iterator[tuple[Scan, list[Route], int]]:
    try:
        folder, own = _folder(), f"{_workspace(root)}-"
        mine = [f"{folder}/{name}" for name in os.listdir(folder) if name.startswith(own)]  # noqa: PTH208 - done often
    except OSError:
        return
    for path in mine:
        with suppress(OSError, ValueError, TypeError), open(path, "rb") as file:  # noqa: PTH123 - a name of ours
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
            Path(path).unlink()
            listed, ways = json.loads(file.read(_LONGEST))
            names = [_sighting(*one) for one in listed]
            routes = [_route(*one) for one in ways]
            yield Scan({one.path: one for one in names}), routes, os.fstat(file.fileno()).st_mtime_ns


def _sighting(
    path: str, obeyed: int, kind: int, device: int, inode: int, modified: int, changed: int, target: str
) -> Sighting:
    return Sighting(path, Obeyed(obeyed), kind, (device, inode), (modified, changed), target)


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
