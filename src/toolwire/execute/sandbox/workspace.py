"""Who a box runs as, and how its workspace gets into it."""

import os
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox.mounts import Translations, detached_mount
from toolwire.execute.sandbox.name_watch import Activity
from toolwire.execute.sandbox.plan import LaunchPlan
from toolwire.execute.sandbox.protected import PROTECTED, Guard, guard
from toolwire.execute.sandbox.scratch import Scratch, lay_over, open_scratch
from toolwire.execute.sandbox.starter import Descriptors
from toolwire.protocol.key_files import HIDDEN_AT_TOP
from toolwire.protocol.operations import Command

STAGE = "/run/toolwire"
"""Where root mounts a workspace, in a mount namespace that only the box's launcher sees."""

DOOR = f"{STAGE}/door"
"""Where a box finds the socket of its egress proxy."""

BASE, DEVICES = f"{STAGE}/base", f"{STAGE}/dev"
"""Where the base of all boxes lies, in its own namespace."""

MASK, LAYER = f"{STAGE}/masked", f"{STAGE}/layer"
"""What is mounted over sockets, pipes and keys: a file that cannot be opened. And where the layer of a trial lies."""

TMP = "/tmp"  # noqa: S108 - the box's own
STAGED_TMP = STAGE + TMP

MOST_LENT = 8
_PLACES = tuple(f"{STAGE}/lent-{number}" for number in range(MOST_LENT))
_NEVER = frozenset("/ /bin /boot /dev /etc /lib /lib64 /opt /proc /run /sbin /sys /usr /usr/bin /usr/lib /var".split())
FIRST_USER, USERS = 60_000, 5_000
NEW_MOUNT_NAMESPACE = 0x00020000
_PRIVATE = 0x00040000 | 0x4000
_NO_SUID_NO_DEVICES, _NO_SUID_NO_EXEC = 0x2 | 0x4, 0x2 | 0x8
_MOVE_FROM_DESCRIPTOR = 0x4
_BIND, _REMOUNT_READ_ONLY = 0x1000, 0x20 | 0x1


class Workspace(Struct, frozen=True):
    """An opened workspace: `source` is the path of it, or of a name inside, that the launcher can mount from."""

    guard: Guard | None
    user: int
    group: int
    tree: int | None = None
    path: str = ""
    lent: Mapping[str, int | None] = field(default_factory=dict)
    scratch: Scratch | None = None

    def source(self, name: str = "") -> str:
        base = f"{STAGE}/workspace" if self.tree is not None else self.path
        return f"{base}/{name}" if name else base

    def lent_from(self) -> dict[str, str]:
        """Where the launcher finds each folder that is lent, and where the box does."""
        staged = zip(_PLACES, self.lent.items(), strict=False)
        return {path if tree is None else place: path for place, (path, tree) in staged}

    def observe(self, activity: Activity) -> None:
        """Know whether the box does anything, to tell what it makes from what its user makes meanwhile."""
        if self.guard is not None and self.guard.watch is not None:
            self.guard.watch.activity = activity

    def notes(self) -> list[str]:
        """What to tell about the workspace after the box has closed."""
        return [] if self.guard is None else self.guard.notes()

    def failures(self) -> list[str]:
        """What should have been moved aside and could not."""
        return [] if self.guard is None else self.guard.failures()

    def protected_names(self) -> dict[str, tuple[str, ...]]:
        return {} if self.guard is None else self.guard.protected_names()

    def look(self) -> bool:
        """Whether something had to be held back that a command has planted by now."""
        return self.guard is not None and self.guard.look()

    def hidden_keys(self) -> tuple[str, ...]:
        """The keys that this box is not shown, and one that was approved would be."""
        return () if self.guard is None else (*self.guard.keys.folders, *self.guard.keys.files)

    def changes(self) -> tuple[str, ...] | None:
        """What a trial has changed so far; None for a box that is no trial."""
        if self.scratch is None or self.guard is None:
            return None
        return self.scratch.changes(self.guard.root)

    def close(self) -> None:
        if self.scratch is not None:
            self.scratch.close()
        if self.guard is not None:
            self.guard.close()


def open_workspace(
    command: Command,
    held: Descriptors,
    protected: tuple[str, ...] = PROTECTED,
    *,
    lays_over: bool = False,
    guards_git: bool = True,
) -> Workspace:
    """Take hold of a workspace: its names guarded, its owner translated when this process is root.

    A trial gets its layer from root, or from an engine that lays one over by itself. Elsewhere it is read-only.
    """
    path, writable = command.workspace, command.writable
    if not path:
        return Workspace(None, *_nobody())
    if os.path.realpath(path) in _NEVER:
        raise SandboxUnavailable(f"{path!r} belongs to the system and cannot be a workspace")
    try:
        names = protected if writable else tuple(name for name in protected if name in HIDDEN_AT_TOP)
        kept = guard(path, names, make=writable, git=guards_git, may_set=command.may_set_git)
        if command.hides_keys and protected:
            kept.hide_keys()
    except OSError as error:
        raise SandboxUnavailable(f"the workspace {path!r} cannot be opened: {error.strerror}") from None
    try:
        opened = _as_user(path, kept, held)
        if not command.trial or not (lays_over or os.geteuid() == 0):
            return opened
        return replace(
            opened, scratch=open_scratch(kept.root, opened.user, opened.group, held, command.limits.tmp_bytes)
        )
    except BaseException:
        kept.close()
        raise


def _nobody() -> tuple[int, int]:
    return (FIRST_USER, FIRST_USER) if os.geteuid() == 0 else (os.geteuid(), os.getegid())


def _as_user(path: str, kept: Guard, held: Descriptors) -> Workspace:
    real = os.path.realpath(path)
    if os.geteuid() != 0:
        return Workspace(kept, os.geteuid(), os.getegid(), path=real)
    owner = os.fstat(kept.root)
    user = FIRST_USER + crc32(os.fsencode(real)) % USERS  # the same for every box of a workspace
    try:
        translation = _TRANSLATIONS.between(owner.st_uid, owner.st_gid, user)
        tree = held.keep(detached_mount(kept.root, translation))
        return Workspace(kept, user, user, tree)
    except OSError as error:
        if owner.st_uid == 0:
            raise SandboxUnavailable(
                f"the workspace {path!r} belongs to root, and its filesystem cannot show it to an ordinary user "
                f"({error.strerror or error}); give it to an ordinary user (chown)"
            ) from None
        return Workspace(kept, owner.st_uid, owner.st_gid, held.keep(detached_mount(kept.root, None)))


def stage(plan: LaunchPlan, workspace: Workspace, tmp_bytes: int, tmp_files: int) -> LaunchPlan:
    """Root only: put the workspace and a bounded /tmp where the launcher, soon an ordinary user, can reach them."""
    options = f"size={tmp_bytes},nr_inodes={tmp_files},mode=0700,uid={workspace.user},gid={workspace.group}"
    plan.call("unshare", NEW_MOUNT_NAMESPACE)
    plan.call("mount", "none", "/", 0, _PRIVATE, 0)
    plan.call("mount", "tmpfs", STAGED_TMP, "tmpfs", _NO_SUID_NO_DEVICES, options)
    if workspace.tree is not None:
        plan.call("move_mount", workspace.tree, "", -100, f"{STAGE}/workspace", _MOVE_FROM_DESCRIPTOR)
    if workspace.scratch is not None:
        lay_over(plan, workspace.scratch, f"{STAGE}/workspace", LAYER)
    for place, tree in zip(_PLACES, workspace.lent.values(), strict=False):
        if tree is not None:
            plan.call("move_mount", tree, "", -100, place, _MOVE_FROM_DESCRIPTOR)
    return plan


def own_devices(plan: LaunchPlan, workspace: Workspace, most_bytes: int) -> LaunchPlan:
    """Root only: the terminals and the shared memory of a box, among the devices that all boxes have."""
    options = f"size={most_bytes},mode=0700,uid={workspace.user},gid={workspace.group}"
    terminals = "newinstance,ptmxmode=0666,mode=620"
    plan.call("mount", "devpts", f"{DEVICES}/pts", "devpts", _NO_SUID_NO_EXEC, terminals)
    return plan.call("mount", "tmpfs", f"{DEVICES}/shm", "tmpfs", _NO_SUID_NO_DEVICES, options)


def with_readable(workspace: Workspace, paths: tuple[str, ...], held: Descriptors) -> Workspace:
    """The workspace with further folders to read. Root lends them wherever they lie, to the user of the box."""
    if len(paths) > MOST_LENT:
        raise SandboxUnavailable(f"a box can be lent {MOST_LENT} folders, not {len(paths)}")
    if os.geteuid() != 0:
        return replace(workspace, lent=dict.fromkeys(paths))
    trees: dict[str, int | None] = {}
    for path in paths:
        try:
            folder = held.keep(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            trees[path] = held.keep(detached_mount(folder, _translation(os.fstat(folder), workspace.user)))
        except OSError as error:
            raise SandboxUnavailable(f"{path!r} cannot be lent to a box: {error.strerror}") from None
    return replace(workspace, lent=trees)


def _translation(owner: os.stat_result, user: int) -> int | None:
    """Who owns a folder becomes the box's user; None where that cannot be had, and its modes must do."""
    try:
        return _TRANSLATIONS.between(owner.st_uid, owner.st_gid, user)
    except OSError:
        return None


def seal(plan: LaunchPlan, workspace: Workspace) -> LaunchPlan:
    """Root only: protect names in the staged workspace, for engines that cannot do it themselves."""
    if workspace.guard is None or workspace.tree is None:
        return plan
    for name in (*workspace.guard.kept, *workspace.guard.sealed):
        plan.call("mount", workspace.source(name), workspace.source(name), 0, _BIND, 0)
    for name in workspace.guard.hidden:
        plan.call("mount", "tmpfs", workspace.source(name), "tmpfs", _NO_SUID_NO_DEVICES | 1, "size=4096")
    for name in workspace.guard.sealed:
        plan.call("mount", "none", workspace.source(name), 0, _BIND | _REMOUNT_READ_ONLY | _NO_SUID_NO_DEVICES, 0)
    for name in workspace.guard.unreadable:
        plan.call("mount", MASK, workspace.source(name), 0, _BIND, 0)
    return plan


def lend_door(door: str, workspace: Workspace) -> None:
    """Root only: let only the box's user use the egress proxy of its call. Others can find where it lies."""
    if not door or os.geteuid() != 0:
        return
    try:
        os.chown(door, workspace.user, workspace.group)
    except OSError as error:
        raise SandboxUnavailable(f"the door to the granted hosts cannot be opened: {error.strerror}") from None


def set_door(plan: LaunchPlan, door: str) -> LaunchPlan:
    """Root only: put the socket of an egress proxy on the stage, for engines that cannot do it themselves."""
    return plan.call("mount", door, DOOR, 0, _BIND, 0) if door else plan


def ready_stage() -> None:
    """Root only: make the places on which launchers mount; they stay empty for everyone else."""
    if os.access(LAYER, os.F_OK):  # made last
        return
    for folder in (STAGE, f"{STAGE}/workspace", BASE, STAGED_TMP, *_PLACES):
        Path(folder).mkdir(mode=0o711, exist_ok=True)
    Path(DOOR).touch(mode=0o400)
    Path(DEVICES).mkdir(mode=0o711, exist_ok=True)
    Path(MASK).touch(mode=0o000)
    Path(LAYER).mkdir(mode=0o711, exist_ok=True)


_TRANSLATIONS = Translations()
