"""Links on the way to what git obeys: nothing can be mounted over a link, so it is put back if a box has changed it."""

import os

from toolwire.execute.sandbox.beneath import open_folder, unlock

_DEEPEST = 40


def trace(workspace: str, path: str, seen: dict[str, str | None] | None = None) -> tuple[str, dict[str, str]]:
    """Where a path leads in the end, and the links in the workspace that it goes through, with their targets.

    What was looked at is kept in `seen`, for further paths that begin in the same way.
    """
    links: dict[str, str] = {}
    seen = {} if seen is None else seen
    # The workspace itself is a real path, so that no link is on the way to it.
    done, rest = (workspace, path[len(workspace) :]) if path.startswith(f"{workspace}/") else ("", path)
    waiting, followed = [part for part in rest.split("/") if part], 0
    while waiting and followed <= _DEEPEST:
        part = waiting.pop(0)
        if part in {".", ".."}:
            done = os.path.dirname(done) if part == ".." else done  # noqa: PTH120 - done for every box
            continue
        here = f"{done}/{part}"
        target = seen[here] if here in seen else seen.setdefault(here, _read_link(here))
        if target is None:
            done = here
            continue
        followed += 1
        if here.startswith(f"{workspace}/"):
            links[here[len(workspace) + 1 :]] = target
        waiting = [part for part in target.split("/") if part] + waiting
        done = "" if target.startswith("/") else done
    return done or "/", links


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - done for every box
    except OSError:
        return None


def target_of(root: int, path: str) -> str | None:
    """What a link beneath `root` says; None where there is none."""
    folder, _, name = path.rpartition("/")
    try:
        opened = open_folder(root, folder)
    except OSError:
        return None
    try:
        return os.readlink(name, dir_fd=opened)
    except OSError:
        return None
    finally:
        os.close(opened)


def make(root: int, path: str, target: str) -> None:
    """Put a link where nothing is. Raises OSError."""
    folder, _, name = path.rpartition("/")
    opened = open_folder(root, folder)
    try:
        unlock(opened)
        os.symlink(target, name, dir_fd=opened)
        if os.geteuid() == 0:
            owner = os.fstat(opened)
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=opened, follow_symlinks=False)
    finally:
        os.close(opened)
