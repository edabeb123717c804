"""One place that sees the events of all turns: metrics, tracing, a console and HTTP streams attach here.

Agents that share an `EventHub` tell it everything that happens in their turns. Without a watcher, no event is even
made. A watcher cannot do harm: one that raises is logged and stays, and a stream that is not read forgets its oldest
events instead of holding all of them.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

from toolwire.protocol.events import Emit, Event, EventEnvelope
from toolwire.protocol.tracing import NO_TRACE, TraceContext
from toolwire.protocol.turns import Turn

Watch = Callable[[EventEnvelope], None]

MOST_BEHIND = 10_000

_log = logging.getLogger(__name__)


class Telemetry(Protocol):
    """What makes spans and metrics of events. It knows the turn of each, and is told of turns that have no end here.

    None of these may wait or raise.
    """

    def observe(self, turn: Turn, event: Event, at: float) -> None:
        """An event of a turn, which stands as it did when this process took it up."""
        ...

    def interrupted(self, turn: Turn, error: BaseException) -> None:
        """This process leaves a turn that neither ended nor waits."""
        ...

    def current_trace(self) -> TraceContext:
        """The span in which the code that asks runs: a turn that begins now is below it."""
        ...

    def trace_of(self, turn: Turn, call_id: str = "") -> TraceContext:
        """The span of a turn, or of one of its calls: what is sent for it to other processes is below that."""
        ...


class EventHub:
    """Passes the events of all turns of the agents that share it on to watchers, and to the `telemetry` if any."""

    def __init__(self, clock: Callable[[], float] = time.time, telemetry: Telemetry | None = None) -> None:
        self.clock = clock
        self.telemetry = telemetry
        self._watchers: dict[Watch, bool] = {}
        self._faulty: set[Watch] = set()

    @property
    def wants_deltas(self) -> bool:
        """Whether any watcher wants replies letter by letter; only then are models asked to stream for it."""
        return any(self._watchers.values())

    def watch(self, watcher: Watch, *, deltas: bool = False) -> Callable[[], None]:
        """Tell a watcher of everything in turns that begin or are resumed from now on; the function given back ends it.

        It is called on the event loop and must not wait. With `deltas`, models stream their replies for it.
        """
        self._watchers = {**self._watchers, watcher: deltas}

        def stop() -> None:
            self._watchers = {each: wants for each, wants in self._watchers.items() if each is not watcher}
            self._faulty.discard(watcher)

        return stop

    def stream(self, *, turn_id: str = "", deltas: bool = False, most: int = MOST_BEHIND) -> "EventStream":
        """The events, of one turn or of all, for a reader that has its own pace. Use it in a `with` block."""
        return EventStream(self, turn_id, deltas, most)

    def emitter(self, turn: Turn, own: Emit | None = None) -> Emit | None:
        """What tells the watchers, and one of the turn's `own`, of its events; None without watchers."""
        if not (self._watchers or self.telemetry) or isinstance(own, _Emitter):
            return own
        return _Emitter(self, turn, own)

    def interrupt(self, turn: Turn, error: BaseException) -> None:
        """Say that this process leaves a turn which neither ended nor waits."""
        if self.telemetry is not None:
            self.telemetry.interrupted(turn, error)

    def current_trace(self) -> TraceContext:
        """The span above a turn that begins now."""
        return NO_TRACE if self.telemetry is None else self.telemetry.current_trace()

    def trace_of(self, turn: Turn, call_id: str = "") -> TraceContext:
        """The span of a turn or of one of its calls; without telemetry, the one that was above the turn."""
        return turn.trace if self.telemetry is None else self.telemetry.trace_of(turn, call_id)

    def publish(self, envelope: EventEnvelope) -> None:
        """Tell all watchers. Whatever one of them raises is its own affair."""
        for watcher in self._watchers:
            try:
                watcher(envelope)
            except (Exception, asyncio.CancelledError) as error:  # a watcher is foreign code beside the turn
                if watcher not in self._faulty:
                    self._faulty.add(watcher)
                    _log.warning("a watcher of events failed: %s: %s", type(error).__name__, error)


class _Emitter:
    """Numbers the events of a turn."""

    __slots__ = ("_hub", "_number", "_own", "_turn")

    def __init__(self, hub: EventHub, turn: Turn, own: Emit | None) -> None:
        self._hub = hub
        self._turn = turn
        self._own = own
        self._number = count(1)

    def __call__(self, event: Event) -> None:
        hub, turn = self._hub, self._turn
        at = hub.clock()
        if hub.telemetry is not None:
            hub.telemetry.observe(turn, event, at)
        hub.publish(EventEnvelope(turn.project, turn.id, turn.epoch, next(self._number), at, event))
        if self._own is not None:
            self._own(event)


class EventStream:
    """Events in a bounded queue: beyond `most` unread ones the oldest are dropped, and counted in `lost`."""

    def __init__(self, hub: EventHub, turn_id: str, deltas: bool, most: int) -> None:
        self.lost = 0
        self._is_closed = False
        self._turn_id = turn_id
        self._kept: deque[EventEnvelope] = deque(maxlen=most)
        self._more = asyncio.Event()
        self._stop = hub.watch(self._add, deltas=deltas)

    def _add(self, envelope: EventEnvelope) -> None:
        if self._turn_id and envelope.turn_id != self._turn_id:
            return
        self.lost += len(self._kept) == self._kept.maxlen
        self._kept.append(envelope)
        self._more.set()

    def close(self) -> None:
        """Watch no longer. What is unread can still be read."""
        self._stop()
        self._is_closed = True
        self._more.set()

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> EventEnvelope:
        while not self._kept:
            if self._is_closed:
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        return self._kept.popleft()
