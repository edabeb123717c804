"""The HTTP client's sockets, taken from the connector: it can only talk to the address that was judged."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpcore2
import httpx2

from toolwire.execute.egress.caps import Meter
from toolwire.execute.egress.connector import Connector, OpenConnection, hang_up
from toolwire.execute.egress.places import WebAddress


class Pool:
    """A connection pool for one request, whose sockets come from the connector and are counted."""

    def __init__(self, connector: Connector, meter: Meter, tls: ssl.SSLContext | None) -> None:
        self._connector, self._meter, self._tls = connector, meter, tls

    @asynccontextmanager
    async def asked(
        self, place: WebAddress, method: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> AsyncIterator[httpcore2.Response]:
        """Send one request; its answer is to be read inside the block."""
        caps = self._meter.caps
        # Made of our own parts, so that no second reader of URLs can see another host in them.
        url = httpcore2.URL(
            scheme=place.scheme.encode(), host=place.host.name.encode(), port=place.port, target=place.target.encode()
        )
        waits = {"connect": caps.connect_s, "read": caps.head_s, "write": caps.head_s, "pool": caps.connect_s}
        request = httpcore2.Request(method, url, headers=headers, content=body, extensions={"timeout": waits})
        backend = _Backend(self._connector, self._meter, place)
        async with httpcore2.AsyncConnectionPool(ssl_context=self._tls, network_backend=backend) as pool:
            answer = await pool.handle_async_request(request)
            try:
                yield answer
            finally:
                await answer.aclose()


class _Backend(httpcore2.AsyncNetworkBackend):
    """Gives the HTTP client the connection to the place that was judged, whatever it asks for."""

    def __init__(self, connector: Connector, meter: Meter, place: WebAddress) -> None:
        self._connector, self._meter, self._place = connector, meter, place

    async def connect_tcp(self, *_asked: Any, **_more: Any) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._connector.open(self._place.host, self._place.port), self._meter)


class _Stream(httpcore2.AsyncNetworkStream):
    """Bytes in and out of one connection, each counted."""

    def __init__(self, opened: OpenConnection, meter: Meter) -> None:
        self._opened, self._meter = opened, meter

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        async with asyncio.timeout(timeout):
            piece = await self._opened.reader.read(max_bytes)
        self._meter.got(len(piece))
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._meter.sent(len(buffer))
        async with asyncio.timeout(timeout):
            self._opened.writer.write(buffer)
            await self._opened.writer.drain()

    async def aclose(self) -> None:
        await hang_up(self._opened.writer)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        await self._opened.writer.start_tls(ssl_context, server_hostname=server_hostname, ssl_handshake_timeout=timeout)
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._opened.writer.get_extra_info(info)


class Body(httpx2.AsyncByteStream):
    """The bytes of a body as they came over the wire."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._answer.aiter_stream():
            yield piece
