"""The two ways through the proxy: a tunnel for TLS, whose name is checked, and one plain request passed on."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import h11

from toolwire.execute.egress.caps import Meter
from toolwire.execute.egress.connector import OpenConnection
from toolwire.execute.egress.hello import LONGEST_HELLO, Incomplete, NotTls, server_name
from toolwire.execute.egress.hosts import BadHost, Host, read_host
from toolwire.execute.egress.places import WebAddress
from toolwire.execute.egress.spoken import BadHttp, HttpStream, passed_on

_READ = 64 * 1024


class ProxyRefusal(Exception):
    """A refusal: the status to answer with, and the sentence."""

    def __init__(self, status: int, reason: str, place: str = "unreadable", rule: str = "") -> None:
        super().__init__(reason)
        self.status, self.place, self.rule = status, place, rule


class Tunnel:
    """Carries bytes for one call, counting them."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    async def tunnel(self, client: HttpStream, opened: OpenConnection, host: Host) -> None:
        if not isinstance(await client.event(), h11.EndOfMessage):
            raise ProxyRefusal(400, "CONNECT has no body", str(host))
        await client.say(h11.Response(status_code=200, headers=[]))
        hello = await self._hello(client, host)
        self._meter.sent(len(hello))
        opened.writer.write(hello)
        await _together(
            self._carry(opened.reader, client.writer, self._meter.got),
            self._carry(client.reader, opened.writer, self._meter.sent),
        )

    async def _hello(self, client: HttpStream, host: Host) -> bytes:
        """The first words of TLS, once they name the host that was asked for."""
        data = client.unread
        async with asyncio.timeout(self._meter.caps.head_s):
            while len(data) <= LONGEST_HELLO:
                with contextlib.suppress(Incomplete):
                    _check_name(data, host)
                    return data
                piece = await client.reader.read(_READ)
                if not piece:
                    raise EOFError
                data += piece
        raise ProxyRefusal(403, "the ClientHello is too long", str(host))

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, count: Callable[[int], None]
    ) -> None:
        while piece := await source.read(_READ):
            count(len(piece))
            sink.write(piece)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()

    async def forward(
        self, client: HttpStream, opened: OpenConnection, place: WebAddress, request: h11.Request
    ) -> None:
        names = {name for name, _ in request.headers}
        if {b"content-length", b"transfer-encoding"} <= names:
            raise ProxyRefusal(
                400, "a body has one length", str(place.host)
            )  # two servers could see two different requests
        server = HttpStream(h11.CLIENT, opened.reader, opened.writer, self._meter.caps)
        headers = [(name, value) for name, value in passed_on(request.headers) if name != b"host"]
        ours = [(b"host", place.authority.encode()), (b"connection", b"close")]
        head = h11.Request(method=request.method, target=place.target.encode(), headers=[*ours, *headers])
        self._meter.sent(await server.say(head))
        await _together(self._give_answer(client, server), self._send_body(client, server))

    async def _send_body(self, client: HttpStream, server: HttpStream) -> None:
        """One request is passed on, whole; whatever follows it on this connection is not read."""
        while isinstance(event := await client.event(), (h11.Data, h11.EndOfMessage)):
            if isinstance(event, h11.EndOfMessage):
                await server.say(h11.EndOfMessage())
                return
            self._meter.sent(len(event.data))
            await server.say(h11.Data(data=event.data))

    async def _give_answer(self, client: HttpStream, server: HttpStream) -> None:
        try:
            answer = await server.head(h11.Response)
        except BadHttp:
            raise ProxyRefusal(502, "the server's answer cannot be read") from None
        headers = [*passed_on(answer.headers), (b"connection", b"close")]
        self._meter.got(sum(len(name) + len(value) for name, value in headers))
        await client.say(h11.Response(status_code=answer.status_code, headers=headers, reason=answer.reason))
        while isinstance(event := await server.event(), h11.Data):
            self._meter.got(len(event.data))
            await client.say(h11.Data(data=event.data))
        if isinstance(event, h11.EndOfMessage):
            await client.say(h11.EndOfMessage())


async def _together(main: Coroutine[Any, Any, None], side: Coroutine[Any, Any, None]) -> None:
    """Run both until `main` ends or one of them fails; nothing of them is left afterwards."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(job, name="toolwire-egress-way") for job in (main, side)]
    waiting = set(tasks)
    try:
        while tasks[0] in waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _check_name(data: bytes, host: Host) -> None:
    """Raises unless the ClientHello is for this host; for an address, it must name no host."""
    try:
        name = server_name(data)
        same = host.address is not None if name is None else read_host(name) == host
    except (NotTls, BadHost) as wrong:
        raise ProxyRefusal(403, f"only TLS may follow CONNECT: {wrong}", str(host)) from None
    if not same:
        raise ProxyRefusal(403, f"the server name in TLS is not {host}, for which the tunnel was asked", str(host))
