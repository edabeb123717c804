"""Namespaces that are made once, by a process that enters one and waits until another process has hold of it."""

import os
import subprocess
from collections.abc import Callable, Sequence

from toolwire.execute.sandbox.plan import LaunchPlan, helper
from toolwire.execute.sandbox.starter import Descriptors, spawn


def enter_namespace(plan: LaunchPlan, fds: Sequence[int], kind: str, use: Callable[[int], None] | None = None) -> int:
    """A descriptor of the namespace that a process is in after a plan; `use` gets its number first. Raises OSError."""
    with Descriptors() as held:
        status, told = held.pipe()
        os.set_blocking(status, True)
        held.keep(status)
        steps = held.keep(plan.wait().memory())
        given = (steps, told, *fds)
        process = spawn(helper(steps, told), given, subprocess.PIPE, subprocess.DEVNULL, subprocess.DEVNULL)
        try:
            if (said := os.read(status, 1000)) != b"ready\n":
                raise OSError(1, f"no {kind} namespace can be made ({said.decode(errors='replace').strip()})")
            if use is not None:
                use(process.pid)
            return os.open(f"/proc/{process.pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            process.kill()
            process.communicate()
