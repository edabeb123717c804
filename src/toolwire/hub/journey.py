"""The journey of one accepted call: approval, a free slot, a claim, the run, and its one result on record.

`finish` tells it from end to end. Whatever happens on the way, an accepted call has one result or waits: a refusal, a
failure and a cancellation are results too.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolwire.breadcrumbs.rules.configs import secret_values
from toolwire.deliver.endings import busy, canceled_result, refusal_result, unknown
from toolwire.deliver.secrets import NO_SECRETS, NotYours, Secret
from toolwire.deliver.told import with_told
from toolwire.errors import CallHeld, NotFound, StoreError, StoreUnavailable, Suspended
from toolwire.execute.contract import AbandonsWork, AwaitsResult, Dispatched, KnowsCalls, RecordedResult
from toolwire.execute.inprocess import DEADLINE_NOTE
from toolwire.execute.output_buffer import OutputBuffer
from toolwire.execute.resources import Busy
from toolwire.hub.calls import Accepted, Conclusion, Detached, Outcome, Refused, Waiting
from toolwire.hub.results import is_plain, show_result, without_secrets
from toolwire.hub.services import Services
from toolwire.hub.slots import Slots
from toolwire.lazy import lazy_module
from toolwire.loop.limits import time_left_s
from toolwire.plan.call_order import CallPlan
from toolwire.plan.resources import agent_place, claims, touches
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.calls import Allowed, Denied, NeedsApproval, ToolResult
from toolwire.protocol.chat import untrusted_sources
from toolwire.protocol.context import Context, Trial, not_noted
from toolwire.protocol.events import NO_WORKER_YET, CallFinished, CallProgress, CallStarted, Emit, OutputDelta
from toolwire.protocol.outcomes import Code
from toolwire.protocol.policy import inherits_taint
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.tools import USUAL, Delivery, InProcess
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import ForResult, ForTurn
from toolwire.record.story import receipt

if TYPE_CHECKING:
    from toolwire.hub import approvals, approved_files
else:
    # Loaded where a call needs approval.
    approvals = lazy_module("toolwire.hub.approvals")
    approved_files = lazy_module("toolwire.hub.approved_files")

_log = logging.getLogger(__name__)
_DETACHED = Detached()
_NOTICEABLE_MS = 0.05
_FIRST_LOOK_S, _LOOK_EVERY_S = 0.005, 0.25
_PATIENT_S = 3.0
_TO_MODEL = Delivery.MODEL
_MOST_NAMED = 5
_ASKER, _BEFORE = "agent:asking", "tool:before"
_MOST_HELD = 1_000
_NO_CONFIG = "this tool takes no configuration here; leave out config_id"
_PASSWORD_STAYS = (
    "It was not sent: the password in its address would be kept on the way. Give the worker a secret, and name that."
)
_row_about = AuditRow.about  # looked up once, since every call writes one


class Journey:
    """Sees one call of a step to its result."""

    __slots__ = ("_alone", "_announced", "_begun", "_card", "_conclusion", "_emit", "_failed", "_files", "_one",
                 "_output", "_services", "_slots", "_turn")  # fmt: skip

    def __init__(
        self,
        services: Services,
        turn: Turn,
        slots: Slots,
        emit: Emit | None,
        one: Accepted,
        alone: bool = False,
        failed: Sequence[BaseException] = (),
        conclusion: Conclusion | None = None,
    ) -> None:
        """In `failed` stands, as soon as that happens, why another call of the step could not be brought to its end.

        A turn of a single call can be ended together with it, by its `conclusion`.
        """
        self._services = services
        self._failed = failed
        self._turn = turn
        self._slots = slots
        self._emit = emit
        self._one = one
        self._card = one.card
        self._alone = alone
        self._conclusion = conclusion
        self._announced = self._begun = False
        self._files: approved_files.ApprovedFiles | None = None
        self._output: OutputBuffer | None = None

    async def finish(self) -> ToolResult | Waiting:
        """The one result of the call, whatever happens on the way, or what it waits for."""
        one, decision = self._one, self._one.decision
        if one.card.detached:  # ended or not: what the model was told stays what it was told
            return receipt(one.card.call)
        if one.card.result is not None:  # it was answered before: the record wins
            return self._tell_finished(one.card.result, replayed=not isinstance(decision, Denied))
        try:
            if type(decision) is Allowed and not one.interrupted:  # as nearly always
                outcome = await self._start(decision)
            else:
                outcome = await self._outcome()
        except asyncio.CancelledError:
            # A step that failed is left as it is: what had not begun, or may run again, does when the turn goes on.
            if not self._failed or ((one.interrupted or self._begun) and not one.may_run_again):
                await asyncio.shield(self._cancel())
            raise
        rule = ""
        if type(outcome) is not ToolResult:
            match outcome:
                case Waiting():
                    return outcome
                case Detached():
                    return receipt(self._card.call)
                case Refused(denied):
                    outcome, rule = refusal_result(denied), denied.rule
        result = self._card.result
        if result is None:  # otherwise another process has finished it meanwhile
            try:
                begun = one.interrupted or self._begun
                result = await close_call(self._services, self._card, outcome, rule, begun, self._conclusion)
            except CallHeld as held:  # a process that took the call over still runs it
                return Waiting((ForResult(self._card.call.id, held.until),))
        return result if self._emit is None else self._tell_finished(result)

    async def repeat(self, first: "asyncio.Task[ToolResult | Waiting]") -> ToolResult | Waiting:
        """The result of a call that repeats the first one of the same reply, id and all: it takes effect once."""
        card = self._one.card
        if card.result is not None:
            return card.result
        outcome = await self._outcome_of(first)
        if isinstance(outcome, Waiting):
            return outcome
        return await close_call(self._services, card, replace(outcome, call_id=card.call.id), "repeated", ran=False)

    async def finish_after(
        self, plan: CallPlan, tasks: "Sequence[asyncio.Task[ToolResult | Waiting]]"
    ) -> ToolResult | Waiting:
        """The result of a call that comes after others of the same reply. If one of those fails, it does not run."""
        if self._one.card.result is not None or self._one.interrupted:
            return await self.finish()
        if isinstance(plan, str):
            return await self._skip(plan, Code.INVALID_PARAMS)
        for place in plan:
            outcome = await self._outcome_of(tasks[place])
            if isinstance(outcome, Waiting):
                return outcome
            if outcome.is_failure:
                return await self._skip(f"it depends on a call of {outcome.name!r} that did not succeed", Code.CANCELED)
        return await self.finish()

    async def _outcome_of(self, other: "asyncio.Task[ToolResult | Waiting]") -> ToolResult | Waiting:
        """What comes of another call of the step, which this one waits for. Canceled meanwhile, this one has ended."""
        try:
            return await asyncio.shield(other)
        except asyncio.CancelledError:
            if not self._failed:  # as in `finish`
                await asyncio.shield(self._cancel())
            raise

    async def _skip(self, reason: str, code: Code) -> ToolResult:
        """End a call that cannot run any more, since another one did not."""
        result = ToolResult.failed(self._card.call, code, f"This call did not run: {reason}.")
        return self._tell_finished(await close_call(self._services, self._card, result, "dependencies", ran=False))

    def _outcome(self) -> Awaitable[Outcome]:
        """What comes of the call: it runs, is refused, or waits."""
        one, decision = self._one, self._one.decision
        if one.interrupted and not one.may_run_again and not self._is_known_elsewhere():
            return self._give_up()
        match decision:
            case Allowed():
                return self._start(decision)
            case NeedsApproval():
                return self._approve_and_run(decision)
            case Denied():
                return _refuse(decision)

    def _start(self, allowed: Allowed) -> Awaitable[Outcome]:
        """Run a call that may run, where its tool lives."""
        if self._card.agreed is not USUAL and self._card.agreed.after_execution is AfterExecution.DETACH:
            return self._detach(allowed)
        if self._services.dispatcher is not None and self._is_dispatched(allowed):
            return self._dispatch(allowed)
        return self._run_here(allowed)

    def _run_here(self, allowed: Allowed) -> Awaitable[Outcome]:
        waits = self._turn.limits.in_flight is not None or touches(allowed.tool)
        return self._run_holding(allowed) if waits else self._run(allowed)

    def _is_known_elsewhere(self) -> bool:
        """Whether the call can be sent again, since it is known by its record where it would run."""
        executor, tool = self._services.executor, self._one.tool
        return tool is not None and isinstance(executor, KnowsCalls) and executor.knows_calls(tool)

    async def _give_up(self) -> ToolResult:
        """A dead process began this call, and it must not be run blindly again."""
        return unknown(self._card)

    # Approval

    async def _approve_and_run(self, request: NeedsApproval) -> Outcome:
        """Try the call where it can do no harm, if it may be tried; request approval; run it once that is given."""
        gate = approvals.ApprovalGate(self._services, self._turn, self._slots, self._emit)
        if request.tries and not self._is_dispatched(request.allowed) and not await gate.knows(self._card, request):
            match await self._try(request):
                case NeedsApproval() as wanted:
                    request = wanted
                case outcome:
                    return outcome
        request, self._files = await approved_files.bind_files(request, self._turn.grant)
        match await gate.decide(self._card, request):
            case Allowed() as allowed:
                return await self._start(allowed)
            case Denied() as denied:
                return Refused(denied)
            case Waiting() as waiting:
                return waiting

    async def _try(self, request: NeedsApproval) -> Outcome | NeedsApproval:
        """The result of a call that needs no more than a trial gives; otherwise what to do with it.

        A trial has no effects, so the call is not claimed for it: after a crash it is simply tried again.
        """
        trial = Trial()
        result = await self._run(request.allowed, trial=trial)
        if trial.wanted is None:
            self._begun = True
            return result
        if request.refusal:
            return Refused(Denied(self._card.call, Code.PERMISSION_DENIED, request.refusal, "policy"))
        return replace(request, reason=f"{request.reason} {trial.wanted}".rstrip())

    # Calls that other processes run

    def _is_dispatched(self, allowed: Allowed) -> bool:
        dispatcher = self._services.dispatcher
        return dispatcher is not None and dispatcher.dispatches(allowed.tool)

    async def _dispatch(self, allowed: Allowed) -> Outcome:
        """Send a call to another process. The turn waits for its result, or this process does."""
        sent = await self._send(allowed, ends_turn=self._conclusion is not None)
        if not isinstance(sent, Dispatched):
            return sent
        result = await self._result_of_another(sent.arrival) if sent.stays else None
        return Waiting((ForResult(self._card.call.id, sent.until),)) if result is None else result

    async def _send(self, allowed: Allowed, *, ends_turn: bool = False) -> ToolResult | Dispatched:
        """Send a call to a process that claims it, holds what it touches, and closes it."""
        services, card = self._services, self._card
        assert services.dispatcher is not None
        if self._files is not None and (stale := await self._stale(allowed)) is not None:
            return stale
        allowed = self._before_the_deadline(allowed)
        trace = services.events.trace_of(self._turn)
        context = replace(
            self._context(allowed), record_id=card.record_id, epoch=card.epoch, step_id=card.step_id, trace=trace,
            ends_turn=ends_turn,
        )  # fmt: skip
        try:
            if allowed.call.options is not None and allowed.call.options.config_id:
                raise NotYours(_NO_CONFIG)
            if services.secrets is not NO_SECRETS:
                revealed, context = self._with_secrets(allowed, context)
                if revealed.arguments != allowed.arguments:
                    return ToolResult.failed(allowed.call, Code.PERMISSION_DENIED, _PASSWORD_STAYS)
        except NotYours as reason:
            return ToolResult.failed(allowed.call, Code.PERMISSION_DENIED, f"{reason}.")
        return await services.dispatcher.dispatch(allowed, context)

    async def _result_of_another(self, arrival: AwaitsResult | None) -> ToolResult | None:
        """The result that another process writes down, once it is there; None where it is not waited for so long."""
        if self._emit is not None:
            self._emit(CallStarted(self._card.call))
        if arrival is None:
            return await self._look_for_result(asyncio.sleep, _FIRST_LOOK_S)
        try:
            if arrival.stays_s == math.inf:
                return await self._look_for_result(arrival.wait, _LOOK_EVERY_S)
            async with asyncio.timeout(arrival.stays_s):
                return await self._look_for_result(arrival.wait, _LOOK_EVERY_S)
        except (TimeoutError, asyncio.CancelledError):
            if arrival.stays_s == math.inf:
                raise
            return None  # the call goes on, and so does its turn once the result is there
        finally:
            arrival.close()

    async def _look_for_result(
        self, wait: Callable[[float], Awaitable[RecordedResult | None]], pause_s: float
    ) -> ToolResult:
        """Look now and then, and whenever a wait is over that did not bring it."""
        card, emit = self._card, self._emit
        patient_until = self._services.monotonic() + _PATIENT_S
        while True:
            if emit is not None and not self._card.attempt and self._services.monotonic() > patient_until:
                emit(CallProgress(card.call.id, NO_WORKER_YET))
                patient_until = math.inf
            told = await wait(pause_s)
            pause_s = min(pause_s * 1.5, _LOOK_EVERY_S)
            has_ended = False
            if told is not None:
                self._card, has_ended = replace(self._card, result=told.result), told.has_ended
                if has_ended:
                    self._services.store.forget_run(card.turn_id)
            else:
                with suppress(StoreUnavailable):
                    self._card, has_ended = await self._services.store.call_and_end(card.turn_id, card.call.id)
            if self._card.result is not None:
                if self._conclusion is not None and has_ended:
                    self._conclusion.is_written = True
                return self._card.result

    # Calls that run on their own

    async def _detach(self, allowed: Allowed) -> Outcome:
        """Let a call run on its own.

        It is sent, or claimed, before that is on record: a call that no turn waits for must not get lost. One that
        cannot be sent is an ordinary result.
        """
        services = self._services
        if self._is_dispatched(allowed):
            sent = await self._send(allowed)
            if not isinstance(sent, Dispatched):
                return sent
            self._card = await services.store.detach(self._card)
            return self._card.result or _DETACHED
        if (stop := await self._claim(None, services.clock() + services.detached_lease_s)) is not None:
            return _DETACHED if self._card.detached else stop  # what was told elsewhere stays what was told
        card = await services.store.detach(self._card)
        if card.result is not None:
            return card.result
        self._card = replace(self._card, detached=True)
        task = asyncio.create_task(self._finish_detached(allowed), name="toolwire-detached-call")
        services.detached.add(task)
        task.add_done_callback(services.detached.discard)
        return _DETACHED

    async def _finish_detached(self, allowed: Allowed) -> None:
        """See a call to its result that runs on its own in this process. Its lease is renewed as long as that lives."""
        work = asyncio.ensure_future(self._run_here(allowed))
        heartbeat = asyncio.create_task(self._keep_claim(work), name="toolwire-detached-lease")
        try:
            outcome = await work
        except asyncio.CancelledError:
            with suppress(StoreError):
                await asyncio.shield(self._cancel())
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            return
        except StoreError as lost:
            _log.warning("call %s of turn %s runs on its own and is lost: %s", self._card.call.id, self._turn.id, lost)
            return
        finally:
            heartbeat.cancel()
            await asyncio.wait((heartbeat,))
        if isinstance(outcome, Waiting):
            waits = ", ".join(map(str, outcome.waits))
            said = f"{allowed.call.name!r} runs on its own and cannot wait for {waits}."
            outcome = ToolResult.failed(allowed.call, Code.EXECUTION_FAILED, said)
        assert isinstance(outcome, ToolResult)
        with suppress(StoreError):  # another process has ended it; the audit log has this result, too
            result = self._tell_finished(await close_call(self._services, self._card, outcome))
            if allowed.tool.shows_output and not allowed.tool.untrusted and not result.untrusted:
                self._services.shown_output.end(self._turn.id, self._card.call, result)

    async def _keep_claim(self, work: "asyncio.Future[Outcome]") -> None:
        """Renew the lease of a call, and stop its work where the lease is lost or the call is to be canceled."""
        services = self._services
        while True:
            await asyncio.sleep(services.detached_lease_s / 4)
            try:
                card = await services.store.renew(self._card, services.clock() + services.detached_lease_s)
            except StoreUnavailable:
                continue
            except StoreError:
                card = replace(self._card, cancel="its lease is lost")
            if card.cancel or card.result is not None:
                work.cancel()
                return

    # The run

    async def _run_holding(self, allowed: Allowed) -> Outcome:
        """Run a call that others may have to wait for. What it holds stays held while any of its work goes on."""
        call, executor, asked = self._card.call, self._services.executor, perf_counter()
        turn, tool = self._turn, allowed.tool
        touched = claims(tool, allowed.arguments, next(iter(turn.grant.roots), ""))
        touched += agent_place(turn.agent, turn.limits.in_flight, tool)
        patience_s = self._before_the_deadline(allowed).timeout_s
        try:
            async with self._services.resources.holding(touched, f"{call.name!r} ({call.id})", patience_s) as ticket:
                try:
                    return await self._run(allowed, asked)
                finally:
                    if isinstance(executor, AbandonsWork):
                        ticket.until = executor.leftover(Context(call.id, self._turn.id).idempotency_key)
        except Busy as lost:
            result = busy(call, lost.resource, lost.holder, patience_s)
            return replace(result, queued_ms=(perf_counter() - asked) * 1000)

    async def _run(self, allowed: Allowed, asked: float = 0.0, trial: Trial | None = None) -> Outcome:
        """Wait for a slot, claim the call unless it is only tried, and run it. It was `asked` for at some time."""
        services, turn, slots = self._services, self._turn, self._slots
        agent_slots = services.agent_slots(turn)
        if self._alone:
            slots.peak = slots.peak or 1
        elif not slots.take():
            asked = asked or perf_counter()
            await slots.wait()
        try:
            if not agent_slots.take():
                asked = asked or perf_counter()
                await agent_slots.wait()
            try:
                if self._one.interrupted or not self._card.attempt or trial is not None:
                    asked = asked or perf_counter()
                    if (stop := await self._claim(trial)) is not None:
                        return stop
                queued_ms = (perf_counter() - asked) * 1000 if asked else 0.0
                result = await self._execute(allowed, trial)
            finally:
                agent_slots.leave()
        finally:
            if not self._alone:
                slots.leave()
        if type(result) is not ToolResult:
            return result
        if queued_ms >= _NOTICEABLE_MS:
            result = replace(result, queued_ms=queued_ms)
        delivery = allowed.tool.delivery
        if (options := allowed.call.options) is not None and options.delivery is not None:
            delivery = options.delivery
        if delivery is not _TO_MODEL and result.ok:
            result = replace(result, delivery=delivery)
        return result if is_plain(result, turn.limits) else await show_result(services, turn.limits, allowed, result)

    async def _claim(self, trial: Trial | None, until: float | None = None) -> ToolResult | Waiting | None:
        """Hold the call from now on, so that no other process runs it; gives back why it is not to be run."""
        services, card = self._services, self._card
        if trial is not None:
            await services.store.audit([AuditRow.about(card, "started", services.clock(), rule="trial")])
            return None
        try:
            row = AuditRow.about(card, "started", services.clock())
            self._card = await services.store.claim(card, [row], until=until, begins=False)
        except CallHeld as held:
            return Waiting((ForResult(card.call.id, held.until),))
        return self._card.result

    async def _execute(self, allowed: Allowed, trial: Trial | None) -> Outcome:
        """Hand the call to its executor. From then on it may take effect."""
        services, card = self._services, self._card
        if self._emit and not self._announced:
            self._emit(CallStarted(card.call))
            self._announced = True
        if self._turn.limits.deadline_s is not None:
            allowed = self._before_the_deadline(allowed)
        context = self._context(allowed)
        if trial is not None:
            context = replace(context, trial=trial, begins=not_noted)
        try:
            if self._files is not None and (stale := await self._stale(allowed)) is not None:
                return stale
            if (options := allowed.call.options) is not None and options.config_id:
                context = await self._with_config(allowed, context, options.config_id)
            if services.secrets is not NO_SECRETS:
                allowed, context = self._with_secrets(allowed, context)
            if trial is None:
                if not services.writes.holds(
                    card.turn_id, project=card.project
                ):  # this process slept through its lease
                    await services.store.renew(card)
                self._begun = True
                if not services.notes_begin:
                    context.begins(context.turn_id, context.call_id)
            result = await services.executor.execute(allowed, context)
        except NotYours as reason:
            self._begun = False
            return ToolResult.failed(allowed.call, Code.PERMISSION_DENIED, f"{reason}.")
        except Suspended as child:
            services.store.pauses(card.turn_id, card.call.id)
            self._begun = False
            sub_agent = (ForTurn(child.turn_id),) if child.turn_id else ()
            return Waiting((*sub_agent, *child.waits))
        except asyncio.CancelledError:
            await asyncio.shield(services.recorder.record_told(context, allowed.tool.name))
            raise
        if services.secrets is not NO_SECRETS:
            result = await without_secrets(services, result)
        if context.told or allowed.tool.untrusted:
            await services.recorder.record_told(context, allowed.tool.name)
            result = with_told(result, allowed, context, services.clean)
        return result

    async def _stale(self, allowed: Allowed) -> ToolResult | None:
        """The refusal of a command one of whose files has changed since approval of it was requested."""
        files = self._files
        if files is None or files.command != allowed.arguments.get("command"):  # the user chose another command
            return None
        path = await files.difference()
        if not path:
            return None
        said = f"{path!r} has changed since this command was approved, so the approval does not count. Call it again."
        return ToolResult.failed(allowed.call, Code.PERMISSION_DENIED, said)

    async def _with_config(self, allowed: Allowed, context: Context, config_id: str) -> Context:
        """The context with the configuration that the call names, whose secrets are in no result. Raises NotYours."""
        services = self._services
        if services.open_config is None or not isinstance(allowed.tool.target, InProcess):
            raise NotYours(_NO_CONFIG)
        try:
            config = await services.open_config(config_id, allowed.tool.name, context)
        except NotFound as refused:
            raise NotYours(str(refused)) from None
        held = {f"config_{name}": Secret(value) for name, value in secret_values(config).items()}
        if held:
            services.secrets = services.secrets.plus(held, _MOST_HELD)
        return replace(context, config=config)

    def _with_secrets(self, allowed: Allowed, context: Context) -> tuple[Allowed, Context]:
        """The call as it is handed over: its secrets are put in place where the tool lives.

        It reaches no host that one of them is not for. Raises NotYours.
        """
        secrets = self._services.secrets
        if limits := secrets.limits(allowed):
            context = replace(context, grant=replace(context.grant, network=(*context.grant.network, *limits)))
        if not isinstance(allowed.tool.target, InProcess):
            return secrets.with_passwords(allowed), context
        return allowed, replace(context, reveal=secrets.revealed)

    def _before_the_deadline(self, allowed: Allowed) -> Allowed:
        """The call with no more time than its turn has left. Time in which approvals were pending is not the turn's."""
        if self._turn.limits.deadline_s is None:
            return allowed
        turn = replace(self._turn, waited_s=self._turn.waited_s + self._slots.waited_s)
        left_s = time_left_s(turn, self._services.monotonic()) or 0.0
        if left_s >= allowed.timeout_s:
            return allowed
        return replace(allowed, timeout_s=left_s, notes=(*allowed.notes, DEADLINE_NOTE))

    def _context(self, allowed: Allowed) -> Context:
        turn, emit, services, card = self._turn, self._emit, self._services, self._card
        telemetry = services.events.telemetry
        context = Context(
            card.call.id, turn.id, turn.project, turn.agent, turn.grant, allowed.timeout_s, card.attempt,
            thread=turn.thread,
            tainted_by=_tainted_by(turn) if turn.tainted or turn.grant.rules else (),
            recorder=services,
            approved=True,
            begins=services.store.begins,
            trace=turn.trace if telemetry is None else telemetry.trace_of(turn, card.call.id),
        )  # fmt: skip
        shows = allowed.tool.shows_output and card.detached and not allowed.tool.untrusted
        if emit is None and not shows:
            return context
        loop, call_id, clean = asyncio.get_running_loop(), card.call.id, services.clean

        def report(message: str, fraction: float | None) -> None:
            """Tools in threads report too, so the watcher is told on the loop."""
            if emit is not None:
                loop.call_soon_threadsafe(emit, CallProgress(call_id, clean(message), fraction))

        def tell(text: str, stream: str, offset: int) -> None:
            if emit is not None:
                emit(OutputDelta(call_id, text, stream, offset))
            if shows:
                services.shown_output.add(turn.id, card.call, text)

        if self._output is None:
            self._output = OutputBuffer(tell, clean)
        return replace(context, report=report, write=self._output.write)

    # The end

    async def _cancel(self) -> None:
        begun = self._one.interrupted or self._begun
        with suppress(CallHeld):  # a process that took the call over still runs it
            await close_call(self._services, self._card, canceled_result(self._card.call, begun=begun), ran=begun)

    def _tell_finished(self, result: ToolResult, *, replayed: bool = False) -> ToolResult:
        if self._output is not None:
            self._output.close()
        if self._emit:
            self._emit(CallFinished(self._card.call, result, replayed))
        return result


def close_call(
    services: Services,
    card: CallCard,
    result: ToolResult,
    rule: str = "",
    ran: bool = True,
    conclusion: Conclusion | None = None,
) -> Awaitable[ToolResult]:
    """Write down how a call ended, and whether it `ran`; the result that was kept first comes back."""
    row = _row_about(card, "finished", services.clock(), rule, result)
    if conclusion is None:
        return services.writes.close(card, result, [row], ran=ran)
    conclusion.is_written = True
    return services.writes.close(card, result, [row], ran=ran, ends=conclusion.ends)


async def _refuse(denied: Denied) -> Refused:
    return Refused(denied)


def _tainted_by(turn: Turn) -> tuple[str, ...]:
    """What the turn has read that is untrusted; a sub-agent of a tainted turn is as tainted as that one."""
    if not turn.tainted:
        return (_ASKER,) if inherits_taint(turn.grant.rules) else ()
    places = (place for source in untrusted_sources(turn.messages) for place in source.uris or (f"tool:{source.name}",))
    return tuple(islice(dict.fromkeys(places), _MOST_NAMED)) or (_BEFORE,)
