"""The promise of every sandbox engine, and the box that one opens."""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct, field

from toolwire.execute.sandbox.cgroups import BoxGroup
from toolwire.execute.sandbox.starter import Streams, spawn
from toolwire.protocol.operations import Command

_GONE_WITHIN_S = 5.0


class EngineReport(Struct, frozen=True):
    """Whether an engine can be used here. `weaker` says which of its promises do not hold on this machine, and why."""

    engine: str
    usable: bool
    version: str = ""
    reason: str = ""
    weaker: tuple[str, ...] = ()


class OpenWorkspace(Protocol):
    """The workspace of an open box, as the code that follows the box sees it."""

    def look(self) -> bool:
        """Move aside what the box has planted by now; whether it does so again and again."""
        ...

    def notes(self) -> list[str]:
        """After the box has closed, what its result should tell about the workspace."""
        ...

    def failures(self) -> list[str]:
        """After the box has closed, what should have been moved aside and could not."""
        ...

    def protected_names(self) -> dict[str, tuple[str, ...]]:
        """Which names the box could not change, read or reach: `sealed`, `hidden`, `masked`, `keys`."""
        ...

    def hidden_keys(self) -> tuple[str, ...]:
        """The files and folders with keys that this box is not shown, and one that was approved would be."""
        ...

    def changes(self) -> tuple[str, ...] | None:
        """What a trial has changed so far, a few names; None for a box that is no trial."""
        ...


class Box(Struct):
    """A command that runs. `status` is where helpers say how far they came: `stages` of them must say ready.

    `stop` is an engine's own way to end it; False when that is not possible yet, or any more. Its `workspace` is looked
    at now and then while it runs.
    """

    process: subprocess.Popen[bytes]
    stdout: int
    stderr: int
    status: int
    engine: str
    profile: str
    stages: int = 1
    group: BoxGroup | None = None
    weaker: tuple[str, ...] = ()
    stop: Callable[[], bool] | None = None
    workspace: "OpenWorkspace | None" = None
    undo: list[Callable[[], object]] = field(default_factory=list)
    pidfd: int = -1

    def __post_init__(self) -> None:
        self.pidfd = os.pidfd_open(self.process.pid)

    @classmethod
    def of(cls, argv: Sequence[str], fds: Sequence[int], streams: Streams, engine: str, profile: str = "") -> "Box":
        """Start a launcher on these streams."""
        process = spawn(argv, fds, streams.stdin, streams.to_stdout, streams.to_stderr)
        return cls(process, streams.stdout, streams.stderr, streams.status, engine, profile)

    def kill(self) -> None:
        """End the command and everything that it started. Harmless when all is over."""
        if self.stop is not None and self.stop():
            return
        if self.group is not None:
            with suppress(OSError):
                self.group.kill()
        with suppress(ProcessLookupError, PermissionError):
            if self.process.returncode is None:  # so its number is still its own
                os.killpg(self.process.pid, signal.SIGKILL)
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def end(self) -> int:
        """Wait for the launcher, which has little time left to go by itself; how it ended."""
        try:
            return self.process.wait(_GONE_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def close(self) -> bool:
        """Leave nothing behind: no process, group, mount or stand-in. False when something would not go."""
        if self.process.returncode is None or self.group is None:  # else nothing but the group's rest is left
            self.kill()
            self.end()
        clean = self.group.remove() if self.group is not None else True
        try:
            for step in reversed(self.undo):
                step()
        finally:
            for descriptor in (self.pidfd, self.stdout, self.stderr, self.status):
                os.close(descriptor)
        return clean


class Engine(Protocol):
    """One way to confine a command. `weaker` says which of its promises do not hold on this machine.

    One that `tells_at_start` (an attribute that it may have) says of each command whether it could be confined, before
    the command begins. It is not examined beforehand, only when that fails. Every engine is examined then.
    """

    name: str
    weaker: tuple[str, ...]

    def probe(self) -> EngineReport:
        """Look whether a command can really be run here, by running one. May take a while; the answer is kept."""
        ...

    def launch(self, command: Command) -> Box:
        """Start a command, confined. Blocks for milliseconds; called in the thread that starts boxes.

        Raises SandboxUnavailable when it cannot be confined as promised.
        """
        ...
