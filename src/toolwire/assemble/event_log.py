"""The newest events of the turns that run here, so that a watcher who comes late, or comes back, misses none of them.

Those of before this process began are put in front of them, as far as the store has kept them.

Watchers keep a number and read from it; nothing is kept for any of them, so that one that never reads costs nothing.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

from msgspec import Struct

from toolwire.protocol.events import EventEnvelope
from toolwire.record.contract import KeptEvent, Place
from toolwire.wire.codecs.events import name_of, write_envelope
from toolwire.wire.encode.outbound import Json, to_json

_HEADER = ("project", "turn", "epoch", "seq", "at", "event")

MOST_TURNS = 256
MOST_BYTES = 2 * 1024 * 1024
"""Of one turn. An event beyond it is told without what it says."""
MOST_IN_ALL = 64 * 1024 * 1024
_OVERHEAD = 256  # bytes that an event takes beside its text


class LoggedEvent(Struct, frozen=True):
    """An event as it is sent. One without `id` is about the turn, not a part of it, and is not asked for again."""

    number: int
    place: Place
    kind: str
    body: bytes
    id: str = ""

    @property
    def ends_stream(self) -> bool:
        """Whether nothing follows for now. A wait of before this process began (its number is negative) may be over."""
        return self.kind == "turn_ended" or (self.kind == "turn_waiting" and self.number >= 0)


class _TurnLog:
    def __init__(self, *, is_whole: bool) -> None:
        self.events: deque[LoggedEvent] = deque()
        self.size = 0
        self.count = 0
        self.more = asyncio.Event()
        # The place after which everything is here; None where earlier events happened in another process.
        self.after: Place | None = (0, 0) if is_whole else None
        self.is_recalled = is_whole

    def add(self, kind: str, place: Place, body: bytes, event_id: str) -> None:
        self.events.append(LoggedEvent(self.count, place, kind, body, event_id))
        self.count += 1
        self.size += len(body) + _OVERHEAD
        while self.size > MOST_BYTES and len(self.events) > 1:
            dropped = self.events.popleft()
            self.size -= len(dropped.body) + _OVERHEAD
            self.after = dropped.place
        self.wake()

    def recall(self, kept: Sequence[KeptEvent]) -> None:
        """Put events in front that happened before those that are here, as many as there is room for."""
        self.is_recalled = True
        first = self.events[0] if self.events else None
        earlier = [event for event in kept if first is None or event.place < first.place]
        number = first.number if first else self.count
        for event in reversed(earlier):
            body = event.body.encode()
            if self.size + len(body) + _OVERHEAD > MOST_BYTES:
                self.after = event.place
                return
            number -= 1
            event_id = f"{event.epoch}.{event.number}"
            self.events.appendleft(LoggedEvent(number, event.place, event.kind, body, event_id))
            self.size += len(body) + _OVERHEAD
        if earlier and _is_first(earlier[0]):
            self.after = (0, 0)

    def wake(self) -> None:
        self.more.set()
        self.more = asyncio.Event()


def _is_first(event: KeptEvent) -> bool:
    """Whether an event is the first one of its turn: a hosted turn is begun, and then taken up, which is epoch 2."""
    return event.number == 1 and event.epoch <= 2


class EventLog:
    """A watcher of an `EventHub` that keeps the newest events of each turn, within bounds."""

    def __init__(self, most_turns: int = MOST_TURNS) -> None:
        self._most = most_turns
        self._logs: OrderedDict[str, _TurnLog] = OrderedDict()
        self._size = 0
        self.is_closed = False

    def close(self) -> None:
        """No more events will come: all watchers stop waiting."""
        self.is_closed = True
        for log in self._logs.values():
            log.wake()

    def expect(self, turn_id: str) -> None:
        """A turn begins here: all of its events will be seen."""
        self._log(turn_id, is_whole=True)

    def needs(self, turn_id: str) -> bool:
        """Whether events of this turn may have happened before this process began."""
        log = self._logs.get(turn_id)
        return log is None or not log.is_recalled

    def recall(self, turn_id: str, kept: Sequence[KeptEvent]) -> None:
        """Put events that were kept in front of those of this process."""
        log = self._log(turn_id)
        if not log.is_recalled:
            before = log.size
            log.recall(kept)
            self._size += log.size - before
            self._drop_oldest()

    def add(self, envelope: EventEnvelope) -> bytes:
        """Keep an event; gives it back as it is sent."""
        place = (envelope.epoch, envelope.seq)
        written = write_envelope(envelope)
        body = to_json(written)
        if len(body) > MOST_BYTES:
            body = to_json({name: written[name] for name in _HEADER} | {"left_out_bytes": len(body)})
        self._add(envelope.turn_id, name_of(envelope.event), place, body, envelope.id)
        return body

    def note(self, turn_id: str, kind: str, data: Json) -> None:
        """Tell those who watch now something about the turn."""
        log = self._log(turn_id)
        place = log.events[-1].place if log.events else log.after or (0, 0)
        self._add(turn_id, kind, place, to_json(data), "")

    def start(self, turn_id: str, last: Place | None) -> tuple[int, bool]:
        """The number from which to read after the `last` event that was seen, and whether all since then is here."""
        log = self._logs.get(turn_id)
        if log is None:
            return 0, False
        wanted = last or (0, 0)
        later = [event.number for event in log.events if event.place > wanted]
        number = later[0] if later else log.count
        # Of the events between two that are here, only letters and progress can be missing.
        is_known = wanted == log.after or any(
            event.place == wanted or (event.place > wanted and event.place[0] == wanted[0] and event.id)
            for event in log.events
        )
        return number, is_known and (log.after is None or wanted >= log.after)

    def read(self, turn_id: str, number: int) -> tuple[list[LoggedEvent], bool]:
        """The events from a number on, and whether some before them were dropped meanwhile."""
        log = self._logs.get(turn_id)
        if log is None or not log.events:
            return [], False
        first = log.events[0].number
        return list(islice(log.events, max(0, number - first), None)), first > number

    async def wait(self, turn_id: str, number: int, timeout_s: float) -> None:
        """Until there is an event of this number, or so many seconds have passed."""
        log = self._log(turn_id)
        if self.is_closed or log.count > number:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await log.more.wait()

    def _add(self, turn_id: str, kind: str, place: Place, body: bytes, event_id: str) -> None:
        log = self._log(turn_id)
        before = log.size
        log.add(kind, place, body, event_id)
        self._size += log.size - before
        self._drop_oldest()

    def _log(self, turn_id: str, *, is_whole: bool = False) -> _TurnLog:
        log = self._logs.get(turn_id)
        if log is None:
            log = self._logs[turn_id] = _TurnLog(is_whole=is_whole)
            self._drop_oldest()
        self._logs.move_to_end(turn_id)
        return log

    def _drop_oldest(self) -> None:
        while len(self._logs) > self._most or self._size > MOST_IN_ALL:
            _, oldest = self._logs.popitem(last=False)
            self._size -= oldest.size
            oldest.wake()
