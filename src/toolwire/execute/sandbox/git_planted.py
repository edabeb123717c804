"""What the user's git would obey in repositories that lie in a workspace and are no submodules yet.

Nothing has to name them today: `git add -A` makes a submodule of a repository that it finds, and so does a branch that
is checked out. From then on every `git status` at the top obeys the settings that lie there. So a repository that a box
has made stays only while nothing in it can start a program, and one that was there is compared with what it was.
"""

import os
import stat
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from toolwire.execute.sandbox.beneath import lstat_beneath, names_beneath, read_beneath
from toolwire.execute.sandbox.git_settings import parse_settings
from toolwire.execute.sandbox.git_state import unsafe_steps

GIT = ".git"
_LONGEST = 1024 * 1024
_LONGEST_POINTER = 4096
_IN_A_BOX = "/workspace/"  # as git in a box writes where a worktree is
_WORKTREES = f"{GIT}/worktrees/"
_TWO_ABOVE = b"../.."
_SAMPLE = ".sample"
_CLOCK_NS = 20_000_000  # clocks of file systems tick slowly


class Contents(Struct, frozen=True):
    """What git obeys in one repository: files of settings, and everything else that matters, one sentence each."""

    settings: tuple[bytes, ...] = ()
    others: frozenset[str] = frozenset()
    pointer: str = ""  # the text of a file `.git`
    is_gone: bool = False  # nothing lies where it leads


def contents_of(root: int, git: str) -> Contents:
    """What git would obey in the repository whose `.git` is this path beneath `root`; nothing of it is started."""
    facts = lstat_beneath(root, git)
    if facts is None or stat.S_ISSOCK(facts.st_mode):
        return Contents()
    if stat.S_ISDIR(facts.st_mode):
        return _of_folder(root, git)
    text = os.fsdecode(read_beneath(root, git, _LONGEST_POINTER) or b"").strip()
    folder = _pointed_at(root, git, text)
    if folder.startswith(_WORKTREES) and folder.count("/") == _WORKTREES.count("/") and _shares_ours(root, folder):
        return Contents()  # of the workspace's own repository, which is seen to by what knows its worktrees
    if folder and names_beneath(root, folder):
        return replace(_of_folder(root, folder), pointer=text)
    return Contents((), frozenset({f"leads to {text!r}"}), text, bool(folder) and _is_gone(root, folder))


def unsafe_in(contents: Contents, before: Contents | None) -> list[str]:
    """What can start a program, in order, as far as it is not in what was there before."""
    if before is None:
        return sorted(_unsafe(contents))
    if contents == before or (contents.is_gone and contents.pointer == before.pointer):
        return []  # whatever is made there later is compared with nothing
    return sorted(_unsafe(contents) - _unsafe(before))


def changed_at(root: int, git: str) -> int | None:
    """When something that git obeys in a repository was changed last; None where some of it may lie elsewhere."""
    facts = lstat_beneath(root, git)
    if facts is None or not stat.S_ISDIR(facts.st_mode) or lstat_beneath(root, f"{git}/commondir") is not None:
        return None
    hooks = [f"{git}/hooks/{name}" for name in names_beneath(root, f"{git}/hooks")]
    paths = (git, f"{git}/config", f"{git}/config.worktree", f"{git}/hooks", *hooks)
    return max(one.st_ctime_ns for path in paths if (one := lstat_beneath(root, path)) is not None)


def is_older(root: int, git: str, opened: int) -> bool:
    """Whether a repository is surely as it was when a box was opened."""
    changed = changed_at(root, git)
    return changed is not None and changed < opened - _CLOCK_NS


def _unsafe(contents: Contents) -> frozenset[str]:
    return contents.others.union(*map(_unsafe_settings, contents.settings))


@lru_cache(maxsize=256)
def _unsafe_settings(content: bytes) -> frozenset[str]:
    settings = parse_settings(content) if len(content) <= _LONGEST else None
    if settings is None:
        return frozenset({"settings that cannot be read"})
    return frozenset(f"sets {one.key} to {one.value!r}" for one in settings if not one.is_usual)


def _of_folder(root: int, folder: str) -> Contents:
    names = frozenset(names_beneath(root, folder))
    others = [line for lines in unsafe_steps(root, folder, names).values() for line in lines]
    common = folder
    if "commondir" in names:
        pointer = read_beneath(root, f"{folder}/commondir", _LONGEST_POINTER)
        text = pointer.strip() if pointer is not None else b"?"
        if text == _TWO_ABOVE:  # a worktree of a repository that lies two folders above
            common = os.path.dirname(os.path.dirname(folder))  # noqa: PTH120 - text
        elif text != b".":
            others.append(f"takes its settings from {os.fsdecode(text)!r}")
    files = dict.fromkeys((f"{common}/config", f"{folder}/config.worktree", f"{common}/config.worktree"))
    settings = [content for path in files if (content := _content(root, path)) is not None]
    others += _hooks(root, f"{common}/hooks")
    return Contents(tuple(settings), frozenset(others))


def _shares_ours(root: int, worktree: str) -> bool:
    """Whether git takes the settings of a worktree from its repository: not behind a link, nor without a pointer."""
    return (read_beneath(root, f"{worktree}/commondir", _LONGEST_POINTER) or b"").strip() == _TWO_ABOVE


def _is_gone(root: int, path: str) -> bool:
    """Whether nothing is at a path, on a way without links: git would follow one."""
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        facts = lstat_beneath(root, "/".join(parts[:count]))
        if facts is None:
            return True
        if not stat.S_ISDIR(facts.st_mode):
            return False
    return False


def _content(root: int, path: str) -> bytes | None:
    """A file of settings; what is there and cannot be read counts as one that git cannot parse."""
    if lstat_beneath(root, path) is None:
        return None
    content = read_beneath(root, path, _LONGEST + 1)
    return b"[" if content is None else content


def _hooks(root: int, folder: str) -> Iterator[str]:
    facts = lstat_beneath(root, folder)
    if facts is None:
        return
    if not stat.S_ISDIR(facts.st_mode):
        yield f"has hooks elsewhere ({facts.st_ino} {facts.st_ctime_ns})"
        return
    for name in names_beneath(root, folder):
        hook = lstat_beneath(root, f"{folder}/{name}") if not name.endswith(_SAMPLE) else None
        if hook is not None:
            yield f"has the hook {name!r} ({hook.st_ino} {hook.st_size} {hook.st_ctime_ns})"


def _pointed_at(root: int, git: str, text: str) -> str:
    """The folder in the workspace that a file `.git` names, as a path beneath `root`; empty for any other place."""
    if not text.startswith("gitdir:"):
        return ""
    named = text[len("gitdir:") :].strip()
    top = os.readlink(f"/proc/self/fd/{root}") + "/"  # noqa: PTH115 - text
    for start in (_IN_A_BOX, top):
        if named.startswith(start):
            path = os.path.normpath(named[len(start) :])
            break
    else:
        path = os.path.normpath(os.path.join(os.path.dirname(git), named))  # noqa: PTH118, PTH120 - may be absolute
    return "" if path.startswith(("/", "..")) or path == "." else path
