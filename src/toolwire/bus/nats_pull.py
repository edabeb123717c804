"""Asks a consumer for messages, as many at a time as there is room for, and holds them until they are handed out.

A request brings all that are there. Where none are, another one waits for the next message alone: more would come to a
subscriber that does not ask for them, while others wait. Each message says whether more are there behind it. Only one
request is open at a time, so no more come than there was room for. Messages that were handed over may have taken that
room meanwhile; what comes then is given back at once, for a subscriber that is free. A broker that restarts forgets
requests, so an open one counts for a few seconds only.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

ASK_EVERY_S = 2.0
MOST_AT_ONCE = 32
_LATE_S = 0.5
_ACK = "$JS.ACK."
_NO_MORE = "0"
"""The last word of where a message is acknowledged: how many are there that no subscriber has got."""

_NOTHING_THERE = frozenset({"404", "408"})


class PullEnded(NatsError):
    """The consumer does not answer this connection any more: it is gone, or another server leads it."""


class NatsPull:
    """See `open_pull`."""

    def __init__(self, client: Client, subject: str, inbox: str, room: Callable[[], int]) -> None:
        self._client = client
        self._subject = subject
        self._inbox = inbox
        self._room = room
        self._sub: Subscription | None = None
        self._messages: deque[tuple[float, Msg]] = deque()
        self._changed = asyncio.Event()
        self._asked = 0
        self._expected = 0
        self._until = 0.0
        self._is_empty = False
        self._ended = ""

    @property
    def has_room(self) -> bool:
        """Whether there is room for another message behind those that wait here."""
        return self._room() > len(self._messages)

    async def open(self) -> None:
        self._sub = await self._client.subscribe(f"{self._inbox}.*", cb=self._receive)

    async def next(self, room: int) -> tuple[float, Msg] | None:
        """A message and when it came; None after a while without one, or when woken. Raises NatsError, OSError."""
        now = asyncio.get_running_loop().time()
        if not self._messages and not self._ended:
            self._changed.clear()
            if self._expected <= 0 or now >= self._until:
                await self._ask(min(room, MOST_AT_ONCE), now)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._until):
                    await self._changed.wait()
        if self._messages:
            return self._messages.popleft()
        if self._ended:
            raise PullEnded(self._ended)
        return None

    def wake(self) -> None:
        """Have `next` return."""
        self._changed.set()

    async def close(self) -> list[Msg]:
        """Ask for no more. Gives what came and was not handed out."""
        if self._sub is not None:
            with suppress(NatsError, OSError):
                await self._sub.unsubscribe()
        left = [message for _, message in self._messages]
        self._messages.clear()
        return left

    async def _ask(self, batch: int, now: float) -> None:
        self._asked += 1
        self._expected = 1 if self._is_empty else batch
        self._until = now + ASK_EVERY_S + _LATE_S
        waits = {"expires": int(ASK_EVERY_S * 1e9)} if self._is_empty else {"no_wait": True}
        body = {"batch": self._expected, **waits}
        await self._client.publish(self._subject, json.dumps(body).encode(), reply=self._reply)

    @property
    def _reply(self) -> str:
        return f"{self._inbox}.{self._asked}"

    async def _receive(self, message: Msg) -> None:
        if message.reply.startswith(_ACK):
            self._expected -= 1
            self._is_empty = message.reply.rpartition(".")[2] == _NO_MORE
            if self.has_room:
                self._messages.append((asyncio.get_running_loop().time(), message))
            else:
                with suppress(NatsError, OSError):
                    await message.nak()
        elif message.subject == self._reply:  # a request that is over; of an older one it is no news
            self._expected, self._is_empty = 0, True
            headers = message.headers or {}
            if headers.get("Status") not in _NOTHING_THERE:
                self._ended = headers.get("Description") or f"status {headers.get('Status')}"
        else:
            return
        self._changed.set()
