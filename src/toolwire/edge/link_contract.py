"""What an agent or an orchestrator needs of a connection to a broker."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol, Self

from msgspec import Struct

ACKNOWLEDGE_S = 10.0


class Incoming(Struct, frozen=True):
    """A message from the broker. Until `acknowledge` is called, the broker keeps it and sends it again some time.

    One that was `retained` has been written at any time before this connection.
    """

    topic: str
    data: bytes
    retained: bool
    acknowledge: Callable[[], None]


Receive = Callable[[Incoming], None]
"""Called on the event loop for each message; it must not block and must not raise."""

OnConnect = Callable[[str], Awaitable[None]]
"""Called with the id of the session after each connection, once all filters are subscribed."""


class Link(Protocol):
    """A connection that comes back by itself. `async with` holds it open."""

    @property
    def session(self) -> str:
        """A new id for each connection; empty while there is none."""
        ...

    async def publish(self, topic: str, data: bytes, *, retain: bool = False, timeout_s: float = ACKNOWLEDGE_S) -> None:
        """Return when the broker has taken the message. Publishing it again is for the caller, and harmless.

        Raises BusUnavailable where it is not known to have been taken, and MessageTooLarge.
        """
        ...

    async def subscribe(self, topic_filter: str) -> None:
        """Receive what is published there, from now on and after each new connection.

        Raises BusError where the broker does not allow it.
        """
        ...


class StaysConnected(ABC):
    """Holds a connection open inside an `async with` block, in a task of its own."""

    _task: "asyncio.Task[None] | None" = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._stay_connected(), name="toolwire-edge-link")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    @abstractmethod
    async def _stay_connected(self) -> None:
        """Connect again and again, until canceled."""
