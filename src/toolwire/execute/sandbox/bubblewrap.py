"""The default engine: bubblewrap, started as an ordinary user with nothing to see in its environment."""

import os
import resource
import shutil
from functools import cache
from pathlib import Path

from toolwire.execute.sandbox import landlock, seccomp
from toolwire.execute.sandbox.base import NamespaceCache
from toolwire.execute.sandbox.cgroups import BoxGroup, Cgroups
from toolwire.execute.sandbox.contract import Box, EngineReport
from toolwire.execute.sandbox.inside import (
    ENVIRONMENT,
    HOME,
    HOME_BYTES,
    NAMES,
    PROGRAMS,
    TOOLCHAIN,
    confine,
    join,
    new_group,
    profile,
    require,
)
from toolwire.execute.sandbox.limits import UNCOUNTED, apply, missing
from toolwire.execute.sandbox.plan import LEAVING, SCRIPT, LaunchPlan, helper
from toolwire.execute.sandbox.protected import PROTECTED
from toolwire.execute.sandbox.scratch import lay_over_as_user
from toolwire.execute.sandbox.starter import Descriptors, memory
from toolwire.execute.sandbox.syscalls import machine
from toolwire.execute.sandbox.trial import examine_engine
from toolwire.execute.sandbox.workspace import (
    BASE,
    DEVICES,
    DOOR,
    NEW_MOUNT_NAMESPACE,
    STAGED_TMP,
    TMP,
    Workspace,
    lend_door,
    open_workspace,
    own_devices,
    ready_stage,
    seal,
    stage,
    with_readable,
)
from toolwire.protocol.operations import Command, ExecLimits

INSIDE_USER = 1000
_COPIED = ("/etc/ld.so.cache", "/etc/localtime")
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_MOUNTED = ("/proc", "/dev", TMP, HOME)
_DEVICES = ["--dev", "/dev", "--size", str(HOME_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
MADE_UP = {
    "/etc/passwd": f"agent:x:{INSIDE_USER}:{INSIDE_USER}:agent:/home/agent:/bin/bash\nnobody:x:65534:65534:::\n",
    "/etc/group": f"agent:x:{INSIDE_USER}:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/resolv.conf": "",
    "/etc/nsswitch.conf": NAMES,
    "/etc/hostname": "sandbox\n",
}


class Bubblewrap:
    """Namespaces for mounts, processes, network and users; no capability; seccomp; landlock inside."""

    name = "bubblewrap"
    tells_at_start = True

    def __init__(
        self,
        cgroups: Cgroups,
        *,
        program: str = "bwrap",
        readable: tuple[str, ...] = (),
        protected: tuple[str, ...] = PROTECTED,
        shared_base: bool = True,
    ) -> None:
        self._cgroups = cgroups
        self._program = shutil.which(program, path=PROGRAMS) or ""
        self._readable = readable
        self._protected = protected
        self._files = _files()
        self._links = _system_links()
        self._programs = _programs()
        self._bases = _bases() if shared_base and os.geteuid() == 0 else None
        self._landlock = landlock.abi()
        uncounted = () if os.geteuid() == 0 else (UNCOUNTED,)
        self.weaker = (*missing(cgroups, self._landlock), *uncounted)

    def probe(self) -> EngineReport:
        return examine_engine(self, self._program, "bwrap is not installed (Debian: apt install bubblewrap)")

    def launch(self, command: Command) -> Box:
        require(self._program, self.name)
        with Descriptors() as held:
            guards_git = bool(self._protected)
            workspace = open_workspace(command, held, self._protected, lays_over=True, guards_git=guards_git)
            readable = (*self._readable, *command.readable)
            shared = tuple(filter(_is_for_all, readable)) if self._bases is not None else ()
            workspace = with_readable(workspace, tuple(path for path in readable if path not in shared), held)
            with new_group(self._cgroups, command.limits, workspace) as group:
                return self._start(command, workspace, group, held, shared)

    def _start(
        self, command: Command, workspace: Workspace, group: BoxGroup, held: Descriptors, shared: tuple[str, ...]
    ) -> Box:
        lend_door(command.door, workspace)
        streams = held.streams(command.stdin, workspace.user)
        inside = held.keep(self._inside(command).memory())
        base = self._base(command, workspace, shared)
        if base is None and shared:
            workspace, shared = with_readable(workspace, (*self._readable, *command.readable), held), ()
        arguments = self._arguments(command, workspace, held, has_base=base is not None)
        given = held.keep(memory(b"".join(os.fsencode(str(one)) + b"\0" for one in arguments), "arguments"))
        launcher = (self._program, "--args", str(given), "--", *helper(inside, streams.to_status))
        outside = held.keep(self._outside(command.limits, workspace, group, launcher, base).memory())
        passed = [*held.all, *([workspace.guard.root] if workspace.guard is not None else [])]
        passed += [base] if base is not None else []
        box = Box.of(helper(outside, streams.to_status), passed, streams, self.name)
        box.profile = self._profile([*arguments, *shared], command)  # while the launcher starts already
        box.stages, box.group, box.weaker, box.workspace, box.undo = 2, group, self.weaker, workspace, [workspace.close]
        workspace.observe(group.activity)
        return box

    def _base(self, command: Command, workspace: Workspace, shared: tuple[str, ...]) -> int | None:
        """The namespace that has what all boxes have; None where it is mounted for each of them."""
        if self._bases is None:
            return None
        own = ("/workspace",) if workspace.guard is not None else ()
        return self._bases.at((*_MOUNTED, *workspace.lent, *own), (DOOR,) if command.door else (), shared)

    def _outside(
        self, limits: ExecLimits, workspace: Workspace, group: BoxGroup, launcher: tuple[str, ...], base: int | None
    ) -> LaunchPlan:
        """From our process to bubblewrap: into the groups, out of root, under the limits."""
        plan = join(LaunchPlan(), group)
        if base is not None:
            plan.call("setns", base, NEW_MOUNT_NAMESPACE)
        if os.geteuid() == 0:
            ready_stage()
            seal(stage(plan, workspace, limits.tmp_bytes, limits.tmp_files), workspace)
            if base is not None:
                own_devices(plan, workspace, HOME_BYTES)
            plan.user(workspace.user, workspace.group)
        elif workspace.scratch is not None:
            lay_over_as_user(plan, workspace.scratch, workspace.path, workspace.user, workspace.group)
        apply(plan, limits, self._cgroups.holds)
        return plan.become(launcher)

    def _inside(self, command: Command) -> LaunchPlan:
        """From bubblewrap to the command: where it works, what it may touch."""
        plan = LaunchPlan().leave_namespace().limit(resource.RLIMIT_NPROC, command.limits.processes)
        if command.workspace:
            plan.enter(f"/workspace/{command.cwd}")
        confine(plan, command, self._landlock)
        plan.set({**ENVIRONMENT, **command.env})
        return plan.no_new_privileges().seccomp(seccomp.program(machine())).exec(command.argv)

    def _arguments(
        self, command: Command, workspace: Workspace, held: Descriptors, *, has_base: bool
    ) -> list[str | int]:
        flags = (
            "--unshare-all --unshare-user --disable-userns --die-with-parent --new-session --cap-drop ALL --clearenv"
        )
        words: list[str | int] = [*flags.split(), "--hostname", "sandbox"]
        words += [word for capability in LEAVING for word in ("--cap-add", capability)]
        words += ["--uid", str(INSIDE_USER), "--gid", str(INSIDE_USER)]
        words += ["--ro-bind", BASE, "/"] if has_base else self._system(held)
        words += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
        # Its first process is bubblewrap, which stays in the namespace whose mounts would show paths of the host.
        words += ["--size", "4096", "--tmpfs", "/proc/1", "--remount-ro", "/proc/1"]
        words += ["--dev-bind", DEVICES, "/dev"] if has_base else _DEVICES
        words += ["--size", str(HOME_BYTES), "--tmpfs", HOME]
        if os.geteuid() == 0:
            words += ["--bind", STAGED_TMP, TMP]
        else:
            words += ["--size", str(command.limits.tmp_bytes), "--tmpfs", TMP]
        for source, path in workspace.lent_from().items():
            words += ["--ro-bind", source, path]
        if command.door:
            words += ["--bind", command.door, DOOR]
        words += _mounts(command, workspace)
        words += [] if has_base else ["--remount-ro", "/"]
        return words

    def _system(self, held: Descriptors) -> list[str | int]:
        """Programs and made-up files, where no base has them."""
        words: list[str | int] = []
        for path in self._programs:
            words += ["--ro-bind", path, path]
        for path, target in self._links.items():
            words += ["--symlink", target, path]
        for path, content in self._files.items():
            # A copy, not a mount: every mount costs as long as all before it together.
            words += ["--perms", "0444", "--file", held.keep(memory(content, "made-up")), path]
        return words

    def _profile(self, arguments: list[str | int], command: Command) -> str:
        """The digest of what confines the command, without what differs from box to box."""
        words = ("fd" if isinstance(one, int) else "door" if one == command.door else one for one in arguments)
        held = (self._landlock, self._protected, self.weaker, command.limits)
        kind = [repr(("trial", command.trial, "hides_keys", command.hides_keys))] if command.hides_keys else []
        return profile(*words, SCRIPT, repr(held), *kind)


def _is_for_all(path: str) -> bool:
    """Whether everyone may read a folder, so that it can be mounted once, for all boxes, and nothing hides it there."""
    if any(Path(path).is_relative_to(place) for place in (*_MOUNTED, "/workspace")):
        return False
    try:
        return Path(path).stat().st_mode & 0o005 == 0o005
    except OSError:
        return False


def _mounts(command: Command, workspace: Workspace) -> list[str | int]:
    """The workspace, and over it every protected name."""
    if workspace.guard is None:
        return []
    if workspace.tree is not None:  # protected already, by root: what is mounted below it comes along
        return [
            "--bind" if command.writable or workspace.scratch is not None else "--ro-bind",
            workspace.source(),
            "/workspace",
        ]
    words: list[str | int] = ["--bind-fd" if command.writable else "--ro-bind-fd", workspace.guard.root, "/workspace"]
    if workspace.scratch is not None:  # the descriptor leads below its layer
        words = ["--bind", workspace.path, "/workspace"]
    for name in workspace.guard.kept:
        words += ["--bind", workspace.source(name), f"/workspace/{name}"]
    for name in workspace.guard.sealed:
        words += ["--ro-bind", workspace.source(name), f"/workspace/{name}"]
    for name in workspace.guard.hidden:
        words += ["--size", "4096", "--tmpfs", f"/workspace/{name}", "--remount-ro", f"/workspace/{name}"]
    for name in workspace.guard.unreadable:
        words += ["--ro-bind", os.devnull, f"/workspace/{name}"]
    return words


@cache
def _bases() -> NamespaceCache:
    """What is mounted once, for all engines of this process."""
    return NamespaceCache(_files(), _system_links(), _programs())


def _files() -> dict[str, bytes]:
    """Made-up files, and small ones of this machine that programs look for."""
    copied = {name: Path(name).read_bytes() for name in _COPIED if os.access(name, os.R_OK)}
    return {name: text.encode() for name, text in MADE_UP.items()} | copied


def _system_links() -> dict[str, str]:
    """/bin and its like, where they are links into /usr on this machine."""
    paths = [Path("/", name) for name in _LINKS]
    return {str(path): str(path.readlink()) for path in paths if path.is_symlink()}


def _programs() -> tuple[str, ...]:
    """The folders of this machine in which programs and what they need are."""
    own = [f"/{name}" for name in _LINKS if Path("/", name).is_dir() and not Path("/", name).is_symlink()]
    return tuple(path for path in (*TOOLCHAIN, *own) if Path(path).exists())
