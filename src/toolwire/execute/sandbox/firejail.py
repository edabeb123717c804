"""For machines that already have firejail. Its profiles are never read; everything is said here."""

import os
import shutil
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox import landlock, seccomp
from toolwire.execute.sandbox.cgroups import BoxGroup, Cgroups
from toolwire.execute.sandbox.contract import Box, EngineReport
from toolwire.execute.sandbox.inside import ENVIRONMENT, HOME, PROGRAMS, join, new_group, profile, require
from toolwire.execute.sandbox.limits import SHOWN_PATHS, UNSEALED, apply, missing
from toolwire.execute.sandbox.plan import LaunchPlan, helper
from toolwire.execute.sandbox.protected import PROTECTED
from toolwire.execute.sandbox.starter import Descriptors
from toolwire.execute.sandbox.syscalls import machine
from toolwire.execute.sandbox.trial import examine_engine
from toolwire.execute.sandbox.workspace import (
    TMP,
    Workspace,
    lend_door,
    open_workspace,
    ready_stage,
    seal,
    set_door,
    stage,
)
from toolwire.protocol.operations import Command

NOT_GIVEN = (
    "firejail is a setuid program with a history of its own",
    "what is not hidden by name is readable",
    SHOWN_PATHS,
    "names and bytes in the folder for temporary files are bounded by memory alone",
)
_FLAGS = (
    "--noprofile --quiet --net=none --caps.drop=all --nonewprivs --noroot --ipc-namespace --private-dev --private-tmp "
    "--disable-mnt --hostname=sandbox --machine-id --dbus-user=none --dbus-system=none --keep-fd=all "
    "--deterministic-shutdown --private-etc=alternatives,ssl,ld.so.cache,passwd,group,nsswitch.conf,localtime"
)
_SHOWN = {"bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "tmp", "usr"}
_REFUSED = set("\\&!?\"'<>%^{};,*[]")
_BIND = 0x1000


class Firejail:
    """Namespaces by a setuid helper; our own filter and landlock inside."""

    name = "firejail"

    def __init__(self, cgroups: Cgroups, *, program: str = "firejail") -> None:
        self._cgroups = cgroups
        self._program = shutil.which(program, path=PROGRAMS) or ""
        self._landlock = landlock.abi()
        unsealed = () if os.geteuid() == 0 else (UNSEALED,)
        self.weaker = (*NOT_GIVEN, *unsealed, *missing(cgroups, self._landlock))

    def probe(self) -> EngineReport:
        return examine_engine(self, self._program, "firejail is not installed (Debian: apt install firejail)")

    def launch(self, command: Command) -> Box:
        require(self._program, self.name)
        if command.door and os.geteuid() != 0:
            raise SandboxUnavailable(
                "only root can give a command in firejail a way to granted hosts; use bubblewrap or podman"
            )
        with Descriptors() as held:
            protected = PROTECTED if os.geteuid() == 0 else ()
            workspace = open_workspace(command, held, protected)
            with new_group(self._cgroups, command.limits, workspace) as group:
                return self._start(command, workspace, group, held)

    def _start(self, command: Command, workspace: Workspace, group: BoxGroup, held: Descriptors) -> Box:
        lend_door(command.door, workspace)
        streams = held.streams(command.stdin, workspace.user)
        inside = held.keep(self._inside(command, workspace).memory())
        words = self._arguments(workspace, command.readable)
        launcher = (self._program, *words, "--", *helper(inside, streams.to_status))
        outside = held.keep(self._outside(command, workspace, group, launcher).memory())
        digest = profile(repr((words, self._landlock, self.weaker, command.limits, command.writable)))
        box = Box.of(helper(outside, streams.to_status), held.all, streams, self.name, digest)
        box.stages, box.group, box.weaker, box.workspace, box.undo = 2, group, self.weaker, workspace, [workspace.close]
        workspace.observe(group.activity)
        return box

    def _outside(
        self, command: Command, workspace: Workspace, group: BoxGroup, launcher: tuple[str, ...]
    ) -> LaunchPlan:
        plan, limits = join(LaunchPlan(), group), command.limits
        if os.geteuid() == 0:
            ready_stage()
            seal(stage(plan, workspace, limits.tmp_bytes, limits.tmp_files), workspace)
            set_door(plan, command.door)
            # It asks who its user is, and this user has no account on this machine.
            made_up = f"root:x:0:0::/root:/bin/sh\nagent:x:{workspace.user}:{workspace.group}::/home/agent:/bin/bash\n"
            plan.call("mount", "tmpfs", "/home", "tmpfs", 0, "size=64k,mode=0755").call("mkdirat", -100, _home(), 0o755)
            plan.write("/home/accounts", made_up).call("mount", "/home/accounts", "/etc/passwd", 0, _BIND, 0)
            owned = f"size=64k,mode=0755,uid={workspace.user},gid={workspace.group}"
            plan.call("mount", "tmpfs", _home(), "tmpfs", 0, owned)
            plan.user(workspace.user, workspace.group)
        apply(plan, limits, self._cgroups.holds)
        return plan.become(launcher)

    def _inside(self, command: Command, workspace: Workspace) -> LaunchPlan:
        home = _home()
        plan = LaunchPlan().limit(_PROCESSES, command.limits.processes)
        if command.workspace:
            plan.enter(f"{workspace.source()}/{command.cwd}")
        if self._landlock:
            own = [workspace.source()] if command.writable or workspace.scratch is not None else []
            writable = [TMP, "/dev", "/proc", home, *own]
            landlock.confine(plan, self._landlock, ["/"], writable, tcp=True)
        plan.no_new_privileges().seccomp(seccomp.program(machine()))
        variables = {**ENVIRONMENT, "HOME": home, **command.env}
        return plan.set(variables).exec(command.argv)

    def _arguments(self, workspace: Workspace, readable: tuple[str, ...]) -> list[str]:
        # Not --private=FOLDER: that would copy a .bashrc of its own into the workspace.
        whitelisted = [path for path in readable if Path(path).is_relative_to(Path.home())]
        whitelisted += [workspace.path] if workspace.tree is None and workspace.path else []
        home = [f"--whitelist={path}" for path in whitelisted] or ["--private"]
        hidden = [f"--blacklist={_pattern(path)}" for path in _hidden(Path("/"), readable) if path.exists()]
        return [*_FLAGS.split(), *home, *hidden, "--read-only=/usr"]


_PROCESSES = 6


def _hidden(folder: Path, readable: tuple[str, ...]) -> Iterator[Path]:
    """Everything that a program does not need, down to the folders beside those that it may read."""
    for path in sorted(folder.iterdir()):
        is_needed = path.parent == Path("/") and path.name in _SHOWN
        if is_needed or path.is_symlink() or str(path) in readable:  # what a link leads to is hidden where it is
            continue
        if any(Path(each).is_relative_to(path) for each in readable):
            yield from _hidden(path, readable)
        else:
            yield path


def _pattern(path: Path) -> str:
    """A path as firejail takes it: for a letter that it refuses, any letter. Raises SandboxUnavailable."""
    pattern = "".join("?" if letter in _REFUSED or not letter.isprintable() else letter for letter in str(path))
    if any(fnmatchcase(f"/{name}", pattern) for name in _SHOWN):
        raise SandboxUnavailable(f"firejail cannot hide {str(path)!r}, whose name it does not take")
    return pattern


def _home() -> str:
    return HOME if os.geteuid() == 0 else str(Path.home())
