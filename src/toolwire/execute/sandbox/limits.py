"""Limits of a single process, and what is weaker where the limits of a whole tree cannot be had."""

import resource

from toolwire.execute.sandbox.cgroups import Cgroups
from toolwire.execute.sandbox.plan import LaunchPlan
from toolwire.protocol.operations import ExecLimits


def apply(plan: LaunchPlan, limits: ExecLimits, holds: frozenset[str]) -> LaunchPlan:
    """Bound each process; its memory too, where the kernel cannot bound that of the tree."""
    plan.limit(resource.RLIMIT_CORE, no_core())
    plan.limit(resource.RLIMIT_NOFILE, limits.open_files)
    plan.limit(resource.RLIMIT_FSIZE, limits.file_bytes)
    if limits.cpu_s:
        plan.limit(resource.RLIMIT_CPU, limits.cpu_s, grace=1)
    if "memory" not in holds:
        plan.limit(resource.RLIMIT_AS, limits.memory_bytes)
    return plan


def no_core() -> int:
    """The limit under which nothing is dumped: at 0, the kernel would still hand a dump to a program of the host."""
    return 0 if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0 else 1


UNCOUNTED = "names in the folder for temporary files are not counted (only root can limit them)"
UNSEALED = (
    "names that other programs obey can be changed where they are there, and sockets in the workspace be reached "
    "(only root can mount over them); what is new is moved aside, and what was changed is told"
)
SHOWN_PATHS = "the path of the workspace on this machine shows in /proc/self/mountinfo"


def missing(cgroups: Cgroups, landlock: int) -> tuple[str, ...]:
    """One sentence for each promise that is weaker on this machine."""
    weaker = []
    if "memory" not in cgroups.holds:
        weaker.append("memory is limited for each process, not for all together (no memory cgroup)")
    if "pids" not in cgroups.holds:
        weaker.append("processes are counted by rlimit (no pids cgroup)")
    if "cpu" not in cgroups.holds:
        weaker.append("cores are not limited (no cpu cgroup)")
    if "kill" not in cgroups.holds:
        weaker.append("a tree of processes is ended by its pid namespace alone (no cgroup.kill)")
    if not landlock:
        weaker.append("landlock is not in this kernel")
    return tuple(weaker)
