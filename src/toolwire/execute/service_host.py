"""The other end of `service`: a `ToolHost` behind a Unix socket.

The socket is for the user who made it. Others cannot connect, and the kernel is asked who is at the other end. Where
the host has a token, a caller must show it as well.
"""

import asyncio
import errno
import hmac
import os
import socket
import stat
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from toolwire.execute.channel import Disconnected, SocketChannel
from toolwire.execute.contract import Executor
from toolwire.execute.tool_host import STALL_S, ToolHost
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.tools import Tool
from toolwire.wire.codecs.travelling import BadFrame, hello_fault, write_hello

DRAIN_S = 30.0
_OWNER_ONLY = 0o177


class ServiceHost:
    """Serves tools on a Unix socket; see `ToolHost`. At its end, running calls have `drain_s` to finish."""

    def __init__(
        self,
        tools: Iterable[Tool],
        *,
        token: str = "",
        executor: Executor | None = None,
        reveal: Callable[[Allowed], Allowed] | None = None,
        scrub: Callable[[ToolResult], ToolResult] | None = None,
        stall_s: float = STALL_S,
        drain_s: float = 0.0,
    ) -> None:
        self.host = ToolHost(tools, executor=executor, reveal=reveal, scrub=scrub, stall_s=stall_s)
        self._token = token
        self._drain_s = drain_s
        self._connections: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, address: str) -> AsyncIterator[None]:
        """Serve at this path until the block ends. Raises OSError, also where another service listens there."""
        _require_free(address)
        before = os.umask(_OWNER_ONLY)
        try:
            server = await asyncio.start_unix_server(self._connected, address)
        finally:
            os.umask(before)
        own = _identity(address)
        try:
            yield
        finally:
            server.close()
            if _identity(address) == own:  # else another service has taken the place
                with suppress(FileNotFoundError):
                    os.unlink(address)  # noqa: PTH108 - a path may be any text
            await self._end_connections()
            await self.host.close()

    async def _end_connections(self) -> None:
        """Let calls finish, then cancel what still runs."""
        await self.host.drain(self._drain_s)
        left = list(self._connections)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _connected(self, reader: StreamReader, writer: StreamWriter) -> None:
        channel, own = SocketChannel(reader, writer), asyncio.current_task()
        assert own is not None
        self._connections.add(own)
        try:
            with suppress(Disconnected, BadFrame):  # the caller is gone, or is not one of ours
                if await self._is_welcome(channel):
                    await self.host.serve(channel)
        except TimeoutError:
            channel.abort()  # it does not read, so closing would wait for ever
        except asyncio.CancelledError:
            pass  # the host ends; asyncio would log it as an error of the connection
        finally:
            self._connections.discard(own)
            channel.close()

    async def _is_welcome(self, channel: SocketChannel) -> bool:
        message = await channel.receive_hello()
        fault = hello_fault(message)
        if channel.foreign_user is not None:
            fault = f"user {channel.foreign_user} may not use this service"
        elif not fault and self._token and not _is_same(str(message.get("token", "")), self._token):
            fault = "the token is missing or wrong"
        await channel.send({"kind": "refused", "message": fault} if fault else write_hello())
        return not fault


def _is_same(token: str, other: str) -> bool:
    return hmac.compare_digest(token.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


def _identity(address: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(address)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _require_free(address: str) -> None:
    """Raise OSError where something else than the socket of a dead service is in the way."""
    try:
        mode = os.lstat(address).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EEXIST, "there is something else than a socket", address)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            return  # its service is dead, and a new one takes the place
    raise OSError(errno.EADDRINUSE, "another service listens there", address)
