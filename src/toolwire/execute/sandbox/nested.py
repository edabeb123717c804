"""Repositories within a repository, and which of them a box has planted.

`git status` at the top of a workspace, or above it, runs git in every folder that the index calls a submodule, and
obeys the configuration that lies there. A box may write both. So whatever became such a folder while a box was open is
held back: its `.git` is moved aside, nothing of it is lost, and git passes it by until its user moves it back.
"""

import os
import stat
from collections import deque
from collections.abc import Collection

from msgspec import Struct, field

from toolwire.execute.sandbox.beneath import lstat_beneath, open_folder, read_beneath
from toolwire.execute.sandbox.git_index import Links, links_of
from toolwire.execute.sandbox.git_settings import Repository

_LONGEST_POINTER = 4096
_BARE_HAS = ("HEAD", "objects", "refs")


class Submodules(Struct):
    """Folders of a workspace that an index calls submodules and that hold a repository, or something that names one.

    `excessive` are git folders in the workspace with an index that names more than can be looked at.
    """

    populated: list[str] = field(default_factory=list)
    excessive: list[str] = field(default_factory=list)


def find_submodules(
    root: int, workspace: str, repositories: Collection[Repository], trusted: Collection[str] | None = None
) -> Submodules:
    """Every submodule in a workspace, however deep. With `trusted` ones given, git is thought to enter only those."""
    found = Submodules()
    seen: set[str] = set()
    waiting: deque[tuple[str, str, str]] = deque()
    for each in repositories:
        above = "" if each.top == workspace else f"{os.path.relpath(workspace, each.top)}/"
        waiting.append((each.git, "", above))
    while waiting:
        git, place, above = waiting.popleft()
        links = _links_at(root, workspace, git)
        place_of_git = inside(workspace, git)
        if links.excessive and place_of_git is not None:
            found.excessive.append(place_of_git)
        for path in [place + path.removeprefix(above) for path in links.paths if path.startswith(above)]:
            if path in seen or lstat_beneath(root, f"{path}/.git") is None:
                continue
            seen.add(path)
            found.populated.append(path)
            deeper = git_folder_at(root, workspace, path) if trusted is None or path in trusted else ""
            if deeper:
                waiting.append((deeper, f"{path}/", ""))
    return found


def is_bare_workspace(root: int) -> bool:
    """Whether git would take the workspace itself for a repository without a `.git`."""
    return all(lstat_beneath(root, name) is not None for name in _BARE_HAS)


def git_folder_at(root: int, workspace: str, path: str) -> str:
    """The git folder of a worktree in the workspace, as an absolute path; empty where there is none."""
    git = f"{path}/.git" if path else ".git"
    facts = lstat_beneath(root, git)
    if facts is not None and stat.S_ISDIR(facts.st_mode):
        return f"{workspace}/{git}"
    text = os.fsdecode(read_beneath(root, git, _LONGEST_POINTER) or b"")
    if not text.startswith("gitdir:"):
        return ""
    return os.path.realpath(os.path.join(workspace, path, text[7:].strip()))  # noqa: PTH118 - may be absolute


def _links_at(root: int, workspace: str, git: str) -> Links:
    place = inside(workspace, git)
    try:
        opened = open_folder(root, place) if place is not None else os.open(git, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return Links()
    try:
        return links_of(opened)
    finally:
        os.close(opened)


def inside(workspace: str, path: str) -> str | None:
    """A path relative to the workspace; None for one elsewhere."""
    if path == workspace:
        return ""
    return path[len(workspace) + 1 :] if path.startswith(f"{workspace}/") else None
