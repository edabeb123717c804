"""The engine `none`: no walls. Chosen explicitly or not at all; still out of root and under the limits there are."""

import os
import resource

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox import landlock, seccomp
from toolwire.execute.sandbox.cgroups import BoxGroup, Cgroups
from toolwire.execute.sandbox.contract import Box, EngineReport
from toolwire.execute.sandbox.inside import ENVIRONMENT, join, new_group, profile
from toolwire.execute.sandbox.limits import UNSEALED, apply, missing
from toolwire.execute.sandbox.plan import SCRIPT, LaunchPlan, helper
from toolwire.execute.sandbox.protected import PROTECTED
from toolwire.execute.sandbox.starter import Descriptors
from toolwire.execute.sandbox.syscalls import machine
from toolwire.execute.sandbox.trial import examine_engine
from toolwire.execute.sandbox.workspace import (
    STAGED_TMP,
    TMP,
    Workspace,
    open_workspace,
    ready_stage,
    seal,
    stage,
)
from toolwire.protocol.operations import Command

UNSCOPED = "abstract sockets, and processes of the box's user, are in reach (landlock older than version 6)"
SHARED = "shared memory of this user is in reach, and what a command leaves in it stays (only root can part it)"
_SCOPED = 6
_NEW_IPC_NAMESPACE = 0x08000000
NOT_GIVEN = (
    "other processes of the machine are visible",
    "the network is open to UDP, and to TCP where landlock is older than version 4",
    "the whole machine is readable to the box's user",
    "the folder for temporary files is shared with the machine",
)


class Unconfined:
    """No namespace at all: an ordinary user, no new privileges, seccomp, landlock, limits."""

    name = "none"
    tells_at_start = True

    def __init__(self, cgroups: Cgroups) -> None:
        self._cgroups = cgroups
        self._landlock = landlock.abi()
        alive = () if cgroups.holds else ("a process that leaves its session survives the command (no cgroup)",)
        near = (*(() if self._landlock >= _SCOPED else (UNSCOPED,)), *(() if os.geteuid() == 0 else (SHARED,)))
        near = (*near, *(() if os.geteuid() == 0 else (UNSEALED,)))
        self.weaker = (*NOT_GIVEN, *near, *alive, *missing(cgroups, self._landlock))

    def _protected(self) -> tuple[str, ...]:
        """Only root can mount, so only root can protect names here."""
        return PROTECTED if os.geteuid() == 0 else ()

    def probe(self) -> EngineReport:
        return examine_engine(self)

    def launch(self, command: Command) -> Box:
        if command.door:
            raise SandboxUnavailable(
                "the engine none has no network of its own, so it cannot give a command a way to granted hosts only; "
                "use another engine, or grant no hosts"
            )
        with Descriptors() as held:
            workspace = open_workspace(command, held, self._protected())
            with new_group(self._cgroups, command.limits, workspace) as group:
                return self._start(command, workspace, group, held)

    def _start(self, command: Command, workspace: Workspace, group: BoxGroup, held: Descriptors) -> Box:
        streams = held.streams(command.stdin, workspace.user)
        plan = held.keep(self._plan(command, workspace, group).memory())
        digest = profile(SCRIPT, repr((self._landlock, self.weaker, command.limits, command.writable)))
        box = Box.of(helper(plan, streams.to_status), held.all, streams, self.name, digest)
        box.group, box.weaker, box.workspace, box.undo = group, self.weaker, workspace, [workspace.close]
        workspace.observe(group.activity)
        return box

    def _plan(self, command: Command, workspace: Workspace, group: BoxGroup) -> LaunchPlan:
        plan, limits = join(LaunchPlan(), group), command.limits
        if os.geteuid() == 0:
            ready_stage()
            seal(stage(plan, workspace, limits.tmp_bytes, limits.tmp_files), workspace)
            # Shared memory belongs to no process: what a command leaves there would outlive it.
            plan.call("unshare", _NEW_IPC_NAMESPACE)
            plan.no_capabilities().user(workspace.user, workspace.group)
        apply(plan, limits, self._cgroups.holds).limit(resource.RLIMIT_NPROC, limits.processes)
        plan.die_with_parent().no_new_privileges()
        if command.workspace:
            plan.enter(f"{workspace.source()}/{command.cwd}")
        self._confine(plan, command, workspace)
        variables = {**ENVIRONMENT, "HOME": STAGED_TMP if os.geteuid() == 0 else TMP, **command.env}
        return plan.set(variables).exec(command.argv)

    def _confine(self, plan: LaunchPlan, command: Command, workspace: Workspace) -> None:
        if self._landlock:
            writable = [TMP, "/dev", STAGED_TMP]
            writable += [workspace.source()] if command.workspace and command.writable else []
            landlock.confine(plan, self._landlock, ["/"], writable, tcp=False)
        elif not command.writable:
            raise SandboxUnavailable("a read-only workspace needs landlock or an engine other than none")
        plan.seccomp(seccomp.program(machine()))
