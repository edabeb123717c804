"""A network for tests: names from a table, real servers on loopback, and a judge that lets exactly those be reached."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from toolwire.execute.egress.addresses import why_not_public
from toolwire.execute.egress.connector import Connector
from toolwire.execute.egress.hosts import Address

LOOPBACK = ipaddress.ip_address("127.0.0.1")


@dataclass
class Names:
    """A resolver with a table. An answer that is a list of lists is given one after the other: the name rebinds."""

    table: Mapping[str, Sequence[str] | Sequence[Sequence[str]]]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, name: str) -> list[str]:
        times = self.asked.count(name)
        self.asked.append(name)
        answers = self.table.get(name)
        if answers is None:
            raise OSError(f"no such name: {name}")
        if answers and not isinstance(answers[0], str):
            answers = answers[min(times, len(answers) - 1)]
        return [str(answer) for answer in answers]


def only_this_machine(address: Address) -> str:
    """The test exception: our servers on 127.0.0.1 count as public; all else is judged as always."""
    return "" if address == LOOPBACK else why_not_public(address)


def connector(names: Mapping[str, Sequence[str] | Sequence[Sequence[str]]]) -> Connector:
    return Connector(Names(names), only_this_machine, connect_s=5)


@dataclass
class Heard:
    """A request as it reached a server."""

    line: str
    headers: dict[str, str]
    body: bytes


Answering = Callable[[Heard, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A real server on loopback that remembers everything it was told."""

    port: int = 0
    connections: int = 0
    heard: list[Heard] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def serving(answering: Answering, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve until the block ends: each request is read whole and given to `answering`, then the connection closes."""
    server = Server()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.connections += 1
        server.reached.set()
        try:
            heard = await _hear(reader)
            server.heard.append(heard)
            await answering(heard, writer)
            await writer.drain()
        except (OSError, EOFError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls, limit=2**20)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


async def _hear(reader: asyncio.StreamReader) -> Heard:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.rstrip().split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (each.partition(":") for each in rest)}
    length = int(headers.get("content-length", "0"))
    return Heard(line, headers, await reader.readexactly(length))


def saying(body: bytes, *headers: str, status: str = "200 OK") -> Answering:
    """A server that always says the same."""
    lines = "".join(f"{line}\r\n" for line in headers)
    head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{lines}connection: close\r\n\r\n"

    async def answering(heard: Heard, writer: asyncio.StreamWriter) -> None:
        writer.write(head.encode() + body)

    return answering
