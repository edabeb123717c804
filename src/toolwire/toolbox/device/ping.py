"""The tool that asks whether a host answers, by ICMP echoes.

A host is asked only where the grant's network rules name it. An address of the local network may be named too: an
echo carries nothing that the machine knows, and whether the router answers is what one asks a device about.
"""

import asyncio
import ipaddress
import os
import socket
import struct
from contextlib import suppress
from time import perf_counter
from typing import Annotated, NamedTuple, TypedDict

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.errors import ToolFailure
from toolwire.execute.egress.connector import system_resolve
from toolwire.execute.egress.hosts import BadHost, Host, read_host
from toolwire.execute.egress.rules import RequestedAddress, Rules
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.device.kinds import unavailable

MOST_ECHOES = 10
_WAIT_S = 1.0
_PAUSE_S = 0.2
_BODY = b"toolwire"


class _Echo(NamedTuple):
    family: int
    protocol: int
    request: int
    answer: int


_KINDS = {
    4: _Echo(socket.AF_INET, socket.IPPROTO_ICMP, 8, 0),
    6: _Echo(socket.AF_INET6, socket.IPPROTO_ICMPV6, 128, 129),
}
NOT_ALLOWED_BY_KERNEL = (
    "this process may not send ICMP echoes; allow its group with: sysctl -w net.ipv4.ping_group_range='0 2147483647'"
)


class PingOutput(TypedDict):
    host: Annotated[str, Field(description="The host that was asked.")]
    address: Annotated[str, Field(description="Its address.")]
    sent: Annotated[int, Field(description="Echoes sent.")]
    received: Annotated[int, Field(description="Echoes that came back.")]
    loss_percent: Annotated[float, Field(description="Share that did not come back.")]
    fastest_ms: Annotated[float | None, Field(description="The fastest answer; null if none came.")]
    average_ms: Annotated[float | None, Field(description="The answers on average; null if none came.")]
    slowest_ms: Annotated[float | None, Field(description="The slowest answer; null if none came.")]


def ping_tool() -> Tool:
    """The tool that sends echoes to a host that the grant names."""

    @tool(
        name="ping", tier=Tier.WALK, effect=Effect.IDEMPOTENT, category="device", needs={"network"}, polling=True,
        platforms={"linux"}, timeout_s=20.0, examples=({"host": "192.0.2.1"},),
    )  # fmt: skip
    async def ping(
        context: Context,
        host: Annotated[str, Field(min_length=1, max_length=253)],
        count: Annotated[int, Field(ge=1, le=MOST_ECHOES)] = 3,
    ) -> PingOutput:
        """Ask whether a host answers, and how fast.

        Args:
            host: A name or an IP address.
            count: How many echoes to send.
        """
        address = await _address(_granted(host, context))
        times = [found for found in await _echoes(address, count) if found is not None]
        return {
            "host": host,
            "address": str(address),
            "sent": count,
            "received": len(times),
            "loss_percent": round(100 * (count - len(times)) / count, 1),
            "fastest_ms": min(times, default=None),
            "average_ms": round(sum(times) / len(times), 3) if times else None,
            "slowest_ms": max(times, default=None),
        }

    return ping


def _granted(text: str, context: Context) -> Host:
    """The host, where a network rule of the grant names it. Raises ToolFailure."""
    try:
        host = read_host(text)
    except BadHost as wrong:
        raise ToolFailure(f"{text!r} is not a host: {wrong}", code=Code.INVALID_PARAMS) from None
    if not Rules.of(context.grant.network).judge(RequestedAddress(host, 443, method="GET")).allowed:
        raise ToolFailure(
            f"{host} is not among the hosts that the grant lists; the network rule {str(host)!r} would allow it",
            code=Code.PERMISSION_DENIED,
        )
    return host


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


async def _address(host: Host) -> Address:
    if host.address is not None:
        return host.address
    try:
        return ipaddress.ip_address((await system_resolve(host.name))[0])
    except (OSError, ValueError, IndexError):
        raise unavailable(f"the name {host.name} cannot be resolved; is this machine's network up?") from None


async def _echoes(address: Address, count: int) -> list[float | None]:
    """How long each echo took in milliseconds; None for one that did not come back."""
    with _open(address) as plug:
        plug.setblocking(False)
        found = []
        for number in range(1, count + 1):
            found.append(await _echo(plug, address, number))
            if number < count:
                await asyncio.sleep(_PAUSE_S)
        return found


def _open(address: Address) -> socket.socket:
    """A socket for echoes: one that every user of an allowed group may open, else one that needs a capability."""
    kinds = _KINDS[address.version]
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        with suppress(OSError):
            return socket.socket(kinds.family, kind, kinds.protocol)
    raise unavailable(NOT_ALLOWED_BY_KERNEL)


async def _echo(plug: socket.socket, address: Address, number: int) -> float | None:
    loop = asyncio.get_running_loop()
    began = perf_counter()
    try:
        async with asyncio.timeout(_WAIT_S):
            await loop.sock_sendto(plug, _request(address.version, number), (str(address), 0))
            while not _answers(await loop.sock_recv(plug, 1500), plug, address.version, number):
                pass  # a late answer to an earlier echo, or one to another program
    except OSError:  # a TimeoutError is one; a host that cannot be reached is another
        return None
    return round((perf_counter() - began) * 1000, 3)


def _request(version: int, number: int) -> bytes:
    head = struct.pack("!BBHHH", _KINDS[version].request, 0, 0, _identifier(), number)
    words = struct.unpack(f"!{len(head + _BODY) // 2}H", head + _BODY)
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return head[:2] + struct.pack("!H", checksum) + head[4:] + _BODY


def _answers(packet: bytes, plug: socket.socket, version: int, number: int) -> bool:
    is_raw = plug.type == socket.SOCK_RAW
    if is_raw and version == 4:
        packet = packet[(packet[0] & 15) * 4 :]  # the header of IPv4 comes first
    kind, _, _, identifier, found = struct.unpack_from("!BBHHH", packet.ljust(8, b"\0"))
    # A datagram socket has an identifier of the kernel's, and hears only answers to itself.
    return kind == _KINDS[version].answer and found == number and (not is_raw or identifier == _identifier())


def _identifier() -> int:
    return os.getpid() & 0xFFFF
