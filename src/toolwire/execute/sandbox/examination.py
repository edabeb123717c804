"""Asks an engine every probe and says, for each, whether it gives what it must."""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from toolwire.errors import ToolFailure
from toolwire.execute.sandbox.capture import CommandNotStarted
from toolwire.execute.sandbox.probes import PROBES, Probe
from toolwire.execute.sandbox.syscalls import call
from toolwire.protocol.operations import Command, ExecOps, Ran, shell

_GONE_WITHIN_S = 1.0
_BUSY_WALL_S = 10.0
_AT_ONCE = 4
_NEW_FOR_ALL = 0o3666
_SOCKET, _PIPE = "daemon.sock", "daemon.pipe"


class ProbeFinding(Struct, frozen=True):
    """One probe on one engine. `given` is what counts; `said` tells what was seen when it is not."""

    probe: Probe
    given: bool
    said: str = ""


class ProbedHost:
    """Things of this machine that no box may reach, set up for an examination and taken away after it."""

    def __enter__(self) -> "ProbedHost":
        # Not in /tmp: there is a probe of its own for that.
        self._folder = Path(tempfile.mkdtemp(prefix="toolwire-probe-", dir="/var/tmp"))
        self._folder.chmod(0o777)
        self._token = f"toolwire{os.urandom(6).hex()}"
        (self._folder / "canary").write_text("secret\n")
        (self._folder / "canary").chmod(0o644)
        self._shared = [Path(place) / self._token for place in ("/tmp", "/dev/shm")]  # noqa: S108
        for file in self._shared:
            file.touch(0o644)
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", 0))
        self._udp.setblocking(False)
        self._unix = socket.socket(socket.AF_UNIX)
        self._unix.bind(f"\0{self._token}")
        self._unix.listen()
        self._key = int.from_bytes(os.urandom(3)) + 1
        self._segment = call("shmget", self._key, 4096, _NEW_FOR_ALL)
        self._process = subprocess.Popen(["/bin/sleep", "1000"], env={})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        call("shmctl", self._segment, 0, 0)
        for opened in (self._tcp, self._udp, self._unix):
            opened.close()
        for file in self._shared:
            file.unlink(missing_ok=True)
        shutil.rmtree(self._folder)

    async def ask(self, ops: ExecOps, probe: Probe) -> ProbeFinding:
        """One probe in a fresh workspace."""
        try:
            async with self._boxed(ops, probe) as (workspace, ran):
                if not probe.attack:
                    said = f"{ran.exit_code} {ran.limit} {ran.stderr.text[-300:]}"
                    return ProbeFinding(probe, "WORKS" in ran.stdout.text, said)
                return ProbeFinding(probe, not self._broken(probe, workspace, ran.stdout.text), ran.stderr.text[-300:])
        except ToolFailure as failure:
            return ProbeFinding(probe, given=False, said=str(failure))

    async def ask_together(self, ops: ExecOps, probes: Sequence[Probe]) -> list[ProbeFinding]:
        """Probes that only ask, in one box, since to open and close one takes far longer than to ask.

        Gives the findings of those that were given what they must. The others are to be asked in a box of their own.
        """
        script = "\n".join(f"echo asking {one.name}\n(\n{one.script}\n)\necho asked {one.name}" for one in probes)
        try:
            async with self._boxed(ops, Probe("together", "ask several", script)) as (_, ran):
                said = f"\n{ran.stdout.text}"
        except ToolFailure:
            return []
        return [ProbeFinding(one, given=True) for one in probes if _is_given(one, said)]

    @asynccontextmanager
    async def _boxed(self, ops: ExecOps, probe: Probe) -> AsyncIterator[tuple[Path, Ran]]:
        """What a probe's script came to, while its workspace is still there."""
        workspace = self._workspace(probe)
        command = Command(
            shell(self._filled(probe.script)), str(workspace), writable=probe.writable, limits=probe.limits
        )
        daemons = self._daemons(workspace)
        try:
            yield workspace, await _ran(ops, command)
        finally:
            daemons.close()
            shutil.rmtree(workspace, ignore_errors=True)

    def _daemons(self, workspace: Path) -> ExitStack:
        """Sockets that a program of this machine listens on, and a pipe that it reads, in the workspace."""
        with ExitStack() as opened:
            for folder in (workspace, *workspace.glob("deep/er")):
                listening = opened.enter_context(socket.socket(socket.AF_UNIX))
                listening.bind(str(folder / _SOCKET))
                (folder / _SOCKET).chmod(0o666)
                listening.listen()
            os.mkfifo(workspace / _PIPE)
            (workspace / _PIPE).chmod(0o666)
            opened.callback(os.close, os.open(workspace / _PIPE, os.O_RDONLY | os.O_NONBLOCK))
            return opened.pop_all()

    def _broken(self, probe: Probe, workspace: Path, stdout: str) -> bool:
        if probe.plants:
            return os.path.lexists(workspace / probe.plants)
        match probe.evidence:
            case "process":
                return self._left_behind()
            case "datagram":
                return self._arrived()
        return "ESCAPED" in stdout

    def _workspace(self, probe: Probe) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="workspace-", dir=self._folder))
        (folder / "hello.txt").write_text("hello\n")
        if not probe.bare:
            (folder / ".git" / "hooks").mkdir(parents=True)
            (folder / ".git" / "config").write_text("[core]\n")
            (folder / ".toolwire").mkdir()
            (folder / ".toolwire" / "record").write_text("secret\n")
            (folder / "deep" / "er").mkdir(parents=True)
            (folder / "deep" / "er" / ".npmrc").write_text("x=y\n")
        return folder

    def _filled(self, script: str) -> str:
        facts = {
            "canary": self._folder / "canary",
            "outside": self._folder,
            "tmp": self._shared[0],
            "shm": self._shared[1],
            "segment": self._key,
            "pid": self._process.pid,
            "host_path": self._folder.name,
            "lasting": f"perl -e '$0 = \"{self._token}\"; sleep 300'",
            "host": socket.gethostname(),
            "port": self._tcp.getsockname()[1],
            "udp": self._udp.getsockname()[1],
            "abstract": self._token,
            "socket": _SOCKET,
            "pipe": _PIPE,
        }
        for name, fact in facts.items():
            script = script.replace(f"{{{name}}}", str(fact))
        return script

    def _left_behind(self) -> bool:
        until = time.monotonic() + _GONE_WITHIN_S
        while alive := self._alive():
            if time.monotonic() > until:
                for process in alive:
                    os.kill(process, 9)
                return True
            time.sleep(0.02)
        return False

    def _alive(self) -> list[int]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if words.startswith(self._token.encode()):
                found.append(int(folder.name))
        return found

    def _arrived(self) -> bool:
        try:
            return bool(self._udp.recv(10))
        except BlockingIOError:
            return False


def _is_given(probe: Probe, said: str) -> bool:
    """Whether a probe that shared a box ended, and said what it should: WORKS, or nothing where it attacks."""
    _, _, rest = said.partition(f"\nasking {probe.name}\n")
    answer, ended, _ = rest.partition(f"asked {probe.name}\n")
    return bool(ended) and answer.strip() == ("" if probe.attack else "WORKS")


async def _ran(ops: ExecOps, command: Command) -> Ran:
    """Run a command; one whose time was over before its box stood, on a busy machine, gets more of it."""
    try:
        return await ops.run(command)
    except CommandNotStarted:
        return await ops.run(replace(command, limits=replace(command.limits, wall_s=_BUSY_WALL_S)))


async def examine(ops: ExecOps, probes: Iterable[Probe] = PROBES) -> AsyncIterator[ProbeFinding]:
    """Every probe's finding, several at a time; those that leave traces on the host go alone."""
    alone: list[Probe] = []
    together: list[Probe] = []
    for probe in probes:
        (together if probe.evidence == "said" and probe.limits.cpu_s == 0 else alone).append(probe)
    with ProbedHost() as host:
        for probe in alone:
            yield await host.ask(ops, probe)
        asking = [probe for probe in together if probe.asks]
        answered = await host.ask_together(ops, asking) if len(asking) > 1 else []
        for finding in answered:
            yield finding
        known = {finding.probe.name for finding in answered}
        places = asyncio.Semaphore(_AT_ONCE)

        async def ask(probe: Probe) -> ProbeFinding:
            async with places:
                return await host.ask(ops, probe)

        left = [probe for probe in together if probe.name not in known]
        for asked in asyncio.as_completed([ask(probe) for probe in left]):
            yield await asked
