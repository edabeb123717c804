"""How many calls run at once: the calls of one step, and those of one agent over all its turns."""

import asyncio


class Slots:
    """Places for running calls, given in the order of asking. Also counts how long approvals were pending.

    `peak` is how many calls ran at once; `waited_s` is the time in which at least one approval was pending.
    """

    __slots__ = ("_free", "_pending", "_pending_since", "_running", "_waiting", "asking", "peak", "waited_s")

    def __init__(self, parallel: int) -> None:
        self.peak = self._pending = self._running = 0
        self.waited_s = self._pending_since = 0.0
        self._free = parallel
        self._waiting: list[asyncio.Future[None]] | None = None
        self.asking: asyncio.Lock | None = None

    def take(self) -> bool:
        """Take a free slot, if there is one. Otherwise `wait` for it."""
        if self._free <= 0:
            return False
        self._free -= 1
        self._running += 1
        if self._running > self.peak:
            self.peak = self._running
        return True

    async def wait(self) -> None:
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot in self._waiting:
                self._waiting.remove(slot)
            elif not slot.cancelled():  # it was given to us, and we do not want it any more
                self._pass_on()
            raise
        self._running += 1
        self.peak = max(self.peak, self._running)

    def leave(self) -> None:
        self._running -= 1
        if self._waiting:
            self._pass_on()
        else:
            self._free += 1

    @property
    def busy(self) -> bool:
        """Whether any call runs or waits."""
        return self._running > 0 or bool(self._waiting)

    def ask(self, now: float) -> None:
        """An approval is requested. Time counts once, however many are pending."""
        if self._pending == 0:
            self._pending_since = now
        self._pending += 1

    def heard(self, now: float) -> None:
        self._pending -= 1
        if self._pending == 0:
            self.waited_s += now - self._pending_since

    def _pass_on(self) -> None:
        while self._waiting:
            slot = self._waiting.pop(0)
            if not slot.done():
                slot.set_result(None)
                return
        self._free += 1
