"""What the memory store keeps of the past, within limits: the newest audit rows, the threads last spoken in, bodies."""

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from toolwire.protocol.approvals import ApprovalCard, ApprovalState
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Message, ResultsMessage
from toolwire.protocol.records import AuditRow
from toolwire.record import refusals
from toolwire.record.chain import BEGINNING, AuditChain, ChainKey, KeptRow, link, walk
from toolwire.record.rows import audit_rows
from toolwire.record.weights import ROW, weigh, weigh_message

MAX_CALLS = 10_000
MAX_BYTES = 64 << 20
AUDIT_ROWS_PER_CALL = 4
_NEWEST_LOOSE = 256
_LOOK_EVERY = 256  # rows come one or two at a time, and most have nothing to weigh
_detail_of = attrgetter("detail")
_HANDLES = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


def named_bodies(results: Iterable[ToolResult | None]) -> tuple[str, ...]:
    """The handles of the bodies that results name: each its own, and those in the sentences around it."""
    named = [result for result in results if result is not None and result.handle]
    if not named:  # as nearly always
        return ()
    return tuple(name for result in named for name in dict.fromkeys((result.handle, *_HANDLES.findall(result.text))))


class AuditFilter(NamedTuple):
    """Which rows are asked for: of a project, a turn or a tool; None is any."""

    project: str | None = None
    turn_id: str | None = None
    tool: str | None = None

    def rows(self, numbered: Iterable[tuple[int, AuditRow]]) -> Iterator[AuditRow]:
        for seq, row in numbered:
            if (
                self.project in (None, row.project)
                and self.turn_id in (None, row.turn_id)
                and self.tool in (None, row.tool)
            ):
                yield replace(row, seq=seq)


class AuditTail:
    """The newest rows of an audit log. Dropped rows stay counted, so that every row keeps its number.

    Every call adds rows, so `extend` is the deque's own; the end of a turn or a call asks for `trim`.
    """

    def __init__(self, max_rows: float, max_bytes: float) -> None:
        self._max_rows, self._max_bytes = min(max_rows, max_bytes / ROW), max_bytes
        self._rows: deque[AuditRow] = deque()
        self.extend: Callable[[Iterable[AuditRow]], None] = self._rows.extend
        self._look_at = min(self._max_rows, _LOOK_EVERY)
        self._weighed = 0
        self._detail_bytes = 0
        self._dropped = 0
        # The digests of the newest dropped rows, from the first question about them on.
        self._heads: dict[ChainKey, tuple[int, str]] | None = None

    def trim(self) -> None:
        """Drop the oldest rows beyond the limits."""
        if len(self._rows) > self._look_at:
            self._trim()

    def _trim(self) -> None:
        """Weigh the rows that are new since the last time, and drop the oldest beyond the limits."""
        new = islice(reversed(self._rows), len(self._rows) - self._weighed)
        self._detail_bytes += sum(map(weigh, filter(None, map(_detail_of, new))))
        self._weighed = len(self._rows)
        while len(self._rows) > self._max_rows or self._detail_bytes > self._max_bytes:
            self._drop_oldest()
        self._look_at = min(self._max_rows, len(self._rows) + _LOOK_EVERY)

    def newest(self, wanted: AuditFilter, limit: int) -> list[AuditRow]:
        """The newest rows, oldest first."""
        last = self._dropped + len(self._rows)
        numbered = zip(range(last, 0, -1), reversed(self._rows), strict=False)
        return list(islice(wanted.rows(numbered), max(limit, 0)))[::-1]

    def after(self, wanted: AuditFilter, limit: int, after: int) -> list[AuditRow]:
        """The next rows after a number."""
        skipped = max(after - self._dropped, 0)
        numbered = enumerate(islice(self._rows, skipped, None), self._dropped + skipped + 1)
        return list(islice(wanted.rows(numbered), max(limit, 0)))

    def chain(self, seqs: Sequence[int], project: str | None = None) -> AuditChain:
        """The chains, made when they are asked for, since no other program can reach into this log.

        It costs a digest for each row. So what was dropped before the first question counts as its beginning, and what
        is dropped afterwards is linked, so that digests that were given out stay true.
        """
        if self._heads is None:
            self._heads = {}
        heads, chained = dict(self._heads), list[KeptRow]()
        for number, row in enumerate(audit_rows(self._rows), self._dropped + 1):
            key = ("", row[2])
            heads[key] = (number, link(heads.get(key, (0, BEGINNING))[1], row))
            if project in (None, row[2]):
                chained.append((number, row, heads[key][1], "", None))
        return walk(chained, frozenset(seqs), self._dropped, self._heads, project=project or "")

    def _drop_oldest(self) -> None:
        row = self._rows.popleft()
        self._dropped += 1
        self._weighed -= 1
        if row.detail:
            self._detail_bytes -= weigh(row.detail)
        if self._heads is not None:
            key = ("", row.project)
            before = self._heads.get(key, (0, BEGINNING))[1]
            self._heads[key] = (self._dropped, link(before, audit_rows([row])[0]))


class Bodies:
    """Large bodies by their handles. One stays as long as a result that is kept names it.

    A body is kept before the result that names it: until then it is loose. Of the loose ones the newest stay.
    """

    def __init__(self, max_bytes: float) -> None:
        self._max_bytes = max_bytes
        self._bodies: dict[str, bytes] = {}
        self._holders: dict[str, int] = {}
        self._loose: OrderedDict[str, None] = OrderedDict()
        self._loose_bytes = 0

    def add(self, handle: str, body: bytes) -> None:
        if handle not in self._bodies:
            self._bodies[handle] = body
            self._loose[handle] = None
            self._loose_bytes += len(body)
            self._drop_loose()

    def get(self, handle: str) -> bytes | None:
        return self._bodies.get(handle)

    def weight(self, names: Iterable[str]) -> int:
        return sum(len(self._bodies.get(name, b"")) for name in names)

    def hold(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._loose:
                del self._loose[name]
                self._loose_bytes -= len(self._bodies[name])
            self._holders[name] = self._holders.get(name, 0) + 1

    def let_go(self, names: Iterable[str]) -> None:
        for name in names:
            self._holders[name] -= 1
            if not self._holders[name]:
                del self._holders[name]
                self._bodies.pop(name, None)

    def _drop_loose(self) -> None:
        while self._loose_bytes > self._max_bytes and len(self._loose) > _NEWEST_LOOSE:
            name, _ = self._loose.popitem(last=False)
            self._loose_bytes -= len(self._bodies.pop(name))


class Thread:
    """What was said in the ended turns of a thread."""

    __slots__ = ("bodies", "messages", "weight")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.bodies: list[str] = []
        self.weight = 0


class MemoryThreads:
    """The threads of all projects, within a limit. Beyond it the one goes that was spoken in least recently."""

    def __init__(self, bodies: Bodies, max_bytes: float) -> None:
        self._max_bytes = max_bytes
        self._bodies = bodies
        self._threads: OrderedDict[tuple[str, str], Thread] = OrderedDict()
        self._weight = 0

    def read(self, project: str, name: str) -> tuple[Message, ...]:
        thread = self._threads.get((project, name)) if name else None
        return tuple(thread.messages) if thread else ()

    def length(self, project: str, name: str) -> int:
        """How many messages a thread has."""
        thread = self._threads.get((project, name)) if name else None
        return len(thread.messages) if thread else 0

    def add(self, key: tuple[str, str], messages: Sequence[Message], in_use: frozenset[tuple[str, str]]) -> int:
        """Add what was said in a turn; gives back how many threads had to go. Those `in_use` stay."""
        thread = self._threads.setdefault(key, Thread())
        self._threads.move_to_end(key)
        named = named_bodies(result for one in messages if isinstance(one, ResultsMessage) for result in one.results)
        weight = sum(map(weigh_message, messages)) + self._bodies.weight(named)
        thread.messages += messages
        thread.bodies += named
        thread.weight += weight
        self._weight += weight
        self._bodies.hold(named)
        return self._drop_beyond(in_use | {key}) if self._weight > self._max_bytes else 0

    def _drop_beyond(self, in_use: frozenset[tuple[str, str]]) -> int:
        droppable = [key for key in self._threads if key not in in_use]
        dropped = 0
        for key in droppable:
            if self._weight <= self._max_bytes:
                break
            gone = self._threads.pop(key)
            self._weight -= gone.weight
            self._bodies.let_go(gone.bodies)
            dropped += 1
        return dropped


class Questions:
    """Approval cards in the order in which they were opened, found by id or by call; each project has its own ids."""

    def __init__(self) -> None:
        self._cards: dict[tuple[str, str], ApprovalCard] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._newest = 0
        self._by_turn: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
        self._left: set[tuple[str, str]] = set()

    def put(self, card: ApprovalCard) -> None:
        key = (card.project, card.id)
        if key not in self._cards:
            self._newest += 1
            self._numbers[key] = self._newest
        self._cards[key] = card
        self._by_turn.setdefault((card.project, card.turn_id), {})[card.call_id] = key

    def get(self, approval_id: str, project: str | None) -> ApprovalCard | None:
        """A card of a project; without one, the card that has this id in any. Raises StoreError if several have."""
        if project is not None:
            return self._cards.get((project, approval_id))
        found = [card for key, card in self._cards.items() if key[1] == approval_id]
        if len(found) > 1:
            raise refusals.in_several_projects(f"approval {approval_id!r}")
        return found[0] if found else None

    def about(self, turn: tuple[str, str], call_id: str) -> ApprovalCard | None:
        found = self._by_turn.get(turn, {}).get(call_id)
        return self._cards[found] if found else None

    def after(self, cursor: int, project: str | None) -> Iterator[tuple[int, ApprovalCard]]:
        own = ((key, card) for key, card in self._cards.items() if project in (None, card.project))
        return ((self._numbers[key], card) for key, card in own if self._numbers[key] > cursor)

    def newest(self, project: str | None) -> Iterator[ApprovalCard]:
        return (card for card in reversed(self._cards.values()) if project in (None, card.project))

    def are_pending(self, turn: tuple[str, str], now: float) -> bool:
        """Whether a question of this turn is still open."""
        cards = (self._cards[one].at(now) for one in self._by_turn.get(turn, {}).values())
        return any(card.state is ApprovalState.OPEN for card in cards)

    def drop_turn(self, turn: tuple[str, str], now: float) -> None:
        """Forget the questions of a turn, except those whose answer is for a pattern and still counts."""
        if turn in self._by_turn:
            self._left.update(self._by_turn.pop(turn).values())
        for key in [one for one in self._left if self._cards[one].stands_until <= now]:
            self._left.remove(key)
            del self._cards[key], self._numbers[key]
