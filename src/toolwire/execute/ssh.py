"""Commands on another machine, over SSH. Needs the extra `ssh` here, and toolwire on the other machine."""

import shlex
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import asyncssh

from toolwire.errors import ToolFailure
from toolwire.execute.far_exec import ByteSource, FarExec, RemoteEnd, Sink
from toolwire.protocol.outcomes import Code

CONNECT_S = 15.0
ALIVE_EVERY_S = 15.0


@asynccontextmanager
async def ssh_exec(
    host: str,
    *roots: str,
    port: int = 22,
    username: str | None = None,
    client_keys: Sequence[str] = (),
    known_hosts: str | None = None,
    python: str = "python3",
) -> AsyncIterator[FarExec]:
    """ExecOps on `host`, for commands whose workspace is one of `roots` there. Raises ToolFailure.

    The machine must be known: in the user's own file of known hosts, or in the one given. Keys are those given, or the
    user's own. Nothing is ever asked, and nothing is forwarded.
    """
    options: dict[str, Any] = {"known_hosts": known_hosts} if known_hosts else {}
    options |= {"username": username} if username else {}
    options |= {"client_keys": list(client_keys)} if client_keys else {}
    try:
        connection = await asyncssh.connect(
            host, port, **options, config=None, agent_forwarding=False, password=None, connect_timeout=CONNECT_S,
            keepalive_interval=ALIVE_EVERY_S, encoding=None, preferred_auth="publickey",
        )  # fmt: skip
    except (asyncssh.Error, OSError, ValueError) as error:
        raise _unavailable(host, error) from None
    words = (python, "-m", "toolwire.execute.far_exec_end", *roots)
    async with connection:
        yield FarExec(lambda: _started(connection, host, shlex.join(words)))


@asynccontextmanager
async def _started(connection: asyncssh.SSHClientConnection, host: str, line: str) -> AsyncIterator[RemoteEnd]:
    async with AsyncExitStack() as stack:
        try:
            process = await stack.enter_async_context(
                await connection.create_process(line, encoding=None, stderr=asyncssh.DEVNULL)
            )
        except (asyncssh.Error, OSError) as error:
            raise _unavailable(host, error) from None
        yield _Process(process)


class _Process:
    """A far end at the other end of an SSH channel. Whatever breaks there is an OSError, as with any other pipe."""

    def __init__(self, process: "asyncssh.SSHClientProcess[bytes]") -> None:
        self._process = process

    @property
    def source(self) -> ByteSource:
        return self

    @property
    def sink(self) -> Sink:
        return self

    async def readuntil(self, separator: bytes, /) -> bytes:
        with _as_broken_pipe():
            return await self._process.stdout.readuntil(separator)

    async def readexactly(self, count: int, /) -> bytes:
        with _as_broken_pipe():
            return await self._process.stdout.readexactly(count)

    def write(self, data: bytes, /) -> None:
        with _as_broken_pipe():
            self._process.stdin.write(data)

    def write_eof(self) -> None:
        with _as_broken_pipe():
            self._process.stdin.write_eof()

    async def drain(self) -> None:
        with _as_broken_pipe():
            await self._process.stdin.drain()

    async def wait(self) -> None:
        with _as_broken_pipe():
            await self._process.wait_closed()


@contextmanager
def _as_broken_pipe() -> Iterator[None]:
    try:
        yield
    except asyncssh.Error as error:
        raise BrokenPipeError(error.reason) from None


def _unavailable(host: str, error: Exception) -> ToolFailure:
    reason = getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error) or type(error).__name__
    return ToolFailure(f"{host!r} cannot be reached by SSH: {reason}", code=Code.UNAVAILABLE)
