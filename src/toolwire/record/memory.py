"""A store that lives and dies with its process: for tests, examples and turns that are not needed tomorrow."""

import asyncio
import hashlib
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count, islice
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.errors import StoreError
from toolwire.plan.resources import LockClaim
from toolwire.protocol.approvals import Approval, ApprovalCard, ApprovalState
from toolwire.protocol.budgets import Allotment, ReservedShares, Spending
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Message, Note, Reply
from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.records import AuditRow, CallCard, Dispatch, short_name
from toolwire.protocol.registrations import ResultCard, ToolRegistration
from toolwire.protocol.turns import Ending, Turn
from toolwire.record import ledger, ready, refusals, registry_rules, story
from toolwire.record.approval_clock import ApprovalClock
from toolwire.record.chain import AuditChain
from toolwire.record.closing import ClosingStore
from toolwire.record.contract import (
    DueDispatch,
    Ends,
    KeptEvent,
    KeptTurn,
    LoopMetrics,
    Numbered,
    Place,
    Reservation,
    ToolMetrics,
    TurnStats,
    TurnSummary,
    UsageRequest,
    Workload,
)
from toolwire.record.ledger import Sending, Step
from toolwire.record.lock_queue import LockLine, may_go
from toolwire.record.memory_events import MemoryEvents
from toolwire.record.memory_limits import (
    AUDIT_ROWS_PER_CALL,
    MAX_BYTES,
    MAX_CALLS,
    AuditFilter,
    AuditTail,
    Bodies,
    MemoryThreads,
    Questions,
    named_bodies,
)
from toolwire.record.memory_records import MemoryRecords, MemoryRecordStore
from toolwire.record.memory_registry import MemoryCards, MemoryRegistry
from toolwire.record.reserving import grant_usage, reserve_cards
from toolwire.record.rows import new_id
from toolwire.record.tally import (
    NEWEST_RESULTS,
    ToolTally,
    counted_as,
    day_of,
    loop_metrics,
    said_spending,
    spending,
    tool_metrics,
)
from toolwire.record.weights import weigh_card, weigh_cards, weigh_replies
from toolwire.wire.formats.tally import FormatTally, merge_tallies

_result_of = attrgetter("result")
_project_of = attrgetter("project")
T = TypeVar("T")
_TurnKey = tuple[str, str]
"""The project and the id of a turn."""
_NO_CARDS: dict[str, CallCard] = {}
_log = logging.getLogger(__name__)
_POINTER = 8
_LARGE_BYTES = 1 << 20
_STORE = "memory"
"""The one owner there usually is."""


class _MemoryTurn(Struct):
    """A turn in memory. Its opening carries the current epoch, too.

    On the monotonic clock, `since` is when it would have begun had it run at a stretch, and `ran_at` when it last ran.
    In its thread there were `spoken` messages when it began.
    """

    opening: Turn
    since: float
    updated_at: float
    spoken: int
    number: int = 0
    ran_at: float = 0.0
    waited_s: float = 0.0
    calls: int = 0
    epoch: int = 1
    state: str = ledger.RUNNING
    owner: str | None = None
    said: list[story.Said] = field(default_factory=list)
    ending: Ending | None = None

    @property
    def ran_s(self) -> float:
        """How long it ran so far, apart from waiting for people."""
        return max(0.0, self.ran_at - self.since - self.waited_s)


class _Tool(Struct):
    tally: ToolTally = field(default_factory=ToolTally)
    newest_ms: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST_RESULTS))
    newest_errors: deque[str] = field(default_factory=lambda: deque(maxlen=NEWEST_RESULTS))


class _Sums(Struct):
    """What calls and turns have come to, for the metrics and the budgets of days; and what is kept of the past.

    One object, since the store has as many attributes as it may have: Python 3.11 keeps up to 29 beside an object, and
    with more of them each look at one costs several times as much.
    """

    tools: dict[tuple[str, str], _Tool] = field(default_factory=dict)
    loop: dict[str, LoopMetrics] = field(default_factory=dict)
    formats: dict[str, tuple[FormatTally, ...]] = field(default_factory=dict)
    spent: dict[tuple[str, str, int], Spending] = field(default_factory=dict)
    past_calls: int = 0
    past_weight: int = 0


class _Past(Struct, frozen=True):
    """An ended turn, or the ended call of a turn that was never begun: what it counts and weighs."""

    key: _TurnKey
    call_id: str
    calls: int
    weight: int
    bodies: tuple[str, ...]


class MemoryStore(MemoryRecordStore, ClosingStore):
    """Keeps the store's promise except durability, and of what has ended only the newest.

    At most `max_calls` ended calls with their turns and about `max_bytes` of them stay; the same again holds for the
    conversations of threads, of which the one last spoken in stays whatever it weighs. Turns that have not ended,
    pending approvals, approvals of patterns, metrics and budgets always stay. None is no limit.

    The store itself owns its turns, so a running one can be resumed only after `release`.
    """

    _owner = _STORE
    groups_changes = False

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        max_calls: int | None = MAX_CALLS,
        max_bytes: int | None = MAX_BYTES,
    ) -> None:
        self._clock = self.clock = clock
        self._monotonic = monotonic
        self._asked = ApprovalClock(clock, monotonic)
        self._max_calls = math.inf if max_calls is None else max(max_calls, 1)
        self._max_bytes = math.inf if max_bytes is None else max(max_bytes, 1)
        self._turns: dict[_TurnKey, _MemoryTurn] = {}
        self._past: deque[_Past] = deque()
        self._cards: dict[_TurnKey, dict[str, CallCard]] = {}
        self._card_order: dict[tuple[_TurnKey, str], int] = {}
        self._numbers = count(1)
        self._alive = self._is_alive  # bound once, since every call asks
        self._audit = AuditTail(self._max_calls * AUDIT_ROWS_PER_CALL, self._max_bytes)
        self._sums = _Sums()
        self._bodies = Bodies(self._max_bytes)
        self._threads = MemoryThreads(self._bodies, self._max_bytes)
        self._approvals = Questions()
        self._dispatches: dict[tuple[str, str, str], Dispatch] = {}
        self._dispatched: dict[tuple[str, str], tuple[str, str, str]] = {}
        self._lock_queue: dict[str, list[LockLine]] = {}
        self._shares: dict[tuple[str, str], ReservedShares] = {}
        self._reserved_usage: dict[tuple[str, str], tuple[Turn, Spending]] = {}
        self._open: dict[_TurnKey, _MemoryTurn] = {}
        self._begun: dict[_TurnKey, set[str]] = {}
        self._events = MemoryEvents()
        self._registry = MemoryRegistry()
        self._result_cards = MemoryCards()
        self._records = MemoryRecords()
        self._untrusted: dict[str, dict[str, UntrustedMark]] = {}

    async def begin(self, turn: Turn, *, runs: bool = True) -> None:
        key = (turn.project, turn.id)
        names = {name: getattr(turn, name) for name in ledger.NAMES_OF_TURN}
        _raise(ledger.begin(turn.id, self._turns.get(key), names))
        now = self._clock()
        began = self._monotonic()
        spoken = self._threads.length(*_thread_of(turn))
        kept = _MemoryTurn(turn, began, now, spoken, next(self._numbers), began, epoch=turn.epoch, owner=self._owner)
        self._turns[key] = self._open[key] = kept
        if not runs:
            await self.release(turn)

    async def resume(self, turn_id: str, *, project: str | None = None) -> KeptTurn:
        kept = self._find(turn_id, project)
        epoch = _raise(ledger.resume(turn_id, kept, self._is_alive))
        kept.opening, kept.epoch, kept.owner = replace(kept.opening, epoch=epoch), epoch, self._owner
        kept.since, kept.waited_s = self._monotonic() - kept.ran_s, 0.0
        self._touch(kept, ledger.RUNNING)
        return self._tell(kept)

    async def append_reply(
        self, turn: Turn, reply: Reply, cards: Sequence[CallCard], audit: Sequence[AuditRow],
        reserve: Reservation | None = None, *, may_wait: bool = False,  # noqa: ARG002 -- nothing takes long here
    ) -> Sequence[CallCard]:  # fmt: skip
        kept, known = self._held(turn), self._cards.get((turn.project, turn.id), _NO_CARDS)
        for card in cards if known else ():
            if card.call.id in known:
                self._raise_refusal(self._added(card, kept))
        kept.said.append(reply)
        kept.updated_at, kept.ran_at = self._clock(), self._monotonic()
        if reserve is not None:
            if reserve.settles:
                self._reserved_usage.pop((turn.project, turn.id), None)
            cards, audit = self._reserved(reserve, cards, audit)
        for card in cards:
            _, new, _, charge = ledger.add_call(
                card, known.get(card.call.id), kept, kept.updated_at, self._alive, self._owner
            )  # fmt: skip
            if new is not None:
                self._keep(new)
                kept.calls += charge
        self._audit.extend(audit)
        return cards

    def _reserved(
        self, reserve: Reservation, cards: Sequence[CallCard], audit: Sequence[AuditRow]
    ) -> tuple[Sequence[CallCard], Sequence[AuditRow]]:
        project = cards[0].project if cards else ""
        day = day_of(self._clock())
        spent = sum((self._day(project, agent, day, "") for agent in reserve.accounts), Spending())
        outcome = reserve_cards(reserve, cards, spent)
        return outcome.cards, [outcome.denied.get(place, row) for place, row in enumerate(audit)]

    async def append_note(self, turn: Turn, note: Note) -> None:
        kept = self._held(turn)
        kept.said.append(note)
        kept.updated_at, kept.ran_at = self._clock(), self._monotonic()

    async def open(
        self, card: CallCard, audit: Sequence[AuditRow], reserve: Reservation | None = None, *,
        begins: Turn | None = None, may_wait: bool = False,  # noqa: ARG002 -- nothing takes long here
    ) -> CallCard:  # fmt: skip
        if begins is not None:
            await self.begin(begins)
        kept, turn = self._kept(card), self._turns.get((card.project, card.turn_id))
        step = ledger.open_call(card, kept, turn, self._clock(), self._is_alive, self._owner)
        self._raise_refusal(step)
        if kept is None:
            if reserve is not None:
                [card], audit = self._reserved(reserve, [card], audit)
                step = self._added(card, turn)
            self._audit.extend(audit)
        return self._apply(step)

    async def claim(
        self, card: CallCard, audit: Sequence[AuditRow], *, owner: str = "", until: float | None = None,
        begins: bool = True, token: str = "", outlives_turn: bool = False,
    ) -> CallCard:  # fmt: skip
        kept, turn = self._kept(card), self._turns.get((card.project, card.turn_id))
        owner = owner or (self._owner if outlives_turn else "")
        claim = ledger.Claim(token or new_id(), self._owner, owner, until)
        mine = self._apply(ledger.claim_call(card, kept, turn, self._clock(), self._is_alive, claim), audit)
        if begins and mine.result is None:
            self.begins(card.turn_id, card.call.id, project=card.project)
        return mine

    async def renew(self, card: CallCard, until: float | None = None) -> CallCard:
        step = ledger.renew_call(
            card, self._kept(card), self._turns.get((card.project, card.turn_id)), self._owner, until
        )  # fmt: skip
        return self._apply(step)

    async def detach(self, card: CallCard) -> CallCard:
        return self._apply(ledger.detach_call(card, self._kept(card), self._turns.get((card.project, card.turn_id))))

    async def ask_to_cancel(self, card: CallCard, why: str) -> CallCard:
        turn = self._turns.get((card.project, card.turn_id))
        return self._apply(ledger.ask_to_cancel(card, self._kept(card), turn, why))

    async def detached_calls(self, *, limit: int = 100, project: str | None = None) -> list[CallCard]:
        cards = (card for cards in self._cards.values() for card in cards.values())
        wanted = (c for c in cards if c.detached and c.result is None and project in (None, c.project))
        return [replace(card, token="") for card in islice(wanted, max(limit, 0))]

    def forget_run(self, turn_id: str, *, project: str = "default") -> None:
        """It knows by itself which turns run."""

    def holds(self, turn_id: str, *, project: str = "default") -> bool:  # noqa: ARG002 -- no other process can take over
        return True

    def begins(self, turn_id: str, call_id: str, *, project: str = "default") -> None:
        begun = self._begun.get((project, turn_id))
        if begun is None:
            begun = self._begun[project, turn_id] = set()
        begun.add(call_id)

    def pauses(self, turn_id: str, call_id: str, *, project: str = "default") -> None:
        self._begun.get((project, turn_id), set()).discard(call_id)

    async def close(
        self, card: CallCard, result: ToolResult, audit: Sequence[AuditRow], *, ran: bool = True,
        claims: bool = False, ends: Ends | None = None, tell_end: Callable[[bool], None] | None = None,
    ) -> ToolResult:  # fmt: skip
        if claims:
            with suppress(StoreError):  # where the claim is refused, so is the result
                await self.claim(card, (), begins=False, token=card.token)
        key, at = (card.project, card.turn_id), self._clock()
        result, control = ledger.settle(card, result, at)
        kept, turn = self._cards.get(key, _NO_CARDS).get(card.call.id), self._turns.get(key)
        first, ended, late, charge = ledger.close_call(card, result, kept, turn, at, self._alive, self._owner, ran)
        if ended is None:
            self._audit.extend(late)
            result = _raise(first)
        else:
            self._end_call(ended, result, at)
            if turn is not None:
                turn.calls += charge
            self._audit.extend((*control, *audit) if control else audit)
        still_runs = tell_end is None or ledger.still_runs(card.epoch, turn)
        if ends is not None and still_runs:
            await self.end(*ends(result))
        if tell_end is not None:
            tell_end(ends is not None and still_runs)
        return result

    async def end(self, turn: Turn, stats: TurnStats) -> None:
        ending = refusals.ending_of(turn)
        kept = self._held(turn)
        kept.ending = ending
        del self._open[turn.project, turn.id]
        key = (turn.project, turn.agent, day_of(self._clock()))
        self._sums.spent[key] = spending(self._sums.spent.get(key) or Spending(), stats, kept.calls)
        self._sums.loop[turn.project] = loop_metrics(
            self._sums.loop.get(turn.project) or LoopMetrics(), stats, ending.reason
        )
        if stats.formats:
            self._sums.formats[turn.project] = merge_tallies(
                (*self._sums.formats.get(turn.project, ()), *stats.formats)
            )
        kept.owner = None
        self._touch(kept, ledger.ENDED)
        if turn.thread:
            self._keep_thread(kept)
        self._keep_past(self._past_of(kept))

    async def release(self, turn: Turn) -> None:
        kept = self._held(turn)
        key = (turn.project, turn.id)
        cards = self._cards.get(key, {})
        begun = self._begun.get(key, ())
        for card in ledger.not_begun(cards.values(), lambda card: card.call.id in begun):
            cards[card.call.id] = card
        if kept.opening.waits != turn.waits:
            kept.opening = replace(kept.opening, waits=turn.waits)
        kept.owner = None
        self._touch(kept, ledger.INTERRUPTED)

    async def audit(self, rows: Sequence[AuditRow]) -> None:
        self._audit.extend(rows)
        self._audit.trim()

    async def request_approval(self, card: ApprovalCard, audit: Sequence[AuditRow]) -> ApprovalCard:
        first = self._approvals.about((card.project, card.turn_id), card.call_id)
        kept = ledger.request_approval(first, self._asked.date(first) if first else 0.0)
        if kept is not None:
            return kept
        self._approvals.put(card)
        self._asked.add(card)
        self._audit.extend(audit)
        return card

    async def answer(self, approval_id: str, answer: Approval, *, project: str | None = None) -> ApprovalCard:
        card = self._approvals.get(approval_id, project)
        turn = None if card is None else self._turns.get((card.project, card.turn_id))
        date = 0.0 if card is None else self._asked.date(card)
        done = _raise(ledger.answer(approval_id, card, turn, answer, at=self._clock(), date=date))
        self._approvals.put(done.card)
        if done.card.state is not ApprovalState.OPEN:
            self._asked.forget(done.card)
        self._audit.extend([done.audit])
        return done.card

    async def approval(self, approval_id: str, *, project: str | None = None) -> ApprovalCard:
        card = self._approvals.get(approval_id, project)
        if card is None:
            raise refusals.no_approval(approval_id)
        return self._as_of_now(card)

    def _as_of_now(self, card: ApprovalCard) -> ApprovalCard:
        """A question of a turn that has ended cannot be answered any more, however long it would have stayed open."""
        return card.at(math.inf if self._has_ended((card.project, card.turn_id)) else self._asked.date(card))

    def _has_ended(self, key: _TurnKey) -> bool:
        return (kept := self._turns.get(key)) is not None and kept.state == "ended"

    async def approvals(
        self, *, turn_id: str | None = None, only_open: bool = False, limit: int = 50, project: str | None = None
    ) -> list[ApprovalCard]:
        newest = map(self._as_of_now, self._approvals.newest(project))
        wanted = (card for card in newest if turn_id in (None, card.turn_id))
        return list(
            islice((card for card in wanted if not only_open or card.state is ApprovalState.OPEN), max(limit, 0))
        )

    async def mark_untrusted(self, project: str, marks: Sequence[UntrustedMark], gone: Sequence[str] = ()) -> None:
        kept = self._untrusted.setdefault(project, {})
        for resource in gone:
            kept.pop(resource, None)
        kept |= {one.resource: one for one in marks}

    async def untrusted(self, project: str) -> Sequence[UntrustedMark]:
        kept = self._untrusted.get(project)
        return [kept[resource] for resource in sorted(kept)] if kept else ()

    async def active_patterns(self, *, limit: int = 1000, project: str | None = None) -> list[ApprovalCard]:
        now = self._clock()
        newest = (card for card in self._approvals.newest(project) if card.stands_until > now)
        return list(islice(newest, max(limit, 0)))

    async def revoke(self, approval_id: str, by: str, *, project: str | None = None) -> ApprovalCard:
        card = self._approvals.get(approval_id, project)
        date = 0.0 if card is None else self._asked.date(card)
        done = _raise(ledger.revoke(approval_id, card, by, self._clock(), date))
        self._approvals.put(done.card)
        self._audit.extend([done.audit])
        return done.card

    async def turn(self, turn_id: str, *, project: str | None = None) -> KeptTurn:
        return self._tell(self._find(turn_id, project))

    async def turns(
        self, *, limit: int = 20, state: str | None = None, project: str | None = None
    ) -> list[TurnSummary]:
        wanted = "interrupted" if state == "waiting" else state
        turns = reversed(self._turns.values())
        newest = (kept for kept in turns if wanted in (None, kept.state) and project in (None, kept.opening.project))
        if state == "waiting":
            newest = (kept for kept in newest if kept.opening.waits)
        return [self._summary(kept) for kept in islice(newest, max(limit, 0))]

    async def ready_turns(
        self, now: float, *, limit: int = 20, only: Sequence[str] | None = None, project: str | None = None
    ) -> list[TurnSummary]:
        come = ready.KnownOutcomes(self._is_decided, self._is_over, partial(self._is_back, now))
        waiting = (
            kept
            for kept in self._open.values()
            if kept.opening.waits and not self._is_run(kept) and (only is None or kept.opening.id in only)
        )
        found = [
            kept
            for kept in waiting
            if project in (None, kept.opening.project) and ready.is_ready(*_key_of(kept), kept.opening.waits, now, come)
        ]
        return [self._summary(kept) for kept in ready.in_turn(found, lambda one: one.opening.project)[: max(limit, 0)]]

    def _is_decided(self, project: str, approval_id: str) -> bool:
        card = self._approvals.get(approval_id, project)
        return card is None or self._as_of_now(card).state is not ApprovalState.OPEN

    def _is_over(self, project: str, turn_id: str) -> bool:
        return (project, turn_id) not in self._open

    def _is_back(self, now: float, project: str, turn_id: str, call_id: str) -> bool:
        card = self._cards.get((project, turn_id), _NO_CARDS).get(call_id)
        if card is not None and card.result is not None:
            return True
        dispatch, turn = self._dispatches.get((project, turn_id, call_id)), self._turns.get((project, turn_id))
        return dispatch is not None and ledger.is_stranded(dispatch.epoch, card, turn, now, self._is_alive)

    async def dispatch(self, dispatch: Dispatch, audit: Sequence[AuditRow]) -> CallCard:
        key = (dispatch.project, dispatch.turn_id)
        kept, turn = self._cards.get(key, _NO_CARDS).get(dispatch.call_id), self._turns.get(key)
        card = _raise(ledger.dispatch_call(dispatch, kept, turn, self._clock(), self._is_alive))
        if card.result is None:
            self._dispatches[*key, dispatch.call_id] = replace(dispatch, card_id=card.record_id)
            self._dispatched[dispatch.project, card.record_id] = (*key, dispatch.call_id)
            self._audit.extend(audit)
        return card

    async def dispatched(self, card_id: str, *, project: str = "default") -> tuple[Dispatch, CallCard]:
        dispatch, card = self._dispatch_at(self._dispatched.get((project, card_id), ("", "", "")), card_id)
        turn = self._turns.get((card.project, card.turn_id))
        return dispatch, card if turn is None else replace(card, epoch=turn.epoch)

    async def call(self, turn_id: str, call_id: str, *, project: str = "default") -> CallCard:
        card = self._cards.get((project, turn_id), _NO_CARDS).get(call_id)
        if card is None:
            raise refusals.no_call(turn_id, call_id)
        return replace(card, token="")

    async def call_and_end(self, turn_id: str, call_id: str, *, project: str = "default") -> tuple[CallCard, bool]:
        card, turn = await self.call(turn_id, call_id, project=project), self._turns.get((project, turn_id))
        return card, turn is not None and turn.state == ledger.ENDED

    async def dispatched_call(
        self, turn_id: str, call_id: str, *, project: str = "default"
    ) -> tuple[Dispatch, CallCard]:
        return self._dispatch_at((project, turn_id, call_id), call_id)

    def _dispatch_at(self, key: tuple[str, str, str], sought: str) -> tuple[Dispatch, CallCard]:
        dispatch, card = self._dispatches.get(key), self._cards.get(key[:2], _NO_CARDS).get(key[2])
        if dispatch is None or card is None:
            raise refusals.not_dispatched(sought)
        return dispatch, replace(card, token="")

    async def take_due(
        self, now: float, pause: Callable[[int], float], *, limit: int = 100, project: str | None = None,
        skip: Sequence[str] = (),
    ) -> list[DueDispatch]:  # fmt: skip
        wanted = (
            one
            for one in self._dispatches.values()
            if one.due <= now and project in (None, one.project) and (one.subject not in skip or one.expires_at <= now)
        )
        taken = []
        due = sorted(wanted, key=lambda one: one.due)
        for dispatch in (due if len(due) <= limit else ready.in_turn(due, _project_of))[: max(limit, 0)]:
            key = (dispatch.project, dispatch.turn_id, dispatch.call_id)
            card, turn = self._cards.get(key[:2], _NO_CARDS).get(key[2]), self._turns.get(key[:2])
            what, until = ledger.due_call(dispatch, card, turn, self._clock(), self._is_alive)
            if what is Sending.DROP or card is None:
                del self._dispatches[key]
                self._dispatched.pop((dispatch.project, dispatch.card_id), None)
                continue
            sent = dispatch.sent + (what is Sending.SEND)
            later = replace(dispatch, due=until or now + pause(dispatch.sent), sent=sent)
            self._dispatches[key] = later
            if what is not Sending.WAIT:
                seen = replace(card, epoch=dispatch.epoch, token="")
                taken.append(DueDispatch(replace(dispatch, sent=sent), seen, what is Sending.GIVE_UP))
        return taken

    async def calls_with_results(
        self, turn_ids: Sequence[str], *, project: str | None = None
    ) -> set[tuple[str, str]]:  # fmt: skip
        wanted = set(turn_ids)
        return {
            (turn_id, call_id)
            for (of, turn_id), cards in self._cards.items()
            if turn_id in wanted and project in (None, of)
            for call_id, card in cards.items()
            if card.result is not None
        }

    async def thread(self, thread: str, *, project: str = "default") -> tuple[Message, ...]:
        ended = self._threads.read(project, thread)
        left = [
            (
                2 * kept.spoken - 1,
                (*kept.opening.messages[-1:], *self._unfinished(kept)),
            )
            for kept in self._open.values()
            if kept.state == "interrupted" and thread and _thread_of(kept.opening) == (project, thread)
        ]
        if not left:
            return ended
        told = story.merge_turns(((2 * place, (message,)) for place, message in enumerate(ended)), left)
        return tuple(message for messages in told for message in messages)

    async def calls(
        self, *, turn_id: str | None = None, tool: str | None = None, limit: int = 50, project: str | None = None
    ) -> list[CallCard]:
        cards: Iterator[CallCard]
        if turn_id is None:
            cards = (self._cards[turn][call] for turn, call in reversed(self._card_order))
        elif project is not None:
            cards = iter(self._cards.get((project, turn_id), {}).values())
        else:
            cards = (self._cards[turn][call] for turn, call in self._card_order if turn[1] == turn_id)
        wanted = (card for card in cards if tool in (None, card.call.name) and project in (None, card.project))
        return [replace(card, token="") if card.token else card for card in islice(wanted, max(limit, 0))]

    async def audit_log(
        self, *, turn_id: str | None = None, tool: str | None = None, limit: int = 50, after: int | None = None,
        project: str | None = None,
    ) -> list[AuditRow]:  # fmt: skip
        wanted = AuditFilter(project, turn_id, tool and short_name(tool))
        return self._audit.newest(wanted, limit) if after is None else self._audit.after(wanted, limit, after)

    async def turns_before(
        self, cursor: int | None = None, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[TurnSummary]]:
        own = (kept for kept in reversed(self._turns.values()) if project in (None, kept.opening.project))
        earlier = (kept for kept in own if cursor is None or kept.number < cursor)
        return [Numbered(kept.number, self._summary(kept)) for kept in islice(earlier, max(limit, 0))]

    async def turns_after(
        self, cursor: int = 0, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[TurnSummary]]:
        own = (kept for kept in self._turns.values() if project in (None, kept.opening.project))
        later = (kept for kept in own if kept.number > cursor)
        return [Numbered(kept.number, self._summary(kept)) for kept in islice(later, max(limit, 0))]

    async def calls_after(
        self, cursor: int = 0, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[CallCard]]:
        own = ((number, key) for key, number in self._card_order.items() if project in (None, key[0][0]))
        later = ((number, key) for number, key in own if number > cursor)
        return [
            Numbered(number, replace(self._cards[turn][call_id], token=""))
            for number, (turn, call_id) in islice(later, max(limit, 0))
        ]

    async def approvals_after(
        self, cursor: int = 0, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[ApprovalCard]]:
        later = islice(self._approvals.after(cursor, project), max(limit, 0))
        return [Numbered(number, self._as_of_now(card)) for number, card in later]

    async def audit_chain(self, seqs: Sequence[int] = (), *, project: str | None = None) -> AuditChain:
        return self._audit.chain(seqs, project)

    async def metrics(self, *, project: str = "default") -> tuple[list[ToolMetrics], LoopMetrics]:
        own = sorted((name, tool) for (whose, name), tool in self._sums.tools.items() if whose == project)
        tools = [tool_metrics(name, tool.tally, tool.newest_ms, tool.newest_errors) for name, tool in own]
        return tools, self._sums.loop.get(project, LoopMetrics())

    async def formats(self, *, project: str = "default") -> list[FormatTally]:
        return list(self._sums.formats.get(project, ()))

    async def workload(self, at: float, *, project: str = "default") -> Workload:
        turns = [kept for kept in self._open.values() if kept.opening.project == project]
        left = [kept for kept in turns if kept.state == "interrupted"]
        waiting = sum(bool(kept.opening.waits) for kept in left)
        cards = map(self._as_of_now, self._approvals.newest(project))
        pending = [card for card in cards if card.state is ApprovalState.OPEN and card.expires_at > at]
        due = [one.due for one in self._dispatches.values() if one.project == project]
        overdue_s = max(0.0, at - min(due)) if due else 0.0
        return Workload(
            len(turns) - len(left), waiting, len(left) - waiting, len(pending), len(due), overdue_s
        )  # fmt: skip

    async def spent(self, agent: str, at: float, *, but: str = "", project: str = "default") -> Spending:
        return self._day(project, agent, day_of(at), but)

    def _day(self, project: str, agent: str, day: int, but: str) -> Spending:
        whose = (project, agent)
        running = (
            _used(kept)
            for (_, turn_id), kept in self._open.items()
            if (kept.opening.project, kept.opening.agent) == whose and turn_id != but and day_of(kept.updated_at) == day
        )
        return sum(running, self._sums.spent.get((*whose, day), Spending()))

    async def reserve_usage(self, turn: Turn, request: UsageRequest) -> bool:
        if (turn.project, turn.id) in self._turns:
            self._held(turn)
        day = day_of(self._clock())
        others = sum((self._day(turn.project, agent, day, turn.id) for agent in request.accounts), Spending())
        lent = self._shares.get((turn.project, turn.id), ReservedShares()).used
        share = grant_usage(request, turn.used(), others, self._held_usage(turn, request.accounts), lent)
        if share is None:
            return False
        self._reserved_usage[turn.project, turn.id] = turn, share
        return True

    def _held_usage(self, turn: Turn, accounts: Sequence[str]) -> Spending:
        """What other turns of these agents have reserved. What a turn has left behind that ended is removed."""
        held = Spending()
        for key, (other, share) in list(self._reserved_usage.items()):
            kept = self._turns.get(key)
            if kept is not None and (kept.epoch != other.epoch or kept.state != ledger.RUNNING):
                del self._reserved_usage[key]
            elif other.id != turn.id and other.project == turn.project and other.agent in accounts:
                held += share
        return held

    async def release_usage(self, turn: Turn) -> None:
        self._reserved_usage.pop((turn.project, turn.id), None)

    async def queue_locks(self, claims: Sequence[LockClaim], token: str, *, project: str = "default") -> bool:
        number, queue = next(self._numbers), self._lock_queue.setdefault(project, [])
        queue.extend(LockLine(number, token, self._owner, one.resource, one.writes, one.most) for one in claims)
        return may_go(token, queue, self._is_alive) is True

    async def holds_locks(self, token: str, *, project: str = "default") -> bool | None:
        return may_go(token, self._lock_queue.get(project, ()), self._is_alive)

    async def release_locks(self, token: str, *, project: str = "default") -> None:
        self._lock_queue[project] = [line for line in self._lock_queue.get(project, ()) if line.token != token]

    async def reserve_share(
        self, root: str, allotment: Allotment, most: int, *, question: Allotment | None = None, project: str = "default"
    ) -> Allotment | None:
        lent, asker = self._shares.get((project, root), ReservedShares()), self._turns.get((project, root))
        used = _used(asker) if asker else Spending()
        if (reserved_usage := self._reserved_usage.get((project, root))) is not None:
            used += reserved_usage[1]
        share = lent.share(allotment, question, used, most)
        if share is not None:
            self._shares[project, root] = ReservedShares(lent.used + share.held, lent.agents + 1)
        return share

    async def release_unused(self, root: str, unused: Spending, *, project: str = "default") -> None:
        if (lent := self._shares.get((project, root))) is not None:
            self._shares[project, root] = ReservedShares(lent.used - unused, lent.agents)

    async def reserved_shares(self, root: str, *, project: str = "default") -> Spending:
        return self._shares.get((project, root), ReservedShares()).used

    async def keep(self, data: bytes) -> str:
        digest = await asyncio.to_thread(_digest, data) if len(data) > _LARGE_BYTES else _digest(data)
        handle = f"sha256:{digest}"
        self._bodies.add(handle, bytes(data))
        return handle

    async def append_events(self, events: Sequence[KeptEvent]) -> None:
        self._events.append(events)

    async def turn_events(
        self, turn_id: str, after: Place = (0, 0), *, limit: int = 1000, project: str = "default"
    ) -> list[KeptEvent]:
        return self._events.of_turn((project, turn_id), after, limit)

    async def events_after(
        self, cursor: int = 0, *, limit: int = 100, project: str = "default"
    ) -> list[Numbered[KeptEvent]]:
        return self._events.after(cursor, limit, project)

    async def register_tools(
        self, rows: Sequence[ToolRegistration], *, by: str = "", replace: bool = False
    ) -> list[ToolRegistration]:
        project = registry_rules.only_project(rows)
        kept, audit = self._registry.register(project, rows, by, self._clock(), replace=replace)
        self._audit.extend(audit)
        return _raise(kept)

    async def unregister_tool(
        self, name: str, version: str | None = None, *, by: str = "", project: str = "default"
    ) -> list[ToolRegistration]:
        gone, audit = self._registry.unregister(project, name, version, by, self._clock())
        self._audit.extend(audit)
        return _raise(gone)

    async def registered_tools(self, *, project: str = "default") -> list[ToolRegistration]:
        return self._registry.of_project(project)

    async def keep_card(self, card: ResultCard) -> ResultCard:
        return _raise(self._result_cards.keep(card))

    async def result_card(self, card_id: str, *, project: str = "default") -> ResultCard:
        return _raise(self._result_cards.get(card_id, project))

    async def keep_pieces(self, pieces: AsyncIterable[bytes]) -> str:
        return await self.keep(b"".join([piece async for piece in pieces]))

    async def fetch(self, handle: str, *, offset: int = 0, length: int | None = None) -> bytes:
        body = self._bodies.get(handle)
        if body is None:
            raise refusals.no_body(handle)
        start = max(offset, 0)
        return body[start:] if length is None else body[start : start + max(length, 0)]

    async def close_store(self) -> None:
        """Nothing to let go of."""

    def _is_alive(self, _owner: str) -> bool:
        """Whatever is kept in memory is owned by this process."""
        return True

    def _is_run(self, kept: _MemoryTurn) -> bool:
        return kept.owner is not None and self._is_alive(kept.owner)

    def _find(self, turn_id: str, project: str | None) -> _MemoryTurn:
        """A turn of a project; without one, the turn that has this id in any."""
        projects = {key[0] for key in self._turns if key[1] == turn_id} if project is None else {project}
        if len(projects) > 1:
            raise refusals.in_several_projects(f"turn {turn_id!r}")
        kept = next((self._turns.get((whose, turn_id)) for whose in projects), None)
        if kept is None:
            raise refusals.no_turn(turn_id)
        return kept

    def _held(self, turn: Turn) -> _MemoryTurn:
        """The kept turn, if this very epoch may still change it."""
        kept = self._turns.get((turn.project, turn.id))
        if (refusal := ledger.change_turn(turn, kept)) is not None or kept is None:
            raise refusal or refusals.no_turn(turn.id)
        kept.waited_s = turn.waited_s
        return kept

    def _kept(self, card: CallCard) -> CallCard | None:
        return self._cards.get((card.project, card.turn_id), _NO_CARDS).get(card.call.id)

    def _added(self, card: CallCard, turn: _MemoryTurn | None) -> Step[CallCard]:
        return ledger.add_call(card, self._kept(card), turn, self._clock(), self._is_alive, self._owner)

    def _raise_refusal(self, step: Step[CallCard]) -> None:
        answer, _, audit, _ = step
        if isinstance(answer, StoreError):
            self._audit.extend(audit)
            raise answer

    def _apply(self, step: Step[CallCard], audit: Sequence[AuditRow] = ()) -> CallCard:
        """Keep what has become of a call, and give back what its caller sees."""
        self._raise_refusal(step)
        answer, kept, _, charge = step
        if kept is not None:
            self._keep(kept)
            if charge and (turn := self._turns.get((kept.project, kept.turn_id))) is not None:
                turn.calls += charge  # a card whose turn was never begun counts for no day
            self._audit.extend(audit)
        return _raise(answer)

    def _keep(self, card: CallCard) -> None:
        key, call_id = (card.project, card.turn_id), card.call.id
        cards = self._cards.get(key)
        if cards is None:
            cards = self._cards[key] = {}
        if call_id not in cards:
            self._card_order[key, call_id] = next(self._numbers)
        cards[call_id] = card
        if card.result is not None:
            self._end_call(card, card.result, self._clock())

    def _end_call(self, card: CallCard, result: ToolResult, at: float) -> None:
        key = (card.project, card.turn_id)
        self._cards[key][card.call.id] = card
        counted = (card.project, counted_as(card))
        tool = self._sums.tools.get(counted)
        if tool is None:
            tool = self._sums.tools[counted] = _Tool()
        tool.newest_ms.append(tool.tally.add(result, at))
        if result.error is not None:
            tool.newest_errors.append(result.error.code.value)
        if result.handle:
            self._bodies.hold(named_bodies((result,)))
        if key not in self._turns:
            self._keep_past(self._past_call(card))

    def _keep_thread(self, kept: _MemoryTurn) -> None:
        in_use = frozenset((one.opening.project, one.opening.thread) for one in self._open.values())
        whose = (kept.opening.project, kept.opening.thread)
        if dropped := self._threads.add(whose, self._history(kept), in_use):
            _log.warning(
                "the memory store is full: %d threads that were spoken in least recently were dropped, and their next "
                "turn begins without a history; give MemoryStore a larger max_bytes, or use a SqliteStore",
                dropped,
            )

    def _past_of(self, kept: _MemoryTurn) -> _Past:
        turn, cards = kept.opening, self._cards.get(_key_of(kept), {}).values()
        words = len(turn.question) + len(turn.system) + len(turn.messages) * _POINTER
        bodies = named_bodies(map(_result_of, cards))
        weight = words + weigh_replies(kept.said)
        if bodies:
            weight += sum(map(weigh_card, cards)) + self._bodies.weight(bodies)
        else:
            weight += weigh_cards(cards)
        return _Past(_key_of(kept), "", max(len(cards), 1), weight, bodies)

    def _past_call(self, card: CallCard) -> _Past:
        bodies = named_bodies((card.result,))
        return _Past(
            (card.project, card.turn_id), card.call.id, 1, weigh_card(card) + self._bodies.weight(bodies), bodies
        )

    def _keep_past(self, newest: _Past) -> None:
        """Keep what has ended, and drop the oldest that is beyond the limits. A turn with a pending approval stays."""
        self._audit.trim()
        self._past.append(newest)
        self._sums.past_calls += newest.calls
        self._sums.past_weight += newest.weight
        pending: list[_Past] = []
        while len(self._past) > 1 and self._is_full():
            oldest = self._past.popleft()
            if self._approvals.are_pending(oldest.key, self._clock()):
                pending.append(oldest)
            else:
                self._drop(oldest)
        self._past.extendleft(reversed(pending))

    def _is_full(self) -> bool:
        """Whether more is kept of the past than there is room for."""
        return self._sums.past_calls > self._max_calls or self._sums.past_weight > self._max_bytes

    def _drop(self, past: _Past) -> None:
        self._sums.past_calls -= past.calls
        self._sums.past_weight -= past.weight
        self._bodies.let_go(past.bodies)
        cards, begun = self._cards.get(past.key, {}), self._begun.get(past.key, set())
        for call_id in [past.call_id] if past.call_id else list(cards):
            del cards[call_id], self._card_order[past.key, call_id]
            begun.discard(call_id)
        if not cards:
            self._cards.pop(past.key, None)
            self._begun.pop(past.key, None)
            if self._turns.pop(past.key, None) is not None:
                self._shares.pop(past.key, None)
            self._events.drop(past.key)
            self._result_cards.drop(past.key)
            self._approvals.drop_turn(past.key, self._clock())

    def _touch(self, kept: _MemoryTurn, state: str) -> None:
        kept.state = state
        kept.updated_at, kept.ran_at = self._clock(), self._monotonic()

    def _results(self, kept: _MemoryTurn) -> dict[str, ToolResult]:
        cards = self._cards.get(_key_of(kept), {}).values()
        return {card.call.id: card.result for card in cards if card.result is not None}

    def _detached(self, kept: _MemoryTurn) -> frozenset[str]:
        return frozenset(card.call.id for card in self._cards.get(_key_of(kept), {}).values() if card.detached)

    def _tell(self, kept: _MemoryTurn) -> KeptTurn:
        events = story.events(kept.said, self._results(kept), self._detached(kept))
        cancel = ledger.why_canceled(card.cancel for card in self._cards.get(_key_of(kept), {}).values())
        return KeptTurn(kept.opening, events, kept.state, kept.ran_s, kept.calls, kept.ending, cancel)

    def _history(self, kept: _MemoryTurn) -> tuple[Message, ...]:
        return (*kept.opening.messages[-1:], *story.history(kept.said, self._results(kept), self._detached(kept)))

    def _unfinished(self, kept: _MemoryTurn) -> tuple[Message, ...]:
        return story.unfinished(kept.said, self._results(kept), self._detached(kept))

    def _summary(self, kept: _MemoryTurn) -> TurnSummary:
        turn = kept.opening
        return TurnSummary(
            id=turn.id,
            project=turn.project,
            agent=turn.agent,
            thread=turn.thread,
            model=turn.model,
            question=turn.question,
            state=kept.state,
            started_at=turn.started_at,
            updated_at=kept.updated_at,
            reason=kept.ending.reason.value if kept.ending else "",
            answer=kept.ending.answer if kept.ending else "",
            calls=len(self._cards.get(_key_of(kept), {})),
            waits=turn.waits,
            value=kept.ending.value if kept.ending else None,
        )


def _raise(outcome: T | StoreError) -> T:
    if isinstance(outcome, StoreError):
        raise outcome
    return outcome


def _used(kept: _MemoryTurn) -> Spending:
    """What a turn has used, as far as it has said."""
    ran_s = kept.ran_s if kept.opening.limits.own_time else 0.0
    return sum(map(said_spending, kept.said), Spending(kept.calls, wall_s=ran_s))


def _key_of(kept: _MemoryTurn) -> _TurnKey:
    return kept.opening.project, kept.opening.id


def _thread_of(turn: Turn) -> tuple[str, str]:
    return turn.project, turn.thread


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
