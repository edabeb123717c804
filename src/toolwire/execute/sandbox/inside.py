"""What every box has, whichever engine opens it."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox import landlock, seccomp
from toolwire.execute.sandbox.cgroups import BoxGroup, Cgroups
from toolwire.execute.sandbox.plan import LaunchPlan
from toolwire.execute.sandbox.syscalls import machine
from toolwire.execute.sandbox.workspace import TMP, Workspace
from toolwire.protocol.operations import MIB, Command, ExecLimits

HOME = "/home/agent"
HOME_BYTES = 64 * MIB
PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
TOOLCHAIN = ("/usr", "/etc/alternatives", "/etc/ssl/certs")
NAMES = "passwd: files\ngroup: files\nhosts: files\n"
"""How names are looked up inside: in files alone."""

ENVIRONMENT = {
    "PATH": PROGRAMS,
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "TMPDIR": TMP,
    "USER": "agent",
    "SHELL": "/bin/bash",
    "TERM": "dumb",
}


def require(program: str, engine: str) -> None:
    """Raises SandboxUnavailable for an engine whose program is not there."""
    if not program:
        raise SandboxUnavailable(f"the sandbox engine {engine} is not installed; `toolwire doctor` says what is")


def join(plan: LaunchPlan, group: BoxGroup) -> LaunchPlan:
    """Put the process that carries out the plan into the group, with everything it will start."""
    for door in group.doors:
        plan.write(door, "0")
    return plan


def confine(plan: LaunchPlan, command: Command, abi: int) -> None:
    """Let the command write where every box is writable, and in the workspace if it may."""
    if abi:
        writable = [TMP, HOME, "/dev", "/proc", *(["/workspace"] if command.seems_writable else [])]
        landlock.confine(plan, abi, ["/"], writable, tcp=True)


def profile(*parts: str) -> str:
    """A digest of everything that confines a command; the same profile has the same digest."""
    text = "\0".join(parts).encode("utf-8", "replace")
    return hashlib.sha256(text + seccomp.program(machine())).hexdigest()[:16]


@contextmanager
def new_group(cgroups: Cgroups, limits: ExecLimits, workspace: Workspace) -> Iterator[BoxGroup]:
    """A group for a box that is started in the block; if that fails, group and workspace are given back."""
    group: BoxGroup | None = None
    try:
        group = cgroups.make(limits)
        yield group
    except BaseException:
        if group is not None:
            group.remove()
        workspace.close()
        raise
