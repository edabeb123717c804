"""A provider on loopback that answers with whatever bytes a test scripts, and remembers what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Scripted:
    """Bytes to send, and what to do then: `close` the connection, `keep` it, or `hang` until the test is over."""

    data: bytes
    then: str = "close"


def answer(body: bytes, *, status: int = 200, kind: str = "application/json", **headers: str) -> Scripted:
    """A complete HTTP answer. Header names are written with underscores."""
    given = {"content-type": kind, "content-length": str(len(body)), "connection": "close"}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in (given | headers).items())
    return Scripted(f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode() + body)


def says(data: Any, *, status: int = 200, **headers: str) -> Scripted:
    """A complete answer in JSON."""
    return answer(json.dumps(data).encode(), status=status, **headers)


def half(body: bytes, *, kind: str, then: str = "close") -> Scripted:
    """An answer that promises more than it sends."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return Scripted(head + f"{len(body):x}\r\n".encode() + body + b"\r\n", then)


@dataclass
class Provider:
    """The scripted answers are given in turn, the last one again and again; `asked` is everything that came in."""

    url: str = ""
    script: list[Scripted] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def will(self, *answers: Scripted) -> None:
        self.script = list(answers)

    @property
    def bodies(self) -> list[Any]:
        return [asked.body for asked in self.asked]

    async def wait_for(self, count: int) -> None:
        """Wait until so many requests have come in."""
        while len(self.asked) < count:
            self.came.clear()
            await self.came.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._answer(reader, writer) == "keep":
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left: some tests want that
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        self.asked.append(await _read(reader))
        self.came.set()
        now = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        writer.write(now.data)
        await writer.drain()
        if now.then == "hang":
            await self.over.wait()
        return now.then


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, json.loads(body) if body else None)


@asynccontextmanager
async def provider_on_loopback() -> AsyncIterator[Provider]:
    provider = Provider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        provider.over.set()
        server.close()


def kept(body: bytes, *, kind: str) -> Scripted:
    """A complete answer in one chunk, after which the connection stays open."""
    return Scripted(half(body, kind=kind).data + b"0\r\n\r\n", "keep")


def sse(events: Iterable[Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
