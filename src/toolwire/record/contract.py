"""The promise that every store keeps. `tests/record/` runs one suite over all of them.

A store is the sum of small contracts: turns, calls, approvals, the audit log, metrics, budgets, provenance, bodies,
registered tools, cards and records.
A part that needs one of them takes that one. Which owners are alive is a contract of its own, `liveness.py`.
"""

from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from msgspec import Struct, field

from toolwire.breadcrumbs.rules.words import WordMatch
from toolwire.plan.resources import LockClaim
from toolwire.protocol.approvals import Approval, ApprovalCard
from toolwire.protocol.breadcrumbs import Record, RecordChange, RecordQuery
from toolwire.protocol.budgets import Allotment, Budget, Spending
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Message, Note, Reply
from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.records import AuditRow, CallCard, Dispatch
from toolwire.protocol.registrations import ResultCard, ToolRegistration
from toolwire.protocol.turns import Ending, Turn, TurnKind
from toolwire.protocol.waits import Wait
from toolwire.record.chain import AuditChain
from toolwire.wire.formats.tally import FormatTally

T = TypeVar("T")


class KeptTurn(Struct, frozen=True):
    """A turn as the store knows it: how it began, and what has happened since.

    `opening` carries the thread's history and the question in `messages` and has fresh counters. `events` are the
    replies, complete sets of results and notes in the order in which they happened; folding them over the opening
    gives the turn as it stands. Results of a step that is not complete stay on their cards. `ran_s` are the seconds in
    which it ran, as far as the record says: of a process that was killed, until the last thing that it wrote down.
    `calls` are those that count for its agent's day: they ran, or still may. `ending` is that of one that has ended.
    `cancel` says why it was canceled while another process held a call of it. Whoever takes it over then ends it.
    """

    opening: Turn
    events: tuple[Message, ...]
    state: str
    ran_s: float = 0.0
    calls: int = 0
    ending: Ending | None = None
    cancel: str = ""


class TurnSummary(Struct, frozen=True):
    """A line in a list of turns. `state` is running, interrupted or ended.

    `answer` and `value` are the deliverable of one that has ended; see `Ending`.
    """

    id: str
    project: str
    agent: str
    thread: str
    model: str
    question: str
    state: str
    started_at: float
    updated_at: float
    reason: str = ""
    answer: str = ""
    calls: int = 0
    waits: tuple[Wait, ...] = ()
    value: Any = None

    @property
    def kind(self) -> TurnKind:
        return TurnKind.of_model(self.model)


class TurnStats(Struct, frozen=True):
    """What a finished turn adds to the metrics: the loop's, and how the formats of its model have worked.

    `wall_s` are the seconds that count for its agent's day.
    """

    iterations: int = 0
    calls: int = 0
    failed_calls: int = 0
    duration_ms: float = 0.0
    batches: int = 0
    max_concurrency: int = 0
    saved_ms: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    formats: tuple[FormatTally, ...] = ()
    wall_s: float = 0.0


Ends = Callable[[ToolResult], tuple[Turn, TurnStats]]
"""How a turn of a single call ends by the result of that: the turn with its ending, and what the metrics count."""


class ToolMetrics(Struct, frozen=True):
    """Sums over all calls of a tool. Percentiles and `errors_by_type` are of its newest calls."""

    tool: str
    calls: int
    success: int
    errors: int
    timeouts: int
    canceled: int
    total_ms: float
    max_ms: float
    p50_ms: float
    p95_ms: float
    last_error: str
    last_error_at: float | None
    errors_by_type: Mapping[str, int] = field(default_factory=dict)


class Workload(Struct, frozen=True):
    """What is not over yet, of all processes: turns that run (or whose process died), wait, or were interrupted,
    pending approvals, calls on their way to workers, and how long the oldest command that is due was not sent.
    """

    running: int = 0
    waiting: int = 0
    interrupted: int = 0
    approvals: int = 0
    dispatches: int = 0
    overdue_s: float = 0.0


class LoopMetrics(Struct, frozen=True):
    """Sums over all ended turns. A turn recovered when a call of it failed and it still ended in an answer."""

    turns: int = 0
    answered: int = 0
    iterations: int = 0
    total_ms: float = 0.0
    batches: int = 0
    max_concurrency: int = 0
    saved_ms: float = 0.0
    with_failures: int = 0
    recovered: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


Place = tuple[int, int]
"""Where an event stands in its turn: the epoch, and its number in that."""


class KeptEvent(Struct, frozen=True):
    """An event of a turn as it was sent to those who watch: its kind, and all of it as JSON."""

    project: str
    turn_id: str
    epoch: int
    number: int
    at: float
    kind: str
    body: str

    @property
    def place(self) -> Place:
        return self.epoch, self.number


class DueDispatch(NamedTuple):
    """A dispatch whose time has come, and its call. One that `gives_up` is not sent: the call is closed instead."""

    dispatch: Dispatch
    card: CallCard
    gives_up: bool


class Numbered(NamedTuple, Generic[T]):
    """Something that was kept, with the cursor behind it: a follower goes on after that number."""

    cursor: int
    value: T


class VectorRow(NamedTuple):
    """What a store keeps for finding a record by its meaning, and the cursor of the change that it belongs to.

    `bits` are the signs of the vector's numbers. They are None until the version was embedded, and empty for a record
    that is gone or is not to be found.
    """

    cursor: int
    number: int
    bits: bytes | None


class NewVector(NamedTuple):
    """The vector of a version: the number of its record, and the cursor under which it was found missing."""

    number: int
    cursor: int
    bits: bytes
    vector: bytes


class Reservation(Struct, frozen=True):
    """How many calls the agents in `accounts` may make in one day (UTC), over all their turns in a project.

    The store counts in the transaction that writes calls down. It has the calls beyond refused: given a card and what
    was used by then, `refuse` tells the card with its result and what the audit log says. None is no limit. A reply
    that `settles` takes the place of what was reserved for it by `reserve_usage`.
    """

    most: int | None
    accounts: tuple[str, ...]
    refuse: Callable[[CallCard, Spending], tuple[CallCard, AuditRow]]
    settles: bool = False


class UsageRequest(Struct, frozen=True):
    """What one model call is expected to use at most, and the limits within which it must stay.

    The agents in `accounts` share the day's `budget` in a project. `own` is what the turn may use together with its
    sub-agents. An amount that is not known beforehand is infinite: the call then reserves all that is left.
    """

    want: Spending
    budget: Budget
    accounts: tuple[str, ...]
    own: Budget = Budget()


class TurnStore(Protocol):
    """Turns and threads. Every change carries the turn's epoch; see `ledger.py` for the rules."""

    async def begin(self, turn: Turn, *, runs: bool = True) -> None:
        """Keep a new turn, owned by this store's process. Its last message is the question; earlier ones are history.

        Where it does not `run` here, it waits for what it says, for any process.

        Raises `StoreError` when a turn with its id is kept already.
        """
        ...

    async def resume(self, turn_id: str, *, project: str | None = None) -> KeptTurn:
        """Take over a turn that is not ended and whose owner is gone: its epoch rises by one.

        What it gives is what the turn is from now on: one with `cancel` was canceled, and must not go on.

        Raises `NotFound` for an unknown turn and `Fenced` for one that a living process owns or that has ended.
        """
        ...

    async def append_reply(
        self, turn: Turn, reply: Reply, cards: Sequence[CallCard], audit: Sequence[AuditRow],
        reserve: Reservation | None = None, *, may_wait: bool = False,
    ) -> Sequence[CallCard]:  # fmt: skip
        """Keep a model's reply together with the cards of its calls. A card with a result is closed at once.

        What `may_wait` is kept together with what is written next, or after a moment.

        Every other card costs its agent one call of the day, unless it is closed as one that did not run. With
        `reserve` there is one audit row for each card, and cards beyond the day come back with the result of a refusal.
        """
        ...

    async def append_note(self, turn: Turn, note: Note) -> None:
        """Keep a word that the runtime said to the model."""
        ...

    async def end(self, turn: Turn, stats: TurnStats) -> None:
        """Keep the turn's ending and add what it did to the metrics."""
        ...

    async def release(self, turn: Turn) -> None:
        """Give up a turn that has not ended, so that anyone may resume it; what it `waits` for is kept."""
        ...

    async def turn(self, turn_id: str, *, project: str | None = None) -> KeptTurn:
        """Read a turn without taking it over. Raises `NotFound`."""
        ...

    async def turns(
        self, *, limit: int = 20, state: str | None = None, project: str | None = None
    ) -> list[TurnSummary]:
        """The newest turns, newest first.

        `state` is one of `TurnSummary`, or `waiting`: interrupted ones that say what they wait for.
        """
        ...

    async def ready_turns(
        self, now: float, *, limit: int = 20, only: Sequence[str] | None = None, project: str | None = None
    ) -> list[TurnSummary]:
        """Turns that no living process runs and that can go on, the oldest first: those have waited longest.

        With `only`, those of them that have one of these ids.

        Projects take turns: the oldest of each comes first, then the second of each, and so on. See `ready.py` for
        what that means.
        """
        ...

    async def turns_before(
        self, cursor: int | None = None, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[TurnSummary]]:
        """The turns that began before a cursor, the newest first, each as it is now; without one from the newest on."""
        ...

    async def turns_after(
        self, cursor: int = 0, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[TurnSummary]]:
        """The next turns after a cursor, in the order in which they began, each as it is now.

        Cursors rise and are never used again: who follows them sees every turn that is kept, once.
        """
        ...

    async def thread(self, thread: str, *, project: str = "default") -> tuple[Message, ...]:
        """Everything said in the turns of a project's thread, oldest first: the history for its next turn.

        Turns without a thread have nothing in common: `""` gives nothing.
        """
        ...

    def forget_run(self, turn_id: str, *, project: str = "default") -> None:
        """Another process has ended a turn that this one ran, as it was told."""
        ...

    def holds(self, turn_id: str, *, project: str = "default") -> bool:
        """Whether this process has given signs of life all the time since it took the turn.

        If it has not, another one may have taken the turn over: before a call of it begins, `renew` that.
        """
        ...


class CallStore(Protocol):
    """Calls, each with one holder at a time and one result. A claim has a token; see `ledger.py` for the rules."""

    async def open(
        self, card: CallCard, audit: Sequence[AuditRow], reserve: Reservation | None = None, *,
        begins: Turn | None = None, may_wait: bool = False,
    ) -> CallCard:  # fmt: skip
        """Write a call down before it runs, and give back what is kept under its (turn, call) identity.

        A new card counts, may wait and may be refused as in `append_reply`. A turn that `begins` with it is written
        down together with it, as `begin` does it.

        The card kept first wins: it comes back with its attempt and, if it has ended, its result, but with the
        caller's epoch and without the token of its holder. A card may be opened as claimed, with an attempt of 1 and
        its record id for a token; one with a result given is closed at once. The audit rows are kept only with
        a new card.
        Raises `StoreError` when the same identity was kept with other arguments, and audits `idempotency_conflict`.
        """
        ...

    async def claim(
        self, card: CallCard, audit: Sequence[AuditRow], *, owner: str = "", until: float | None = None,
        begins: bool = True, token: str = "", outlives_turn: bool = False,
    ) -> CallCard:  # fmt: skip
        """Hold a call, before anything of it begins: gives it back with a token, and one attempt more.

        The lease lasts `until` a date; without one, for as long as its `owner` is alive, and unless one is named, for
        as long as this process runs the turn, or is alive where the claim `outlives_turn`, as that of a worker does.
        Unless the call `begins` at once, it counts as begun only after the method of that name was asked. Who chooses
        the `token`, a new one, can ask again after an answer that was lost. A call that has ended comes back with its
        result and is not held. Its holder, who shows the token, holds on. Raises `CallHeld` while another claim lasts,
        `Fenced` when the turn was taken over, and `NotFound`.
        """
        ...

    async def renew(self, card: CallCard, until: float | None = None) -> CallCard:
        """Hold a call for longer, by the token of its claim.

        A call that has ended comes back with its result. Raises `Fenced` when the claim is lost, and `NotFound`.
        """
        ...

    async def detach(self, card: CallCard) -> CallCard:
        """Let a call run on its own: its turn does not wait for it from now on, and the model is told so for good.

        One that has ended comes back with its result, and is not detached. Raises `Fenced` and `NotFound`.
        """
        ...

    async def ask_to_cancel(self, card: CallCard, why: str) -> CallCard:
        """Ask the holder of a call to stop: `renew` gives it the card with `cancel`. No other can claim the call.

        A call that has ended comes back with its result. It is the turn's own write: raises `Fenced`, and `NotFound`.
        """
        ...

    async def detached_calls(self, *, limit: int = 100, project: str | None = None) -> list[CallCard]:
        """Calls that no turn waits for and that have no result yet."""
        ...

    def begins(self, turn_id: str, call_id: str, *, project: str = "default") -> None:
        """Note that a tool begins now; from any thread, and without a commit.

        The note survives the process. A call that was written down as started and has none had not begun, and the
        process that resumes its turn finds it not started. Raises `StoreUnavailable`.
        """
        ...

    def pauses(self, turn_id: str, call_id: str, *, project: str = "default") -> None:
        """Note that a tool which began has stopped, without effect, to wait for something: it will begin once more.

        The process that resumes the turn finds the call not begun.
        """
        ...

    async def close(
        self, card: CallCard, result: ToolResult, audit: Sequence[AuditRow], *, ran: bool = True,
        claims: bool = False, ends: Ends | None = None, tell_end: Callable[[bool], None] | None = None,
    ) -> ToolResult:  # fmt: skip
        """Keep how a call ended, once: gives back the first result, and audits a later one as `late_result`.

        The result of the holder, who shows its token, is kept whatever has become of the turn. Without a token it is
        the turn's own write. Raises `Fenced` when the claim, or without a token the turn, belongs to another; the log
        hears of that result, too. Raises `CallHeld`, without a token, while a lease lasts that is not the turn's own,
        and where another process has claimed the call since the card was read.
        A call that never `ran` costs nothing: what was reserved for it is given back. A pure call that ran before it
        was claimed is claimed by the same change, under the card's new token, where `claims` says so. The turn of the
        call `ends` by the same change, as the first result says. Raises as `end` does where only that is refused. For
        a process that is not the turn's runner, the turn ends only where it still runs, and the result counts anyway:
        it is told by `tell_end` whether the turn ends, perhaps more than once, and the last word counts.
        """
        ...

    async def calls(
        self, *, turn_id: str | None = None, tool: str | None = None, limit: int = 50, project: str | None = None
    ) -> list[CallCard]:
        """Call cards with their results: of one turn in call order, otherwise the newest first."""
        ...

    async def calls_after(
        self, cursor: int = 0, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[CallCard]]:
        """The next calls after a cursor, in the order in which they were opened; see `turns_after`."""
        ...


class DispatchStore(Protocol):
    """Calls on their way to processes that claim them, and when each is sent again: the outbox of the fleet."""

    async def dispatch(self, dispatch: Dispatch, audit: Sequence[AuditRow]) -> CallCard:
        """Keep how a call is sent, in the place of an older dispatch of it.

        A call that has ended comes back with its result, and nothing is kept. Raises `CallHeld` while a claim lasts,
        `Fenced` when the turn was taken over, and `NotFound`.
        """
        ...

    async def dispatched(self, card_id: str, *, project: str = "default") -> tuple[Dispatch, CallCard]:
        """How a call was sent, and its card under the epoch that its turn is in now.

        Raises `NotFound`, also for a call that ended some time ago.
        """
        ...

    async def call(self, turn_id: str, call_id: str, *, project: str = "default") -> CallCard:
        """One call. Raises `NotFound`."""
        ...

    async def call_and_end(self, turn_id: str, call_id: str, *, project: str = "default") -> tuple[CallCard, bool]:
        """One call, and whether its turn has ended. Raises `NotFound`."""
        ...

    async def dispatched_call(
        self, turn_id: str, call_id: str, *, project: str = "default"
    ) -> tuple[Dispatch, CallCard]:
        """The same, found by the call."""
        ...

    async def take_due(
        self, now: float, pause: Callable[[int], float], *, limit: int = 100, project: str | None = None,
        skip: Sequence[str] = (),
    ) -> list[DueDispatch]:  # fmt: skip
        """The dispatches to send now, the longest due first; each is due again after a pause, by how often it was sent.

        Those of calls that have ended are dropped. One whose call is held is due when the lease ends. Where more are
        due than are taken, projects take turns, so that none has to wait for all that another one sends. Those with
        a subject that is to be skipped are left as they are, unless they are too late.
        """
        ...

    async def calls_with_results(
        self, turn_ids: Sequence[str], *, project: str | None = None
    ) -> set[tuple[str, str]]:  # fmt: skip
        """Which calls of these turns have a result: the ids of turn and call."""
        ...


class ApprovalStore(Protocol):
    """Requests for approval, their answers, and approvals of patterns."""

    async def request_approval(self, card: ApprovalCard, audit: Sequence[AuditRow]) -> ApprovalCard:
        """Keep a question to people, and give back what is kept about its call: the question kept first wins."""
        ...

    async def answer(self, approval_id: str, answer: Approval, *, project: str | None = None) -> ApprovalCard:
        """Keep one person's word, with its audit row, and give back how the question stands.

        Raises `NotFound` for an unknown question and `Fenced` for one that is decided or whose time is over.
        """
        ...

    async def approval(self, approval_id: str, *, project: str | None = None) -> ApprovalCard:
        """How a question stands now. Raises `NotFound`."""
        ...

    async def approvals(
        self, *, turn_id: str | None = None, only_open: bool = False, limit: int = 50, project: str | None = None
    ) -> list[ApprovalCard]:
        """Questions to people, the newest first."""
        ...

    async def approvals_after(
        self, cursor: int = 0, *, limit: int = 100, project: str | None = None
    ) -> list[Numbered[ApprovalCard]]:
        """The next requests for approval after a cursor, in the order in which they were made; see `turns_after`."""
        ...

    async def active_patterns(self, *, limit: int = 1000, project: str | None = None) -> list[ApprovalCard]:
        """The questions whose yes for a pattern still stands, the newest first."""
        ...

    async def revoke(self, approval_id: str, by: str, *, project: str | None = None) -> ApprovalCard:
        """Take back a yes for a pattern, with its audit row.

        Raises `NotFound` for an unknown question and `Fenced` for one whose yes does not stand.
        """
        ...


class AuditStore(Protocol):
    """The audit log: rows are appended and never changed."""

    async def audit(self, rows: Sequence[AuditRow]) -> None:
        """Append to the audit log what belongs to no other change."""
        ...

    async def audit_log(
        self, *, turn_id: str | None = None, tool: str | None = None, limit: int = 50, after: int | None = None,
        project: str | None = None,
    ) -> list[AuditRow]:  # fmt: skip
        """Audit rows, oldest first: the newest ones, or with `after` the next ones after that number.

        Who reads on after the number of the last row sees every row once, however slowly.
        """
        ...

    async def audit_chain(self, seqs: Sequence[int] = (), *, project: str | None = None) -> AuditChain:
        """Walk along the audit log, whole or of a project, and say whether its chains hold.

        It comes with the digests at these numbers. No row of another project is needed to prove those of one, except
        those of a log from before each had a chain of its own.
        """
        ...


class MetricStore(Protocol):
    """Sums over all calls and turns of a project."""

    async def metrics(self, *, project: str = "default") -> tuple[list[ToolMetrics], LoopMetrics]:
        """A project's per-tool metrics by name, and its loop's."""
        ...

    async def formats(self, *, project: str = "default") -> list[FormatTally]:
        """How each format has worked for each model in a project, by model and then by format."""
        ...

    async def workload(self, at: float, *, project: str = "default") -> Workload:
        """What of a project is not over at this time."""
        ...


class BudgetStore(Protocol):
    """What agents and sub-agents of a project have used.

    Calls of the day are reserved where they are written down; tokens and money before the model is asked.
    """

    async def spent(self, agent: str, at: float, *, but: str = "", project: str = "default") -> Spending:
        """What an agent's turns in a project have used on the day (UTC) of this time, all `but` one.

        A turn counts on the day on which it ended or, while it has not, last wrote something down.
        """
        ...

    async def reserve_usage(self, turn: Turn, request: UsageRequest) -> bool:
        """Reserve tokens and money for the next reply of a turn; False where others hold what is left, or nothing is.

        The reply takes the place of the reservation, which counts for no longer than its turn is run under this epoch
        by a living process. See `reserving.granted` for the rule. Raises `Fenced` when the turn was taken over.
        """
        ...

    async def release_usage(self, turn: Turn) -> None:
        """Release what was reserved for a reply that does not come."""
        ...

    async def reserve_share(
        self, root: str, allotment: Allotment, most: int, *, question: Allotment | None = None, project: str = "default"
    ) -> Allotment | None:
        """Reserve a share, of at most so many calls, for a sub-agent of a question; None when nothing is left.

        All sub-agents together get no more than the allotment, and no more than their question leaves of what it may
        use itself.
        """
        ...

    async def release_unused(self, root: str, unused: Spending, *, project: str = "default") -> None:
        """Release what was not used of a share; what was used beyond it is less than nothing."""
        ...

    async def reserved_shares(self, root: str, *, project: str = "default") -> Spending:
        """What the sub-agents of a question have used or hold."""
        ...


class LockStore(Protocol):
    """Locks over named resources that hold in all processes that share the store, and places for calls in flight.

    A lock is held by the process that queued for it, until that releases it or its lease has run out.
    """

    async def queue_locks(self, claims: Sequence[LockClaim], token: str, *, project: str = "default") -> bool:
        """Queue for all of these at once, under a new token; whether they are held from now on."""
        ...

    async def holds_locks(self, token: str, *, project: str = "default") -> bool | None:
        """Whether everything that was queued for is held by now: all who came before have gone.

        None where nothing is queued under this token, since the lease of this process had run out.
        """
        ...

    async def release_locks(self, token: str, *, project: str = "default") -> None:
        """Leave the queue, or let go of what is held. Harmless when called twice."""
        ...


class ProvenanceStore(Protocol):
    """What turns wrote after they had read untrusted content."""

    async def mark_untrusted(self, project: str, marks: Sequence[UntrustedMark], gone: Sequence[str] = ()) -> None:
        """Keep marks of what turns of a project wrote after they had read untrusted content, and forget `gone` ones.

        A resource has one mark: a new one takes the place of the old.
        """
        ...

    async def untrusted(self, project: str) -> Sequence[UntrustedMark]:
        """All marks of a project, by resource."""
        ...


BodyPlace = Literal["folder", "database"]
"""Where a store keeps large bodies itself: on this machine, or where all machines that share it find them."""


class BodyStore(Protocol):
    """Large bodies by their content: in memory, in a folder, in a database, in an object store."""

    async def keep(self, data: bytes) -> str:
        """Keep a large body by its content and give back its handle (`sha256:…`)."""
        ...

    async def keep_pieces(self, pieces: AsyncIterable[bytes]) -> str:
        """The same for a body that comes in pieces, and is never in memory as a whole.

        Nothing of it is found before all of it is there. If the pieces end in an error, nothing is kept.
        """
        ...

    async def fetch(self, handle: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Read (part of) a kept body. Raises `NotFound`, and `StoreError` for one that does not fit its digest."""
        ...


class EventStore(Protocol):
    """Events of turns, for those who watch one and come back later. They are not the record, and may be dropped."""

    async def append_events(self, events: Sequence[KeptEvent]) -> None:
        """Keep events, each once. The oldest go where a turn has too many, and after some days."""
        ...

    async def turn_events(
        self, turn_id: str, after: Place = (0, 0), *, limit: int = 1000, project: str = "default"
    ) -> list[KeptEvent]:
        """The next events of a turn after a place."""
        ...

    async def events_after(
        self, cursor: int = 0, *, limit: int = 100, project: str = "default"
    ) -> list[Numbered[KeptEvent]]:
        """The next events of a project after a cursor, in the order in which they were kept; see `turns_after`."""
        ...


class RegistryStore(Protocol):
    """Tools that projects have registered: rows of `resource.tools`, several versions of a tool side by side."""

    async def register_tools(
        self, rows: Sequence[ToolRegistration], *, by: str = "", replace: bool = False
    ) -> list[ToolRegistration]:
        """Keep versions of a project's tools, all or none, with their audit rows; gives back what is kept of them.

        A version with the same content is left as it is. Raises `Conflict` for one with other content, unless that is
        to be replaced, and `StoreError` for rows of several projects.
        """
        ...

    async def unregister_tool(
        self, name: str, version: str | None = None, *, by: str = "", project: str = "default"
    ) -> list[ToolRegistration]:
        """Remove one version of a tool, or all of them; gives back what was there. Raises `NotFound`."""
        ...

    async def registered_tools(self, *, project: str = "default") -> list[ToolRegistration]:
        """All versions of a project's tools, by name and then by version."""
        ...


class CardStore(Protocol):
    """Cards of results that services have written. They go with their turns."""

    async def keep_card(self, card: ResultCard) -> ResultCard:
        """Keep a card, once; gives back what is kept under its id.

        Raises `Conflict` where that has other content, and where its call has too many cards.
        """
        ...

    async def result_card(self, card_id: str, *, project: str = "default") -> ResultCard:
        """A card that was kept. Raises `NotFound`."""
        ...


class RecordStore(Protocol):
    """Records that agents and people share, with all their versions. Who may see which is asked by the caller.

    What has expired at the store's time is not found, whether or not it was dropped by then.
    """

    async def create_record(self, record: Record, *, key: str = "", audit: Sequence[AuditRow] = ()) -> Record:
        """Keep a new record as its version 1. With a `key`, each author's first record under that key is given back,
        as it was then: who gets another id than it gave was not the first.

        Raises `Conflict` where the id is taken, where the record is too large or has names that no store can look for,
        where the key was used for other content, and where the record of the key is gone: a key is known for a month
        longer.
        """
        ...

    async def replayed_record(self, record: Record, key: str) -> Record | None:
        """What `create_record` gives back for a key that was used before; None for one that was not.

        Raises `Conflict` as that does.
        """
        ...

    async def update_record(self, record: Record, expected: int, *, audit: Sequence[AuditRow] = ()) -> Record:
        """Keep the next version of a record, in the place of version `expected`; gives it back with its number.

        Its creation stays as it is, and so do the uses that are left unless it has another lifetime. Raises `NotFound`,
        and `Conflict` where another version is the current one, or the new one is too large.
        """
        ...

    async def delete_record(
        self, record_id: str, *, by: str, expected: int | None = None, audit: Sequence[AuditRow] = (),
        project: str = "default",
    ) -> Record:  # fmt: skip
        """Delete a record with its history; gives back its last version. Raises `NotFound` and `Conflict`."""
        ...

    async def record(self, record_id: str, *, project: str = "default") -> Record:
        """The current version. Raises `NotFound`."""
        ...

    async def use_record(self, record_id: str, *, project: str = "default") -> Record:
        """The current version, counted as one use; the last use of one that ends so makes it expire."""
        ...

    async def records(
        self, query: RecordQuery, *, limit: int = 50, before: int | None = None, project: str = "default"
    ) -> list[Numbered[Record]]:
        """Records that fit, the newest first; with `before` those that were created before that cursor."""
        ...

    async def record_history(
        self, record_id: str, *, limit: int = 50, before: int | None = None, project: str = "default"
    ) -> list[Record]:
        """The versions of a record, the newest first, with `before` those below that version. Raises `NotFound`.

        The first version and the newest thousand are kept.
        """
        ...

    async def record_changes(
        self, cursor: int = 0, *, limit: int = 100, project: str = "default"
    ) -> list[Numbered[RecordChange]]:
        """The next changes after a cursor, in the order in which they were kept; see `turns_after`.

        Changes are kept for some days, at most so many of a project.
        """
        ...

    async def last_change(self, *, project: str = "default") -> int:
        """The cursor behind the newest change; 0 where there was none."""
        ...

    async def expire_records(self, *, limit: int = 1000, project: str = "default") -> list[Record]:
        """Drop records whose time is over, each with one change; gives back what was dropped."""
        ...


class RecordIndexStore(Protocol):
    """What finds records by their words and by their vectors. Records go by their numbers, the cursors of `records`.

    An index narrows down; `fitting_records` and `records_numbered` say which of them a query means, and who may see
    them. A row of the index changes in the transaction that changes its record.
    """

    async def matching_records(
        self, match: WordMatch, *, limit: int = 200, since: int | None = None, until: int | None = None,
        project: str = "default",
    ) -> list[int]:  # fmt: skip
        """Records with these words, the newest first: from number `since` on, and below `until`.

        A match is of a project, which is the one that is named here; the same holds for `count_matching`.
        """
        ...

    async def count_matching(self, matches: Sequence[WordMatch], *, most: int, project: str = "default") -> list[int]:
        """How many records match each; `most` where that many do, or more."""
        ...

    async def words_of_records(self, numbers: Sequence[int], *, project: str = "default") -> Mapping[int, str]:
        """The words that are kept of records."""
        ...

    async def fitting_records(
        self, numbers: Sequence[int], query: RecordQuery, *, project: str = "default"
    ) -> list[int]:
        """Those of the numbers whose records fit, as `records` means it, in any order."""
        ...

    async def records_numbered(
        self, numbers: Sequence[int], query: RecordQuery, *, project: str = "default"
    ) -> list[Numbered[Record]]:
        """The records that have these numbers and fit, in any order."""
        ...

    async def record_vectors(
        self, cursor: int = 0, *, model: str, limit: int = 1000, project: str = "default"
    ) -> list[VectorRow]:
        """What changed after a cursor, in that order. Vectors of another model count as missing."""
        ...

    async def vectors_of_records(
        self, numbers: Sequence[int], *, model: str, project: str = "default"
    ) -> Mapping[int, bytes]:
        """The vectors that are kept of records, whose model is this one."""
        ...

    async def put_record_vectors(self, vectors: Sequence[NewVector], *, model: str, project: str = "default") -> None:
        """Keep vectors of records that have not changed since."""
        ...


class Store(
    TurnStore,
    CallStore,
    DispatchStore,
    ApprovalStore,
    AuditStore,
    MetricStore,
    BudgetStore,
    LockStore,
    ProvenanceStore,
    BodyStore,
    EventStore,
    RegistryStore,
    CardStore,
    RecordStore,
    RecordIndexStore,
    Protocol,
):
    """Keeps turns, calls, results, approvals, the audit log and metrics; every method is one atomic, durable change.

    Every change of a turn carries its epoch and changes nothing, raising `Fenced`, when that is no longer the
    current one; replies, notes, endings and releases also when the turn has ended. A card whose turn was never begun
    stands alone and has no epoch to check. A call has a lease of its own: one claim holds it at a time, by a token.
    `ledger.py` has the rules. All methods raise `StoreUnavailable` when the store cannot be reached or
    written.

    Every project has ids of its own. Writes name their project in what is written; other methods take one, and without
    it look in all projects. An id that several of them use has to be asked for with its project.
    """

    @property
    def groups_changes(self) -> bool:
        """Whether changes that come together are made durable together, which takes less time."""
        ...

    @property
    def clock(self) -> Callable[[], float]:
        """What gives the dates of everything that is kept: the same for all processes, on whatever machine they are."""
        ...

    async def close_store(self) -> None:
        """Finish what was promised and let go of files. Harmless when called twice."""
        ...
