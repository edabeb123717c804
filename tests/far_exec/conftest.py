"""A real SSH server on this machine: OpenSSH's where it is installed, and otherwise the one of asyncssh."""

import asyncio
import getpass
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from toolwire.execute.far_exec import FarExec
from toolwire.execute.ssh import ssh_exec

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")


@dataclass(frozen=True, slots=True)
class Server:
    """Where the server listens, and what lets a client in."""

    port: int
    identity: Path
    known_hosts: Path

    def exec(self, *roots: str, **more: Any) -> Any:
        given: dict[str, Any] = {
            "port": self.port,
            "username": getpass.getuser(),
            "client_keys": [str(self.identity)],
            "known_hosts": str(self.known_hosts),
            "python": sys.executable,
        }
        return ssh_exec("127.0.0.1", *roots, **(given | more))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    user, host = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    for name, key in (("identity", user), ("host", host)):
        key.write_private_key(str(folder / name))
        (folder / name).chmod(0o600)
    (folder / "authorized").write_bytes(user.export_public_key())
    async with _openssh(folder) if SSHD else _asyncssh(folder) as port:
        known = folder / "known"
        known.write_text(f"[127.0.0.1]:{port} {host.export_public_key().decode()}", encoding="ascii")
        yield Server(port, folder / "identity", known)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
async def far(server: Server, workspace: Path) -> AsyncIterator[FarExec]:
    async with server.exec(str(workspace)) as ops:
        yield ops


@asynccontextmanager
async def _openssh(folder: Path) -> AsyncIterator[int]:
    assert SSHD is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    settings = (
        f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {folder / 'host'}", "UsePAM no", "StrictModes no",
        f"AuthorizedKeysFile {folder / 'authorized'}", "PidFile none", "PasswordAuthentication no",
        "PermitRootLogin prohibit-password", "KbdInteractiveAuthentication no",
    )  # fmt: skip
    (folder / "config").write_text("\n".join(settings), encoding="utf-8")
    process = await _start(SSHD, folder / "config")
    assert process.stderr is not None
    try:
        async with asyncio.timeout(10):
            while b"Server listening" not in (said := await process.stderr.readline()):
                assert said, "the server ended"
        reading = asyncio.ensure_future(process.stderr.read())
        yield port
    finally:
        process.terminate()
        await process.wait()
    await reading


async def _start(program: str, config: Path) -> asyncio.subprocess.Process:
    if getpass.getuser() == "root":
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # noqa: ASYNC240 - without it Debian's server does not start
    return await asyncio.create_subprocess_exec(program, "-D", "-e", "-f", str(config), stderr=asyncio.subprocess.PIPE)


@asynccontextmanager
async def _asyncssh(folder: Path) -> AsyncIterator[int]:
    async def shell(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        pipe = asyncio.subprocess.PIPE
        program = await asyncio.create_subprocess_shell(process.command or "false", stdin=pipe, stdout=pipe)
        await process.redirect(stdin=program.stdin, stdout=program.stdout)
        process.exit(await program.wait())

    listening = await asyncssh.create_server(
        asyncssh.SSHServer, "127.0.0.1", 0, server_host_keys=[str(folder / "host")],
        authorized_client_keys=str(folder / "authorized"), process_factory=shell, encoding=None,
    )  # fmt: skip
    async with listening:
        yield listening.get_port()
