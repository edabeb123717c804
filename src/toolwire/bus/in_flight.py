"""How many messages a subscriber has in its hands, and when there is room for another."""

import asyncio
from contextlib import suppress


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

    def take(self) -> None:
        self._count += 1

    def release(self) -> None:
        self._count -= 1
        self._changed.set()

    async def wait_for_room(self) -> None:
        """Raises StopAsyncIteration when nothing more shall be handed out."""
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
