"""Events of turns in the memory store, within bounds."""

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from itertools import count, islice

from toolwire.record.contract import KeptEvent, Numbered, Place

MOST_TURNS = 256
MOST_EVENTS = 1_000


class MemoryEvents:
    """The newest events of the newest turns."""

    def __init__(self) -> None:
        self._turns: OrderedDict[tuple[str, str], deque[Numbered[KeptEvent]]] = OrderedDict()
        self._numbers = count(1)

    def append(self, events: Sequence[KeptEvent]) -> None:
        for event in events:
            kept = self._turns.setdefault((event.project, event.turn_id), deque(maxlen=MOST_EVENTS))
            if all(one.value.place != event.place for one in kept):
                kept.append(Numbered(next(self._numbers), event))
        while len(self._turns) > MOST_TURNS:
            self._turns.popitem(last=False)

    def of_turn(self, key: tuple[str, str], after: Place, limit: int) -> list[KeptEvent]:
        own = sorted((one.value for one in self._turns.get(key, ()) if one.value.place > after), key=_place_of)
        return own[: max(limit, 0)]

    def after(self, cursor: int, limit: int, project: str) -> list[Numbered[KeptEvent]]:
        own = sorted(one for one in self._of_project(project) if one.cursor > cursor)
        return list(islice(own, max(limit, 0)))

    def drop(self, key: tuple[str, str]) -> None:
        self._turns.pop(key, None)

    def _of_project(self, project: str) -> Iterator[Numbered[KeptEvent]]:
        return (one for (whose, _), kept in self._turns.items() if whose == project for one in kept)


def _place_of(event: KeptEvent) -> Place:
    return event.place
