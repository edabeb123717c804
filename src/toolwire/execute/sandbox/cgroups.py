"""Limits for a whole tree of processes, and the one sure way to end it: control groups, where they can be had."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from toolwire.protocol.operations import ExecLimits

PREFIX = "toolwire-"
SWEEP_S = 600.0
_CONTROLLERS = ("memory", "pids", "cpu")
_PERIOD_US = 100_000
_ALL = {True: "max", False: "-1"}
_OLD_SWAP = "memory.memsw.limit_in_bytes"
_SWAP = (_OLD_SWAP, "memory.swap.max")
_EMPTY_WITHIN_S = 1.0
_MOST_FOLDERS = 20_000
_MOST_THREADS = 64


class GroupFolder(Struct, frozen=True):
    """A folder of a hierarchy in which groups can be made, and what groups there can limit."""

    folder: Path
    controllers: frozenset[str]
    unified: bool


class Cgroups:
    """Where this process may make groups. `holds` names the limits that are real: memory, pids, cpu, kill."""

    def __init__(self, places: list[GroupFolder], sweep_s: float = SWEEP_S) -> None:
        self._places = places
        self._sweep_s = sweep_s
        self._swept_at = time.monotonic()
        self.holds = frozenset(name for place in places for name in place.controllers)
        if any((place.unified and _can_kill(place.folder)) or _counts(place) for place in places):
            self.holds |= {"kill"}

    @property
    def versions(self) -> str:
        """Which cgroups these are: v1, v2, both, or none."""
        return " and ".join(sorted({"v2" if place.unified else "v1" for place in self._places})) or "none"

    @classmethod
    def here(cls, sweep_s: float = SWEEP_S) -> "Cgroups":
        """What this machine lets this process have; looks by making a group and removing it.

        Groups of processes that died meanwhile are swept every `sweep_s`, when another group is made.
        """
        found = [place for place in _candidates() if _can_make(place.folder)]
        # A new hierarchy that limits nothing has only its kill to give, and joining it takes the kernel milliseconds.
        needless = any(_counts(place) for place in found)
        return cls([place for place in found if place.controllers or not needless], sweep_s)

    def make(self, limits: ExecLimits) -> "BoxGroup":
        self._sweep_sometimes()
        name = own_name()
        group = BoxGroup([GroupFolder(place.folder / name, place.controllers, place.unified) for place in self._places])
        group.create(limits)
        return group

    def _sweep_sometimes(self) -> None:
        """A process that lives for days sweeps after those that died meanwhile, in a thread, so that no box waits."""
        now = time.monotonic()
        if now - self._swept_at >= self._sweep_s:
            self._swept_at = now
            threading.Thread(target=self.sweep, name="toolwire-cgroup-sweep", daemon=True).start()

    def sweep(self) -> int:
        """End what a process that is gone has left behind; how many groups that were."""
        left = [folder for place in self._places for folder in _leftovers(_root_of(place.folder))]
        for folder in left:
            BoxGroup([GroupFolder(folder, frozenset({"pids"}), (folder / "cgroup.kill").exists())]).remove()
        return len(left)


class BoxGroup:
    """The group of one command, in every hierarchy that has something to give."""

    def __init__(self, places: list[GroupFolder]) -> None:
        self._places = places

    @classmethod
    def around(cls, process: int, beginning: str) -> "BoxGroup":
        """The group that another program has made for a process, known by how its name begins; an empty one if none."""
        return cls(list(_places_of(process, beginning)))

    @property
    def doors(self) -> list[str]:
        """The files into which a process of one thread writes 0 to join.

        In old hierarchies the thread's file, since a whole process is moved only after every core has taken a breath.
        """
        return [f"{place.folder}/{'cgroup.procs' if place.unified else 'tasks'}" for place in self._places]

    def create(self, limits: ExecLimits) -> None:
        for place in self._places:
            place.folder.mkdir()
            for name, text in _settings(place, limits):
                _set(f"{place.folder}/{name}", text)

    def hits(self) -> frozenset[str]:
        """Which limits the kernel has enforced: memory, processes."""
        found = set()
        for place in self._places:
            if "memory" in place.controllers:
                file = "memory.events" if place.unified else "memory.oom_control"
                found |= {"memory"} if _counted(place.folder / file, "oom_kill") else set()
            if "pids" in place.controllers and _counted(place.folder / "pids.events", "max"):
                found.add("processes")
        return frozenset(found)

    def activity(self) -> tuple[str, ...] | None:
        """How long each thread has run so far: it changes whenever one of them runs. None where that is not known."""
        if not self._places:
            return None
        place = self._places[0]
        threads = _words(place.folder / ("cgroup.threads" if place.unified else "tasks"))
        if len(threads) > _MOST_THREADS:
            return None
        ran = tuple(f"{thread} {' '.join(_lines(Path(f'/proc/{thread}/schedstat')))}" for thread in sorted(threads))
        return None if any(one.endswith(" ") for one in ran) else ran

    def kill(self) -> None:
        """Kill every member, at once where the kernel can do it."""
        for place in self._places:
            if "cpu" in place.controllers:  # one that has used up its share could not even end before the next period
                _write(f"{place.folder}/{'cpu.max' if place.unified else 'cpu.cfs_quota_us'}", _ALL[place.unified])
        if any(place.unified and _write(f"{place.folder}/cgroup.kill", "1") for place in self._places):
            return
        for place in self._places:
            if "pids" in place.controllers:
                _write(f"{place.folder}/pids.max", "0")  # no process starts while the others are killed
        for place in self._places[:1]:
            _kill_members(place.folder)

    def remove(self) -> bool:
        """Kill, wait until no process is left, and remove; False when something would not go."""
        until, wait_s = time.monotonic() + _EMPTY_WITHIN_S, 0.0002
        while True:
            self.kill()
            left = [place for place in self._places if not _removed(place.folder)]
            if not left or time.monotonic() > until:
                return not left
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, 0.01)


def _settings(place: GroupFolder, limits: ExecLimits) -> Iterator[tuple[str, str]]:
    quota = str(int(limits.cores * _PERIOD_US))
    if "memory" in place.controllers:
        yield ("memory.max" if place.unified else "memory.limit_in_bytes"), str(limits.memory_bytes)
        yield ("memory.swap.max", "0") if place.unified else (_OLD_SWAP, str(limits.memory_bytes))
    if "pids" in place.controllers:
        yield "pids.max", str(limits.processes)
    if "cpu" in place.controllers:
        yield ("cpu.max", f"{quota} {_PERIOD_US}") if place.unified else ("cpu.cfs_quota_us", quota)


def _candidates() -> Iterator[GroupFolder]:
    """The group of this process in each hierarchy; in the new one, the nearest above it that hands controllers down."""
    own = dict(_memberships())
    for mount, kind, options in _hierarchies():
        if kind == "cgroup2":
            yield from _unified(mount, own.get("", "/"))
        else:
            for controller in sorted(set(_CONTROLLERS) & set(options)):
                folder = mount / own.get(controller, "/").lstrip("/")
                yield GroupFolder(folder if folder.is_dir() else mount, frozenset({controller}), unified=False)


def _places_of(process: int, beginning: str) -> Iterator[GroupFolder]:
    own = dict(_memberships(process))
    for mount, kind, options in _hierarchies():
        for controller in [""] if kind == "cgroup2" else sorted(set(_CONTROLLERS) & set(options)):
            parts = Path(own.get(controller, "/")).parts[1:]
            named = next((depth for depth, part in enumerate(parts, 1) if part.startswith(beginning)), 0)
            if named:
                controllers = frozenset({controller} if controller else _CONTROLLERS)
                yield GroupFolder(mount.joinpath(*parts[:named]), controllers, unified=kind == "cgroup2")


def _unified(mount: Path, own: str) -> Iterator[GroupFolder]:
    folder = mount / own.lstrip("/")
    if not folder.is_dir():
        folder = mount
    above = [folder, *(parent for parent in folder.parents if parent == mount or mount in parent.parents)]
    for one in above:
        given = frozenset(_words(one / "cgroup.subtree_control")) & set(_CONTROLLERS)
        if given and _can_make(one):
            yield GroupFolder(one, frozenset(given), unified=True)
            return
    yield GroupFolder(folder, frozenset(), unified=True)


def _memberships(process: int | str = "self") -> Iterator[tuple[str, str]]:
    for line in _lines(Path(f"/proc/{process}/cgroup")):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _hierarchies() -> Iterator[tuple[Path, str, list[str]]]:
    for line in _lines(Path("/proc/self/mounts")):
        _, folder, kind, options, *_ = line.split(" ")
        if kind in {"cgroup", "cgroup2"}:
            yield Path(folder), kind, options.split(",")


def _can_make(folder: Path) -> bool:
    trial = folder / own_name()
    try:
        trial.mkdir()
        usable = os.access(trial / "cgroup.procs", os.W_OK)
        trial.rmdir()
    except OSError:
        return False
    return usable


def _counts(place: GroupFolder) -> bool:
    """Whether new processes can be stopped there, so that killing one after the other leaves none."""
    return "pids" in place.controllers


def _can_kill(folder: Path) -> bool:
    trial = folder / own_name()
    trial.mkdir()
    can = (trial / "cgroup.kill").exists()
    trial.rmdir()
    return can


def _root_of(folder: Path) -> Path:
    return next((parent for parent in (folder, *folder.parents) if parent.is_mount()), folder)


def _leftovers(root: Path) -> list[Path]:
    found = []
    for seen, (folder, names, _) in enumerate(os.walk(root)):
        if seen > _MOST_FOLDERS:
            break
        found += [Path(folder) / name for name in names if name.startswith(PREFIX) and not owner_lives(name)]
    return found


def owner_lives(name: str) -> bool:
    process, _, rest = name.removeprefix(PREFIX).partition("-")
    return process.isdigit() and _identity(int(process)) == f"{process}-{rest.split('-')[0]}"


def own_name() -> str:
    """A name that cannot be guessed, and that says whose it is, so that what is left of it can be swept."""
    return f"{PREFIX}{_own_identity(os.getpid())}-{os.urandom(6).hex()}"


@lru_cache(maxsize=1)
def _own_identity(process: int) -> str:
    """Looked up once for a process: it does not change, and each box has several names of ours."""
    return _identity(process)


def _identity(process: int) -> str:
    """The number of a process and the moment it began, since numbers are used again."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return f"{process}-gone"
    return f"{process}-{fields[19]}"


def _kill_members(folder: Path) -> None:
    """Stop all members, then kill them: a shell whose command is killed first would go on to its next command."""
    for sent in (signal.SIGSTOP, signal.SIGKILL):
        reached: set[str] = set()
        while new := set(_words(folder / "cgroup.procs")) - reached:
            reached |= new
            for member in new:
                with suppress(ProcessLookupError):
                    os.kill(int(member), sent)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _counted(file: Path, key: str) -> bool:
    return any(line.split() != [key, "0"] for line in _lines(file) if line.startswith(f"{key} "))


def _words(file: Path) -> list[str]:
    return [word for line in _lines(file) for word in line.split()]


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _set(file: str, text: str) -> None:
    """Write a limit. That of swap is missing where the kernel has none. Raises OSError."""
    try:
        _put(file, text)
    except FileNotFoundError:
        if not file.endswith(_SWAP):
            raise


def _write(file: str, text: str) -> bool:
    try:
        _put(file, text)
    except OSError:
        return False
    return True


def _put(file: str, text: str) -> None:
    opened = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(opened, text.encode())
    finally:
        os.close(opened)
