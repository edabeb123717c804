"""The hub: a call is judged, written down, run where its tool lives, and written down again.

The record wins over everything: what was answered before is never run twice, and what another process started is
never started again blindly.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import NoReturn

from uuid_utils import uuid7

from toolwire.decide.ladder import Case, decide, too_many
from toolwire.define.canonical import digest
from toolwire.define.toolbox import Toolbox
from toolwire.deliver.endings import canceled, refused
from toolwire.deliver.secrets import NO_SECRETS, Secret, Secrets
from toolwire.deliver.url_passwords import has_url_password, withhold
from toolwire.disclose.offer import offered
from toolwire.errors import Suspended
from toolwire.execute.contract import Executor
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.resources import Resources
from toolwire.hub.approvals import QUESTIONS, Approve, Tell
from toolwire.hub.event_hub import EventHub
from toolwire.hub.journey import Accepted, Batch, Journey
from toolwire.hub.provenance import follow_renames, mark_writes, tell_marked_reads
from toolwire.protocol.calls import Allowed, Decision, Denied, NeedsApproval, ToolCall, ToolResult
from toolwire.protocol.chat import Reply, strangers
from toolwire.protocol.context import Context
from toolwire.protocol.events import Emit
from toolwire.protocol.outcomes import Code
from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.tools import Effect, Grant, Tool
from toolwire.protocol.traffic import Traffic
from toolwire.protocol.turns import Turn
from toolwire.protocol.values import changed, making
from toolwire.protocol.waits import ForApproval
from toolwire.record.contract import Reservation, Store

APPROVAL_S = 86_400.0
IN_FLIGHT = 32
_MOST_SHARES = 1_000
_SEAL_BYTES = 32
_MOST_PASSWORDS = 256

_card_of = attrgetter("card")
_case, _card, _accepted = making(Case), making(CallCard), making(Accepted)


class Runtime:
    """Takes calls through their journey. Shared by all turns of a process.

    Of the calls of one agent at most `in_flight` run at the same time, over all its turns; the others wait, so that
    none takes all threads and boxes from another. Watchers of `events` see what happens in all turns. `clock` gives
    dates; what lasts is measured by `monotonic`.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        store: Store,
        *,
        executor: Executor | None = None,
        approve: Approve | None = None,
        suspends: bool = False,
        tell: Tell | None = None,
        approval_s: float = APPROVAL_S,
        questions: int = QUESTIONS,
        in_flight: int = IN_FLIGHT,
        secrets: Secrets = NO_SECRETS,
        events: EventHub | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: str(uuid7()),
    ) -> None:
        self.toolbox = toolbox
        self.store: Store = store
        self.executor = executor or InProcessExecutor()
        self.notes_begin = getattr(self.executor, "notes_begin", False)
        self.approve = approve
        self.suspends = suspends
        self.tell = tell
        self.approval_s = approval_s
        self.questions = questions
        self.in_flight = in_flight
        self.secrets = secrets
        self.events = events or EventHub(clock)
        self.clock = clock
        self.monotonic = monotonic
        self.new_id = new_id
        self.resources = Resources()
        self.seal = os.urandom(_SEAL_BYTES)
        self._offer: tuple[Grant | None, tuple[Tool, ...]] = (None, ())
        self._running: dict[tuple[str, str], asyncio.Future[ToolResult]] = {}
        self._shares: dict[tuple[str, str], Batch] = {}

    def change_tools(self, toolbox: Toolbox) -> None:
        """Know other tools from now on."""
        self.toolbox = toolbox
        self._offer = (None, ())

    def offer(self, turn: Turn) -> tuple[Tool, ...]:
        """The tools that this turn may see. Turns with the same grant get the same list, so its encoding is kept."""
        if not turn.limits.tools_enabled:
            return ()
        if turn.grant is not self._offer[0]:
            self._offer = (turn.grant, offered(self.toolbox, turn.grant))
        return self._offer[1]

    async def execute(
        self, call: ToolCall, turn: Turn, emit: Emit | None = None, reserve: Reservation | None = None
    ) -> ToolResult:
        """One call through the whole journey. The same call of the same turn again gives the stored result."""
        key = (turn.id, call.id)
        while running := self._running.get(key):
            await asyncio.wait((running,))
            if not running.cancelled():
                return running.result()
        answer = self._running[key] = asyncio.get_running_loop().create_future()
        emit = self.events.emitter(turn, emit)
        try:
            result = await self._execute(call, turn, emit, reserve)
            answer.set_result(result)
        finally:
            answer.cancel()
            del self._running[key]
        return result

    async def _execute(self, call: ToolCall, turn: Turn, emit: Emit | None, reserve: Reservation | None) -> ToolResult:
        self._heed_password(call)
        [judged] = self._judge(turn, (call,), None)
        kept = await self.store.open(judged.card, [self._decided(judged)], reserve)
        journey = Journey(self, turn, Batch(1), emit)
        if kept.record_id == judged.card.record_id:
            judged = judged if reserve is None else _with_refusal(judged, kept)
        else:
            judged = Accepted(kept, judged.decision, left=kept.attempt > 0)
        result = await journey.finish(judged)
        return result if result is not None else await self._suspend(turn, journey)

    def withhold_passwords(self, reply: Reply) -> Reply:
        """The reply as it is kept, without passwords in the addresses of its calls."""
        for call in reply.calls:
            if has_url_password(call.arguments):
                self._heed_password(call)
                return changed(reply, calls=tuple(map(self.withhold_password, reply.calls)))
        return reply

    def _heed_password(self, call: ToolCall) -> None:
        """From the first call with a password in an address on, or with what stands for one, calls are looked through.

        Another process may have withheld it, and then it is not known here.
        """
        if self.secrets is NO_SECRETS and has_url_password(call.arguments):
            self.secrets = Secrets({})

    def withhold_password(self, call: ToolCall) -> ToolCall:
        """The call with a placeholder for a password in an address, which stays in this process as a secret."""
        if not has_url_password(call.arguments):
            return call
        arguments, found = withhold(call.arguments, call.name, self.seal)
        if not found:
            return call
        held = {one.name: Secret(one.value, frozenset({call.name}), anywhere=True) for one in found}
        self.secrets = self.secrets.plus(held, _MOST_PASSWORDS)
        return changed(call, arguments=arguments, raw=None)

    async def accept(
        self,
        turn: Turn,
        reply: Reply,
        names: frozenset[str],
        left_out: int = 0,
        reserve: Reservation | None = None,
    ) -> list[Accepted]:
        """Judge the calls of a reply and write reply and calls down together, before any of them runs.

        With `reserve`, those are refused that the day has no room for. Of a reply with too many calls, the last is
        refused for itself and all that were `left_out`.
        """
        accepted = self._judge(turn, reply.calls, names)
        if left_out and accepted:
            accepted[-1] = self._refuse_rest(turn, accepted[-1].card.call, left_out)
        cards, rows = list(map(_card_of, accepted)), list(map(self._decided, accepted))
        kept = await self.store.replied(turn, reply, cards, rows, reserve)
        return accepted if reserve is None else list(map(_with_refusal, accepted, kept))

    async def reopen(self, turn: Turn, names: frozenset[str]) -> list[Accepted]:
        """Take up the calls of a turn that another process left behind."""
        reopened = []
        for call in turn.pending:
            self._heed_password(call)
        for one in self._judge(turn, turn.pending, names):
            card = await self.store.open(one.card, [self._decided(one)])
            left = card.record_id != one.card.record_id and card.attempt > 0
            reopened.append(Accepted(card, one.decision, left))
        return reopened

    async def run(
        self, turn: Turn, accepted: Sequence[Accepted], batch: Batch, emit: Emit | None = None
    ) -> tuple[ToolResult, ...]:
        """Run the calls of one step, together where they may; results come in the order of the calls."""
        journey = Journey(self, turn, batch, emit)
        if len(accepted) == 1:
            result = await journey.finish(accepted[0])
            return (result if result is not None else await self._suspend(turn, journey),)
        tasks: list[asyncio.Task[ToolResult | None]] = []
        firsts: dict[tuple[str, ...], asyncio.Task[ToolResult | None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for one in accepted:
                    first = firsts.get(key) if (key := _twin_key(one)) else None
                    work = journey.finish(one) if first is None else journey.share(one, first)
                    tasks.append(group.create_task(work, name="toolwire-journey"))
                    if key and first is None:
                        firsts[key] = tasks[-1]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        results = tuple(result for task in tasks if (result := task.result()) is not None)
        return results if len(results) == len(tasks) else await self._suspend(turn, journey)

    async def abandon(self, accepted: Iterable[Accepted]) -> None:
        """End calls that will not run any more, so that every accepted call has its result."""
        for one in accepted:
            if one.card.result is None:
                await self.conclude(one.card, canceled(one.card.call, begun=one.left), ran=one.left)

    async def conclude(self, card: CallCard, result: ToolResult, rule: str = "", *, ran: bool) -> ToolResult:
        """Write down how a call ended, and whether it `ran`; the result that was kept first comes back."""
        row = AuditRow.about(card, "finished", self.clock(), rule=rule, result=result)
        return await self.store.close(card, result, [row], ran=ran)

    async def record_told(self, context: Context, tool: str) -> None:
        """Write down where a call went on the network, and what it wrote if it had read anything untrusted."""
        traffic = [one.cleaned(self.secrets.clean) for one in context.told if isinstance(one, Traffic)]
        if traffic:
            await self.store.audit([self._network_row(context, tool, one) for one in traffic])
        await tell_marked_reads(self, context)
        read = [one for one in context.told if isinstance(one, str)]
        read += [host for one in traffic for host in one.origins]
        if read or context.tainted_by:
            await mark_writes(self, context, [*map(self.secrets.clean, read), *context.tainted_by])
        else:
            await follow_renames(self, context)

    async def marks(self, project: str) -> Sequence[UntrustedMark]:
        """What turns of a project wrote after they had read untrusted content."""
        return await self.store.untrusted(project)

    def _network_row(self, context: Context, tool: str, traffic: Traffic) -> AuditRow:
        return AuditRow(
            self.clock(), "network", context.project, context.agent, context.turn_id, context.call_id, tool,
            detail=traffic.detail(),
        )  # fmt: skip

    async def close(self) -> None:
        await self.executor.close()

    def share(self, turn: Turn) -> Batch:
        """The places that the calls of a turn's agent have."""
        whose = (turn.project, turn.agent)
        share = self._shares.get(whose)
        if share is None:
            if len(self._shares) >= _MOST_SHARES:
                self._shares = {other: kept for other, kept in self._shares.items() if kept.busy}
            share = self._shares[whose] = Batch(self.in_flight)
        return share

    def judge_anew(self, turn: Turn, call: ToolCall) -> Decision:
        """The decision about an accepted call with other arguments."""
        self._heed_password(call)
        read = strangers(turn.messages) if turn.tainted else ()
        return decide(Case(call, self.toolbox, turn.grant, None, turn.calls, tainted=turn.tainted, read=read))

    async def _suspend(self, turn: Turn, journey: Journey) -> NoReturn:
        """Everything that could run has run; the rest waits for people."""
        open_ones = await self.store.approvals(turn_id=turn.id, only_open=True)
        raise Suspended(turn.id, tuple(ForApproval(card.id) for card in open_ones if card.call_id in journey.waiting))

    def _judge(self, turn: Turn, calls: Sequence[ToolCall], names: frozenset[str] | None) -> list[Accepted]:
        """Decide about calls and make their cards."""
        judged = []
        read = strangers(turn.messages) if turn.tainted else ()
        for place, call in enumerate(calls):
            case = _case(
                call, self.toolbox, turn.grant, names, turn.calls, place, turn.limits.calls_per_step, turn.tainted, read
            )
            decision = decide(case)
            judged.append(_accepted(self._card(turn, call, decision, alone=len(calls) == 1), decision))
        return judged

    def _refuse_rest(self, turn: Turn, call: ToolCall, left_out: int) -> Accepted:
        decision = too_many(call, turn.limits.calls_per_step, left_out)
        return _accepted(self._card(turn, call, decision, alone=False), decision)

    def _card(self, turn: Turn, call: ToolCall, decision: Decision, *, alone: bool) -> CallCard:
        """A call that is alone starts at once, so its card is opened as claimed: one write less."""
        tool = decision.tool if isinstance(decision, Allowed) else self.toolbox.get(call.name)
        effect, version = (tool.effect, tool.version) if tool else (Effect.UNSAFE, "")
        attempt = int(alone and isinstance(decision, Allowed))
        result = refused(decision) if isinstance(decision, Denied) else None
        record_id = self.new_id()
        return _card(
            record_id, turn.id, turn.epoch, call, digest(call.arguments), turn.project, turn.agent,
            effect, version, self.clock(), attempt, result, record_id if attempt else "",
        )  # fmt: skip

    def _decided(self, one: Accepted) -> AuditRow:
        match one.decision:
            case Allowed():
                return AuditRow.about(one.card, "allowed", self.clock())
            case NeedsApproval(tries=True):
                return AuditRow.about(one.card, "allowed", self.clock(), rule="trial")
            case NeedsApproval(reason=reason):
                said = {"reason": reason}
                return AuditRow.about(one.card, "awaiting_approval", self.clock(), rule="confirmation", detail=said)
            case Denied(rule=rule, left_out=left_out):
                also = {"left_out": left_out} if left_out else None
                return AuditRow.about(one.card, "denied", self.clock(), rule=rule, result=one.card.result, detail=also)


def _with_refusal(one: Accepted, kept: CallCard) -> Accepted:
    """The call as the store has kept it: refused, if the day has no room for it."""
    if kept.result is None or one.card.result is not None or kept.result.error is None:
        return one
    denied = Denied(kept.call, Code.PERMISSION_DENIED, kept.result.error.message, "budget")
    return Accepted(kept, denied)


def _twin_key(one: Accepted) -> tuple[str, ...] | None:
    """What makes two calls of one reply the same call: the id that the provider gave, the name and the arguments.

    A tool that may well be asked the same thing twice (`polling`) has no twins.
    """
    call, decision = one.card.call, one.decision
    if not call.alias or not isinstance(decision, Allowed) or decision.tool.polling:
        return None
    return (call.alias, call.name, one.card.args_digest)
