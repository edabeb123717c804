"""The store that survives its process: one SQLite file, a folder of large bodies, and who is alive."""

import asyncio
import errno
import os
import sqlite3
import time
from collections.abc import AsyncIterable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from toolwire.errors import Fenced, NotFound, StoreError, StoreUnavailable
from toolwire.lazy_attributes import lazy_attribute
from toolwire.plan.resources import LockClaim
from toolwire.protocol.approvals import Approval, ApprovalCard, ApprovalState
from toolwire.protocol.budgets import Allotment, Spending
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Message, Note, Reply
from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.records import AuditRow, CallCard, Dispatch
from toolwire.protocol.registrations import ResultCard, ToolRegistration
from toolwire.protocol.turns import Turn
from toolwire.record import (
    changes,
    dispatch_rows,
    event_rows,
    ledger,
    lock_rows,
    reads,
    record_rows,
    refusals,
    registry_rows,
    registry_rules,
    reserved_usage,
    restoring,
    schema,
    sub_agent_shares,
)
from toolwire.record import marks as marking
from toolwire.record import retention as pruning
from toolwire.record.approval_clock import ApprovalClock
from toolwire.record.artifacts import Artifacts
from toolwire.record.bodies import DatabaseBodies, FolderBodies
from toolwire.record.chain import AuditChain
from toolwire.record.changes import ChangeTime, OpenCard, open_card
from toolwire.record.closing import ClosingStore
from toolwire.record.contract import (
    BodyPlace,
    BodyStore,
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
from toolwire.record.faults import to_store_error
from toolwire.record.ledger import Claim
from toolwire.record.liveness import LEASE_S, Liveness
from toolwire.record.owners import Owners, owners_in_use
from toolwire.record.ownership import named_folder, open_folder, prepare, signature
from toolwire.record.reader import BatchedReads, Reader, ThreadCache
from toolwire.record.record_store import SqliteRecordStore
from toolwire.record.retention import AT_FULL_SPEED, AuditCut, KeepLimits, Pruned, PrunePace, Retention
from toolwire.record.rows import (
    DEFAULT,
    CallKey,
    Row,
    TurnKey,
    audit_rows,
    call_key,
    column,
    history_json,
    history_of,
    left_json,
    new_id,
    opening_json,
    project_key,
    read_audit,
    result_row,
    said_row,
    turn_key,
    waits_json,
)
from toolwire.record.tally import day_of, sums_with
from toolwire.record.transaction import Transaction
from toolwire.record.warm import WarmLog
from toolwire.record.writer import Writer
from toolwire.wire.formats.tally import FormatTally

T = TypeVar("T")
Clocks = tuple[Callable[[], float], Callable[[], float]]
"""What gives dates, and what measures how long something lasts."""
_ROWS_COPIED = 1_000
_MOST_SEEN = 256


class _Run(NamedTuple):
    """A turn that this store runs: under which epoch, and since when if it had run at a stretch.

    `lapses` is how often the lease had run out by then.
    """

    epoch: int
    since: float
    lapses: int


class SqliteStore(SqliteRecordStore, ClosingStore):
    """Keeps everything under one folder: what a method has answered survives `kill -9` and a power cut.

    Any number of processes may use the same folder. A turn belongs to the store that began or resumed it until it
    ends, is released, or that store's process is gone. Open with `await SqliteStore.at(home)`.
    """

    groups_changes = True

    def __init__(
        self,
        home: Path,
        path: Path | str,
        connect: Callable[[], sqlite3.Connection],
        clock: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        *,
        lease_s: float = LEASE_S,
        bodies: BodyStore | BodyPlace = "folder",
        owners: Liveness | None = None,
        warm: WarmLog | None = None,
        writer: Writer | None = None,
    ) -> None:
        """`connect` gives connections to the tables at `path`, which are up to date.

        A part that is not given is made when it is first used.
        """
        self._home = home
        self._path = path
        self._connect = connect
        self._clock = self.clock = clock
        self._monotonic = monotonic
        self._lease_s = lease_s
        self._runs: dict[TurnKey, _Run] = {}
        self._taking: set[TurnKey] = set()
        self._seen: dict[CallKey, changes.Seen] = {}
        self._is_closed = False
        self._bodies_in_database = bodies == "database"
        if not isinstance(bodies, str):
            self.bodies = bodies
        if owners is not None:
            self._owners = owners
        if warm is not None:
            self._warm = warm
        if writer is not None:
            self._writer = writer

    @classmethod
    async def at(
        cls,
        home: Path | str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        busy_timeout_s: float = 5.0,
        lease_s: float = LEASE_S,
        bodies: BodyStore | BodyPlace = "folder",
    ) -> "SqliteStore":
        """Open the store in a folder, making what is missing. Raises StoreUnavailable, saying what to do.

        `clock` gives dates; how long a turn runs is measured by `monotonic`. What this store owns can be taken over
        when its process is gone, or has given no sign of life for `lease_s`. Large bodies lie in the folder, in the
        database, or where `bodies` keeps them, which then has to prune them, too.
        """
        home = named_folder(home)
        path = home / "store.db"
        connect = partial(schema.connect, path, busy_timeout_s=busy_timeout_s)
        await asyncio.to_thread(_prepare, home, path, connect)
        return cls(home, path, connect, clock, monotonic, lease_s=lease_s, bodies=bodies)

    @lazy_attribute
    def _owners(self) -> Liveness:
        """The lease of this store, which is there before any row says that the store owns something."""
        self._require_open()
        try:
            return Owners(self._home / "owners", lease_s=self._lease_s, monotonic=self._monotonic)
        except OSError as error:
            raise to_store_error(error, self._path) from error

    @lazy_attribute
    def _writer(self) -> Writer:
        self._require_open()
        return Writer(self._path, self._connect_and_sweep, self._warm.add, self._owners)

    def _connect_and_sweep(self) -> sqlite3.Connection:
        """A connection for what writes, and an end to what is left of owners that died."""
        connection = self._connect()
        try:
            self._owners.sweep(owners_in_use(connection))
        except BaseException:
            connection.close()
            raise
        return connection

    @lazy_attribute
    def _reader(self) -> Reader:
        self._require_open()
        return Reader(self._path, self._connect)

    @lazy_attribute
    def _warm(self) -> WarmLog:
        return WarmLog(self._home / "logs", self._clock)

    @lazy_attribute
    def _artifacts(self) -> Artifacts:
        return Artifacts(self._home / "artifacts")

    @lazy_attribute
    def bodies(self) -> BodyStore:
        """Where large bodies are kept. With a database for them, those of before are found in the folder."""
        files = FolderBodies(self._artifacts)
        return DatabaseBodies(self._writer, self._reader, self._clock, files) if self._bodies_in_database else files

    @lazy_attribute
    def _asked(self) -> ApprovalClock:
        return ApprovalClock(self._clock, self._monotonic)

    @lazy_attribute
    def _threads(self) -> ThreadCache:
        return ThreadCache()

    @lazy_attribute
    def _dispatched(self) -> BatchedReads[dispatch_rows.CardKey, dispatch_rows.DispatchedCall]:
        return BatchedReads(lambda keys: self._reader.read(dispatch_rows.of_cards, keys))

    @lazy_attribute
    def _calls(self) -> BatchedReads[tuple[str, str, str], tuple[CallCard, bool]]:
        return BatchedReads(lambda keys: self._reader.read(reads.calls_by_id, keys))

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"{self._path} was closed; open the store again")

    async def begin(self, turn: Turn, *, runs: bool = True) -> None:
        if runs:
            await self._begin(turn)
            return
        row = await self._opening_row(turn, runs=False)
        await self._writer.write(partial(changes.begin, key=turn_key(turn), row=row), _whose(turn))

    async def _begin(self, turn: Turn, first: OpenCard | None = None, may_wait: bool = False) -> Any:
        """Begin a turn that this store runs, with its first call if it is given; what came of that."""
        row, key = await self._opening_row(turn), turn_key(turn)
        run_already = self._runs.get(key)
        self._runs[key] = _Run(turn.epoch, self._monotonic(), self._owners.lapses)
        try:
            begin = partial(changes.begin, key=key, row=row, first=first)
            leased = partial(_leased, change=begin, owners=self._owners)
            made, lapses = await self._writer.write(leased, _whose(turn), may_wait=may_wait)
            if (run := self._runs.get(key)) is not None:  # otherwise it has ended with its call
                self._runs[key] = run._replace(lapses=lapses)
            return made
        except BaseException:
            if run_already is None:
                self._let_go(turn)
            else:  # the id is taken, by a turn that runs on
                self._runs[key] = run_already
            raise

    async def resume(self, turn_id: str, *, project: str | None = None) -> KeptTurn:
        project = (await self.turn(turn_id)).opening.project if project is None else project
        key = (column(project), column(turn_id))
        if key in self._taking:
            raise refusals.owned(turn_id)
        self._taking.add(key)
        try:
            await self._writer.settle()
            owners = self._owners
            take = partial(
                changes.resume, key=key, runs=self._runs.__contains__, owners=owners, at=self._clock(),
            )  # fmt: skip
            epoch, lapses = await self._writer.write(partial(_leased, change=take, owners=owners))
            kept = await self.turn(turn_id, project=project)
            self._runs[key] = _Run(epoch, self._monotonic() - kept.ran_s, lapses)
        except BaseException as error:
            self._taking.discard(key)
            if not isinstance(error, Fenced | NotFound):
                self._let_go()
            raise
        self._taking.discard(key)
        return kept

    def _let_go(self, turn: Turn | None = None) -> None:
        """Release what this store owns and does not run, once everything on its way to the store has arrived."""
        if turn is not None:
            self._stops(turn)
        owners = self._owners
        sweep = partial(changes.release_unrun, owner=owners.name, runs=self._is_running, begun=owners.begun)
        self._writer.after(sweep, asyncio.get_running_loop())

    def _stops(self, turn: Turn) -> None:
        """This store runs the turn no more; another epoch of it is another matter."""
        run = self._runs.get(turn_key(turn))
        if run is not None and run.epoch == turn.epoch:
            del self._runs[turn_key(turn)]

    def _ran_s(self, turn: Turn) -> float | None:
        """How long a turn has run, apart from waiting for people; None for one that this store does not run."""
        run = self._runs.get(turn_key(turn))
        return None if run is None else max(self._monotonic() - run.since - turn.waited_s, 0.0)

    def _is_running(self, key: TurnKey) -> bool:
        return key in self._runs or key in self._taking

    async def append_reply(
        self, turn: Turn, reply: Reply, cards: Sequence[CallCard], audit: Sequence[AuditRow],
        reserve: Reservation | None = None, *, may_wait: bool = False,
    ) -> Sequence[CallCard]:  # fmt: skip
        kept = await self._say(turn, reply, cards, audit, reserve, may_wait)
        return cards if reserve is None else [one.card for one in kept]

    async def append_note(self, turn: Turn, note: Note) -> None:
        await self._say(turn, note, (), ())

    async def open(
        self, card: CallCard, audit: Sequence[AuditRow], reserve: Reservation | None = None, *,
        begins: Turn | None = None, may_wait: bool = False,
    ) -> CallCard:  # fmt: skip
        change = open_card(card, audit, self._now(), reserve)
        if begins is None:
            return await self._writer.write(change, _whose(card), may_wait=may_wait)
        opened: CallCard = await self._begin(begins, change, may_wait)
        return opened

    async def claim(
        self, card: CallCard, audit: Sequence[AuditRow], *, owner: str = "", until: float | None = None,
        begins: bool = True, token: str = "", outlives_turn: bool = False,
    ) -> CallCard:  # fmt: skip
        owner = owner or (self._owners.name if outlives_turn else "")
        claim = Claim(token or new_id(), self._owners.name, owner, until)
        change = partial(changes.claim, card=card, audit=audit_rows(audit), now=self._now(), claim=claim)
        mine = await self._writer.write(self._after_reading(card, change), _whose(card))
        if begins and mine.result is None:
            self.begins(card.turn_id, card.call.id, project=card.project)
        return mine

    def _after_reading(
        self, card: CallCard, change: Callable[[Transaction], T | StoreError]
    ) -> Callable[[Transaction], T | StoreError]:
        """A change of a call that may have been read just before."""
        seen = self._seen.pop(call_key(card), None)
        return change if seen is None else partial(changes.after_reading, change=change, seen=seen)

    async def renew(self, card: CallCard, until: float | None = None) -> CallCard:
        change = partial(changes.renew, card=card, store=self._owners.name, until=until)
        return await self._writer.write(change, _whose(card))

    async def detach(self, card: CallCard) -> CallCard:
        change = partial(changes.mark, card=card, rule=ledger.detach_call)
        return await self._writer.write(change, _whose(card))

    async def ask_to_cancel(self, card: CallCard, why: str) -> CallCard:
        rule = partial(ledger.ask_to_cancel, why=why)
        return await self._writer.write(partial(changes.mark, card=card, rule=rule), _whose(card))

    async def detached_calls(self, *, limit: int = 100, project: str | None = None) -> list[CallCard]:
        return await self._reader.read(reads.detached_calls, limit, project)

    def _now(self) -> ChangeTime:
        return ChangeTime(self._clock(), self._owners.name)

    async def close(
        self, card: CallCard, result: ToolResult, audit: Sequence[AuditRow], *, ran: bool = True,
        claims: bool = False, ends: Ends | None = None, tell_end: Callable[[bool], None] | None = None,
    ) -> ToolResult:  # fmt: skip
        now = self._now()
        result, control = ledger.settle(card, result, now.at)
        if control:
            audit = (*control, *audit)
        row = result_row(card, result, now.at)
        change: Callable[[Transaction], ToolResult | StoreError] = partial(
            changes.close, card=card, result=result, row=row, audit=audit_rows(audit), now=now, ran=ran
        )
        if claims:
            by = Claim(card.token, self._owners.name)
            change = self._after_reading(card, partial(changes.claim_and, card=card, by=by, change=change, now=now))
        both = change if ends is None else partial(
            changes.close_and_end, change=change, ends=ends, at=now.at, tell_end=tell_end
        )  # fmt: skip
        try:
            first = await self._writer.write(both, _whose(card))
        except StoreUnavailable:
            self._writer.retry_later(change)  # the result alone: its turn is released, and ends when it is resumed
            raise
        except Fenced:
            self._owners.unmark(project_key(card.project, card.turn_id), row[8])
            raise
        self._owners.unmark(project_key(card.project, card.turn_id), row[8])
        if ends is not None:
            self._runs.pop((row[1], row[7]), None)
        return first

    def forget_run(self, turn_id: str, *, project: str = DEFAULT) -> None:
        self._runs.pop((column(project), column(turn_id)), None)

    def holds(self, turn_id: str, *, project: str = DEFAULT) -> bool:
        run = self._runs.get((column(project), column(turn_id)))
        return run is None or run.lapses == self._owners.lapses

    def begins(self, turn_id: str, call_id: str, *, project: str = DEFAULT) -> None:
        try:
            self._owners.mark(project_key(project, turn_id), column(call_id))
        except OSError as error:
            raise to_store_error(error, "the file that notes which calls begin") from error

    def pauses(self, turn_id: str, call_id: str, *, project: str = DEFAULT) -> None:
        self._owners.erase(project_key(project, turn_id), column(call_id))

    async def end(self, turn: Turn, stats: TurnStats) -> None:
        ending = refusals.ending_of(turn)
        await self._writer.write(
            partial(changes.end, turn=turn, ending=ending, stats=stats, at=self._clock()), _whose(turn)
        )
        self._runs.pop(turn_key(turn), None)

    async def release(self, turn: Turn) -> None:
        begun = self._owners.begun(self._owners.name)
        release = partial(changes.release, turn=turn, at=self._clock(), ran_s=self._ran_s(turn), begun=begun)
        self._stops(turn)
        await self._now_or_later(release, _whose(turn))

    async def _now_or_later(self, change: Callable[[Transaction], T | StoreError], whose: Any = None) -> T:
        """Make a change that must not get lost: one that cannot be made now is told, and made as soon as it can."""
        try:
            return await self._writer.write(change, whose)
        except StoreUnavailable:
            self._writer.retry_later(change)
            raise

    async def audit(self, rows: Sequence[AuditRow]) -> None:
        await self._writer.write(partial(changes.append, audit=audit_rows(rows)))

    async def request_approval(self, card: ApprovalCard, audit: Sequence[AuditRow]) -> ApprovalCard:
        ask = partial(changes.request_approval, card=card, audit=audit_rows(audit), asked=self._asked)
        first = await self._writer.write(ask, _whose(card))
        if first.id == card.id:
            self._asked.add(card)
        return first

    async def answer(self, approval_id: str, answer: Approval, *, project: str | None = None) -> ApprovalCard:
        whose = await self._project_of_approval(approval_id) if project is None else project
        change = partial(
            changes.answer, project=whose, approval_id=approval_id, answer=answer, at=self._clock(), asked=self._asked
        )
        after = await self._writer.write(change)
        if after.state is not ApprovalState.OPEN:
            self._asked.forget(after)
        return after

    async def _project_of_approval(self, approval_id: str) -> str:
        return (await self.approval(approval_id)).project

    async def approval(self, approval_id: str, *, project: str | None = None) -> ApprovalCard:
        return await self._reader.read(reads.approval, approval_id, self._asked, project)

    async def approvals(
        self, *, turn_id: str | None = None, only_open: bool = False, limit: int = 50, project: str | None = None
    ) -> list[ApprovalCard]:
        return await self._reader.read(reads.approvals, turn_id, only_open, limit, self._asked, project)

    async def mark_untrusted(self, project: str, marks: Sequence[UntrustedMark], gone: Sequence[str] = ()) -> None:
        await self._writer.write(partial(marking.mark, project=project, marks=tuple(marks), gone=tuple(gone)))

    async def untrusted(self, project: str) -> Sequence[UntrustedMark]:
        return await self._reader.read(marking.marks, project)

    async def active_patterns(self, *, limit: int = 1000, project: str | None = None) -> list[ApprovalCard]:
        return await self._reader.read(reads.active_patterns, limit, self._clock(), project)

    async def revoke(self, approval_id: str, by: str, *, project: str | None = None) -> ApprovalCard:
        whose = await self._project_of_approval(approval_id) if project is None else project
        change = partial(
            changes.revoke, project=whose, approval_id=approval_id, by=by, at=self._clock(), asked=self._asked
        )
        return await self._writer.write(change)

    async def turn(self, turn_id: str, *, project: str | None = None) -> KeptTurn:
        return await self._reader.read(reads.turn, turn_id, self._owners.alive_on, project)

    async def turns(
        self, *, limit: int = 20, state: str | None = None, project: str | None = None
    ) -> list[TurnSummary]:
        return await self._reader.read(reads.turns, limit, state, self._owners.alive_on, project)

    async def ready_turns(
        self, now: float, *, limit: int = 20, only: Sequence[str] | None = None, project: str | None = None
    ) -> list[TurnSummary]:
        return await self._reader.read(reads.ready_turns, now, limit, self._owners.alive_on, self._asked, project, only)

    async def dispatch(self, dispatch: Dispatch, audit: Sequence[AuditRow]) -> CallCard:
        change = partial(dispatch_rows.keep, dispatch=dispatch, audit=audit_rows(audit), now=self._now())
        # In the line of its agent, behind the reply that it belongs to.
        return await self._writer.write(change, (dispatch.project, audit[0].agent if audit else dispatch.turn_id))

    async def dispatched(self, card_id: str, *, project: str = DEFAULT) -> tuple[Dispatch, CallCard]:
        found = await self._dispatched.get((project, card_id))
        if found is None:
            raise refusals.not_dispatched(card_id)
        dispatch, card, turn = found
        if card.result is None:
            key = call_key(card)
            self._seen[key] = key, turn, card
            if len(self._seen) > _MOST_SEEN:
                del self._seen[next(iter(self._seen))]
        return dispatch, replace(card, token="", epoch=card.epoch if turn is None else turn.epoch)

    async def dispatched_call(self, turn_id: str, call_id: str, *, project: str = DEFAULT) -> tuple[Dispatch, CallCard]:
        return await self._reader.read(dispatch_rows.of_call, turn_id, call_id, project)

    async def take_due(
        self, now: float, pause: Callable[[int], float], *, limit: int = 100, project: str | None = None,
        skip: Sequence[str] = (),
    ) -> list[DueDispatch]:  # fmt: skip
        change = partial(
            dispatch_rows.take_due,
            now=self._now(),
            upto=now,
            pause=pause,
            limit=max(limit, 0),
            project=project,
            skip=skip,
        )
        return await self._writer.write(change)

    async def calls_with_results(
        self, turn_ids: Sequence[str], *, project: str | None = None
    ) -> set[tuple[str, str]]:  # fmt: skip
        return await self._reader.read(reads.calls_with_results, list(turn_ids), project)

    async def thread(self, thread: str, *, project: str = "default") -> tuple[Message, ...]:
        return (await self._reader.read(self._threads.read, project, thread, self._owners.alive_on)).said

    async def calls(
        self, *, turn_id: str | None = None, tool: str | None = None, limit: int = 50, project: str | None = None
    ) -> list[CallCard]:
        return await self._reader.read(reads.calls, turn_id, tool, limit, project)

    async def call(self, turn_id: str, call_id: str, *, project: str = DEFAULT) -> CallCard:
        return (await self.call_and_end(turn_id, call_id, project=project))[0]

    async def call_and_end(self, turn_id: str, call_id: str, *, project: str = DEFAULT) -> tuple[CallCard, bool]:
        found = await self._calls.get((project, turn_id, call_id))
        if found is None:
            raise refusals.no_call(turn_id, call_id)
        if found[1]:  # the process that ran its call may have ended it
            self.forget_run(turn_id, project=project)
        return found

    async def audit_log(
        self, *, turn_id: str | None = None, tool: str | None = None, limit: int = 50, after: int | None = None,
        project: str | None = None,
    ) -> list[AuditRow]:  # fmt: skip
        return await self._reader.read(reads.audit_log, turn_id, tool, limit, after, project)

    async def turns_before(
        self, cursor: int | None = None, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[TurnSummary]]:
        return await self._reader.read(reads.turns_before, cursor, limit, self._owners.alive_on, project)

    async def turns_after(
        self, cursor: int = 0, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[TurnSummary]]:
        return await self._reader.read(reads.turns_after, cursor, limit, self._owners.alive_on, project)

    async def calls_after(
        self, cursor: int = 0, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[CallCard]]:
        return await self._reader.read(reads.calls_after, cursor, limit, project)

    async def approvals_after(
        self, cursor: int = 0, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[ApprovalCard]]:
        return await self._reader.read(reads.approvals_after, cursor, limit, self._asked, project)

    def newest_audit(self, limit: int = 50) -> list[AuditRow]:
        """The newest audit rows that this process wrote, oldest first, from memory; they have no sequence numbers."""
        return [read_audit((0, *row)) for row in self._warm.newest(limit)]

    async def audit_chain(self, seqs: Sequence[int] = (), *, project: str | None = None) -> AuditChain:
        return await self._reader.read(reads.audit_chain, seqs, project=project)

    async def metrics(self, *, project: str = "default") -> tuple[list[ToolMetrics], LoopMetrics]:
        return await self._reader.read(reads.metrics, project)

    async def formats(self, *, project: str = "default") -> list[FormatTally]:
        return await self._reader.read(reads.formats, project)

    def watch_commits(self, tell: Callable[[int, float], None]) -> None:
        """Tell of each commit from now on how many changes it held and how many seconds it took, in any thread."""
        self._writer.watch_commits(tell)

    async def workload(self, at: float, *, project: str = "default") -> Workload:
        return await self._reader.read(reads.workload, project, at)

    async def spent(self, agent: str, at: float, *, but: str = "", project: str = "default") -> Spending:
        return await self._reader.read(reads.read_spending, project, agent, day_of(at), but)

    async def reserve_usage(self, turn: Turn, request: UsageRequest) -> bool:
        reserve = partial(
            reserved_usage.reserve, turn=turn, request=request, at=self._clock(), owner=self._owners.name
        )  # fmt: skip
        return await self._writer.write(reserve, _whose(turn))

    async def release_usage(self, turn: Turn) -> None:
        await self._now_or_later(partial(reserved_usage.release, turn=turn), _whose(turn))

    async def queue_locks(self, claims: Sequence[LockClaim], token: str, *, project: str = "default") -> bool:
        owner = self._owners.name
        return await self._writer.write(
            partial(lock_rows.queue, project=project, claims=tuple(claims), token=token, owner=owner)
        )

    async def holds_locks(self, token: str, *, project: str = "default") -> bool | None:
        return await self._reader.read(lock_rows.holds, project, token, self._owners.alive_on)

    async def release_locks(self, token: str, *, project: str = "default") -> None:
        await self._now_or_later(partial(lock_rows.release, project=project, token=token))

    async def reserve_share(
        self, root: str, allotment: Allotment, most: int, *, question: Allotment | None = None, project: str = "default"
    ) -> Allotment | None:
        reserve = partial(
            sub_agent_shares.reserve_share,
            project=project,
            root=root,
            allotment=allotment,
            question=question,
            most=most,
        )
        return await self._writer.write(reserve)

    async def release_unused(self, root: str, unused: Spending, *, project: str = "default") -> None:
        await self._writer.write(partial(sub_agent_shares.release_unused, project=project, root=root, unused=unused))

    async def reserved_shares(self, root: str, *, project: str = "default") -> Spending:
        return await self._reader.read(sub_agent_shares.reserved_shares, project, root)

    async def append_events(self, events: Sequence[KeptEvent]) -> None:
        await self._writer.write(partial(event_rows.append, events=tuple(events), now=self._clock()))

    async def turn_events(
        self, turn_id: str, after: Place = (0, 0), *, limit: int = 1000, project: str = DEFAULT
    ) -> list[KeptEvent]:
        return await self._reader.read(event_rows.turn_events, turn_id, after, limit, project)

    async def events_after(
        self, cursor: int = 0, *, limit: int = 100, project: str = DEFAULT
    ) -> list[Numbered[KeptEvent]]:
        return await self._reader.read(event_rows.events_after, cursor, limit, project)

    async def register_tools(
        self, rows: Sequence[ToolRegistration], *, by: str = "", replace: bool = False
    ) -> list[ToolRegistration]:
        project = registry_rules.only_project(rows)
        register = partial(registry_rows.register, project=project, rows=tuple(rows), by=by, replace=replace)
        return await self._writer.write(partial(register, at=self._clock()))

    async def unregister_tool(
        self, name: str, version: str | None = None, *, by: str = "", project: str = DEFAULT
    ) -> list[ToolRegistration]:
        unregister = partial(registry_rows.unregister, project=project, name=name, version=version)
        return await self._writer.write(partial(unregister, by=by, at=self._clock()))

    async def registered_tools(self, *, project: str = DEFAULT) -> list[ToolRegistration]:
        return await self._reader.read(registry_rows.registered, project)

    async def keep_card(self, card: ResultCard) -> ResultCard:
        return await self._writer.write(partial(registry_rows.keep_card, card=card))

    async def result_card(self, card_id: str, *, project: str = DEFAULT) -> ResultCard:
        return await self._reader.read(registry_rows.card, card_id, project)

    async def keep(self, data: bytes) -> str:
        return await self.bodies.keep(data)

    async def keep_pieces(self, pieces: AsyncIterable[bytes]) -> str:
        return await self.bodies.keep_pieces(pieces)

    async def fetch(self, handle: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return await self.bodies.fetch(handle, offset=offset, length=length)

    async def prune(
        self,
        retention: Retention,
        *,
        dry_run: bool = False,
        tell: Callable[[str], None] = lambda _: None,
        pace: PrunePace = AT_FULL_SPEED,
    ) -> Pruned:
        """Let go of what is too old or too large, a little at a time, so that other processes can go on meanwhile.

        With `dry_run` nothing goes, and what would is counted; where the time of `pace` is over the rest stays.
        Raises StoreError for an audit log that is not whole.
        """
        now, pruned = self._clock(), Pruned()
        await self._prune_turns(retention.turns, now, pruned, dry_run, tell, pace)
        await self._prune_files(retention, now, pruned, dry_run)
        await self._prune_records(now, pruned, dry_run, pace)
        await self._prune_audit(retention.audit, now, pruned, dry_run, tell, pace)
        if not dry_run and any(pruned.counts().values()):
            await self.audit([AuditRow(now, "pruned", detail=pruned.counts())])
        return pruned

    async def _prune_turns(
        self, keep: KeepLimits, now: float, pruned: Pruned, dry_run: bool, tell: Callable[[str], None], pace: PrunePace
    ) -> None:
        old = await self._reader.read(pruning.old_turns, keep, now)
        at_once = pruning.AT_ONCE if pace is AT_FULL_SPEED else pruning.FEW_AT_ONCE
        for begin in range(0, len(old), at_once):
            if pace.is_over():
                return
            await asyncio.sleep(pace.pause_s)
            some = old[begin : begin + at_once]
            pruned.calls += await self._reader.read(pruning.calls_of, some)
            if dry_run:
                pruned.turns += len(some)
            else:
                pruned.turns += await self._writer.write(partial(pruning.drop_turns, turns=some, now=now))
            tell(f"{begin + len(some):,} of {len(old):,} turns")

    async def _prune_records(self, now: float, pruned: Pruned, dry_run: bool, pace: PrunePace) -> None:
        old = await self._reader.read(record_rows.old_changes, now)
        pruned.record_changes = sum(old.values())
        if dry_run or pace.is_over():
            return
        pruned.record_changes = 0
        drop = partial(record_rows.drop_old, projects=tuple(old), now=now)
        while (gone := await self._writer.write(drop)) and not pace.is_over():
            pruned.record_changes += gone
            await asyncio.sleep(pace.pause_s)

    async def _prune_audit(
        self, keep: KeepLimits, now: float, pruned: Pruned, dry_run: bool, tell: Callable[[str], None], pace: PrunePace
    ) -> None:
        upto, head = await self._reader.read(pruning.audit_cut, keep, now)
        if upto == 0 or pace.is_over():
            return
        count = await self._reader.read(pruning.rows_until, upto)
        if dry_run:
            pruned.audit_rows = count
            return
        if (broken := (await self._reader.read(reads.audit_chain, (), pace)).broken_at) is not None:
            raise pruning.not_whole(broken)
        if pace.is_over():
            return  # perhaps before all of it was looked at
        cut = AuditCut(upto, head, now)
        cut = replace(cut, signature=signature(pruning.CUT, pruning.CUT, cut.content))
        while gone := await self._writer.write(partial(pruning.cut_audit, cut=cut)):
            pruned.audit_rows += gone
            tell(f"{pruned.audit_rows:,} of {count:,} audit rows")

    async def _prune_files(self, retention: Retention, now: float, pruned: Pruned, dry_run: bool) -> None:
        named, needed = await self._reader.read(pruning.named_bodies)
        artifacts, logs = self._artifacts.folder, self._artifacts.folder.parent / "logs"

        def work() -> None:
            found = pruning.bodies_in(artifacts)
            old = pruning.old_bodies(found, named, needed, retention.bodies, now)
            bodies = [artifacts / body.digest[:2] / body.digest[2:] for body in old]
            files, staging = pruning.old_logs(logs, retention.logs, now), self._artifacts.left_staging(now)
            pruned.bodies, pruned.body_bytes = len(old), sum(body.size for body in old)
            pruned.log_files, pruned.staging_files = len(files), len(staging)
            if not dry_run:
                pruning.remove([*bodies, *files, *staging])

        await self._on_files(work)
        if isinstance(self.bodies, DatabaseBodies):
            for body in pruning.old_bodies(await self.bodies.kept(), named, needed, retention.bodies, now):
                if dry_run or await self.bodies.drop(body):
                    pruned.bodies += 1
                    pruned.body_bytes += body.size

    async def vacuum(self) -> None:
        """Give the space of what was pruned back to the disk. Other processes wait while it is done."""
        await self._reader.read(_vacuum)

    async def backup(self, target: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        """Copy the store as it is at one moment into a folder, while other processes go on. Raises StoreError.

        The folder must be missing or empty.
        """
        if await asyncio.to_thread(lambda: target.exists() and any(target.iterdir())):
            raise StoreError(f"{target} is not empty; name a folder that does not exist yet")
        prepared = partial(_prepare_backup, target)
        await self._on_files(prepared)
        await self._reader.read(_copy_database, target / "store.db", tell)
        await self._on_files(partial(pruning.copy_bodies, self._artifacts.folder, target / "artifacts", tell))

    async def fence_restored(self) -> int:
        """Shut out all that ran after the backup from which this store was restored; see `restoring.py`.

        No process may use the store meanwhile. Gives how many turns have not ended.
        """
        return await self._writer.write(partial(restoring.fence, at=self._clock()))

    def interrupt_reads(self) -> None:
        """Let questions that are being answered fail, for a store that is about to be closed."""
        self._reader.interrupt()

    async def close_store(self) -> None:
        await asyncio.to_thread(self._close_parts)

    def _close_parts(self) -> None:
        self._is_closed = True
        made = vars(self)
        for name in ("_writer", "_warm", "_reader", "_owners"):  # what writes still needs the others
            if name in made:
                made[name].close()

    async def _opening_row(self, turn: Turn, *, runs: bool = True) -> Row:
        """A new turn as a row. A history that is the thread's own is kept by reference, so that threads stay small."""
        history, upto = history_of(turn), 0
        kept = history_json(history) if history else None
        if history and turn.thread:
            known = self._threads.read_as(turn.project, turn.thread, history)
            if known is None:
                known = await self._reader.read(self._threads.read, turn.project, turn.thread, self._owners.alive_on)
            if known.upto and known.said == history:
                upto, kept = known.upto, left_json(known.left) if known.left else None
        names = (turn.id, turn.project, turn.agent, turn.thread, turn.model)
        now, counted = self._clock(), (0, turn.limits.own_time, waits_json(turn.waits))
        held = (self._owners.name, ledger.RUNNING) if runs else (None, ledger.INTERRUPTED)
        opening = (turn.epoch, *held, opening_json(turn), kept, upto, turn.started_at, now, now)
        return (*map(column, names), *opening, *counted)

    async def _say(
        self,
        turn: Turn,
        message: Reply | Note,
        cards: Sequence[CallCard],
        audit: Sequence[AuditRow],
        reserve: Reservation | None = None,
        may_wait: bool = False,
    ) -> Sequence[OpenCard]:
        now = self._now()
        row, sums = said_row(turn, message, now.at), sums_with(turn, message)
        new = [open_card(card, (), now) for card in cards]
        say = partial(
            changes.say, turn=turn, row=row, cards=new, audit=audit_rows(audit), sums=sums, now=now,
            ran_s=self._ran_s(turn), reserve=reserve,
        )  # fmt: skip
        return await self._writer.write(say, _whose(turn), may_wait=may_wait)

    async def _on_files(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise to_store_error(error, self._artifacts.folder) from error


def _leased(
    tx: Transaction, change: Callable[[Transaction], T | StoreError], owners: Liveness
) -> tuple[T, int] | StoreError:
    """What comes of a change, and how often the lease had run out when the transaction of it held one."""
    outcome = change(tx)
    return outcome if isinstance(outcome, StoreError) else (outcome, owners.lapses)


def _whose(of: Turn | CallCard | ApprovalCard) -> tuple[str, str]:
    return of.project, of.agent


def _prepare(home: Path, path: Path, connect: Callable[[], sqlite3.Connection]) -> None:
    """Make the folder and the file where they are missing, and bring the tables up to date."""
    try:
        prepare(home)
        _make_file(path)
        connection = connect()
        try:
            schema.migrate(connection, path)
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        raise to_store_error(error, path) from error


def _make_file(path: Path) -> None:
    """Make the database file where it is missing. Raises OSError, also for a link.

    One that is there is not opened: to close it again would drop the locks that this process has on it for other stores
    (POSIX gives them to the process). Another process would then remove the log in use, and the database be damaged.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def _vacuum(connection: sqlite3.Connection) -> None:
    connection.execute("COMMIT")  # the reader has begun a transaction, in which nothing can be vacuumed
    try:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.execute("BEGIN")


def _prepare_backup(target: Path) -> None:
    prepare(target)
    os.close(open_folder(target / "artifacts"))
    os.close(os.open(target / "store.db", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def _copy_database(connection: sqlite3.Connection, target: Path, tell: Callable[[str], None]) -> None:
    """Copy all pages of one consistent view, by SQLite's own means; from a server, all rows."""
    copy = sqlite3.connect(target, isolation_level=None)
    try:
        if hasattr(connection, "backup"):  # the other connection, to a server, has no such thing
            connection.backup(
                copy, pages=4096, progress=lambda _, left, total: tell(f"{total - left:,} of {total:,} pages")
            )
        else:
            _copy_rows(connection, copy, target, tell)
    finally:
        copy.close()


def _copy_rows(
    connection: sqlite3.Connection, copy: sqlite3.Connection, target: Path, tell: Callable[[str], None]
) -> None:
    """Copy table by table, in the transaction of the reader, into tables of the same version."""
    schema.migrate(copy, target)
    copy.execute("BEGIN")
    for table in schema.tables(copy, _ROWS_COPIED):
        copy.execute(table.clear)  # a new store has some rows of its own
        done = 0
        while rows := connection.execute(table.read, (done,)).fetchall():
            copy.executemany(table.write, rows)
            done += len(rows)
            tell(f"{done:,} rows of {table.name}")
    copy.execute("COMMIT")
