"""Runs other programs as children: says how they are, starts those again that end, and lets none outlive this process.

A child that ends is started again after a pause, which doubles each time until the child has run for a while. Children
have process groups of their own, so Ctrl-C at a terminal reaches this process alone, and this one tells them in order.
Where this process is killed, the kernel tells them (Linux).
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct, field

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 10.0
STOP_S = 40.0
_LONGEST_LINE = 4_000
_CHUNK = 65_536
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

Tell = Callable[[str, str], None]
"""Told the name of a child and a line about it, or of it."""


class ChildProgram(Struct, frozen=True):
    """A program to run: its name for people, its command, and its environment.

    What it says is told line by line, or goes to `log`. `fds` stay open in it. `ready` waits until it can be used.
    `stops_by` is the signal on which it finishes what it does.
    """

    name: str
    command: Sequence[str]
    environ: Mapping[str, str]
    log: Path | None = None
    fds: tuple[int, ...] = ()
    ready: Callable[[], Awaitable[None]] | None = None
    stops_by: signal.Signals = signal.SIGTERM


class Supervisor(Struct):
    """`async with Supervisor(tell) as children: await children.keep(program)`; all are stopped at the end."""

    tell: Tell
    stop_s: float = STOP_S
    first_pause_s: float = FIRST_PAUSE_S
    _running: dict[str, tuple[ChildProgram, asyncio.subprocess.Process]] = field(default_factory=dict)
    _keeping: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def __aenter__(self) -> "Supervisor":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the children, the newest first, each with time to finish."""
        for name in reversed(list(self._keeping)):
            task = self._keeping.pop(name)
            task.cancel()
            try:
                await asyncio.gather(task, return_exceptions=True)
            finally:
                await self._stop(name)

    async def keep(self, program: ChildProgram) -> None:
        """Start a program, wait until it can be used, and start it again whenever it ends.

        Raises OSError and ChildEnded where that does not even work once.
        """
        process = await self._start(program)
        self._keeping[program.name] = asyncio.create_task(self._restart(program, process), name=f"keep {program.name}")
        if program.ready is not None:
            await self._await_ready(program, process)
        self.tell(program.name, f"started (pid {process.pid})")

    def kill(self) -> None:
        """End all children at once."""
        for _, process in self._running.values():
            _signal(process, signal.SIGKILL)

    async def _await_ready(self, program: ChildProgram, process: asyncio.subprocess.Process) -> None:
        assert program.ready is not None
        ready = asyncio.ensure_future(program.ready())
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                raise ChildEnded(program.name, process.returncode or 0)
            ready.result()
        finally:
            for task in (ready, ended):
                task.cancel()
            await asyncio.gather(ready, ended, return_exceptions=True)

    async def _restart(self, program: ChildProgram, process: asyncio.subprocess.Process) -> None:
        pause_s, loop = self.first_pause_s, asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._follow(program.name, process)
            ended = how_it_ended(await process.wait())
            pause_s = self.first_pause_s if loop.time() - began >= STEADY_S else pause_s
            process, pause_s = await self._start_again(program, ended, pause_s)

    async def _start_again(
        self, program: ChildProgram, ended: str, pause_s: float
    ) -> tuple[asyncio.subprocess.Process, float]:
        """The program that runs again after one pause or more, and how long the next one is."""
        while True:
            self.tell(program.name, f"{ended}; starts again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            try:
                process = await self._start(program)
            except OSError as error:
                ended = f"cannot be started ({error.strerror})"
                continue
            self.tell(program.name, f"started again (pid {process.pid})")
            return process, pause_s

    async def _start(self, program: ChildProgram) -> asyncio.subprocess.Process:
        with contextlib.ExitStack() as closing:
            out = closing.enter_context(_open_log(program.log)) if program.log else asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                *program.command,
                env=program.environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out if program.log else asyncio.subprocess.STDOUT,
                pass_fds=program.fds,
                process_group=0,
                preexec_fn=partial(_die_with_parent, os.getpid(), program.stops_by),
            )
        self._running[program.name] = program, process
        return process

    async def _follow(self, name: str, process: asyncio.subprocess.Process) -> None:
        """Tell what a child says, until it says no more."""
        if process.stdout is not None:
            async for line in _lines(process.stdout):
                self.tell(name, line)

    async def _stop(self, name: str) -> None:
        program, process = self._running[name]
        if process.returncode is not None:
            return
        self.tell(name, "stopping")
        _signal(process, program.stops_by)
        try:
            async with asyncio.timeout(self.stop_s):
                await asyncio.gather(process.wait(), self._follow(name, process))
        except TimeoutError:
            self.tell(name, f"did not stop within {self.stop_s:g} s and is killed")
        finally:
            _signal(process, signal.SIGKILL)
            code = await process.wait()
        self.tell(name, how_it_ended(code))


class ChildEnded(Exception):
    """A child ended before it could be used."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} {how_it_ended(code)}")


def how_it_ended(code: int) -> str:
    if code < 0:
        named = {number.value: number.name for number in signal.Signals}
        return f"was ended by {named.get(-code, f'signal {-code}')}"
    return f"ended with {code}" if code else "ended"


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """The lines of a stream; of a longer one as much as a terminal can show."""
    rest = b""
    while chunk := await stream.read(_CHUNK):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line[:_LONGEST_LINE].decode(errors="replace").rstrip()
        rest = rest[:_LONGEST_LINE]
    if rest:
        yield rest.decode(errors="replace").rstrip()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _open_log(file: Path) -> BinaryIO:
    """A log of this run, and through no link: the folder may have come with a project."""
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600), "ab")


def _die_with_parent(parent: int, number: signal.Signals) -> None:
    """In the child, before its program begins: be told when the process that started it is gone."""
    if _LIBC is not None:
        _LIBC.prctl(_SET_DEATH_SIGNAL, number)
        if os.getppid() != parent:  # it was gone before that
            os._exit(1)
