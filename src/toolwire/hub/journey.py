"""The last leg of an accepted call: approval, waiting its turn, running, and its one result on record."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from time import perf_counter
from types import MappingProxyType
from typing import Protocol

from toolwire.deliver.endings import busy, canceled, refused, unknown
from toolwire.deliver.origins import origins
from toolwire.deliver.secrets import NO_SECRETS, NotYours, Secrets
from toolwire.execute.contract import Executor, LeavesWork
from toolwire.execute.inprocess import DEADLINE_NOTE
from toolwire.execute.resources import Busy, Resources
from toolwire.hub.approvals import Approve, People, Tell
from toolwire.hub.approved_files import ApprovedFiles, bind_files
from toolwire.hub.results import is_plain, returned, scrubbed
from toolwire.loop.limits import time_left_s
from toolwire.plan.resources import Claim, claims
from toolwire.protocol.calls import Allowed, Decision, Denied, NeedsApproval, ToolCall, ToolResult
from toolwire.protocol.chat import strangers
from toolwire.protocol.context import Context, Trial, not_noted
from toolwire.protocol.events import CallFinished, CallProgress, CallStarted, Emit
from toolwire.protocol.outcomes import Code
from toolwire.protocol.policy import TAINTED
from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.tools import Delivery, Effect
from toolwire.protocol.traffic import Traffic
from toolwire.protocol.turns import Turn
from toolwire.protocol.values import changed, dataclass, making, quick
from toolwire.record.contract import Store

_NOTICEABLE_MS = 0.05
_MOST_NAMED = 5
_ASKER, _BEFORE = "agent:asking", "tool:before"
_context = making(Context)
_RUN_AGAIN = {Effect.PURE, Effect.IDEMPOTENT}


@quick
@dataclass(frozen=True, slots=True)
class Accepted:
    """A call that is on record, with our decision. `left` marks one that a process began and never finished."""

    card: CallCard
    decision: Decision
    left: bool = False


def _may_run_again(one: Accepted) -> bool:
    """Whether a call that a dead process began may run again: it does no harm, or its tool's journal sees to it."""
    decision = one.decision
    tool = decision.allowed.tool if isinstance(decision, NeedsApproval) else getattr(decision, "tool", None)
    journaled = tool is not None and tool.journaled and one.card.effect == Effect.TRANSACTIONAL
    return journaled or one.card.effect in _RUN_AGAIN


class Batch:
    """Calls that run, of one step or of one agent: how many at once, and how long people were waited for."""

    __slots__ = ("_asked", "_asked_since", "_free", "_running", "_waiting", "peak", "waited_s")

    def __init__(self, parallel: int) -> None:
        self.peak = self._asked = self._running = 0
        self.waited_s = self._asked_since = 0.0
        self._free = parallel
        self._waiting: list[asyncio.Future[None]] = []

    def ask(self, now: float) -> None:
        """A person is being asked. Time counts as waited for while anyone is, however many are asked at once."""
        if self._asked == 0:
            self._asked_since = now
        self._asked += 1

    def heard(self, now: float) -> None:
        self._asked -= 1
        if self._asked == 0:
            self.waited_s += now - self._asked_since

    def place(self) -> "asyncio.Future[None] | None":
        """Take a free place; when there is none, what to wait for. Places are given in the order of asking."""
        if self._free > 0:
            self._free -= 1
            self._running += 1
            if self._running > self.peak:
                self.peak = self._running
            return None
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return waiting

    async def wait(self, place: "asyncio.Future[None]") -> None:
        try:
            await place
        except asyncio.CancelledError:
            self._give_up(place)
            raise
        self._running += 1
        self.peak = max(self.peak, self._running)

    @property
    def busy(self) -> bool:
        """Whether any call runs or waits."""
        return self._running > 0 or bool(self._waiting)

    def leave(self) -> None:
        self._running -= 1
        if self._waiting:
            self._pass_on()
        else:
            self._free += 1

    def _give_up(self, place: "asyncio.Future[None]") -> None:
        if place in self._waiting:
            self._waiting.remove(place)
        elif not place.cancelled():
            self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            place = self._waiting.pop(0)
            if not place.done():
                place.set_result(None)
                return
        self._free += 1


class Hub(Protocol):
    """What a journey needs of the runtime."""

    store: Store
    executor: Executor
    notes_begin: bool
    resources: Resources
    approve: Approve | None
    suspends: bool
    tell: Tell | None
    approval_s: float
    questions: int
    secrets: Secrets
    seal: bytes
    clock: Callable[[], float]
    monotonic: Callable[[], float]
    new_id: Callable[[], str]

    async def conclude(self, card: CallCard, result: ToolResult, rule: str = "", *, ran: bool) -> ToolResult: ...

    async def record_told(self, context: Context, tool: str) -> None: ...

    async def marks(self, project: str) -> Sequence[UntrustedMark]: ...

    def judge_anew(self, turn: Turn, call: ToolCall) -> Decision: ...

    def share(self, turn: Turn) -> Batch: ...


class Journey:
    """Sees the calls of one step of a turn to their results."""

    # Few steps need more than the defaults, and one journey is made for each step.
    _announced: frozenset[str] = frozenset()
    _claimed: Mapping[str, CallCard] = MappingProxyType({})
    _files: Mapping[str, ApprovedFiles] = MappingProxyType({})
    _people: People | None = None
    _tainted_by: tuple[str, ...] = ()

    def __init__(self, hub: Hub, turn: Turn, batch: Batch, emit: Emit | None) -> None:
        self._hub = hub
        self._turn = turn
        self._batch = batch
        self._emit = emit
        self._begun: set[str] = set()
        if turn.tainted or turn.grant.rules:
            self._tainted_by = _tainted_by(turn)
        self.waiting: list[str] = []

    async def finish(self, one: Accepted) -> ToolResult | None:
        """The one result of an accepted call, whatever happens on the way; None while it waits for people."""
        card = one.card
        result = card.result
        if result is None:
            try:
                outcome = await self._outcome(one)
            except asyncio.CancelledError:
                begun = one.left or card.call.id in self._begun
                held = self._claimed.get(card.call.id, card)
                await asyncio.shield(self._hub.conclude(held, canceled(card.call, begun=begun), ran=begun))
                raise
            if outcome is None:
                return None
            held = self._claimed.get(card.call.id, card)
            result = await self._hub.conclude(held, *outcome, ran=one.left or card.call.id in self._begun)
        if self._emit:
            replayed = card.result is not None and not isinstance(one.decision, Denied)
            self._emit(CallFinished(card.call, result, replayed))
        return result

    async def share(self, one: Accepted, first: "asyncio.Task[ToolResult | None]") -> ToolResult | None:
        """The result of a call that repeats another one of the same reply, id and all: it takes effect once."""
        if one.card.result is not None:
            return one.card.result
        result = await asyncio.shield(first)
        if result is None:
            return None
        repeated = changed(result, call_id=one.card.call.id)
        return await self._hub.conclude(one.card, repeated, "repeated", ran=False)

    async def _outcome(self, one: Accepted) -> tuple[ToolResult, str] | None:
        """What came of the call, and the rule that stopped it if one did; None while it waits for people."""
        decision: Decision | ToolResult | None = one.decision
        if one.left and not _may_run_again(one):
            return unknown(one.card), ""
        if isinstance(decision, NeedsApproval):
            decision = await self._tried_and_asked(one, decision)
        if isinstance(decision, ToolResult):
            return decision, ""
        if decision is None:
            self.waiting.append(one.card.call.id)
            return None
        if isinstance(decision, Denied):
            return refused(decision), decision.rule
        asked = perf_counter()
        tool = decision.tool
        if not tool.reads and not tool.writes:
            return await self._run(one, decision, asked), ""
        touched = claims(tool, decision.arguments, next(iter(self._turn.grant.roots), ""))
        return await self._run_holding(touched, one, decision, asked), ""

    async def _run_holding(self, touched: Sequence[Claim], one: Accepted, allowed: Allowed, asked: float) -> ToolResult:
        """Run a call that touches something. What it touches stays held while any of its work goes on."""
        call, executor = one.card.call, self._hub.executor
        patience_s = self._before_the_deadline(allowed).timeout_s
        try:
            async with self._hub.resources.holding(touched, f"{call.name!r} ({call.id})", patience_s) as ticket:
                try:
                    return await self._run(one, allowed, asked)
                finally:
                    if isinstance(executor, LeavesWork):
                        ticket.until = executor.leftover(Context(call.id, self._turn.id).idempotency_key)
        except Busy as lost:
            result = busy(call, lost.resource, lost.holder, patience_s)
            return changed(result, queued_ms=(perf_counter() - asked) * 1000)

    async def _tried_and_asked(self, one: Accepted, request: NeedsApproval) -> ToolResult | Allowed | Denied | None:
        """What came of a call that may be tried, or what people say about it; None while they have not."""
        if self._people is None:
            self._people = People(self._hub, self._turn, self._batch, self._emit)
        if request.tries and not await self._people.were_asked(one.card, request):
            tried = await self._tried(one, request)
            if not isinstance(tried, NeedsApproval):
                return tried
            request = tried
        request, files = await bind_files(request, self._turn.grant)
        if files is not None:
            self._files = {**self._files, one.card.call.id: files}
        return await self._people.asked(one.card, request)

    async def _tried(self, one: Accepted, request: NeedsApproval) -> ToolResult | NeedsApproval | Denied:
        """The result of a call that needs no more than a trial gives; otherwise what to do with it.

        A trial has no effects, so the card is not marked as started: after a crash the call is simply tried again.
        """
        trial = Trial()
        result = await self._run(one, request.allowed, perf_counter(), trial)
        if trial.wanted is None:
            self._begun.add(one.card.call.id)
            return result
        if request.refusal:
            return Denied(one.card.call, Code.PERMISSION_DENIED, request.refusal, "policy")
        return changed(request, reason=f"{request.reason} {trial.wanted}".rstrip())

    async def _run(self, one: Accepted, allowed: Allowed, asked: float, trial: Trial | None = None) -> ToolResult:
        """Wait for a free place, mark the call as started unless it is only tried, and run it."""
        hub, card = self._hub, one.card
        if (place := self._batch.place()) is not None:
            await self._batch.wait(place)
        share = hub.share(self._turn)
        if (place := share.place()) is not None:
            await self._wait_for_share(share, place)
        try:
            if trial is not None:
                await hub.store.audit([AuditRow.about(card, "started", hub.clock(), rule="trial")])
            elif one.left or card.attempt == 0:
                card = await hub.store.claim(card, [AuditRow.about(card, "started", hub.clock())], begins=False)
                self._claimed = {**self._claimed, card.call.id: card}
            queued_ms = (perf_counter() - asked) * 1000
            if self._emit and card.call.id not in self._announced:
                self._emit(CallStarted(card.call))
            if self._turn.limits.deadline_s is not None:
                allowed = self._before_the_deadline(allowed)
            context = self._context(card, allowed)
            if trial is not None:
                self._announced |= {card.call.id}
                context = changed(context, trial=trial, begins=not_noted)  # a trial has no effects
            try:
                if self._files and (stale := await self._stale(allowed)) is not None:
                    return stale
                if trial is None:
                    if not hub.store.holds(card.turn_id):
                        await self._start_again(card)
                    self._begun.add(card.call.id)  # from now on it may take effect
                if hub.secrets is NO_SECRETS:
                    if not hub.notes_begin:
                        context.begins(context.turn_id, context.call_id)
                    result = await hub.executor.execute(allowed, context)
                else:
                    result = await self._executed(allowed, context)
            except asyncio.CancelledError:
                await asyncio.shield(hub.record_told(context, allowed.tool.name))
                raise
        finally:
            self._batch.leave()
            share.leave()
        if context.told or allowed.tool.untrusted:
            await hub.record_told(context, allowed.tool.name)
            result = _as_told(result, allowed, context, hub.secrets)
        if queued_ms >= _NOTICEABLE_MS:
            result = changed(result, queued_ms=queued_ms)
        if allowed.tool.delivery is not Delivery.MODEL and result.ok:
            result = changed(result, delivery=allowed.tool.delivery)
        limits = self._turn.limits
        return result if is_plain(result, limits) else await returned(hub, limits, allowed, result)

    async def _stale(self, allowed: Allowed) -> ToolResult | None:
        """The refusal of a command one of whose files has changed since the question about it was asked."""
        files = self._files.get(allowed.call.id)
        if files is None or files.command != allowed.arguments.get("command"):  # the user chose another command
            return None
        path = await files.difference()
        if not path:
            return None
        said = f"{path!r} has changed since this command was approved, so the approval does not count. Call it again."
        return ToolResult.failed(allowed.call, Code.PERMISSION_DENIED, said)

    async def _wait_for_share(self, share: Batch, place: "asyncio.Future[None]") -> None:
        try:
            await share.wait(place)
        except BaseException:
            self._batch.leave()
            raise

    async def _start_again(self, card: CallCard) -> None:
        """This process slept through its lease. Raises Fenced when another one has taken the turn over meanwhile."""
        await self._hub.store.renew(card)

    async def _executed(self, allowed: Allowed, context: Context) -> ToolResult:
        """Run the call with its secrets in place, and let none of them out."""
        secrets = self._hub.secrets
        try:
            revealed = secrets.revealed(allowed)
        except NotYours as reason:
            return ToolResult.failed(allowed.call, Code.PERMISSION_DENIED, f"{reason}.")
        if limits := secrets.limits(allowed):
            grant = changed(context.grant, network=(*context.grant.network, *limits))
            context = changed(context, grant=grant)
        if not self._hub.notes_begin:
            context.begins(context.turn_id, context.call_id)
        return await scrubbed(secrets, await self._hub.executor.execute(revealed, context))

    def _before_the_deadline(self, allowed: Allowed) -> Allowed:
        """The call with no more time than its turn has left. Time spent on people's approvals is not the turn's."""
        if self._turn.limits.deadline_s is None:
            return allowed
        turn = changed(self._turn, waited_s=self._turn.waited_s + self._batch.waited_s)
        left_s = time_left_s(turn, self._hub.monotonic()) or 0.0
        if left_s >= allowed.timeout_s:
            return allowed
        return changed(allowed, timeout_s=left_s, notes=(*allowed.notes, DEADLINE_NOTE))

    def _context(self, card: CallCard, allowed: Allowed) -> Context:
        turn, emit = self._turn, self._emit
        context = _context(
            card.call.id, turn.id, turn.project, turn.agent, turn.grant, allowed.timeout_s, card.attempt,
            thread=turn.thread, tainted_by=self._tainted_by, recorder=self._hub,
            approved=True, begins=self._hub.store.begins,
        )  # fmt: skip
        if emit is None:
            return context
        loop, call_id, secrets = asyncio.get_running_loop(), card.call.id, self._hub.secrets

        def report(message: str, fraction: float | None) -> None:
            """Tools in threads report too, so the watcher is told on the loop."""
            loop.call_soon_threadsafe(emit, CallProgress(call_id, secrets.clean(message), fraction))

        return changed(context, report=report)


def _tainted_by(turn: Turn) -> tuple[str, ...]:
    """What the turn has read that is untrusted; a sub-agent of a tainted turn is as tainted as that one."""
    if not turn.tainted:
        return (_ASKER,) if any(rule.reason == TAINTED for rule in turn.grant.rules) else ()
    places = (place for source in strangers(turn.messages) for place in source.uris or (f"tool:{source.name}",))
    return tuple(islice(dict.fromkeys(places), _MOST_NAMED)) or (_BEFORE,)


def _as_told(result: ToolResult, allowed: Allowed, context: Context, secrets: Secrets) -> ToolResult:
    """The result with the sandbox that its tool has told of and, if others may have written it, where it was read."""
    boxes = [one for one in context.told if isinstance(one, tuple)]
    engine, profile = boxes[-1] if boxes else ("", "")
    result = changed(result, engine=engine, profile=profile)
    read = [one for one in context.told if isinstance(one, str)]
    read += [host for one in context.told if isinstance(one, Traffic) for host in one.origins]
    if not (read or allowed.tool.untrusted):
        return result
    read = list(map(secrets.clean, read))
    return changed(result, untrusted=True, origins=origins(read, allowed.arguments))
