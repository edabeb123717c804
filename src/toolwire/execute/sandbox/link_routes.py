"""Where links lead that other programs follow to something that they obey, and what of that is another place now.

`.claude` may be a link to `cfg/claude`, and `cfg` a link to `conf`. Nothing can be mounted over a link, so a box can
exchange each of the two, or the folder `conf`, and what is obeyed afterwards is what it wrote. So the whole way is
remembered: every link on it, and what lies at its end.
"""

import os
import stat
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from toolwire.execute.sandbox.git_links import trace
from toolwire.execute.sandbox.obeyed_scan import FoundName, WorkspaceScan
from toolwire.protocol.obeyed import Obeyed

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Route(Struct, frozen=True):
    """The way of one link. `links` are those in the workspace, with their targets, `end` is an absolute path.

    `is_inner` says that the link has no such name itself and lies in a folder that has.
    """

    path: str
    obeyed: Obeyed
    links: dict[str, str]
    end: str
    identity: tuple[int, int] | None = None
    times: tuple[int, int] | None = None
    is_inner: bool = False


def routes_in(root: int, found: WorkspaceScan, hook_folders: Iterable[str] = ()) -> list[Route]:
    """The ways of all links that are obeyed, or lie in a folder that is."""
    links = {one.path: one.obeyed for one in found.names.values() if stat.S_ISLNK(one.kind)}
    inner = dict.fromkeys((*found.links, *(path for folder in hook_folders for path in _links_of(root, folder))))
    workspace = workspace_of(root) if links or inner else ""
    routes = [_route(workspace, path, obeyed) for path, obeyed in links.items()]
    return routes + [replace(_route(workspace, path, Obeyed.ASKED), is_inner=True) for path in inner]


def changed_routes(root: int, routes: Iterable[Route]) -> Iterator[FoundName]:
    """What now leads elsewhere, or is something else at the end of a way that is the same. Nothing that is gone."""
    workspace = ""
    for before in routes:
        if before.obeyed is Obeyed.TOLD:
            continue
        workspace = workspace or workspace_of(root)
        now = _route(workspace, before.path, before.obeyed)
        if now.links != before.links:
            changed = [path for path, target in now.links.items() if before.links.get(path) != target]
            gone = [path for path in before.links if path not in now.links]
            yield from filter(None, [_other_than(workspace, path, before) for path in (*changed, *gone)])
        elif now.identity not in (None, before.identity) and (place := place_in(workspace, now.end)):
            yield from filter(None, [_sighting(workspace, place, before.obeyed)])


def changed_ends(root: int, routes: Iterable[Route], *, sealed: bool) -> Iterator[str]:
    """The links that lead to documents for agents which are not as they were; to anything, where nothing is sealed."""
    for before in routes:
        if before.obeyed is not Obeyed.TOLD and sealed:
            continue
        now = _route(workspace_of(root), before.path, before.obeyed)
        if now.links and (now.links, now.identity, now.times) != (before.links, before.identity, before.times):
            yield before.path


def place_in(workspace: str, end: str) -> str:
    """Where in the workspace an absolute path leads; "" for the workspace itself and for every other place."""
    return end.removeprefix(f"{workspace}/") if end.startswith(f"{workspace}/") else ""


def workspace_of(root: int) -> str:
    """The real path of an opened workspace."""
    return os.readlink(f"/proc/self/fd/{root}")  # noqa: PTH115 - text


def _route(workspace: str, path: str, obeyed: Obeyed) -> Route:
    end, links = trace(workspace, f"{workspace}/{path}")
    try:
        facts = os.lstat(end)
    except OSError:
        return Route(path, obeyed, links, end)
    return Route(path, obeyed, links, end, (facts.st_dev, facts.st_ino), (facts.st_mtime_ns, facts.st_ctime_ns))


def _other_than(workspace: str, path: str, before: Route) -> FoundName | None:
    """What lies at a path, unless it is the link that was there."""
    now = _sighting(workspace, path, before.obeyed)
    return None if now is None or (now.target and now.target == before.links.get(path)) else now


def _sighting(workspace: str, path: str, obeyed: Obeyed) -> FoundName | None:
    try:
        facts = os.lstat(f"{workspace}/{path}")
        target = os.readlink(f"{workspace}/{path}") if stat.S_ISLNK(facts.st_mode) else ""  # noqa: PTH115 - text
    except OSError:
        return None
    times = facts.st_mtime_ns, facts.st_ctime_ns
    return FoundName(path, obeyed, stat.S_IFMT(facts.st_mode), (facts.st_dev, facts.st_ino), times, target)


def _links_of(root: int, folder: str) -> list[str]:
    """The links that lie in a folder itself."""
    try:
        opened = os.open(folder, _FOLDER, dir_fd=root)
    except OSError:
        return []
    try:
        with os.scandir(opened) as entries:
            return [f"{folder}/{entry.name}" for entry in entries if entry.is_symlink()]
    finally:
        os.close(opened)
