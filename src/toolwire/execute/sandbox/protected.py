"""Names in a workspace that a command cannot change, and what is done about those that it makes.

A name that other programs obey and that is there is mounted over itself, read-only, at every depth; what a command
makes is moved aside (`name_watch.py`). Git's own folder and toolwire's are never made in a box: where they are missing,
a socket and an empty folder are mounted over themselves while a box is open, which git does not see. Such a stand-in is
known by its time and goes with the last box on the workspace. What git obeys besides is found by `git_guard.py`.
"""

import errno
import fcntl
import os
import pwd
import stat
import time
from functools import lru_cache
from pathlib import Path
from threading import Lock

from msgspec import Struct, field

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox.beneath import lstat_beneath, open_folder, read_beneath, remove_beneath
from toolwire.execute.sandbox.endpoints import is_answered
from toolwire.execute.sandbox.git_guard import POINTER, STAND_IN_TIME, GitGuard, open_git_guard
from toolwire.execute.sandbox.git_notes import recover, remove_note, write_note
from toolwire.execute.sandbox.key_hiding import NO_KEYS, Keys, beside_tracked, find_keys
from toolwire.execute.sandbox.link_routes import Route, place_in, workspace_of
from toolwire.execute.sandbox.name_watch import NameWatch, look_at_names, watch_names
from toolwire.execute.sandbox.spare_folders import move_in, move_out
from toolwire.protocol.key_files import HIDDEN_AT_TOP, is_always_hidden
from toolwire.protocol.obeyed import VERSION_CONTROL, Obeyed, is_own_state

_ALWAYS = ".git/hooks .git/config .toolwire"
_WHEN_THERE = ".git/config.worktree .git/modules .hg"
_IN_A_HOME = ".config .local/bin .local/lib .local/state/toolwire"
_ONLY_WHEN_THERE, _ONLY_IN_A_HOME = set(_WHEN_THERE.split()), set(_IN_A_HOME.split())
PROTECTED = (*_ALWAYS.split(), *_WHEN_THERE.split(), *_IN_A_HOME.split())
"""Names that are protected as paths from the top; all others are known by their last part (`protocol/obeyed.py`)."""

_LOCKED_FOR_S = 2.0
_MOST_NAMED = 10
_ACCOUNTS = Path("/etc/passwd")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Guard(Struct):
    """What to mount over itself: `kept` folders as they are, `sealed` names read-only, nothing over `hidden` ones.

    Over `masked` ones, sockets and pipes of programs outside, something that cannot be used is mounted.
    Holds the workspace's lock.
    """

    root: int
    kept: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)
    stand_ins: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    masked: list[str] = field(default_factory=list)
    keys: Keys = NO_KEYS
    key_names: tuple[str, ...] = ()
    watch: NameWatch | None = None
    git: GitGuard | None = None
    faults: list[str] = field(default_factory=list)
    note: Path | None = None
    _alone: Lock = field(default_factory=Lock)

    def look(self) -> bool:
        """Hold back what was planted so far, while the box is open; whether there was something."""
        with self._alone:
            if self.root < 0:
                return False
            planted = self.git is not None and self.git.check()
            return (self.watch is not None and self.watch.look()) or planted

    def notes(self) -> list[str]:
        """What to tell about names that were moved aside or changed, after the box has closed."""
        notes = [] if self.watch is None else self.watch.notes()
        held = [] if self.git is None else self.git.held
        more = len(held) - _MOST_NAMED
        rest = [f"{more} more were moved aside; `toolwire release` lists them."] if more > 0 else []
        return [*notes, *held[:_MOST_NAMED], *rest]

    def failures(self) -> list[str]:
        """What should have been moved aside and could not."""
        return [*(self.watch.failed if self.watch is not None else ()), *self.faults]

    def protected_names(self) -> dict[str, tuple[str, ...]]:
        """What is protected, by how: `sealed`, `hidden`, `masked` or `keys`."""
        sealed = tuple(name for name in (*self.sealed, *self.kept) if name not in self.stand_ins)
        return {"sealed": sealed, "hidden": tuple(self.hidden), "masked": tuple(self.masked), "keys": self.keys.files}

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Over what something is mounted that cannot be opened."""
        return (*self.masked, *self.keys.files)

    def hide_keys(self) -> None:
        """Show no keys in this box."""
        found = find_keys(self.root, self.key_names, tuple(self.hidden))
        self.keys = Keys(found.folders, tuple(dict.fromkeys((*self.keys.files, *found.files))))
        self.hidden += found.folders

    def show_tracked(self) -> None:
        """Show what git tracks in hidden folders: git would call it deleted, and a commit would delete it."""
        for folder in [path for path in self.hidden if not is_own_state(path.rpartition("/")[2])]:
            others = beside_tracked(self.root, folder)
            if others is not None:
                self.hidden.remove(folder)
                _add(self.sealed, folder)
                self.keys = Keys(self.keys.folders, (*self.keys.files, *others))

    def close(self) -> None:
        """Take the stand-ins away, unless another box still needs them; the last one to leave does it."""
        with self._alone:
            self._tidy()
            self.root = -1

    def _tidy(self) -> None:
        try:
            if self.git is not None:
                self.git.check()
                self.faults += self.git.failed.values()
                if not self.git.failed:
                    remove_note(self.note)
            if self.watch is not None:
                self.watch.close()
            fcntl.flock(self.root, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in self.stand_ins:
                self._take_away(name)
        except OSError as error:
            if error.errno not in {errno.EAGAIN, errno.EACCES}:
                raise
        finally:
            os.close(self.root)

    def _take_away(self, name: str) -> None:
        try:
            _take_away(self.root, name)
        except OSError as error:
            self.faults.append(f"{name!r} (a stand-in that cannot be removed: {error.strerror})")


def guard(
    workspace: str, names: tuple[str, ...] = PROTECTED, *, make: bool = True, git: bool = True, may_set: bool = False
) -> Guard:
    """Look at a workspace and say how to protect it. Raises OSError for one that cannot be opened.

    `git` has what git obeys looked at as well, also where no names can be protected; `may_set` leaves the repository's
    own settings writable, to be looked at when the box closes.
    """
    found = Guard(os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    try:
        _lock(found.root)
        spared = _ONLY_WHEN_THERE if _is_home(found.root) else _ONLY_WHEN_THERE | _ONLY_IN_A_HOME
        for name in names:
            if not name.startswith(".git/"):
                _look(found, name.split("/"), make=make and name not in spared)
        if git and make:
            _guard_git(found, os.path.realpath(workspace), sealed=bool(names), may_set=may_set)
        if names:
            _seal_everywhere(found, make=make)
            found.show_tracked()
        elif git and make:  # nothing can be mounted here: what is new is moved aside, and what was changed is told
            found.watch = watch_names(found.root, sealed=False, hook_folders=_hook_folders(found))
    except BaseException:
        found.close()
        raise
    return found


def _guard_git(found: Guard, workspace: str, *, sealed: bool, may_set: bool) -> None:
    """Have what git obeys looked at, after what killed boxes have left in this workspace."""
    left = recover(workspace)
    failed = [text for one in left for text in one.failed]
    if failed:
        raise SandboxUnavailable(
            f"a command that was killed has left {', '.join(failed)}, which git obeys; remove it before you go on"
        )
    found.git = open_git_guard(found.root, workspace, sealed=sealed, may_set=may_set)
    found.git.held += [text for one in left for text in one.held]
    found.note = write_note(found.git, sealed=sealed and not may_set)
    if sealed:
        _seal_git(found, found.git)


def _seal_git(found: Guard, git: GitGuard) -> None:
    """Protect what git obeys, and the name `.git` where there is none."""
    facts = _facts(found.root, ".git")
    if facts is None or not stat.S_ISDIR(facts.st_mode) or _is_stand_in(found.root, ".git", facts):
        _look(found, [".git"], make=True)
    for seal in git.seals:
        parts = seal.path.split("/")
        above = {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
        if above.isdisjoint(found.sealed) and above.isdisjoint(found.hidden):
            _look(found, parts, make=seal.make, content=seal.content)


def _seal_everywhere(found: Guard, *, make: bool) -> None:
    """Seal every name that other programs obey, and mask sockets and pipes of programs outside of the box.

    Where nothing can be written only the names that must not be read count.
    """
    watch = watch_names(found.root, hook_folders=_hook_folders(found)) if make else look_at_names(found.root)
    found.watch = watch if make else None
    found.key_names = tuple(watch.before.keys)
    for one in watch.before.names.values():
        folder, _, name = one.path.rpartition("/")
        if one.obeyed is Obeyed.TOLD or name in VERSION_CONTROL:
            continue
        if one.kind not in {stat.S_IFDIR, stat.S_IFREG}:  # links are followed, sockets and pipes are masked
            continue
        if one.kind == stat.S_IFDIR and is_always_hidden(one.path):
            _add(found.hidden, one.path)
        elif make:
            if folder.rpartition("/")[2].startswith("."):
                _add(found.kept, folder)
            _add(found.sealed, one.path)
    hidden = tuple(f"{name}/" for name in found.hidden)
    reachable = (path for path in watch.before.endpoints if not path.startswith(hidden))
    found.masked = [path for path in reachable if is_answered(found.root, path)]
    if make:
        _seal_ends(found, watch.routes)


def _hook_folders(found: Guard) -> list[str]:
    return [] if found.git is None else found.git.hook_folders


def _seal_ends(found: Guard, routes: list[Route]) -> None:
    """Seal what links lead to. Of what has an obeyed name itself the folders above it cannot be exchanged either."""
    workspace = workspace_of(found.root) if routes else ""
    for route in routes:
        end = place_in(workspace, route.end)
        if route.obeyed is Obeyed.TOLD or route.identity is None or not end or f"{route.path}/".startswith(f"{end}/"):
            continue
        name = route.path.rpartition("/")[2]
        parts = end.split("/")
        above = {"/".join(parts[:count]) for count in range(1, len(parts) + 1)}
        if name in VERSION_CONTROL or not above.isdisjoint((*found.sealed, *found.hidden)):
            continue
        if is_always_hidden(route.path) and _is_folder(found.root, end):
            _add(found.hidden, end)
        elif route.is_inner:
            _add(found.sealed, end)
        else:
            _look(found, parts, make=False)
    if routes:  # what lies above is mounted first, and nothing beneath what is sealed as a whole
        found.kept.sort()
        found.sealed = [path for path in found.sealed if not any(path.startswith(f"{one}/") for one in found.sealed)]


def _lock(root: int) -> None:
    """Share the workspace with other boxes. Waits for another lock on it, but not for long."""
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


def _look(found: Guard, parts: list[str], *, make: bool, content: bytes | None = None) -> None:
    here = found.root
    try:
        for depth in range(1, len(parts) + 1):
            path, last = "/".join(parts[:depth]), depth == len(parts)
            facts = _facts(here, parts[depth - 1])
            kind = None if facts is None else stat.S_IFMT(facts.st_mode)
            if facts is None and not make:
                return
            if facts is None:
                _stand_in(here, parts[depth - 1], found, content if last else None)
            if facts is None or _is_stand_in(here, parts[depth - 1], facts):
                _add(found.stand_ins, path)
            if last or kind not in {stat.S_IFDIR, None} or path in found.stand_ins:
                _add(found.hidden if path in HIDDEN_AT_TOP and kind in {stat.S_IFDIR, None} else found.sealed, path)
                return
            _add(found.kept, path)
            above, here = here, os.open(parts[depth - 1], _FOLDER, dir_fd=here)
            if above != found.root:
                os.close(above)
    finally:
        if here != found.root:
            os.close(here)


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


def _facts(folder: int, name: str) -> os.stat_result | None:
    try:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(facts.st_mode):
        raise SandboxUnavailable(f"{name!r} is a link, which cannot be protected from what runs in the box")
    return facts


def _is_folder(root: int, path: str) -> bool:
    facts = lstat_beneath(root, path)
    return facts is not None and stat.S_ISDIR(facts.st_mode)


def _stand_in(folder: int, name: str, found: Guard, content: bytes | None) -> None:
    """An empty folder in place of a name, or a file with some content for one that git would not take as a folder.

    For `.git` it is a socket: git takes it for no repository and does not show it, and unlike a folder, which takes
    ext4 milliseconds, it is removed in no time.
    """
    owner = os.fstat(found.root)
    try:
        if name == ".git":
            os.mknod(name, stat.S_IFSOCK | 0o600, dir_fd=folder)
            made = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        elif content is not None:
            made = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444, dir_fd=folder)
        else:
            if not move_in(folder, name):
                os.mkdir(name, 0o700, dir_fd=folder)
            made = os.open(name, _FOLDER, dir_fd=folder)
    except FileExistsError:
        return  # another box on the same workspace was faster
    try:
        if content:
            os.write(made, content)
        itself = f"/proc/self/fd/{made}"
        if os.geteuid() == 0:
            os.chown(itself, owner.st_uid, owner.st_gid)
        os.utime(itself, (STAND_IN_TIME, STAND_IN_TIME))
    finally:
        os.close(made)


def _is_stand_in(folder: int, name: str, found: os.stat_result) -> bool:
    """Whether a name is of our making; whatever else has this time does no harm where it is."""
    if found.st_mtime != STAND_IN_TIME:
        return False
    if not stat.S_ISREG(found.st_mode):
        return stat.S_ISDIR(found.st_mode) or stat.S_ISSOCK(found.st_mode)
    return found.st_size == 0 or (found.st_size == len(POINTER) and read_beneath(folder, name, 16) == POINTER)


def _take_away(root: int, path: str) -> None:
    """Remove an empty stand-in. One in which something lies, or that is gone, is not ours. Raises OSError."""
    above, _, name = path.rpartition("/")
    try:
        folder = open_folder(root, above) if above else root
    except OSError:
        return
    try:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if _is_stand_in(folder, name, facts) and not (stat.S_ISDIR(facts.st_mode) and move_out(folder, name)):
            remove_beneath(folder, name)
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTEMPTY}:
            raise
    finally:
        if folder != root:
            os.close(folder)


def _add(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)
