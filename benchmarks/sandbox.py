"""How long a box takes to open and close, how fast a fork bomb is gone, and what a gibibyte of output costs.

`python -m benchmarks.sandbox`. Beside it stands plain `bwrap … true` of the same minute: the floor on this machine.
"""

import asyncio
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.execute.sandbox.ops import STRENGTH, Sandbox
from toolwire.protocol.operations import MIB, Command, ExecLimits, shell

ROUNDS = {"none": 60, "bubblewrap": 100, "firejail": 15, "podman": 8}
BOMB = 200
GIBIBYTE = 1024 * MIB
FLOOR = "--unshare-all --ro-bind / / --proc /proc --dev /dev -- /bin/true"


async def main() -> None:
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as workspace:
        print(await output(workspace))
        print(floor())
        for engine in STRENGTH:
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
    """From asking to having the result, with everything cleaned up."""
    took = []
    for _ in range(ROUNDS[engine]):
        began = time.perf_counter()
        await sandbox.run(Command(("/bin/true",), workspace))
        took.append(time.perf_counter() - began)
    return f"{engine} start and clean-up: {_figures(took)}"


async def bomb(sandbox: Sandbox, engine: str, workspace: str) -> str:
    """From the order to stop until nothing is left: processes that are busy, in sessions of their own."""
    script = (
        f'perl -e \'for (1..{BOMB}) {{ if (!fork) {{ setpgrp; $SIG{{TERM}} = "IGNORE"; 1 while 1 }} }} '
        '$| = 1; print "up"; sleep 100\''
    )
    up = asyncio.Event()
    limits = ExecLimits(wall_s=60, processes=BOMB + 20)
    command = Command(shell(script), workspace, limits=limits)
    running = asyncio.create_task(sandbox.run(command, lambda _stream, _piece: up.set()))
    await asyncio.wait((asyncio.create_task(up.wait()), running), return_when=asyncio.FIRST_COMPLETED)
    began = time.perf_counter()
    running.cancel()
    await asyncio.wait((running,))
    gone = "all gone" if sandbox.healthy else "SOMETHING IS LEFT"
    return f"{engine} fork bomb of {BOMB}: {(time.perf_counter() - began) * 1000:.0f} ms, {gone}"


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
