"""Bytes from the upstream to the client: as they come, with a sign of life in silences, and always with an end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, MutableMapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from toolwire.gateway.apis import Api, Stream
from toolwire.gateway.faults import Rejected, cut_off, not_an_answer, of_error_in_answer, too_large, too_late
from toolwire.gateway.frames import KEEP_ALIVE
from toolwire.gateway.guard import ClientGone, Receive
from toolwire.gateway.settings import TransferLimits
from toolwire.gateway.upstream import UpstreamBody
from toolwire.models.failures import ProviderSite
from toolwire.models.payloads import DONE, LineTooLong, read_json
from toolwire.wire.encode.outbound import Json

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def follow(
    incoming: UpstreamBody, stream: Stream, api: Api, place: ProviderSite, dialect: str, bounds: TransferLimits
) -> AsyncGenerator[bytes, None]:
    """The frames of a streamed answer up to its end. Raises Rejected where the upstream fails."""
    payloads = api.payloads(bounds.line_bytes)
    async with aclosing(_pieces(incoming, stream, place, bounds)) as pieces:
        async for piece in pieces:
            if piece is None:
                yield KEEP_ALIVE
                continue
            frames: list[bytes] = []
            try:
                for payload in payloads.feed(piece) if piece else payloads.finish():
                    frames += [] if stream.ended else _taken(stream, payload, place, dialect)
            except LineTooLong:
                raise Rejected(too_large(place, bounds.line_bytes)) from None
            except Rejected:
                if frames:
                    yield b"".join(frames)
                raise
            if frames:
                yield b"".join(frames)
            if stream.ended:
                return
    if not stream.complete:
        raise Rejected(cut_off(place))
    yield b"".join(stream.done())


async def _pieces(
    incoming: UpstreamBody, stream: Stream, place: ProviderSite, bounds: TransferLimits
) -> AsyncGenerator[bytes | None, None]:
    """What the upstream sends; None for every silence. Ends with empty bytes. Raises Rejected."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + bounds.whole_s
    while True:
        coming = asyncio.ensure_future(incoming.piece())
        try:
            while not coming.done():
                longest_s = bounds.closing_s if stream.complete else bounds.keep_alive_s
                await asyncio.wait({coming}, timeout=min(longest_s, max(0.0, deadline - clock())))
                if clock() >= deadline:
                    raise Rejected(too_late(place))
                if not coming.done():
                    if stream.complete:
                        yield b""
                        return
                    yield None
            piece = _come(coming, stream)
        finally:
            await cancel_and_wait(coming)
        yield piece
        if not piece:
            return


def _come(coming: "asyncio.Future[bytes]", stream: Stream) -> bytes:
    """The piece that came; a connection that breaks after a complete answer has merely ended."""
    try:
        return coming.result()
    except Rejected:
        if stream.complete:
            return b""
        raise


def _taken(stream: Stream, payload: bytes, place: ProviderSite, dialect: str) -> list[bytes]:
    if payload == DONE:
        return stream.done()
    return stream.feed(payload, read_answer_object(payload, place, dialect))


def read_answer_object(body: bytes, place: ProviderSite, dialect: str) -> Json:
    """The JSON object of an answer or of a part of one. Raises Rejected when it is none, or an error."""
    try:
        data = read_json(body)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise Rejected(not_an_answer(place, body))
    if data.get("type") == "error" or (data.get("error") and not data.keys() & {"choices", "output"}):
        raise Rejected(of_error_in_answer(place, data, dialect))
    return data


async def send_whole(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """One JSON answer."""
    fixed = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body})


class EventSender:
    """Sends one stream of events to a client: it has `begun` with a comment, or with the first frame that `speaks`."""

    def __init__(self, send: Send) -> None:
        self.begun = self.speaks = False
        self._send = send
        self._turn = asyncio.Lock()

    async def frame(self, frame: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Send a frame. The headers go with the first one."""
        self.speaks = True
        async with self._turn:
            await self._sent(frame, headers)

    async def keep_alive(self) -> None:
        """Send a comment, unless the answer has come in the meantime."""
        async with self._turn:
            if not self.speaks:
                await self._sent(KEEP_ALIVE)

    async def _sent(self, frame: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        if not self.begun:
            self.begun = True
            fixed = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
            await self._send({"type": "http.response.start", "status": 200, "headers": [*fixed, *headers]})
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


@asynccontextmanager
async def kept_alive(sender: EventSender, every_s: float) -> AsyncIterator[None]:
    """Inside the block, comments are sent until the first frame is: a client waits for headers only so long."""

    loop = asyncio.get_running_loop()
    sending: list[asyncio.Future[None]] = []
    timers: list[asyncio.TimerHandle] = []

    def send_comment() -> None:
        if not sender.speaks:
            sending.append(asyncio.ensure_future(sender.keep_alive()))
            timers.append(loop.call_later(every_s, send_comment))

    timers.append(loop.call_later(every_s, send_comment))  # no task, since most answers begin before it fires
    try:
        yield
    finally:
        timers[-1].cancel()
        for comment in sending:
            await cancel_and_wait(comment)


async def send_stream(
    sender: EventSender, frames: AsyncIterator[bytes], stream: Any, headers: Iterable[tuple[bytes, bytes]] = ()
) -> str:
    """Send frames as they come. Raises Rejected when nothing was sent yet; later, the stream ends with the fault.

    Gives the code of the fault that ended the stream, if one did.
    """
    try:
        async for frame in frames:
            await sender.frame(frame, headers)
    except Rejected as refused:
        return await send_fault(sender, stream, refused)
    await sender.end()
    return ""


async def send_fault(sender: EventSender, stream: Any, refused: Rejected) -> str:
    """End a stream that has begun with the fault, and give its code. Raises Rejected when nothing was sent yet."""
    if not sender.begun:
        raise refused
    await sender.frame(b"".join(stream.fail(refused.fault)))
    await sender.end()
    return refused.fault.code


async def while_connected(work: Coroutine[Any, Any, None], receive: Receive, is_answered: Callable[[], bool]) -> None:
    """Do this work while its client is connected. Raises ClientGone once it is not.

    Servers report a client that has its whole answer as gone; what is left to do then is done in peace.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and not is_answered():
            raise ClientGone
        await working
    finally:
        await cancel_and_wait(leaving)
        await cancel_and_wait(working)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel_and_wait(task: "asyncio.Future[Any]") -> None:
    """End a task that is no longer wanted, and wait until it has ended."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # looked at, so that asyncio does not log it later
