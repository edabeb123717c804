"""Writes the events of hosted turns down, so that those who watch find them again after a restart.

They are written in batches, at most ten a second for all turns of the process, beside the work of the turns: no turn
waits for it. What a killed process had not written yet, a tenth of a second, is missing; what happened is on record all
the same. Letters of replies and progress of calls are not kept, since the reply and the result tell the same.
"""

import asyncio
import logging
from collections import deque

from toolwire.errors import StoreError
from toolwire.protocol.chat import CallDelta, ReasoningDelta, TextDelta
from toolwire.protocol.events import CallProgress, EventEnvelope
from toolwire.record.contract import EventStore, KeptEvent
from toolwire.wire.codecs.events import name_of

PAUSE_S = 0.1
MOST_WAITING = 10_000
AT_ONCE = 500
PASSING = (TextDelta, ReasoningDelta, CallDelta, CallProgress)
_log = logging.getLogger(__name__)


class EventKeeper:
    """The events that wait to be written. Beyond a bound the oldest are dropped."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._waiting: deque[KeptEvent] = deque(maxlen=MOST_WAITING)
        self._more = asyncio.Event()

    def add(self, envelope: EventEnvelope, body: bytes) -> None:
        """Write an event down later, in the words in which it was sent."""
        if not isinstance(envelope.event, PASSING):
            kind = name_of(envelope.event)
            place = (envelope.epoch, envelope.seq, envelope.at)
            self._waiting.append(KeptEvent(envelope.project, envelope.turn_id, *place, kind, body.decode()))
            self._more.set()

    async def run(self) -> None:
        """Write until canceled, then what still waits."""
        try:
            while True:
                await self._more.wait()
                await asyncio.sleep(PAUSE_S)
                self._more.clear()
                await self._write()
        finally:
            await self._write()

    async def _write(self) -> None:
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            try:
                await self._store.append_events(some)
            except StoreError as error:  # they tell what is on record anyway
                _log.warning("%d events of turns could not be written down: %s", len(some), error)
                return
