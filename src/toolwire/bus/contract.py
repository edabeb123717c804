"""The promise of every bus. One suite of tests runs over all of them: `tests/bus/test_conformance.py`."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Protocol, TypeAlias

from msgspec import Struct

from toolwire.protocol.bus import BusMessage

MAX_BYTES = 1_000_000
"""Of a message with its headers and subject: a little below what a NATS server takes by itself."""

ACK_WAIT_S = 30.0
IN_FLIGHT = 64
HEADER_OVERHEAD = 16
MOST_UNHEARD = 1_000
"""So many streamed messages wait for a listener; more are lost."""

HANDOFF_S = 0.2
"""How long an answer to a handoff is waited for."""


class HandoffAnswer(Enum):
    """What came of a handoff."""

    TAKEN = "taken"
    BUSY = "busy"
    UNHEARD = "unheard"
    """There is no subscriber, or it did not answer in time. It may have taken the message all the same."""


class BusHealth(Struct, frozen=True):
    """How a bus is: whether messages can be sent now, how often it came back, and what was wrong last."""

    connected: bool
    reconnects: int = 0
    last_error: str = ""


class Delivered(Protocol):
    """A message that was handed out. It comes again unless it is acknowledged in time.

    None of these raises: where the broker is gone, the message comes again later.
    """

    @property
    def message(self) -> BusMessage: ...

    @property
    def attempt(self) -> int:
        """How often it has been handed out under this durable name, as far as the broker knows: 1 at first."""
        ...

    async def ack(self) -> None:
        """It need not come again."""
        ...

    async def nak(self, delay_s: float = 0.0) -> None:
        """Have it delivered again, to this or another subscriber, after so many seconds."""
        ...

    async def progress(self) -> None:
        """It is being worked on: the time to acknowledge begins anew."""
        ...


Take: TypeAlias = Callable[[Delivered], bool]
"""Says whether a handed-over message is taken. It must not wait, and begins the work itself where it says yes."""


class Subscription(Protocol):
    """What a subscriber gets: `async for delivered in subscription`.

    At most `in_flight` messages are handed out and not yet acknowledged; the others stay with the broker. It goes on by
    itself when the broker was away, also if that came back empty.
    """

    def __aiter__(self) -> AsyncIterator[Delivered]: ...

    async def __anext__(self) -> Delivered: ...

    async def take_handoffs(self, take: Take) -> None:
        """Be asked about messages that are handed over, too, in turn with others of the same durable name.

        What is taken counts among what is in flight, and comes again only if it is refused. Raises BusUnavailable.
        """
        ...

    async def drain(self, timeout_s: float) -> int:
        """Hand out no more, and wait until all that was handed out is acknowledged. Gives how many are not."""
        ...


class Bus(Protocol):
    """Something that carries messages. Opened by `async with`."""

    async def publish(self, message: BusMessage, *, dedupe_id: str = "") -> bool:
        """Have a message kept; False where one with this id was kept a short while ago, and this one is not.

        Raises BusUnavailable, MessageTooLarge, and BadSubject for an address with wildcards or worse.
        """
        ...

    async def hand_over(self, message: BusMessage, *, timeout_s: float = HANDOFF_S) -> HandoffAnswer:
        """Ask a subscriber to take a message at once. It is not kept: publish it where it was not taken.

        Raises BadSubject.
        """
        ...

    def subscribe(
        self, pattern: str, *, durable: str, ack_wait_s: float = ACK_WAIT_S, in_flight: int = IN_FLIGHT
    ) -> AbstractAsyncContextManager[Subscription]:
        """Get the messages whose subjects a filter stands for, also those that were kept before.

        Subscribers with the same durable name share them. The name keeps its place without a subscriber. Leaving
        the block gives back what was not handed out. Raises BusError where the name is in use for another filter.
        """
        ...

    async def stream(self, message: BusMessage) -> None:
        """Tell those something who listen now. It is neither kept nor confirmed, and may get lost.

        Raises MessageTooLarge and BadSubject; where the broker is away, it is lost.
        """
        ...

    def listen(self, pattern: str) -> AbstractAsyncContextManager[AsyncIterator[BusMessage]]:
        """Get what is streamed or published from now on at subjects that a filter stands for.

        As far as this side keeps up: of what it leaves waiting, the rest is lost.
        """
        ...

    async def health(self) -> BusHealth: ...

    async def close(self) -> None:
        """Let go of the connection. Harmless when called twice."""
        ...


def size_of(message: BusMessage) -> int:
    """About how many bytes a message takes on the wire."""
    headers = sum(len(name) + len(text) + 4 for name, text in message.headers.items())
    return len(message.subject) + headers + HEADER_OVERHEAD + len(message.data)
