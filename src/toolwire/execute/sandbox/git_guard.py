"""What runs in a box is not obeyed by the user's own git: neither while the box is open nor afterwards.

Three things are done. What git obeys (settings, hooks, programs that settings name, where to find them) is sealed by
mounts while a box is open. What cannot be sealed, because git itself writes there (submodules that the index names, a
rebase that has been begun), is compared with what was there when the box was opened, several times a second and when it
closes; what would be obeyed is moved aside under a name with `held-back` in it. And what was there is written down in a
note (`git_notes.py`), so that the next box finds what a killed toolwire could not look at any more.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from msgspec import Struct, field

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox import git_links
from toolwire.execute.sandbox.beneath import (
    lstat_beneath,
    names_beneath,
    read_beneath,
    write_beneath,
)
from toolwire.execute.sandbox.git_settings import ObeyedByGit, Repository, Setting, obeyed_by_git, parse_settings
from toolwire.execute.sandbox.git_state import unsafe_steps
from toolwire.execute.sandbox.held_back import move_aside
from toolwire.execute.sandbox.nested import find_submodules, git_folder_at, inside, is_bare_workspace
from toolwire.protocol.obeyed import HELD_BACK

STAND_IN_TIME = 1
"""When stand-ins, which are empty, were changed last: how they are known."""

POINTER = b".\n"
"""What a stand-in for `commondir` says: that everything is here."""

MOST_OPENED = 40
"""Submodules, and worktrees, in which a box may work; the git folders of further ones are sealed as a whole."""

_MOST_SAVED = 400
_LONGEST_SAVED = 1024 * 1024
_LONGEST_POINTER = 4096
_OF_A_FOLDER = ("config", "hooks", "config.worktree", "modules")
_OF_A_WORKTREE = ("commondir", "gitdir", "config.worktree")
_LEGACY = ("remotes", "branches")
_HOOKS = """
applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg post-commit
pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive post-update
reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman
post-index-change p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit
"""


class SealedName(Struct, frozen=True):
    """A name that a box may not change; with `make`, nor make where it is missing.

    What then stands in for it is a file with some content, or an empty folder.
    """

    path: str
    make: bool = False
    content: bytes | None = None


class SavedFile(Struct, frozen=True):
    """A file as it was when a box was opened; no content where it was missing."""

    content: bytes | None
    mode: int = 0o644


class Baseline(Struct):
    """What was there for git when a box was opened. Paths are relative to the workspace."""

    workspace: str
    repositories: tuple[Repository, ...] = ()
    folders: tuple[str, ...] = ()
    trusted: frozenset[str] = frozenset()
    is_bare: bool = False
    unsafe: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pointers: dict[str, bytes] = field(default_factory=dict)
    legacy: frozenset[str] = frozenset()
    worktree_links: frozenset[str] = frozenset()
    links: dict[str, str] = field(default_factory=dict)
    configs: dict[str, SavedFile] = field(default_factory=dict)
    files: dict[str, SavedFile] = field(default_factory=dict)
    trees: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()


class GitGuard(Struct):
    """Compares a workspace with its baseline. `held` tells what was moved aside, `failed` what could not be."""

    root: int
    baseline: Baseline
    seals: list[SealedName] = field(default_factory=list)
    hook_folders: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, tuple[int, ...] | None] = field(default_factory=dict)
    _names: dict[str, frozenset[str]] = field(default_factory=dict)
    _targets: dict[str, str | None] = field(default_factory=dict)

    def check(self, differing: Iterable[tuple[str, str]] = ()) -> bool:
        """Hold back what git would obey and is not in the baseline, and what is `differing`; whether there was any."""
        before = len(self.held)
        self.failed = {}
        self._names = {folder: frozenset(names_beneath(self.root, folder)) for folder in self.baseline.folders}
        for path, reason in (
            *differing,
            *self._planted(),
            *self._states(),
            *self._pointers(),
            *self._legacy(),
            *self._changed(),
        ):
            self._hold_back(path, reason)
        self._restore_links()
        self._restore_files()
        return len(self.held) > before

    def _hold_back(self, path: str, reason: str, then: Callable[[], None] | None = None) -> None:
        try:
            held = move_aside(self.root, path)
            aside = held.lies_at if held is not None else ""
            if then is not None:
                then()
        except OSError as error:
            self.failed[path] = f"{path!r} ({error.strerror or error})"
            return
        moved = f", so toolwire moved it to {aside!r} (`toolwire release {aside}` undoes that)" if aside else ""
        self.held.append(f"The user's git is protected: {path!r} {reason}{moved}.")

    def _planted(self) -> Iterator[tuple[str, str]]:
        own = self.baseline
        found = find_submodules(self.root, own.workspace, own.repositories, own.trusted)
        for git in found.excessive:
            yield f"{git}/index" if git else "index", "is a link, or names more submodules than can be looked at"
        for path in found.populated:
            if path not in own.trusted:
                yield f"{path}/.git", "was made a submodule whose settings git would obey"
        if not own.is_bare and is_bare_workspace(self.root):
            yield "HEAD", "made the workspace a repository whose settings git would obey"

    def _states(self) -> Iterator[tuple[str, str]]:
        for folder in self.baseline.folders:
            for path, lines in unsafe_steps(self.root, folder, self._names[folder]).items():
                new = [line for line in lines if line not in self.baseline.unsafe.get(path, ())]
                if new:
                    yield path, f"would have git run {new[0][:200]!r}"

    def _pointers(self) -> Iterator[tuple[str, str]]:
        """Files by which git finds its settings or objects elsewhere."""
        for folder in self.baseline.folders:
            for path, usual in pointers_of(self.root, folder, self._names[folder]):
                facts = lstat_beneath(self.root, path)
                if facts is None:
                    continue
                content = read_beneath(self.root, path, _LONGEST_POINTER)
                allowed = {POINTER.strip(), usual, self.baseline.pointers.get(path, usual).strip()}
                if content is None or content.strip() not in allowed:
                    yield path, "leads git to another place"
            for path in worktree_links(self.root, folder, self._names[folder]):
                if path not in self.baseline.worktree_links:
                    yield path, "is a link, which leads git to another place"

    def _legacy(self) -> Iterator[tuple[str, str]]:
        for folder in self.baseline.folders:
            for path in legacy_of(self.root, folder, self._names[folder]):
                if path not in self.baseline.legacy:
                    yield path, "names a remote in an old way that is not looked into"

    def _changed(self) -> Iterator[tuple[str, str]]:
        """What is new in folders that could not be sealed, or in settings of a worktree that is new."""
        for path in self.baseline.missing:
            facts = lstat_beneath(self.root, path)
            if facts is not None and not self._is_stand_in(path, facts):
                yield path, "was made, and git would obey it"
        for tree in self.baseline.trees:
            for path in files_below(self.root, tree):
                if path not in self.baseline.files and path not in self.baseline.known:
                    yield path, "is new among what git obeys"
        having = [folder for folder in self.baseline.folders if "worktrees" in self._names[folder]]
        for path in [path for folder in having for path in worktree_settings(self.root, folder)]:
            known = any(path in each for each in (self.baseline.configs, self.baseline.files, self.baseline.known))
            if known or lstat_beneath(self.root, path) is None:
                continue
            content = read_beneath(self.root, path, _LONGEST_SAVED + 1)
            if refused_settings(content, None, self.baseline.workspace):
                yield path, "has settings that git would obey"

    def _is_stand_in(self, path: str, facts: os.stat_result) -> bool:
        """Whether it has our time, which a box can set as well, and nothing in it that git could obey."""
        if facts.st_mtime != STAND_IN_TIME:
            return False
        if stat.S_ISDIR(facts.st_mode):
            return not names_beneath(self.root, path)
        return stat.S_ISSOCK(facts.st_mode) or (stat.S_ISREG(facts.st_mode) and not facts.st_size)

    def _restore_links(self) -> None:
        for path, target in self.baseline.links.items():
            if git_links.target_of(self.root, path) != target:
                again = partial(git_links.make, self.root, path, target)
                self._hold_back(path, "is not the link that it was", again)

    def _restore_files(self) -> None:
        for path, saved in self.baseline.files.items():
            if self._seen.get(path) != signature_of(self.root, path) and not self._is_as_saved(path, saved):
                self._put_back(path, saved, "was changed, and git obeys it")
        for path, saved in list(self.baseline.configs.items()):
            # Looked at before the content is read: what is written meanwhile is then seen at the next look.
            seen = signature_of(self.root, path)
            if path in self._seen and self._seen[path] == seen:
                continue
            content = read_beneath(self.root, path, _LONGEST_SAVED + 1)
            refused = refused_settings(content, saved, self.baseline.workspace, is_there=seen is not None)
            if refused:
                reason = f"was changed ({', '.join(refused)[:300]}), and toolwire protects these settings"
                self._put_back(path, saved, reason)
            else:
                self.baseline.configs[path], self._seen[path] = SavedFile(content, saved.mode), seen

    def _is_as_saved(self, path: str, saved: SavedFile) -> bool:
        facts = lstat_beneath(self.root, path)
        same_mode = facts is not None and stat.S_IMODE(facts.st_mode) == saved.mode
        return same_mode and read_beneath(self.root, path, _LONGEST_SAVED + 1) == saved.content

    def _put_back(self, path: str, saved: SavedFile, reason: str) -> None:
        def write() -> None:
            if saved.content is not None:
                write_beneath(self.root, path, saved.content, saved.mode)
            self._seen[path] = signature_of(self.root, path)

        self._hold_back(path, reason, write)


def open_git_guard(root: int, workspace: str, *, sealed: bool, may_set: bool = False) -> GitGuard:
    """Look at what git obeys in a workspace (a real path), and hold back what an earlier box has left.

    Where names can be `sealed` by mounts, `seals` says which; with `may_set` the repository's own settings stay
    writable and are looked at when the box closes. Raises SandboxUnavailable for a workspace that cannot be guarded.
    """
    guard = GitGuard(root, Baseline(workspace))
    _drop_pointer(guard, ".git")
    obeyed = obeyed_by_git(workspace)
    found = find_submodules(root, workspace, obeyed.repositories)
    if found.excessive:
        raise SandboxUnavailable(
            f"the index in {found.excessive[0]!r} is a link, or names more submodules than can be protected; "
            "make it a file, or use a folder of the project as workspace"
        )
    own = guard.baseline
    own.repositories, own.trusted, own.is_bare = (
        obeyed.repositories,
        frozenset(found.populated),
        is_bare_workspace(root),
    )
    _add_seals(guard, obeyed, found.populated)
    for folder in own.folders:
        names = frozenset(names_beneath(root, folder))
        own.unsafe |= unsafe_steps(root, folder, names)
        own.legacy |= frozenset(legacy_of(root, folder, names))
        own.worktree_links |= frozenset(worktree_links(root, folder, names))
        read = {path: read_beneath(root, path, _LONGEST_POINTER) for path, _ in pointers_of(root, folder, names)}
        own.pointers |= {path: content for path, content in read.items() if content is not None}
    _save(guard, obeyed, sealed=sealed)
    if may_set:
        settings = {f"{inside(workspace, each.common)}/config".lstrip("/") for each in obeyed.repositories[:1]}
        guard.seals = [seal for seal in guard.seals if seal.path not in settings]
    return guard


def _drop_pointer(guard: GitGuard, git: str) -> None:
    """A `.git` that is a folder never has a `commondir` of its own: one that is there was planted."""
    path = f"{git}/commondir"
    facts = lstat_beneath(guard.root, path)
    if facts is None:
        return
    content = read_beneath(guard.root, path, _LONGEST_POINTER)
    if content is not None and content.strip() in {b".", b"./"}:
        return
    guard._hold_back(path, "led git to settings elsewhere")
    if guard.failed:
        raise SandboxUnavailable(
            f"git takes its settings from elsewhere because of {guard.failed[path]}; remove it before you use git there"
        )


def _add_seals(guard: GitGuard, obeyed: ObeyedByGit, submodules: list[str]) -> None:
    root, own = guard.root, guard.baseline
    folders: dict[str, bool] = {}  # a git folder, and whether a stand-in for its pointer does no harm
    for each in obeyed.repositories:
        for path in (each.git, each.common):
            if (folder := inside(own.workspace, path)) is not None:
                folders[folder] = path == each.git == each.common and path not in obeyed.detached
    for place, path in enumerate(submodules):
        git = f"{path}/.git"
        facts = lstat_beneath(root, git)
        if facts is None or not stat.S_ISDIR(facts.st_mode) or place >= MOST_OPENED:
            guard.seals.append(SealedName(git))
        folder = inside(own.workspace, git_folder_at(root, own.workspace, path))
        if folder is not None and place < MOST_OPENED:
            _drop_pointer(guard, git)
            folders.setdefault(folder, False)
    own.folders = tuple(folders)
    for seal in [seal for folder, has in folders.items() for seal in _seals_of(root, folder, has_pointer=has)]:
        _seal_path(guard, f"{own.workspace}/{seal.path}", make=seal.make, content=seal.content)
    for path in (*obeyed.hooks, *obeyed.programs):
        _seal_path(guard, path, make=True)
    guard.hook_folders += [found for path in obeyed.hooks if (found := inside(own.workspace, os.path.realpath(path)))]
    for path in obeyed.configs:
        _seal_path(guard, path, make=True, content=b"")
    for path in obeyed.named:
        if os.path.isfile(path):  # noqa: PTH113 - text from a setting
            _seal_path(guard, path, make=False)


def _seals_of(root: int, folder: str, *, has_pointer: bool) -> Iterator[SealedName]:
    """What is sealed in one git folder."""
    within = f"{folder}/" if folder else ""
    for name in _OF_A_FOLDER:
        yield SealedName(within + name, make=True, content=None if name == "hooks" else b"")
    yield SealedName(f"{within}commondir", make=has_pointer, content=POINTER)
    yield SealedName(f"{within}gitdir")
    yield SealedName(f"{within}objects/info/alternates")
    worktrees = names_beneath(root, f"{within}worktrees")
    if len(worktrees) > MOST_OPENED:
        yield SealedName(f"{within}worktrees")
        return
    for worktree in worktrees:
        for name in _OF_A_WORKTREE:
            yield SealedName(f"{within}worktrees/{worktree}/{name}", make=name == "config.worktree", content=b"")


def _seal_path(guard: GitGuard, path: str, *, make: bool, content: bytes | None = None) -> None:
    """Seal what a setting leads to, and remember links on the way, over which nothing can be mounted."""
    real, links = git_links.trace(guard.baseline.workspace, path, guard._targets)
    guard.baseline.links |= links
    place = inside(guard.baseline.workspace, real)
    if place in {"", ".git"}:  # a folder of hooks in which everything else lies too: each hook by itself
        within = f"{place}/" if place else ""
        guard.seals += [SealedName(within + name) for name in _HOOKS.split()]
        guard.baseline.hooks += tuple(within + name for name in _HOOKS.split())
    elif place is not None and "\0" not in place:
        guard.seals.append(SealedName(place, make, content))


def _save(guard: GitGuard, obeyed: ObeyedByGit, *, sealed: bool) -> None:
    """Keep the content of settings, and of everything else where it cannot be sealed."""
    root, own = guard.root, guard.baseline
    ends = (git_links.trace(own.workspace, path, guard._targets)[0] for path in obeyed.configs)
    configs = {inside(own.workspace, end) for end in ends}
    configs |= {f"{folder}/{name}".lstrip("/") for folder in own.folders for name in ("config", "config.worktree")}
    for path in sorted(path for path in configs if path):
        own.configs[path], guard._seen[path] = _saved(root, path)
    own.missing = tuple(path for path in own.hooks if lstat_beneath(root, path) is None)
    if sealed:
        return
    own.missing += () if lstat_beneath(root, ".git") is not None else (".git",)
    others = [seal for seal in guard.seals if seal.path not in own.configs and seal.content != POINTER]
    there = [seal.path for seal in others if lstat_beneath(root, seal.path) is not None]
    own.missing += tuple(seal.path for seal in others if seal.make and seal.path not in there)
    own.trees = tuple(path for path in there if not _is_file(root, path) and not path.endswith("/modules"))
    files = [path for path in there if _is_file(root, path)]
    within = [path for tree in own.trees for path in files_below(root, tree)]
    own.known = frozenset(within)
    for path in [*files, *within[:_MOST_SAVED]]:
        own.files[path], guard._seen[path] = _saved(root, path)


def _is_file(root: int, path: str) -> bool:
    facts = lstat_beneath(root, path)
    return facts is not None and stat.S_ISREG(facts.st_mode)


def _saved(root: int, path: str) -> tuple[SavedFile, tuple[int, ...] | None]:
    """A file as it is, and how to tell that it was changed. Its signature is older than what was read."""
    facts = lstat_beneath(root, path)
    if facts is None or not stat.S_ISREG(facts.st_mode):
        return SavedFile(None), _signature(facts)
    return SavedFile(read_beneath(root, path, _LONGEST_SAVED), stat.S_IMODE(facts.st_mode)), _signature(facts)


def refused_settings(
    content: bytes | None, before: SavedFile | None, workspace: str, *, is_there: bool = True
) -> list[str]:
    """The keys by which a file of settings differs and that a box may not set; empty where it may stay as it is.

    Without content `is_there` tells something that is not a file from nothing.
    """
    was = before.content if before is not None else None
    if content is None:
        return [] if not is_there and was is None else ["it is not a file any more"]
    if content == (was or b""):
        return []
    now = parse_settings(content) if len(content) <= _LONGEST_SAVED else None
    old = parse_settings(was or b"")
    if now is None or old is None:
        return ["it cannot be read"]
    remotes = {one.key[len("remote.") : -len(".url")] for one in now if one.key.endswith(".url")}
    kept, left = ([one for one in each if not one.is_harmless(workspace, remotes)] for each in (old, now))
    return [] if kept == left else sorted({one.key for one in _difference(kept, left)} or {"their order"})


def _difference(some: list[Setting], others: list[Setting]) -> Iterator[Setting]:
    yield from (one for one in some if one not in others)
    yield from (one for one in others if one not in some)


def pointers_of(root: int, folder: str, names: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    """Files in a git folder that lead elsewhere, each with what it may say if a box has made it."""
    within = f"{folder}/" if folder else ""
    if "commondir" in names:
        yield f"{within}commondir", POINTER.strip()
    yield f"{within}objects/info/alternates", b""
    for worktree in names_beneath(root, f"{within}worktrees") if "worktrees" in names else ():
        yield f"{within}worktrees/{worktree}/commondir", b"../.."


def worktree_links(root: int, folder: str, names: frozenset[str]) -> Iterator[str]:
    """Links in place of what git keeps about worktrees, through which nothing is read here."""
    if "worktrees" not in names:
        return
    worktrees = f"{folder}/worktrees" if folder else "worktrees"
    for path in (
        worktrees,
        *(f"{worktrees}/{name}" for name in names_beneath(root, worktrees) if HELD_BACK not in name),
    ):
        facts = lstat_beneath(root, path)
        if facts is not None and stat.S_ISLNK(facts.st_mode):
            yield path


def legacy_of(root: int, folder: str, names: frozenset[str]) -> Iterator[str]:
    within = f"{folder}/" if folder else ""
    for name in names.intersection(_LEGACY):
        yield from (f"{within}{name}/{one}" for one in names_beneath(root, within + name) if HELD_BACK not in one)


def worktree_settings(root: int, folder: str) -> Iterator[str]:
    within = f"{folder}/" if folder else ""
    for worktree in names_beneath(root, f"{within}worktrees"):
        yield f"{within}worktrees/{worktree}/config.worktree"


def files_below(root: int, tree: str) -> list[str]:
    """The files in a folder and below, by path; the folder's own path where it is a file."""
    if _is_file(root, tree):
        return [tree]
    found: list[str] = []
    waiting = [tree]
    while waiting:
        folder = waiting.pop()
        for name in names_beneath(root, folder):
            path = f"{folder}/{name}"
            facts = lstat_beneath(root, path)
            if facts is not None and stat.S_ISDIR(facts.st_mode):
                waiting.append(path)
            elif facts is not None and HELD_BACK not in name:
                found.append(path)
    return found


def signature_of(root: int, path: str) -> tuple[int, ...] | None:
    return _signature(lstat_beneath(root, path))


def _signature(facts: os.stat_result | None) -> tuple[int, ...] | None:
    return None if facts is None else (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_mode)
