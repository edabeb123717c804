"""Rings for those in this process who wait for results that workers bring.

A process that has just sent a call stays with its turn for a moment: nearly always the result is there before it would
have left the turn and taken it up again. It hears of the result by the wakeup of its turn, which is kept for whichever
process takes the turn up. One that stays for as long as it takes needs no more than a note, which the broker does not
keep. What is heard here may get lost; who waits looks by itself now and then.

A note brings the result that was just written down, so that nothing need be looked up. Anyone on the bus could say so;
what is believed comes with the digest of it under a key that is written down with the call, for those who may read the
store.
"""

import asyncio
import hmac
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from types import MappingProxyType
from typing import Any

from toolwire.bus.contract import Bus
from toolwire.execute.contract import RecordedResult
from toolwire.fleet.parcels import agent_token
from toolwire.fleet.wakeups import wakeups_of
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.records import CallCard
from toolwire.protocol.subjects import ROOT, VERSION, BadSubject, Category, Subject
from toolwire.wire.codecs.faithful import dump, load
from toolwire.wire.codecs.stored import read_result, write_result
from toolwire.wire.utp.reading import read_object
from toolwire.wire.utp.violations import Violation
from toolwire.wire.utp.writing import json_bytes

MOST_STAYING = 256
STAYS_S = 0.5
LOOK_EVERY_S = 0.25
NOTE = "result"
_MOST_BYTES = 64 * 1024
_LONGEST_RESULT = 8 * 1024
"""A longer one is looked up: the note would be read by all processes of the project that wait for anything."""

NO_NOTE: Mapping[str, Any] = MappingProxyType({})
_Key = tuple[str, str, str]
Tell = Callable[[str, str, str], None]
"""Told the project, the turn and the id of a call that has a result, as far as that is heard."""


def notes_of(project: str = "*") -> str:
    """The subjects of all notes of a project about results."""
    return f"{ROOT}.{VERSION}.{project}.*.{Category.STREAM.value}.agent.*.{NOTE}"


def arrival_note(card: CallCard, channel: str, key: str = "", recorded: RecordedResult | None = None) -> BusMessage:
    """Says to a process that waits for a call that it has a result: which one, if it is given. Raises BadSubject."""
    said = {"agent_turn_id": card.turn_id, "tool_call_id": card.call.id}
    if recorded is not None:
        text = dump([write_result(recorded.result), recorded.has_ended])
        if len(text) < _LONGEST_RESULT:
            said |= {"recorded": text, "digest": _digest(key, text)}
    return BusMessage(str(Subject.stream(card.project, channel, agent_token(card.agent), NOTE)), json_bytes(said))


class Arrivals:
    """Knows who waits for which call: its project, its turn and its id."""

    def __init__(self, most: int = MOST_STAYING) -> None:
        self._most = most
        self._waiting: dict[_Key, Arrival] = {}
        self._turns: Counter[tuple[str, str]] = Counter()
        self._tells: list[Tell] = []
        self.hears = False

    def staying(self) -> int:
        """With how many turns this process stays that only wait for a result."""
        return len(self._turns)

    def expect(
        self, project: str, turn_id: str, call_id: str, stays_s: float = math.inf, note_key: str = ""
    ) -> "Arrival | None":
        """Wait for the result of a call from now on; None where too many are waited for, or nothing is heard."""
        if stays_s < math.inf and (len(self._waiting) >= self._most or not self.hears):
            return None
        key = (project, turn_id, call_id)
        if (before := self._waiting.get(key)) is not None:
            before.close()
        arrival = self._waiting[key] = Arrival(self, key, stays_s, note_key)
        self._turns[key[:2]] += 1
        return arrival

    def forget(self, key: _Key, arrival: "Arrival") -> None:
        if self._waiting.get(key) is arrival:
            del self._waiting[key]
            self._turns[key[:2]] -= 1
            if not self._turns[key[:2]]:
                del self._turns[key[:2]]

    def ring(self, project: str, turn_id: str, call_id: str, note: Mapping[str, Any] = NO_NOTE) -> bool:
        """A call has a result; whether that is waited for here."""
        arrival = self._waiting.get((project, turn_id, call_id))
        if arrival is not None:
            arrival.ring(note)
        return arrival is not None

    @contextmanager
    def telling(self, tell: Tell) -> Iterator[None]:
        """Tell of every result that is heard, inside the block."""
        self._tells.append(tell)
        try:
            yield
        finally:
            self._tells.remove(tell)

    @asynccontextmanager
    async def listening(self, bus: Bus, project: str = "*") -> AsyncIterator[None]:
        """Hear of the results of a project, or of all, inside the block."""
        async with bus.listen(wakeups_of(project)) as wakeups, bus.listen(notes_of(project)) as notes:
            hearing = [asyncio.create_task(self._hear(one), name="toolwire-arrivals") for one in (notes, wakeups)]
            self.hears = True
            try:
                yield
            finally:
                self.hears = False
                for task in hearing:
                    task.cancel()
                await asyncio.gather(*hearing, return_exceptions=True)

    async def _hear(self, messages: AsyncIterator[BusMessage]) -> None:
        async with aclosing(messages):  # type: ignore[type-var]
            async for message in messages:
                if not (self._waiting or self._tells):
                    continue
                said = read_object(message.data, _MOST_BYTES, "what is said of a result")
                with suppress(BadSubject):
                    match said:
                        case Violation():
                            pass
                        case {"metadata": {"agent_turn_id": str(turn_id), "tool_call_id": str(call_id)}} | {
                            "agent_turn_id": str(turn_id),
                            "tool_call_id": str(call_id),
                        }:
                            project = Subject.parse(message.subject).project
                            self.ring(project, turn_id, call_id, said)
                            for tell in self._tells:
                                tell(project, turn_id, call_id)


class Arrival:
    """One who waits for the result of a call: for `stays_s` at most."""

    def __init__(self, arrivals: Arrivals, key: _Key, stays_s: float, note_key: str = "") -> None:
        self._arrivals = arrivals
        self._key = key
        self._note_key = note_key
        self._recorded: RecordedResult | None = None
        self.stays_s = stays_s
        self._rung = asyncio.Event()

    def ring(self, note: Mapping[str, Any]) -> None:
        """There is a result; the note may say which one."""
        if self._recorded is None:
            self._recorded = _recorded(note, self._note_key)
        self._rung.set()

    async def wait(self, most_s: float) -> RecordedResult | None:
        """Until the bell has rung since, so long at most; the result, if it came with that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._rung.wait()
        self._rung.clear()
        return self._recorded

    def close(self) -> None:
        self._arrivals.forget(self._key, self)


def _recorded(note: Mapping[str, Any], key: str) -> RecordedResult | None:
    """The result that a note brings, if that is to be believed."""
    match note:
        case {"recorded": str(text), "digest": str(digest)} if key and hmac.compare_digest(
            _digest(key, text).encode(), digest.encode(errors="replace")
        ):
            with suppress(LookupError, TypeError, ValueError):  # a worker of another version may write more
                result, has_ended = load(text)
                return RecordedResult(read_result(result), bool(has_ended))
    return None


def _digest(key: str, text: str) -> str:
    return hmac.digest(key.encode(), text.encode(errors="replace"), "sha256").hex()
