"""A bus inside one process, for embedded use and for tests. It behaves as the broker does, and dies with the process.

What it keeps is bounded: of more messages the oldest are forgotten, as by the broker. That only delays, because
everything that a message is about is in the store.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from msgspec import Struct

from toolwire.bus.contract import (
    ACK_WAIT_S,
    HANDOFF_S,
    IN_FLIGHT,
    MAX_BYTES,
    MOST_UNHEARD,
    BusHealth,
    HandoffAnswer,
    Take,
    size_of,
)
from toolwire.bus.in_flight import InFlight, OpenDelivery
from toolwire.errors import BusError, BusUnavailable, MessageTooLarge
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import Subject, check_filter, check_token, filter_matches

MOST_MESSAGES = 10_000
DEDUPE_WINDOW_S = 120.0


class _Entry(Struct):
    """A message on its way under one durable name."""

    message: BusMessage
    attempt: int = 0


class InProcessBus:
    """`async with InProcessBus() as bus: …`"""

    def __init__(self, *, most_messages: int = MOST_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._kept: deque[BusMessage] = deque(maxlen=most_messages)
        self._most = most_messages
        self._max_bytes = max_bytes
        self._groups: dict[str, _Group] = {}
        self._subscriptions: set[_LocalSubscription] = set()
        self._listeners: list[tuple[str, asyncio.Queue[BusMessage]]] = []
        self._ids: OrderedDict[str, float] = OrderedDict()
        self._closed = False

    async def __aenter__(self) -> "InProcessBus":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def publish(self, message: BusMessage, *, dedupe_id: str = "") -> bool:
        if self._closed:
            raise BusUnavailable("the bus is closed")
        Subject.parse(message.subject)
        if (size := size_of(message)) > self._max_bytes:
            raise MessageTooLarge(f"a message has {size} bytes; at most {self._max_bytes} are carried")
        if dedupe_id and self._is_repeated(dedupe_id):
            return False
        self._kept.append(message)
        for group in self._groups.values():
            if filter_matches(group.pattern, message.subject):
                group.add(_Entry(message))
        self._tell_listeners(message)
        await asyncio.sleep(0)  # as with a broker, others may run before this returns
        return True

    async def hand_over(self, message: BusMessage, *, timeout_s: float = HANDOFF_S) -> HandoffAnswer:  # noqa: ARG002
        Subject.parse(message.subject)
        answer = HandoffAnswer.UNHEARD
        for subscription in self._subscriptions:
            if subscription.take is not None and filter_matches(subscription.pattern, message.subject):
                if subscription.in_flight.hand_over(message, subscription.take, self.publish):
                    return HandoffAnswer.TAKEN
                answer = HandoffAnswer.BUSY
        return answer

    @asynccontextmanager
    async def subscribe(
        self, pattern: str, *, durable: str, ack_wait_s: float = ACK_WAIT_S, in_flight: int = IN_FLIGHT
    ) -> AsyncIterator["_LocalSubscription"]:
        if self._closed:
            raise BusUnavailable("the bus is closed")
        check_filter(pattern)
        check_token(durable, "a durable name")
        group = self._groups.get(durable)
        if group is None:
            group = self._groups[durable] = _Group(pattern, self._most)
            for message in self._kept:
                if filter_matches(pattern, message.subject):
                    group.add(_Entry(message))
        if group.pattern != pattern:
            raise BusError(f"durable name {durable!r} is in use for {group.pattern}; choose another for {pattern}")
        subscription = _LocalSubscription(group, ack_wait_s, InFlight(in_flight))
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            subscription.stop()

    async def stream(self, message: BusMessage) -> None:
        Subject.parse(message.subject)
        if (size := size_of(message)) > self._max_bytes:
            raise MessageTooLarge(f"a message has {size} bytes; at most {self._max_bytes} are carried")
        self._tell_listeners(message)

    def _tell_listeners(self, message: BusMessage) -> None:
        for pattern, unheard in self._listeners:
            if filter_matches(pattern, message.subject):
                with suppress(asyncio.QueueFull):
                    unheard.put_nowait(message)

    @asynccontextmanager
    async def listen(self, pattern: str) -> AsyncIterator[AsyncIterator[BusMessage]]:
        check_filter(pattern)
        unheard: asyncio.Queue[BusMessage] = asyncio.Queue(MOST_UNHEARD)
        self._listeners.append((pattern, unheard))

        async def heard() -> AsyncIterator[BusMessage]:
            while True:
                yield await unheard.get()

        try:
            yield heard()
        finally:
            self._listeners.remove((pattern, unheard))

    async def health(self) -> BusHealth:
        return BusHealth(connected=not self._closed)

    async def close(self) -> None:
        self._closed = True
        for group in self._groups.values():
            group.close()
        for subscription in self._subscriptions:
            subscription.stop()

    def _is_repeated(self, dedupe_id: str) -> bool:
        now = asyncio.get_running_loop().time()
        while self._ids and next(iter(self._ids.values())) < now - DEDUPE_WINDOW_S:
            self._ids.popitem(last=False)
        if dedupe_id in self._ids:
            return True
        self._ids[dedupe_id] = now
        if len(self._ids) > self._most:
            self._ids.popitem(last=False)
        return False


class _Group:
    """The messages of one durable name: waiting, or due again at a time."""

    def __init__(self, pattern: str, most: int) -> None:
        self.pattern = pattern
        self.changed = asyncio.Event()
        self._waiting: deque[_Entry] = deque(maxlen=most)
        self._timers: set[asyncio.TimerHandle] = set()

    def add(self, entry: _Entry) -> None:
        self._waiting.append(entry)
        self.changed.set()

    def take(self) -> _Entry | None:
        if not self._waiting:
            return None
        entry = self._waiting.popleft()
        entry.attempt += 1
        return entry

    def add_later(self, entry: _Entry, delay_s: float) -> None:
        if delay_s <= 0:
            self.add(entry)
            return
        timers = self._timers

        def add() -> None:
            timers.discard(timer)
            self.add(entry)

        timer = asyncio.get_running_loop().call_later(delay_s, add)
        timers.add(timer)

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._waiting.clear()


class _LocalSubscription:
    def __init__(self, group: _Group, ack_wait_s: float, in_flight: InFlight) -> None:
        self._group = group
        self._ack_wait_s = ack_wait_s
        self.in_flight = in_flight
        self.take: Take | None = None

    @property
    def pattern(self) -> str:
        return self._group.pattern

    def __aiter__(self) -> "_LocalSubscription":
        return self

    async def __anext__(self) -> "_LocalDelivered":
        while True:
            await self.in_flight.wait_for_room()
            if (entry := self._group.take()) is not None:
                return _LocalDelivered(entry, self._group, self._ack_wait_s, self.in_flight)
            self._group.changed.clear()
            await self._group.changed.wait()

    async def take_handoffs(self, take: Take) -> None:
        self.take = take

    async def drain(self, timeout_s: float) -> int:
        self.stop()
        return await self.in_flight.wait_until_none(timeout_s)

    def stop(self) -> None:
        self.in_flight.stop()
        self._group.changed.set()


class _LocalDelivered(OpenDelivery):
    def __init__(self, entry: _Entry, group: _Group, ack_wait_s: float, in_flight: InFlight) -> None:
        self.message = entry.message
        self.attempt = entry.attempt
        self._entry = entry
        self._group = group
        super().__init__(ack_wait_s, in_flight)

    async def ack(self) -> None:
        self._settle()

    async def nak(self, delay_s: float = 0.0) -> None:
        if self._settle():
            self._group.add_later(self._entry, delay_s)

    async def progress(self) -> None:
        self._renew()

    def _expire(self) -> None:
        """The subscriber has been silent for too long: another may have the message."""
        if self._settle():
            self._group.add(self._entry)
