"""How long a box takes to open and close, how fast a fork bomb is gone, and what a gibibyte of output costs.

`python -m benchmarks.sandbox`. Beside it stands plain `bwrap … true` of the same minute: the floor on this machine.
"""

import asyncio
import os
import resource
import secrets
import select
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.protocol.engines import ENGINES
from toolwire.protocol.operations import MIB, Command, ExecLimits, shell

ROUNDS = {"none": 60, "bubblewrap": 100, "firejail": 15, "podman": 8}
PAUSE_S = 0.05
BOMB = 200
BOMBS = 5
GIBIBYTE = 1024 * MIB
FLOOR = "--unshare-all --ro-bind / / --proc /proc --dev /dev -- /bin/true"


async def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as workspace:
        print(await output(workspace))
        print(floor())
        for engine in ENGINES:
            sandbox = local_sandbox(floor=engine, default=engine)
            report = await sandbox.report(engine)
            if report.usable:
                print(await starts(sandbox, engine, workspace))
                print(await bomb(sandbox, engine, workspace))
            else:
                print(f"{engine}: not measured, {report.reason}")


def floor() -> str:
    program = shutil.which("bwrap")
    if program is None:
        return "floor: bwrap is not installed"
    took = []
    for _ in range(60):
        began = time.perf_counter()
        subprocess.run([program, *FLOOR.split()], env={}, check=True)
        took.append(time.perf_counter() - began)
    return f"plain bwrap, nothing else: {_figures(took)}"


async def starts(sandbox: Sandbox, engine: str, workspace: str) -> str:
    """From asking to having the result, with everything cleaned up: one after the other, and each after a pause.

    After a pause the kernel is slower to move processes, so that starts in a row flatter.
    """
    row = [await _started(sandbox, workspace, 0) for _ in range(ROUNDS[engine])]
    apart = [await _started(sandbox, workspace, PAUSE_S) for _ in range(ROUNDS[engine] // 2)]
    return f"{engine} start and clean-up: {_figures(row)}; each after a pause: {_figures(apart)}"


async def _started(sandbox: Sandbox, workspace: str, pause_s: float) -> float:
    await asyncio.sleep(pause_s)
    began = time.perf_counter()
    await sandbox.run(Command(("/bin/true",), workspace))
    return time.perf_counter() - began


async def bomb(sandbox: Sandbox, engine: str, workspace: str) -> str:
    """The order to stop, several times: until every process is dead, and until the caller has control again."""
    took = []
    for _ in range(BOMBS):
        # Each in a folder, so by a user, of its own: the dead of the one before may not have been buried yet.
        with tempfile.TemporaryDirectory(dir=workspace) as folder:
            took.append(await _stopped(sandbox, folder))
    dead, returned = ([each[part] * 1000 for each in took] for part in (0, 1))
    return (
        f"{engine} fork bomb of {BOMB}, {BOMBS} times: all dead after {statistics.median(dead):.0f} ms "
        f"(at most {max(dead):.0f}), returned after {statistics.median(returned):.0f} ms (at most {max(returned):.0f})"
        f"{'' if sandbox.healthy else ', SOMETHING IS LEFT'}"
    )


async def _stopped(sandbox: Sandbox, workspace: str) -> tuple[float, float]:
    """Start processes that are busy, in groups of their own, and end the command; how long both took."""
    mark = f"bomb-{secrets.token_hex(8)}"
    # They begin together: whoever still had to fork would wait for its turn among all those that are busy.
    script = (
        f'perl -e \'pipe R, W; for (1..{BOMB}) {{ next if fork // die $!; setpgrp; $SIG{{TERM}} = "IGNORE"; close W; '
        f'sysread R, $_, 1; 1 while 1 }} $| = 1; print "up"; close W; sleep 100\' {mark}'
    )
    up = asyncio.Event()
    command = Command(shell(script), workspace, limits=ExecLimits(wall_s=60, processes=BOMB + 20))
    running = asyncio.create_task(sandbox.run(command, lambda _stream, _piece: up.set()))
    await asyncio.wait((asyncio.create_task(up.wait()), running), return_when=asyncio.FIRST_COMPLETED)
    living = _processes(mark)
    if len(living) < BOMB:
        raise RuntimeError(f"only {len(living)} of {BOMB} processes were found")
    began = time.perf_counter()
    running.cancel()
    watching = asyncio.create_task(asyncio.to_thread(_all_dead, living))
    await asyncio.wait((running,))
    return_s = time.perf_counter() - began
    return await watching - began, return_s


def _processes(mark: str) -> list[int]:
    """Descriptors of the processes of this machine that have a mark among their words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(os.pidfd_open(int(folder.name)))
    return found


def _all_dead(processes: list[int]) -> float:
    """Wait until none of the processes lives; the moment at which that was so."""
    living, waiting = set(processes), select.poll()
    for process in living:
        waiting.register(process, select.POLLIN)
    while living:
        for process, _event in waiting.poll():
            waiting.unregister(process)
            living.remove(process)
            os.close(process)
    return time.perf_counter()


async def output(workspace: str) -> str:
    """How much the peak of memory grows, beyond that of a first small command."""
    sandbox = local_sandbox()
    await sandbox.run(Command(("/bin/true",), workspace))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    command = Command(("/usr/bin/head", "-c", str(GIBIBYTE), "/dev/zero"), workspace, limits=ExecLimits(wall_s=120))
    ran = await sandbox.run(command)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    took = time.perf_counter() - began
    return f"{ran.stdout.size / MIB:.0f} MiB of output: {took:.1f} s, memory grew by {grown:.1f} MiB"


def _figures(took: list[float]) -> str:
    ordered = sorted(seconds * 1000 for seconds in took)
    most = ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]
    return f"p50 {statistics.median(ordered):.1f} ms, p99 {most:.1f} ms, least {ordered[0]:.1f} ms"


if __name__ == "__main__":
    asyncio.run(main())
