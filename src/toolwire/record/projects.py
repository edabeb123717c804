"""One project's view of a store: whatever belongs to another project is not found.

Turns, calls, approvals and audit rows carry their project. Kept bodies do not, so one begins with a line that names
its project; those of the default project have none, as in records from before there were projects.
"""

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from toolwire.breadcrumbs.rules.words import WordMatch
from toolwire.errors import StoreError
from toolwire.plan.resources import LockClaim
from toolwire.protocol.approvals import Approval, ApprovalCard
from toolwire.protocol.breadcrumbs import Record, RecordChange, RecordQuery
from toolwire.protocol.budgets import Allotment, Spending
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Message, Note, Reply
from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.records import AuditRow, CallCard, Dispatch
from toolwire.protocol.registrations import ResultCard, ToolRegistration
from toolwire.protocol.turns import Turn
from toolwire.record import refusals
from toolwire.record.chain import AuditChain
from toolwire.record.contract import (
    DueDispatch,
    Ends,
    KeptEvent,
    KeptTurn,
    LoopMetrics,
    NewVector,
    Numbered,
    Place,
    Reservation,
    Store,
    ToolMetrics,
    TurnStats,
    TurnSummary,
    UsageRequest,
    VectorRow,
    Workload,
)
from toolwire.wire.formats.tally import FormatTally

DEFAULT = "default"
_MARK = b"toolwire:project:"
T = TypeVar("T")


class _Owned(Protocol):
    @property
    def project(self) -> str: ...


Doing = Coroutine[Any, Any, T]


def of_project(store: Store, project: str) -> "ProjectStore":
    """What a project sees of a store. Given another project's view, this project's of the same store."""
    if isinstance(store, ProjectStore):
        if store.project == project:
            return store
        store = store.whole
    return ProjectStore(store, project)


class ProjectStore:
    """A store that holds the promise of `Store` for one project.

    What is given to it must belong to the project. Every project has ids of its own.
    """

    def __init__(self, whole: Store, project: str) -> None:
        self.whole = whole
        self.project = project
        self.clock = whole.clock
        self.groups_changes = whole.groups_changes
        # Every call comes through these.
        self._append_reply, self._open, self._close = whole.append_reply, whole.open, whole.close

    def begin(self, turn: Turn, *, runs: bool = True) -> Doing[None]:
        self.require(turn)
        return self.whole.begin(turn, runs=runs)

    def resume(self, turn_id: str, *, project: str | None = None) -> Doing[KeptTurn]:  # noqa: ARG002 -- its own
        return self.whole.resume(turn_id, project=self.project)

    def append_reply(
        self, turn: Turn, reply: Reply, cards: Sequence[CallCard], audit: Sequence[AuditRow],
        reserve: Reservation | None = None, *, may_wait: bool = False,
    ) -> Doing[Sequence[CallCard]]:  # fmt: skip
        own = self.project  # every reply and every result comes through, so the loops are written out
        if turn.project != own:
            self._only(turn.project)
        for card in cards:
            if card.project != own:
                self._only(card.project)
        for row in audit:
            if row.project != own:
                self._only(row.project)
        return self._append_reply(turn, reply, cards, audit, reserve, may_wait=may_wait)

    def append_note(self, turn: Turn, note: Note) -> Doing[None]:
        self.require(turn)
        return self.whole.append_note(turn, note)

    def open(
        self, card: CallCard, audit: Sequence[AuditRow], reserve: Reservation | None = None, *,
        begins: Turn | None = None, may_wait: bool = False,
    ) -> Doing[CallCard]:  # fmt: skip
        self.require(card, *audit, *(() if begins is None else (begins,)))
        return self._open(card, audit, reserve, begins=begins, may_wait=may_wait)

    def claim(
        self, card: CallCard, audit: Sequence[AuditRow], *, owner: str = "", until: float | None = None,
        begins: bool = True, token: str = "", outlives_turn: bool = False,
    ) -> Doing[CallCard]:  # fmt: skip
        self.require(card, *audit)
        return self.whole.claim(
            card, audit, owner=owner, until=until, begins=begins, token=token, outlives_turn=outlives_turn
        )

    def renew(self, card: CallCard, until: float | None = None) -> Doing[CallCard]:
        self.require(card)
        return self.whole.renew(card, until)

    def detach(self, card: CallCard) -> Doing[CallCard]:
        self.require(card)
        return self.whole.detach(card)

    def ask_to_cancel(self, card: CallCard, why: str) -> Doing[CallCard]:
        self.require(card)
        return self.whole.ask_to_cancel(card, why)

    def detached_calls(self, *, limit: int = 100, project: str | None = None) -> Doing[list[CallCard]]:  # noqa: ARG002 -- its own
        return self.whole.detached_calls(limit=limit, project=self.project)

    def forget_run(self, turn_id: str, *, project: str = DEFAULT) -> None:  # noqa: ARG002 -- its own
        self.whole.forget_run(turn_id, project=self.project)

    def holds(self, turn_id: str, *, project: str = DEFAULT) -> bool:  # noqa: ARG002 -- its own
        return self.whole.holds(turn_id, project=self.project)

    def begins(self, turn_id: str, call_id: str, *, project: str = DEFAULT) -> None:  # noqa: ARG002 -- its own
        self.whole.begins(turn_id, call_id, project=self.project)

    def pauses(self, turn_id: str, call_id: str, *, project: str = DEFAULT) -> None:  # noqa: ARG002 -- its own
        self.whole.pauses(turn_id, call_id, project=self.project)

    def close(
        self, card: CallCard, result: ToolResult, audit: Sequence[AuditRow], *, ran: bool = True,
        claims: bool = False, ends: Ends | None = None, tell_end: Callable[[bool], None] | None = None,
    ) -> Doing[ToolResult]:  # fmt: skip
        own = self.project
        if card.project != own:
            self._only(card.project)
        for row in audit:
            if row.project != own:
                self._only(row.project)
        return self._close(card, result, audit, ran=ran, claims=claims, ends=ends, tell_end=tell_end)

    def end(self, turn: Turn, stats: TurnStats) -> Doing[None]:
        self.require(turn)
        return self.whole.end(turn, stats)

    def release(self, turn: Turn) -> Doing[None]:
        self.require(turn)
        return self.whole.release(turn)

    def audit(self, rows: Sequence[AuditRow]) -> Doing[None]:
        self.require(*rows)
        return self.whole.audit(rows)

    def request_approval(self, card: ApprovalCard, audit: Sequence[AuditRow]) -> Doing[ApprovalCard]:
        self.require(card, *audit)
        return self.whole.request_approval(card, audit)

    def require(self, *given: _Owned) -> None:
        """Refuse what belongs to another project: its record is not the one that is open."""
        for one in given:
            self._only(one.project)

    def answer(self, approval_id: str, answer: Approval, *, project: str | None = None) -> Doing[ApprovalCard]:  # noqa: ARG002 -- its own
        return self.whole.answer(approval_id, answer, project=self.project)

    def approval(self, approval_id: str, *, project: str | None = None) -> Doing[ApprovalCard]:  # noqa: ARG002 -- its own
        return self.whole.approval(approval_id, project=self.project)

    def approvals(
        self,
        *,
        turn_id: str | None = None,
        only_open: bool = False,
        limit: int = 50,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[ApprovalCard]]:
        return self.whole.approvals(turn_id=turn_id, only_open=only_open, limit=limit, project=self.project)

    def active_patterns(self, *, limit: int = 1000, project: str | None = None) -> Doing[list[ApprovalCard]]:  # noqa: ARG002 -- its own
        return self.whole.active_patterns(limit=limit, project=self.project)

    def revoke(self, approval_id: str, by: str, *, project: str | None = None) -> Doing[ApprovalCard]:  # noqa: ARG002 -- its own
        return self.whole.revoke(approval_id, by, project=self.project)

    def turn(self, turn_id: str, *, project: str | None = None) -> Doing[KeptTurn]:  # noqa: ARG002 -- its own
        return self.whole.turn(turn_id, project=self.project)

    def turns(
        self,
        *,
        limit: int = 20,
        state: str | None = None,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[TurnSummary]]:
        return self.whole.turns(limit=limit, state=state, project=self.project)

    def ready_turns(
        self,
        now: float,
        *,
        limit: int = 20,
        only: Sequence[str] | None = None,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[TurnSummary]]:
        return self.whole.ready_turns(now, limit=limit, only=only, project=self.project)

    def call(self, turn_id: str, call_id: str, *, project: str | None = None) -> Doing[CallCard]:  # noqa: ARG002 -- its own
        return self.whole.call(turn_id, call_id, project=self.project)

    def call_and_end(self, turn_id: str, call_id: str, *, project: str | None = None) -> Doing[tuple[CallCard, bool]]:  # noqa: ARG002 -- its own
        return self.whole.call_and_end(turn_id, call_id, project=self.project)

    def dispatch(self, dispatch: Dispatch, audit: Sequence[AuditRow]) -> Doing[CallCard]:
        self.require(dispatch, *audit)
        return self.whole.dispatch(dispatch, audit)

    def dispatched(self, card_id: str, *, project: str | None = None) -> Doing[tuple[Dispatch, CallCard]]:  # noqa: ARG002 -- its own
        return self.whole.dispatched(card_id, project=self.project)

    def dispatched_call(
        self,
        turn_id: str,
        call_id: str,
        *,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[tuple[Dispatch, CallCard]]:
        return self.whole.dispatched_call(turn_id, call_id, project=self.project)

    def take_due(
        self,
        now: float,
        pause: Callable[[int], float],
        *,
        limit: int = 100,
        project: str | None = None,  # noqa: ARG002 -- its own
        skip: Sequence[str] = (),
    ) -> Doing[list[DueDispatch]]:
        return self.whole.take_due(now, pause, limit=limit, project=self.project, skip=skip)

    def calls_with_results(self, turn_ids: Sequence[str], *, project: str | None = None) -> Doing[set[tuple[str, str]]]:  # noqa: ARG002 -- its own
        return self.whole.calls_with_results(turn_ids, project=self.project)

    def thread(self, thread: str, *, project: str | None = None) -> Doing[tuple[Message, ...]]:  # noqa: ARG002 -- its own
        return self.whole.thread(thread, project=self.project)

    def calls(
        self,
        *,
        turn_id: str | None = None,
        tool: str | None = None,
        limit: int = 50,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[CallCard]]:
        return self.whole.calls(turn_id=turn_id, tool=tool, limit=limit, project=self.project)

    def audit_log(
        self,
        *,
        turn_id: str | None = None,
        tool: str | None = None,
        limit: int = 50,
        after: int | None = None,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[AuditRow]]:
        return self.whole.audit_log(turn_id=turn_id, tool=tool, limit=limit, after=after, project=self.project)

    def turns_before(
        self,
        cursor: int | None = None,
        *,
        limit: int = 100,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[Numbered[TurnSummary]]]:
        return self.whole.turns_before(cursor, limit=limit, project=self.project)

    def turns_after(
        self,
        cursor: int = 0,
        *,
        limit: int = 100,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[Numbered[TurnSummary]]]:
        return self.whole.turns_after(cursor, limit=limit, project=self.project)

    def calls_after(
        self,
        cursor: int = 0,
        *,
        limit: int = 100,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[Numbered[CallCard]]]:
        return self.whole.calls_after(cursor, limit=limit, project=self.project)

    def approvals_after(
        self,
        cursor: int = 0,
        *,
        limit: int = 100,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[Numbered[ApprovalCard]]]:
        return self.whole.approvals_after(cursor, limit=limit, project=self.project)

    def audit_chain(self, seqs: Sequence[int] = (), *, project: str | None = None) -> Doing[AuditChain]:  # noqa: ARG002 -- its own
        return self.whole.audit_chain(seqs, project=self.project)

    def metrics(self, *, project: str | None = None) -> Doing[tuple[list[ToolMetrics], LoopMetrics]]:  # noqa: ARG002 -- its own
        return self.whole.metrics(project=self.project)

    def formats(self, *, project: str | None = None) -> Doing[list[FormatTally]]:  # noqa: ARG002 -- its own
        return self.whole.formats(project=self.project)

    def workload(self, at: float, *, project: str | None = None) -> Doing[Workload]:  # noqa: ARG002 -- its own
        return self.whole.workload(at, project=self.project)

    def spent(self, agent: str, at: float, *, but: str = "", project: str | None = None) -> Doing[Spending]:  # noqa: ARG002 -- its own
        return self.whole.spent(agent, at, but=but, project=self.project)

    def reserve_usage(self, turn: Turn, request: UsageRequest) -> Doing[bool]:
        self.require(turn)
        return self.whole.reserve_usage(turn, request)

    def release_usage(self, turn: Turn) -> Doing[None]:
        self.require(turn)
        return self.whole.release_usage(turn)

    def queue_locks(self, claims: Sequence[LockClaim], token: str, *, project: str | None = None) -> Doing[bool]:  # noqa: ARG002 -- its own
        return self.whole.queue_locks(claims, token, project=self.project)

    def holds_locks(self, token: str, *, project: str | None = None) -> Doing[bool | None]:  # noqa: ARG002 -- its own
        return self.whole.holds_locks(token, project=self.project)

    def release_locks(self, token: str, *, project: str | None = None) -> Doing[None]:  # noqa: ARG002 -- its own
        return self.whole.release_locks(token, project=self.project)

    def reserve_share(
        self,
        root: str,
        allotment: Allotment,
        most: int,
        *,
        question: Allotment | None = None,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[Allotment | None]:
        return self.whole.reserve_share(root, allotment, most, question=question, project=self.project)

    def release_unused(self, root: str, unused: Spending, *, project: str | None = None) -> Doing[None]:  # noqa: ARG002 -- its own
        return self.whole.release_unused(root, unused, project=self.project)

    def reserved_shares(self, root: str, *, project: str | None = None) -> Doing[Spending]:  # noqa: ARG002 -- its own
        return self.whole.reserved_shares(root, project=self.project)

    def mark_untrusted(self, project: str, marks: Sequence[UntrustedMark], gone: Sequence[str] = ()) -> Doing[None]:
        return self.whole.mark_untrusted(self._only(project), marks, gone)

    def untrusted(self, project: str) -> Doing[Sequence[UntrustedMark]]:
        return self.whole.untrusted(self._only(project))

    def append_events(self, events: Sequence[KeptEvent]) -> Doing[None]:
        self.require(*events)
        return self.whole.append_events(events)

    def turn_events(
        self,
        turn_id: str,
        after: Place = (0, 0),
        *,
        limit: int = 1000,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[KeptEvent]]:
        return self.whole.turn_events(turn_id, after, limit=limit, project=self.project)

    def events_after(
        self,
        cursor: int = 0,
        *,
        limit: int = 100,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[Numbered[KeptEvent]]]:
        return self.whole.events_after(cursor, limit=limit, project=self.project)

    def register_tools(
        self, rows: Sequence[ToolRegistration], *, by: str = "", replace: bool = False
    ) -> Doing[list[ToolRegistration]]:
        self.require(*rows)
        return self.whole.register_tools(rows, by=by, replace=replace)

    def unregister_tool(
        self,
        name: str,
        version: str | None = None,
        *,
        by: str = "",
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[ToolRegistration]]:
        return self.whole.unregister_tool(name, version, by=by, project=self.project)

    def registered_tools(self, *, project: str | None = None) -> Doing[list[ToolRegistration]]:  # noqa: ARG002 -- its own
        return self.whole.registered_tools(project=self.project)

    def keep_card(self, card: ResultCard) -> Doing[ResultCard]:
        self.require(card)
        return self.whole.keep_card(card)

    def result_card(self, card_id: str, *, project: str | None = None) -> Doing[ResultCard]:  # noqa: ARG002 -- its own
        return self.whole.result_card(card_id, project=self.project)

    def create_record(self, record: Record, *, key: str = "", audit: Sequence[AuditRow] = ()) -> Doing[Record]:
        self.require(record, *audit)
        return self.whole.create_record(record, key=key, audit=audit)

    def replayed_record(self, record: Record, key: str) -> Doing[Record | None]:
        self.require(record)
        return self.whole.replayed_record(record, key)

    def update_record(self, record: Record, expected: int, *, audit: Sequence[AuditRow] = ()) -> Doing[Record]:
        self.require(record, *audit)
        return self.whole.update_record(record, expected, audit=audit)

    def delete_record(
        self,
        record_id: str,
        *,
        by: str,
        expected: int | None = None,
        audit: Sequence[AuditRow] = (),
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[Record]:
        self.require(*audit)
        return self.whole.delete_record(record_id, by=by, expected=expected, audit=audit, project=self.project)

    def record(self, record_id: str, *, project: str | None = None) -> Doing[Record]:  # noqa: ARG002 -- its own
        return self.whole.record(record_id, project=self.project)

    def use_record(self, record_id: str, *, project: str | None = None) -> Doing[Record]:  # noqa: ARG002 -- its own
        return self.whole.use_record(record_id, project=self.project)

    def records(
        self,
        query: RecordQuery,
        *,
        limit: int = 50,
        before: int | None = None,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[Numbered[Record]]]:
        return self.whole.records(query, limit=limit, before=before, project=self.project)

    def record_history(
        self,
        record_id: str,
        *,
        limit: int = 50,
        before: int | None = None,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[Record]]:
        return self.whole.record_history(record_id, limit=limit, before=before, project=self.project)

    def record_changes(
        self,
        cursor: int = 0,
        *,
        limit: int = 100,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[Numbered[RecordChange]]]:
        return self.whole.record_changes(cursor, limit=limit, project=self.project)

    def last_change(self, *, project: str | None = None) -> Doing[int]:  # noqa: ARG002 -- its own
        return self.whole.last_change(project=self.project)

    def matching_records(
        self, match: WordMatch, *, limit: int = 200, since: int | None = None, until: int | None = None,
        project: str | None = None,  # noqa: ARG002 -- its own
    ) -> Doing[list[int]]:  # fmt: skip
        return self.whole.matching_records(match, limit=limit, since=since, until=until, project=self.project)

    def count_matching(
        self, matches: Sequence[WordMatch], *, most: int, project: str | None = None  # noqa: ARG002 -- its own
    ) -> Doing[list[int]]:  # fmt: skip
        return self.whole.count_matching(matches, most=most, project=self.project)

    def words_of_records(
        self, numbers: Sequence[int], *, project: str | None = None  # noqa: ARG002 -- its own
    ) -> Doing[Mapping[int, str]]:  # fmt: skip
        return self.whole.words_of_records(numbers, project=self.project)

    def fitting_records(
        self, numbers: Sequence[int], query: RecordQuery, *, project: str | None = None  # noqa: ARG002 -- its own
    ) -> Doing[list[int]]:  # fmt: skip
        return self.whole.fitting_records(numbers, query, project=self.project)

    def records_numbered(
        self, numbers: Sequence[int], query: RecordQuery, *, project: str | None = None  # noqa: ARG002 -- its own
    ) -> Doing[list[Numbered[Record]]]:  # fmt: skip
        return self.whole.records_numbered(numbers, query, project=self.project)

    def record_vectors(
        self, cursor: int = 0, *, model: str, limit: int = 1000, project: str | None = None  # noqa: ARG002 -- its own
    ) -> Doing[list[VectorRow]]:  # fmt: skip
        return self.whole.record_vectors(cursor, model=model, limit=limit, project=self.project)

    def vectors_of_records(
        self, numbers: Sequence[int], *, model: str, project: str | None = None  # noqa: ARG002 -- its own
    ) -> Doing[Mapping[int, bytes]]:  # fmt: skip
        return self.whole.vectors_of_records(numbers, model=model, project=self.project)

    def put_record_vectors(
        self, vectors: Sequence[NewVector], *, model: str, project: str | None = None  # noqa: ARG002 -- its own
    ) -> Doing[None]:  # fmt: skip
        return self.whole.put_record_vectors(vectors, model=model, project=self.project)

    def expire_records(self, *, limit: int = 1000, project: str | None = None) -> Doing[list[Record]]:  # noqa: ARG002 -- its own
        return self.whole.expire_records(limit=limit, project=self.project)

    def _only(self, project: str) -> str:
        if project != self.project:
            raise StoreError(f"project {project!r} is not the one whose record is open")
        return project

    def keep(self, data: bytes) -> Doing[str]:
        return self.whole.keep(self._marked(data))

    def keep_pieces(self, pieces: AsyncIterable[bytes]) -> Doing[str]:
        return self.whole.keep_pieces(self._with_header(pieces))

    async def _with_header(self, pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """The pieces of a body, behind the line that names its project, if it needs one."""
        begins, is_decided = b"", False
        async for piece in pieces:
            if is_decided:
                yield piece
            elif len(begins := begins + piece) >= len(_MARK):
                is_decided = True
                yield self._marked(begins)
        if not is_decided:
            yield self._marked(begins)

    def _marked(self, begins: bytes) -> bytes:
        """The beginning of a body, or all of it, with the project where that has to be said."""
        needs_header = self.project != DEFAULT or begins.startswith(_MARK)
        return _header(self.project) + begins if needs_header else begins

    async def fetch(self, handle: str, *, offset: int = 0, length: int | None = None) -> bytes:
        own = _header(self.project)
        begins = await self.whole.fetch(handle, offset=0, length=len(own))
        if begins == own:
            return await self.whole.fetch(handle, offset=max(offset, 0) + len(own), length=length)
        if self.project != DEFAULT or begins.startswith(_MARK):
            raise refusals.no_body(handle)
        return await self.whole.fetch(handle, offset=offset, length=length)

    def close_store(self) -> Doing[None]:
        return self.whole.close_store()


def _header(project: str) -> bytes:
    return _MARK + json.dumps(project).encode() + b"\n"
