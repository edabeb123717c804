"""The only place that opens a connection: resolve once, judge every address, connect to exactly that one."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from toolwire.execute.egress.addresses import why_not_public
from toolwire.execute.egress.hosts import Address, Host

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""All addresses of a name, as text. Raises OSError when there are none."""

Judge = Callable[[Address], str]
"""Why an address must not be reached; empty if it may be."""

MOST_TRIED = 4
BUFFER = 64 * 1024


class Refused(Exception):
    """The door does not open to this place. The text says why and is fit for a model to read."""


class Unreachable(Exception):
    """The place may be talked to, but does not answer."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A connection to the address that was judged."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    address: str


async def system_resolve(name: str) -> list[str]:
    """What this machine's resolver says."""
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in found))


class Connector:
    """Opens connections. `why_not` judges addresses; only tests and an operator's own endpoints bring another."""

    def __init__(
        self, resolve: Resolve = system_resolve, why_not: Judge = why_not_public, *, connect_s: float = 10.0
    ) -> None:
        self._resolve = resolve
        self._why_not = why_not
        self._connect_s = connect_s

    async def open(self, host: Host, port: int) -> Opened:
        """Connect. Raises Refused if any address of the host is not public, Unreachable if none answers."""
        addresses = await self.addresses(host)
        lost: Exception = OSError("no address")
        for address in addresses[:MOST_TRIED]:
            try:
                return await self._connect(address, port)
            except OSError as error:  # a TimeoutError is one
                lost = error
        raise Unreachable(f"{host}:{port} does not answer ({type(lost).__name__})") from lost

    async def addresses(self, host: Host) -> list[Address]:
        """What the host resolves to, asked once. Raises Refused unless every single address may be reached."""
        found = [host.address] if host.address is not None else await self._resolved(host.name)
        for address in found:
            if why := self._why_not(address):
                raise Refused(f"{host} leads to an address that is not on the public internet ({why})")
        return found

    async def _resolved(self, name: str) -> list[Address]:
        try:
            async with asyncio.timeout(self._connect_s):
                texts = await self._resolve(name)
            found: list[Address] = [ipaddress.ip_address(text) for text in texts]
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"the name {name} cannot be resolved") from error
        except ValueError as error:
            raise Refused(f"the name {name} resolves to something that is not an address") from error
        if not found:
            raise Unreachable(f"the name {name} has no address")
        return found

    async def _connect(self, address: Address, port: int) -> Opened:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        plug = socket.socket(family, socket.SOCK_STREAM)
        try:
            plug.setblocking(False)
            async with asyncio.timeout(self._connect_s):
                await asyncio.get_running_loop().sock_connect(plug, (str(address), port))
            reader, writer = await asyncio.open_connection(sock=plug, limit=BUFFER)
        except BaseException:
            plug.close()
            raise
        return Opened(reader, writer, str(address))


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection, whatever state it is in, without waiting for the other side."""
    with contextlib.suppress(OSError, RuntimeError):
        writer.transport.abort() if writer.is_closing() else writer.close()
        async with asyncio.timeout(1):
            await writer.wait_closed()
