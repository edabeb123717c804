"""A stream of server-sent events as the answer to a request."""

from collections.abc import AsyncIterator, Callable

from starlette.responses import Response

from toolwire.gateway.flow import EventSender, Send, while_connected
from toolwire.gateway.guard import Receive
from toolwire.gateway.middleware import Scope


class EventsResponse(Response):
    """A stream that ends when its reader leaves. The next frame is asked for when the last one was taken."""

    def __init__(self, frames: Callable[[], AsyncIterator[bytes]]) -> None:
        super().__init__()
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        entry = scope["toolwire.entry"]
        await while_connected(self._sent(EventSender(send)), receive, lambda: entry.answered)

    async def _sent(self, sender: EventSender) -> None:
        await sender.frame(b": \n\n")  # the headers go at once, however long the first event takes
        async for frame in self._frames():
            await sender.frame(frame)
        await sender.end()
