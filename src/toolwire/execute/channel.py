"""Messages between a caller of tools and their host, over a Unix socket; and who is at the other end of it.

A `Channel` is all that `tool_host` asks of a transport. A broker can have one of its own.
"""

import asyncio
import os
import socket
from asyncio import IncompleteReadError, StreamReader, StreamWriter
from struct import Struct
from typing import Any, Protocol

from toolwire.wire.codecs.travelling import LENGTH, BadFrame, length_of, pack, unpack

Json = dict[str, Any]

LARGE_BYTES = 1 << 20
HELLO_S = 5.0
_HELLO_BYTES = 1 << 16
_CREDENTIALS = Struct("3i")  # process, user, group
_ROOT = 0


class Disconnected(ConnectionError):
    """The other end is gone."""


class Channel(Protocol):
    """Carries messages in both directions. All of it raises `Disconnected` when the other end is gone."""

    async def receive(self) -> Json:
        """The next message. Raises BadFrame for what is not one."""
        ...

    async def send(self, message: Json, *, large: bool = False) -> None:
        """Send a message, and wait until the other end keeps up. A `large` one is written in a thread."""
        ...

    def offer(self, message: Json) -> None:
        """Send a message without waiting; it is dropped where the other end is far behind, or gone."""
        ...


class SocketChannel:
    """A channel over a stream socket."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self, most: int | None = None) -> Json:
        try:
            length = length_of(await self._reader.readexactly(LENGTH.size))
            if most is not None and length > most:
                raise BadFrame(f"a first message of {length} bytes is too long")
            body = await self._reader.readexactly(length)
        except (IncompleteReadError, OSError) as error:
            raise Disconnected(str(error)) from None
        return unpack(body) if length < LARGE_BYTES else await asyncio.to_thread(unpack, body)

    async def receive_hello(self, within_s: float = HELLO_S) -> Json:
        """The first message. It is short and comes soon. Raises TimeoutError, too."""
        async with asyncio.timeout(within_s):
            return await self.receive(_HELLO_BYTES)

    async def send(self, message: Json, *, large: bool = False) -> None:
        frame = await asyncio.to_thread(pack, message) if large else pack(message)
        try:
            self._writer.write(frame)
            await self._writer.drain()
        except OSError as error:
            raise Disconnected(str(error)) from None

    def offer(self, message: Json) -> None:
        transport = self._writer.transport
        if not transport.is_closing() and transport.get_write_buffer_size() < LARGE_BYTES:
            self._writer.write(pack(message))

    async def wait_for_end(self) -> None:
        """Say that nothing more is wanted, and wait until the other end has closed."""
        try:
            self._writer.write_eof()
            while await self._reader.read(LARGE_BYTES):
                pass  # progress, or a result that came too late
        except OSError:
            pass
        finally:
            self._writer.close()

    def close(self) -> None:
        self._writer.close()

    def abort(self) -> None:
        """Close at once, whatever is still to be sent."""
        self._writer.transport.abort()

    @property
    def foreign_user(self) -> int | None:
        """The user at the other end, where that is neither the user of this process nor root."""
        return foreign_user(self._writer.get_extra_info("socket"))


def foreign_user(sock: socket.socket) -> int | None:
    """The user at the other end of a Unix socket, where that is neither the user of this process nor root.

    Systems that do not say it give None; there the permissions of the socket's file count alone.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user = int(_CREDENTIALS.unpack(credentials)[1])
    return None if user in (os.geteuid(), _ROOT) else user
