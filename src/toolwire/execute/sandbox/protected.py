"""Names in a workspace that a command can neither change nor make, whether they are there or not.

A name that is there is mounted over itself, read-only; the folders on the way to it are mounted over themselves, so
that they cannot be moved aside. A name that is missing gets an empty file in its place while a box is open: nothing
can be mounted on nothing. Such a stand-in is known by its time and goes with the last box on the workspace. (Not a
folder: removing one takes ext4 milliseconds.)
"""

import errno
import fcntl
import os
import pwd
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from threading import Lock

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox import nested

_ALWAYS = """
.git/hooks .git/config .gitmodules .toolwire toolwire.toml .mcp.json .vscode .github/workflows .claude .cursor .codex
.gemini
"""
_WHEN_THERE = """
.git/config.worktree .git/modules .hg .idea .devcontainer .zed .husky .githooks .envrc .direnv .circleci
.buildkite .gitlab .gitlab-ci.yml .travis.yml Jenkinsfile .pre-commit-config.yaml sitecustomize.py
"""
_IN_A_HOME = """
.ssh .gnupg .aws .kube .docker .netrc .npmrc .pypirc .config .local/bin .local/lib .local/state/toolwire
.bashrc .bash_profile .bash_login .bash_logout
.profile .zshrc .zshenv .zprofile .gitconfig .vimrc .inputrc
"""
_ONLY_WHEN_THERE, _ONLY_IN_A_HOME = set(_WHEN_THERE.split()), set(_IN_A_HOME.split())
PROTECTED = (*_ALWAYS.split(), *_WHEN_THERE.split(), *_IN_A_HOME.split())
"""Names that something later obeys. Some are guarded only where they are there, or missing in somebody's home."""

# Git would read another configuration through them, and chokes on a stand-in: removed when a box has made them.
_TRAPS = (".git/commondir", ".git/config.worktree")
_LONGEST_CONFIG = 64 * 1024
_LOCKED_FOR_S = 2.0
SECRET = frozenset({".toolwire", ".ssh", ".gnupg", ".aws", ".kube", ".docker"})
"""Names that are not even to be read in a box."""

_STAND_IN_TIME = 1
_ACCOUNTS = Path("/etc/passwd")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Guard:
    """What to mount over itself: `kept` folders as they are, `sealed` names read-only, nothing over `hidden` ones.

    Holds the workspace's lock.
    """

    root: int
    kept: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)
    stand_ins: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    unwanted: list[str] = field(default_factory=list)
    trusted: frozenset[str] | None = None
    _alone: Lock = field(default_factory=Lock, repr=False, compare=False)

    def look(self) -> bool:
        """Hold back what was planted so far, while the box is open; whether there was something."""
        with self._alone:
            return self.root >= 0 and self._hold_back()

    def close(self) -> None:
        """Take the stand-ins away, unless another box still needs them; the last one to leave does it."""
        with self._alone:
            self._tidy()
            self.root = -1

    def _tidy(self) -> None:
        for name in self.unwanted:
            with suppress(OSError):
                os.unlink(name, dir_fd=self.root)
        self._hold_back()
        try:
            fcntl.flock(self.root, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in self.stand_ins:
                _take_away(self.root, name)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                raise
        finally:
            os.close(self.root)

    def _hold_back(self) -> bool:
        """Move aside what git would now take for a repository and was none when the box was opened."""
        if self.trusted is None:
            return False
        planted = [path for path in nested.submodules(self.root) if path not in self.trusted]
        planted = [path for path in planted if nested.is_populated(self.root, path)]
        for path in planted:
            nested.hold_back(self.root, path)
        bare = nested.BARE not in self.trusted and nested.is_bare(self.root)
        if bare:
            nested.hold_back(self.root, "", "HEAD")
        return bool(planted) or bare


def guard(workspace: str, names: tuple[str, ...] = PROTECTED, *, make: bool = True) -> Guard:
    """Look at a workspace and say how to protect it. Raises OSError for one that cannot be opened."""
    found = Guard(os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        _lock(found.root)
        spared = _ONLY_WHEN_THERE if _is_home(found.root) else _ONLY_WHEN_THERE | _ONLY_IN_A_HOME
        for name in (*names, *(_obeyed_by_git(found.root, workspace) if names and make else ())):
            _look(found, name.split("/"), make=make and name not in spared)
        found.unwanted = [name for name in _TRAPS if _is_missing(found, name)]
        if names and make:
            _seal_submodules(found)
    except BaseException:
        found.close()
        raise
    return found


def _lock(root: int) -> None:
    """Share the workspace with other boxes. Whoever else has locked it is waited for, but not for long."""
    until = time.monotonic() + _LOCKED_FOR_S
    while True:
        try:
            fcntl.flock(root, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise SandboxUnavailable("another program has locked the workspace and does not let go") from None
            time.sleep(0.001)
        else:
            return


def _seal_submodules(found: Guard) -> None:
    """Protect the configuration of repositories within the repository, and remember which there are."""
    there = [path for path in nested.submodules(found.root) if nested.is_populated(found.root, path)]
    for path in there:
        for name in (".git/config", ".git/hooks", ".git/config.worktree", ".git/commondir"):
            _look(found, f"{path}/{name}".split("/"), make=False)
    bare = {nested.BARE} if nested.is_bare(found.root) else set()
    found.trusted = frozenset(there) | bare


def _obeyed_by_git(root: int, workspace: str) -> list[str]:
    """Paths in the workspace from which the repository's own configuration has git take hooks or more settings."""
    try:
        with os.fdopen(_opened(root, ".git", "config"), encoding="utf-8", errors="replace") as file:
            text = file.read(_LONGEST_CONFIG)
    except OSError:
        return []
    section, found = "", []
    for line in text.splitlines():
        rest = line.strip()
        if rest.startswith("["):
            section, _, rest = rest[1:].partition("]")
        key, _, value = rest.partition("=")
        match section.split(" ")[0].strip().lower(), key.strip().lower():
            case "core", "hookspath":
                found.append(_within(workspace, value, below=""))
            case "include" | "includeif", "path":
                found.append(_within(workspace, value, below=".git"))
    return [name for name in found if name]


def _opened(root: int, folder: str, name: str) -> int:
    inside = os.open(folder, _FOLDER, dir_fd=root)
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
    finally:
        os.close(inside)


def _within(workspace: str, value: str, below: str) -> str:
    """A path of a configuration relative to the workspace; nothing for one that is outside, or the whole of it."""
    written = value.strip().strip('"')
    path = os.path.relpath(os.path.join(workspace, below, written), workspace)  # noqa: PTH118 - may be absolute
    return "" if not written or path in {".", ".git"} or path.startswith("..") or "\0" in path else path


def _look(found: Guard, parts: list[str], *, make: bool) -> None:
    here = found.root
    try:
        for depth in range(1, len(parts) + 1):
            path, last = "/".join(parts[:depth]), depth == len(parts)
            kind = _kind(here, parts[depth - 1])
            if kind is None and not make:
                return
            if kind is None:
                _stand_in(here, parts[depth - 1], found)
            if kind is None or _is_stand_in(here, parts[depth - 1]):
                _add(found.stand_ins, path)
            if last or kind != stat.S_IFDIR or path in found.stand_ins:
                _add(found.hidden if path in SECRET and kind == stat.S_IFDIR else found.sealed, path)
                return
            _add(found.kept, path)
            above, here = here, os.open(parts[depth - 1], _FOLDER, dir_fd=here)
            if above != found.root:
                os.close(above)
    finally:
        if here != found.root:
            os.close(here)


def _is_missing(found: Guard, name: str) -> bool:
    folder, _, last = name.partition("/")
    if folder not in found.kept:
        return False
    inside = os.open(folder, _FOLDER, dir_fd=found.root)
    try:
        return _kind(inside, last) is None
    finally:
        os.close(inside)


def _is_home(root: int) -> bool:
    """Whether the workspace is the home of its owner, where a shell reads its start-up files."""
    there = os.fstat(root)
    try:
        return os.path.samestat(there, _home_of(there.st_uid, _ACCOUNTS.stat().st_mtime_ns).stat())
    except (KeyError, OSError):
        return False


@lru_cache(maxsize=64)
def _home_of(user: int, _as_of: int) -> Path:
    return Path(pwd.getpwuid(user).pw_dir)


def _kind(folder: int, name: str) -> int | None:
    try:
        kind = stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None
    if kind == stat.S_IFLNK:
        raise SandboxUnavailable(f"{name!r} is a link, which cannot be protected from what runs in the box")
    return kind


def _stand_in(folder: int, name: str, found: Guard) -> None:
    """An empty file in place of a name. A further name of the one there is costs a disk less than another file."""
    with suppress(OSError):
        if found.stand_ins:
            os.link(found.stand_ins[0], name, src_dir_fd=found.root, dst_dir_fd=folder, follow_symlinks=False)
            return
    owner = os.fstat(found.root)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        made = os.open(name, flags, 0o444, dir_fd=folder)
    except FileExistsError:
        return  # another box on the same workspace was faster
    try:
        if os.geteuid() == 0:
            os.fchown(made, owner.st_uid, owner.st_gid)
        os.utime(made, (_STAND_IN_TIME, _STAND_IN_TIME))
    finally:
        os.close(made)


def _is_stand_in(folder: int, name: str) -> bool:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return stat.S_ISREG(found.st_mode) and found.st_size == 0 and found.st_mtime == _STAND_IN_TIME


def _take_away(root: int, path: str) -> None:
    """Remove an empty stand-in. Whatever is not empty, or is gone, is not ours."""
    try:
        if _is_stand_in(root, path):
            os.unlink(path, dir_fd=root)
    except OSError:
        return


def _add(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)
