"""Rings for those in this process who wait for results that workers bring.

A process that has just sent a call stays with its turn for a moment: nearly always the result is there before it would
have left the turn and taken it up again. It hears of the result by the wakeup of its turn, which is kept for whichever
process takes the turn up. One that stays for as long as it takes needs no more than a note, which the broker does not
keep. What is heard here may get lost; who waits looks by itself now and then.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress

from toolwire.bus.contract import Bus
from toolwire.fleet.parcels import agent_token
from toolwire.fleet.wakeups import wakeups_of
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.records import CallCard
from toolwire.protocol.subjects import ROOT, VERSION, BadSubject, Category, Subject
from toolwire.wire.utp.reading import read_object
from toolwire.wire.utp.violations import Violation
from toolwire.wire.utp.writing import json_bytes

MOST_STAYING = 256
STAYS_S = 0.5
LOOK_EVERY_S = 0.25
NOTE = "result"
_MOST_BYTES = 64 * 1024
_Key = tuple[str, str, str]
Tell = Callable[[str, str, str], None]
"""Told the project, the turn and the id of a call that has a result, as far as that is heard."""


def notes_of(project: str = "*") -> str:
    """The subjects of all notes of a project about results."""
    return f"{ROOT}.{VERSION}.{project}.*.{Category.STREAM.value}.agent.*.{NOTE}"


def arrival_note(card: CallCard, channel: str) -> BusMessage:
    """Says to a process that waits for a call that it has a result. Raises BadSubject."""
    said = {"agent_turn_id": card.turn_id, "tool_call_id": card.call.id}
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

    def expect(self, project: str, turn_id: str, call_id: str, stays_s: float = math.inf) -> "Arrival | None":
        """Wait for the result of a call from now on; None where too many are waited for, or nothing is heard."""
        if stays_s < math.inf and (len(self._waiting) >= self._most or not self.hears):
            return None
        key = (project, turn_id, call_id)
        if (before := self._waiting.get(key)) is not None:
            before.close()
        arrival = self._waiting[key] = Arrival(self, key, stays_s)
        self._turns[key[:2]] += 1
        return arrival

    def forget(self, key: _Key, arrival: "Arrival") -> None:
        if self._waiting.get(key) is arrival:
            del self._waiting[key]
            self._turns[key[:2]] -= 1
            if not self._turns[key[:2]]:
                del self._turns[key[:2]]

    def ring(self, project: str, turn_id: str, call_id: str) -> bool:
        """A call has a result; whether that is waited for here."""
        arrival = self._waiting.get((project, turn_id, call_id))
        if arrival is not None:
            arrival.rung.set()
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
                            self.ring(project, turn_id, call_id)
                            for tell in self._tells:
                                tell(project, turn_id, call_id)


class Arrival:
    """One who waits for the result of a call: for `stays_s` at most."""

    def __init__(self, arrivals: Arrivals, key: _Key, stays_s: float) -> None:
        self._arrivals = arrivals
        self._key = key
        self.stays_s = stays_s
        self.rung = asyncio.Event()

    async def wait(self, most_s: float) -> None:
        """Until the bell has rung since, so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self.rung.wait()
        self.rung.clear()

    def close(self) -> None:
        self._arrivals.forget(self._key, self)
