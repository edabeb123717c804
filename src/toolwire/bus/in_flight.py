"""Messages in the hands of a subscriber: how many there are, when there is room for another, how long each stays."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from toolwire.bus.contract import Take
from toolwire.errors import BusError
from toolwire.protocol.bus import BusMessage


class InFlight:
    """Counts messages from when they are handed out until they are acknowledged, given back or too late."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError("in_flight must be at least 1")
        self._most = most
        self._count = 0
        self._changed = asyncio.Event()
        self.stopping = asyncio.Event()

    @property
    def count(self) -> int:
        return self._count

    @property
    def room(self) -> int:
        """How many more may be handed out now."""
        return self._most - self._count

    def take(self) -> None:
        self._count += 1

    def release(self) -> None:
        self._count -= 1
        self._changed.set()

    def hand_over(self, message: BusMessage, take: Take, publish: Callable[[BusMessage], Awaitable[object]]) -> bool:
        """Whether a handed-over message is taken: there is room for it, and `take` says so."""
        if self.stopping.is_set() or self.room <= 0:
            return False
        delivered = HandoffDelivery(message, self, publish)
        is_taken = take(delivered)
        if not is_taken:
            delivered.release()
        return is_taken

    async def wait_for_room(self) -> None:
        """Raises StopAsyncIteration when nothing more is handed out."""
        while self._count >= self._most and not self.stopping.is_set():
            await self._next_change()
        if self.stopping.is_set():
            raise StopAsyncIteration

    def stop(self) -> None:
        self.stopping.set()
        self._changed.set()

    async def wait_until_none(self, timeout_s: float) -> int:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._count:
                    await self._next_change()
        return self._count

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class OpenDelivery:
    """A message in a subscriber's hands, from when it is handed out until it is settled or its time is over."""

    def __init__(self, ack_wait_s: float, in_flight: InFlight) -> None:
        self._ack_wait_s = ack_wait_s
        self._in_flight = in_flight
        self._is_open = True
        in_flight.take()
        self._timer = self._start_timer()

    def _renew(self) -> bool:
        """Begin the time anew; False where it is over."""
        if self._is_open:
            self._timer.cancel()
            self._timer = self._start_timer()
        return self._is_open

    def _expire(self) -> None:
        """The time is over. A broker hands the message out again by itself."""
        self._settle()

    def _settle(self) -> bool:
        """Let go of the message; False where that was done before."""
        if not self._is_open:
            return False
        self._is_open = False
        self._timer.cancel()
        self._in_flight.release()
        return True

    def _start_timer(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._ack_wait_s, self._expire)


class HandoffDelivery:
    """A handed-over message in the hands of the subscriber who took it. No broker keeps it."""

    attempt = 1

    def __init__(
        self, message: BusMessage, in_flight: InFlight, publish: Callable[[BusMessage], Awaitable[object]]
    ) -> None:
        self.message = message
        self._in_flight = in_flight
        self._publish = publish
        self._is_open = True
        in_flight.take()

    async def ack(self) -> None:
        self.release()

    async def nak(self, delay_s: float = 0.0) -> None:  # noqa: ARG002 -- a broker that keeps it knows of no delay yet
        """Have it delivered again. If that fails, the store says when its call is due once more."""
        if self.release():
            with suppress(BusError):
                await self._publish(self.message)

    async def progress(self) -> None:
        """No one else may have it."""

    def release(self) -> bool:
        """Let go of the message; False where that was done before."""
        was_open, self._is_open = self._is_open, False
        if was_open:
            self._in_flight.release()
        return was_open
