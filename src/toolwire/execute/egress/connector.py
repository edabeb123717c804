"""The only place that opens a connection: resolve once, judge every address, connect to exactly that one."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from toolwire.execute.egress.addresses import why_not_public
from toolwire.execute.egress.hosts import Address, Host

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""All addresses of a name, as text. Raises OSError when there are none."""

Judge = Callable[[Address], str]
"""Why an address must not be reached; empty if it may be."""

MOST_TRIED = 4
BUFFER = 64 * 1024
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_NOBODY = {4: "192.0.2.1", 6: "2001:db8::1"}  # addresses for documentation, which no machine has


class ConnectionRefused(Exception):
    """The door does not open to this place. The text says why and is fit for a model to read."""


class Unreachable(Exception):
    """The place may be talked to, but does not answer."""


class OpenConnection(Struct, frozen=True):
    """A connection to the address that was judged."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    address: str


async def system_resolve(name: str) -> list[str]:
    """What this machine's resolver says."""
    found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(row[4][0]) for row in found))


def why_not_reachable(address: Address) -> str:
    """Why no tool may reach an address: it is not public, or it is one of this machine's own."""
    return why_not_public(address) or ("this machine" if _is_ours(address) else "")


def _is_ours(address: Address) -> bool:
    """Whether a public address belongs to this machine, whose services may trust who comes from inside."""
    nobody = _NOBODY[address.version]
    return _can_be_taken(str(address), address.version) and not _can_be_taken(nobody, address.version)


def _can_be_taken(address: str, version: int) -> bool:
    """Only the owner of an address can bind to it, unless the machine lets everyone do that."""
    try:
        with socket.socket(_FAMILIES[version], socket.SOCK_DGRAM) as plug:
            plug.bind((address, 0))
    except OSError:
        return False
    return True


class Connector:
    """Opens connections. `why_not` judges addresses; only tests and an operator's own endpoints bring another."""

    def __init__(
        self, resolve: Resolve = system_resolve, why_not: Judge = why_not_reachable, *, connect_s: float = 10.0
    ) -> None:
        self._resolve = resolve
        self._why_not = why_not
        self._connect_s = connect_s

    async def open(self, host: Host, port: int) -> OpenConnection:
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
                raise ConnectionRefused(f"{host} leads to an address that is not on the public internet ({why})")
        return found

    async def _resolved(self, name: str) -> list[Address]:
        try:
            async with asyncio.timeout(self._connect_s):
                texts = await self._resolve(name)
            found: list[Address] = [ipaddress.ip_address(text) for text in texts]
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"the name {name} cannot be resolved") from error
        except ValueError as error:
            raise ConnectionRefused(f"the name {name} resolves to something that is not an address") from error
        if not found:
            raise Unreachable(f"the name {name} has no address")
        return found

    async def _connect(self, address: Address, port: int) -> OpenConnection:
        plug = socket.socket(_FAMILIES[address.version], socket.SOCK_STREAM)
        try:
            plug.setblocking(False)
            async with asyncio.timeout(self._connect_s):
                await asyncio.get_running_loop().sock_connect(plug, (str(address), port))
            reader, writer = await asyncio.open_connection(sock=plug, limit=BUFFER)
        except BaseException:
            plug.close()
            raise
        return OpenConnection(reader, writer, str(address))


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection, whatever state it is in, without waiting for the other side."""
    with contextlib.suppress(OSError, RuntimeError):
        writer.transport.abort() if writer.is_closing() else writer.close()
        async with asyncio.timeout(1):
            await writer.wait_closed()
