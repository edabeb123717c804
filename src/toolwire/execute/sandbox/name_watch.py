"""Watches a workspace while a box is open, for names that other programs obey.

What was there when the box was opened is sealed and stays. What appears is moved aside when the box closes, and of a
box that stays open a second after it was seen; the result says so. Only what surely was not made in the box is left
alone: a name that appeared while no process of the box ran at all, such as the settings folder that an editor made
beside an idle server.
"""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic, time_ns

from msgspec import Struct, field

from toolwire.execute.sandbox import git_links
from toolwire.execute.sandbox.beneath import lstat_beneath, names_beneath
from toolwire.execute.sandbox.git_notes import Leftover
from toolwire.execute.sandbox.git_planted import GIT, Contents, contents_of, is_older, unsafe_in
from toolwire.execute.sandbox.held_back import HeldBack, is_held_back, move_aside
from toolwire.execute.sandbox.link_routes import Route, changed_ends, changed_routes, routes_in
from toolwire.execute.sandbox.obeyed_scan import (
    FoundName,
    WorkspaceScan,
    look_into_packages,
    new_names,
    scan,
    told_names,
)
from toolwire.execute.sandbox.open_boxes import (
    OpenBoxNote,
    note_open_box,
    planted_by_the_dead,
    workspaces_of_the_dead,
)
from toolwire.protocol.obeyed import VERSION_CONTROL, is_own_state

_GRACE_S = 1.0  # a command that is about to end should find what it has made where it made it
_PATIENCE = 20  # looking takes at most so small a part of the time
_MOST_NAMED = 10
_MOST_ROUNDS = 100
_MOST_CONTAINED = 2_000

Activity = Callable[[], object]
"""Something that changes whenever a process of the box runs; None where that cannot be told."""


def _unknown() -> object:
    return None


class NameWatch(Struct):
    """What was there before, what was moved aside since, and what could not be."""

    root: int
    before: WorkspaceScan
    activity: Activity = _unknown
    held: list[HeldBack] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    told: dict[str, bool] = field(default_factory=dict)
    whole: bool = True
    sealed: bool = True
    note: OpenBoxNote | None = None
    repositories: dict[tuple[int, int], Contents] = field(default_factory=dict)
    routes: list[Route] = field(default_factory=list)
    opened: int = field(default_factory=time_ns)
    _spared: dict[tuple[int, int], tuple[object, ...]] = field(default_factory=dict)
    _waiting: dict[tuple[int, int], object] = field(default_factory=dict)
    _was: object = None
    _seen_at: dict[tuple[int, int], float] = field(default_factory=dict)
    _times: Counter[str] = field(default_factory=Counter)
    _due: float = 0.0

    def look(self) -> bool:
        """Move aside what has appeared, while the box is open; whether the same has appeared once more."""
        began = monotonic()
        if self.note is not None:
            self.note.touch()
        if began < self._due:
            return False
        active = self.activity()
        now = scan(self.root, force=True)
        planted = [one for one in self._new(now) if not self._is_users(one) and self._is_due(one, began)]
        self._was = active
        self.move_aside(planted)
        self._due = monotonic() + _PATIENCE * (monotonic() - began)
        return any(self._times[one.path] > 1 for one in planted)

    def close(self) -> None:
        """The last look, when nothing of the box lives any more."""
        for _ in range(_MOST_ROUNDS):  # what was behind a link that is put back, or in what is moved, shows only then
            now = scan(self.root, force=True)
            look_into_packages(self.root, now)
            planted = self._new(now)
            before = len(self.held)
            self.move_aside(planted)
            if len(self.held) == before:
                break
        else:
            self.failed.append(f"{planted[0].path!r} (names within names that other programs obey, too deep)")
        self.told |= dict.fromkeys(changed_ends(self.root, self.routes, sealed=self.sealed), False)
        self.told |= {one.path: is_new for one, is_new in told_names(self.before, now, sealed=self.sealed)}
        self.whole = now.whole
        self.forget()

    def forget(self) -> None:
        """Remove the note about the box."""
        if self.note is not None:
            self.note.close()
            self.note = None

    def notes(self) -> list[str]:
        """What to tell about it, one sentence each."""
        sentences = [
            f"Other programs would obey {one.path!r}, so toolwire moved it to {one.lies_at!r}. Nothing is lost: "
            f"the user can release it with `toolwire release {one.lies_at}`."
            for one in self.held[:_MOST_NAMED]
        ]
        if len(self.held) > _MOST_NAMED:
            sentences.append(f"{len(self.held) - _MOST_NAMED} more were moved aside; `toolwire release` lists them.")
        for path, is_new in sorted(self.told.items())[:_MOST_NAMED]:
            done = "made" if is_new else "changed"
            sentences.append(f"The command has {done} {path!r}, which other programs or agents follow; look at it.")
        if not self.whole:
            sentences.append("The workspace has too many folders for toolwire to look into all of them.")
        return sentences

    def _new(self, now: WorkspaceScan) -> list[FoundName]:
        """New names that are to be moved aside."""
        new = [one for one in new_names(self.before, now) if not _is_exempt(one)]
        found = {one.path: one for one in (*new, *self._unsafe(now), *changed_routes(self.root, self.routes))}
        return [one for one in found.values() if not self._is_spared(one)]

    def _unsafe(self, now: WorkspaceScan) -> list[FoundName]:
        """Repositories in which git would obey something that it would not have obeyed before."""
        put_off = tuple(f"{place}/" for place in now.put_off)
        return [
            one
            for one in _repositories(now)
            if unsafe_in(contents_of(self.root, one.path), self.repositories.get(one.identity))
            and not (one.path.startswith(put_off) and is_older(self.root, one.path, self.opened))
        ]

    def _is_users(self, one: FoundName) -> bool:
        """Whether a name may be the user's: the box did nothing since the look before the one that found it."""
        contained = _contained_in(self.root, one.path)  # before it is known whether the box has run
        active = self.activity()
        if active is None or contained is None:
            return False
        if one.identity not in self._waiting:
            # What runs at this very moment is not counted yet, so this is decided at the next look.
            self._waiting[one.identity] = self._was
            return self._was == active
        if self._waiting[one.identity] == active:
            self._spared[one.identity] = contained
            return True
        return False

    def _is_spared(self, one: FoundName) -> bool:
        """Whether a name is the user's and nothing in it was changed since: it is not sealed in a box that is open.

        What was changed is looked at like a name that has just appeared, since the user may have done it.
        """
        if one.identity not in self._spared:
            return False
        if _contained_in(self.root, one.path) == self._spared[one.identity]:
            return True
        for known in (self._spared, self._waiting, self._seen_at):
            known.pop(one.identity, None)
        return False

    def _is_due(self, one: FoundName, now: float) -> bool:
        return self._times[one.path] > 0 or now - self._seen_at.setdefault(one.identity, now) >= _GRACE_S

    def move_aside(self, planted: list[FoundName]) -> None:
        for one in sorted(planted, key=lambda one: -one.path.count("/")):  # while their folders have their names
            self._move(one.path)
            target = next((route.links[one.path] for route in self.routes if one.path in route.links), "")
            if target:
                with suppress(OSError):
                    git_links.make(self.root, one.path, target)

    def _move(self, path: str) -> None:
        self._times[path] += 1
        try:
            held = move_aside(self.root, path)
        except OSError as error:
            self.failed.append(f"{path!r} ({error.strerror or error})")
            return
        if held is not None:
            self.held.append(held)


def _contained_in(root: int, path: str) -> tuple[object, ...] | None:
    """All that lies at a path and below it, as it is now; None where it is too much to be looked at so often."""
    found: list[object] = []
    waiting = [path]
    while waiting:
        place = waiting.pop()
        if (facts := lstat_beneath(root, place)) is None:
            continue
        found.append((place, facts.st_ino, facts.st_size, facts.st_mode, facts.st_mtime_ns, facts.st_ctime_ns))
        if len(found) > _MOST_CONTAINED:
            return None
        if stat.S_ISDIR(facts.st_mode):
            waiting += [f"{place}/{name}" for name in names_beneath(root, place)]
    return tuple(found)


def _is_exempt(one: FoundName) -> bool:
    """Repositories are judged by what lies in them. Our own folder is refused where it was not made by us."""
    name = one.path.rpartition("/")[2]
    return name in VERSION_CONTROL or is_own_state(name) or is_held_back(name)


def _repositories(found: WorkspaceScan) -> list[FoundName]:
    """Those below the top, which is seen to by what knows git."""
    return [one for one in found.names.values() if one.path.endswith(f"/{GIT}")]


def look_at_names(root: int) -> NameWatch:
    """What lies in a workspace that a box cannot change."""
    return NameWatch(root, scan(root))


def watch_names(root: int, *, sealed: bool = True, hook_folders: Iterable[str] = ()) -> NameWatch:
    """Look at a workspace as it is before a box is opened on it, and see to what a killed process left there.

    Links in `hook_folders` are obeyed like the hooks that they are.
    """
    watch = NameWatch(root, scan(root), sealed=sealed)
    new = planted_by_the_dead(root, watch.before)
    unsafe = watch._unsafe(WorkspaceScan({one.path: one for one in new}))
    left = [*(one for one in new if not _is_exempt(one)), *unsafe]
    if left:
        watch.move_aside(left)
        watch.before = scan(root)
    watch.repositories = {one.identity: contents_of(root, one.path) for one in _repositories(watch.before)}
    watch.routes = routes_in(root, watch.before, hook_folders)
    watch.note = note_open_box(root, watch.before, watch.routes, watch.repositories, watch.opened)
    return watch


def recover_names() -> list[Leftover]:
    """Move aside what killed boxes have left in their workspaces; what was found is told."""
    found = []
    for workspace in workspaces_of_the_dead():
        with suppress(OSError):
            root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                watch = watch_names(root)
                watch.forget()
            finally:
                os.close(root)
            if watch.held or watch.failed:
                found.append(Leftover(workspace, tuple(watch.notes()), tuple(watch.failed)))
    return found
