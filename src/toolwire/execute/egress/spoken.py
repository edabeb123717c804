"""One side of an HTTP/1.1 conversation over asyncio streams, with a cap on its head. The framing is h11's."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import h11

from toolwire.execute.egress.caps import Caps, OverCap

Event = h11.Request | h11.Response | h11.InformationalResponse | h11.Data | h11.EndOfMessage
E = TypeVar("E", h11.Request, h11.Response)

_READ = 64 * 1024
# Meant for the next machine only (RFC 9110, 7.6.1); "expect" is answered here.
_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer upgrade expect".split()
)


class BadHttp(Exception):
    """The other side does not speak HTTP as it should, or left in mid-sentence."""


class HttpStream:
    """h11 joined to a pair of streams."""

    def __init__(
        self,
        role: type[h11.CLIENT] | type[h11.SERVER],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        caps: Caps,
    ) -> None:
        self.reader, self.writer = reader, writer
        self._caps = caps
        self._state = h11.Connection(role, max_incomplete_event_size=caps.header_bytes)

    async def head(self, kind: type[E]) -> E:
        """The request or the final response. Raises BadHttp, OverCap or TimeoutError."""
        async with asyncio.timeout(self._caps.head_s):
            while isinstance(event := await self.event(), h11.InformationalResponse):
                pass
        if not isinstance(event, kind):
            raise BadHttp("the connection was closed before a head came")
        if len(event.headers) > self._caps.headers:
            raise OverCap(f"there are more than {self._caps.headers} headers")
        return event

    async def event(self) -> Event | None:
        """What the other side says next; None when it has left. Raises BadHttp."""
        while True:
            try:
                event = self._state.next_event()
            except h11.RemoteProtocolError as wrong:
                raise BadHttp(str(wrong)) from None
            if event is h11.NEED_DATA:
                if self._state.they_are_waiting_for_100_continue:
                    await self.say(h11.InformationalResponse(status_code=100, headers=[]))
                self._state.receive_data(await self.reader.read(_READ))
            elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return None
            else:
                assert isinstance(event, Event)
                return event

    async def say(self, event: Event) -> int:
        """Send it, and give the number of bytes that went out. Raises BadHttp."""
        try:
            data = self._state.send(event) or b""
        except h11.LocalProtocolError as wrong:
            raise BadHttp(str(wrong)) from None
        self.writer.write(data)
        await self.writer.drain()
        return len(data)

    @property
    def unread(self) -> bytes:
        """Bytes that came after the head of a request that switches to another protocol."""
        return self._state.trailing_data[0]


def passed_on(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers without those that are meant for this hop, named as such or not."""
    named = {
        word.strip().lower() for name, value in headers if name.lower() == b"connection" for word in value.split(b",")
    }
    named -= {b"host", b"content-length", b"transfer-encoding"}
    return [(name, value) for name, value in headers if name.lower() not in _HOP | named]
