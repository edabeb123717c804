"""Defences of the protocol, each taken away: a simulation that does not notice one of these shows nothing.

Each is a patch of one function of the product, for as long as the block lasts. Where that is a function of a store, it
is taken from the one that survives its process as well: `tests/crash_sweep` uses that one.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import count
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from tests.simulation.virtual_loop import PROCESS
from toolwire.assemble import turn_runner
from toolwire.bus.contract import Delivered
from toolwire.errors import BusUnavailable, StoreUnavailable, Suspended
from toolwire.execute.contract import Dispatched
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.fleet import dispatcher, reports, worker
from toolwire.fleet.dispatcher import BusDispatcher
from toolwire.fleet.parcels import command_message, read_parcel
from toolwire.fleet.relay import Relay
from toolwire.fleet.reports import ReportReceiver
from toolwire.fleet.worker import ToolWorker
from toolwire.gateway import cards
from toolwire.hub import canceling, results
from toolwire.hub.journey import Journey
from toolwire.hub.judging import judge
from toolwire.hub.runtime import Runtime
from toolwire.protocol.bus import AfterExecution, BusMessage
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.chat import Reply
from toolwire.protocol.context import Context
from toolwire.protocol.records import CallCard, Dispatch
from toolwire.protocol.tools import InProcess
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import ForResult, ForTurn
from toolwire.record import ledger, ready
from toolwire.record.contract import DueDispatch, KeptTurn
from toolwire.record.ledger import Sending
from toolwire.record.memory import MemoryStore
from toolwire.record.owners import Owners
from toolwire.record.projects import of_project
from toolwire.record.rows import new_id
from toolwire.record.sqlite import SqliteStore
from toolwire.toolbox.agents import orchestration, orchestration_tools
from toolwire.toolbox.agents.delegation import SubAgents

Plant = Callable[[ExitStack], None]
_HEARD_S = 0.05
"""By then a broker has heard what it was told, and what is done side by side has come apart."""


def _replace(stack: ExitStack, where: Any, name: str, planted: Any) -> None:
    stack.enter_context(patch.object(where, name, planted))


def _replace_in_stores(stack: ExitStack, name: str, planted: Callable[[Any], Any]) -> None:
    """Put something into the place of what each store does, which it may use."""
    for kind in (MemoryStore, SqliteStore):
        _replace(stack, kind, name, planted(getattr(kind, name)))


def claim_without_epoch(stack: ExitStack) -> None:
    right = ledger.claim_call

    def claim(card: CallCard, kept: Any, turn: Any, *rest: Any) -> Any:
        return right(replace(card, epoch=turn.epoch) if turn is not None else card, kept, turn, *rest)

    _replace(stack, ledger, "claim_call", claim)


def claim_while_held(stack: ExitStack) -> None:
    right = ledger.claim_call

    def claim(card: Any, kept: Any, turn: Any, at: float, alive: Any, claim: Any) -> Any:
        return right(card, kept, turn, at, lambda _: False, claim)

    _replace(stack, ledger, "claim_call", claim)


def close_without_token(stack: ExitStack) -> None:
    right = ledger.close_call

    def close(card: CallCard, result: Any, kept: CallCard | None, *rest: Any) -> Any:
        return right(replace(card, token=kept.token) if card.token and kept else card, result, kept, *rest)

    _replace(stack, ledger, "close_call", close)


def close_twice(stack: ExitStack) -> None:
    right = ledger.refuse_close

    def refuse(card: CallCard, result: ToolResult, kept: CallCard | None, *rest: Any) -> Any:
        return None if kept is not None and kept.result is not None else right(card, result, kept, *rest)

    _replace(stack, ledger, "refuse_close", refuse)


def close_over_the_holder(stack: ExitStack) -> None:
    """The turn's own writes do not wait for a living lease."""
    right = ledger.close_call

    def close(card: Any, result: Any, kept: Any, turn: Any, at: float, alive: Any, *rest: Any) -> Any:
        return right(card, result, kept, turn, at, lambda _: False, *rest)

    _replace(stack, ledger, "close_call", close)


def resume_while_owned(stack: ExitStack) -> None:
    right = ledger.resume
    _replace(stack, ledger, "resume", lambda turn_id, kept, _: right(turn_id, kept, lambda _: False))


def resume_with_the_same_epoch(stack: ExitStack) -> None:
    right = ledger.resume

    def resume(turn_id: str, kept: Any, is_run: Any) -> Any:
        epoch = right(turn_id, kept, is_run)
        return epoch - 1 if isinstance(epoch, int) else epoch

    _replace(stack, ledger, "resume", resume)


def change_turns_of_others(stack: ExitStack) -> None:
    """A process that lost its turn goes on to write into it."""
    _replace(stack, ledger, "change_turn", lambda *_: None)


def send_once(stack: ExitStack) -> None:
    """The relay forgets what it has sent."""
    right = MemoryStore.take_due

    async def take(store: MemoryStore, *args: Any, **more: Any) -> list[DueDispatch]:
        due = await right(store, *args, **more)
        for one in due:
            store._dispatches.pop((one.dispatch.project, one.dispatch.turn_id, one.dispatch.call_id), None)
        return due

    _replace(stack, MemoryStore, "take_due", take)


def drop_what_the_broker_refuses(stack: ExitStack) -> None:
    """A relay that neither keeps what could not be sent, nor sends again what was."""
    send_once(stack)
    right = Relay._send

    async def send(self: Relay, one: Any) -> None:
        try:
            await right(self, one)
        except BusUnavailable:
            return

    _replace(stack, Relay, "_send", send)


def never_send_again(stack: ExitStack) -> None:
    """The relay takes for delivered what it has taken up, and what the broker confirmed."""

    def planted(right: Any) -> Any:
        async def take(store: Any, now: float, _pause: Any, **more: Any) -> list[DueDispatch]:
            due: list[DueDispatch] = await right(store, now, lambda _: 1e9, **more)
            return due

        return take

    _replace_in_stores(stack, "take_due", planted)


def rely_on_handoffs(stack: ExitStack) -> None:
    """What was handed over is never due again."""
    never_send_again(stack)
    _replace(stack, dispatcher, "FIRST_PAUSE_S", 1e9)


def drop_what_cannot_be_sent(stack: ExitStack) -> None:
    """The same, and it does not wait for a broker that is away."""
    never_send_again(stack)
    right = Relay._is_sent

    async def is_sent(self: Relay, *args: Any) -> bool:
        await right(self, *args)
        return True

    _replace(stack, Relay, "_is_sent", is_sent)


def repeat_unsafe_calls(stack: ExitStack) -> None:
    right = BusDispatcher._dispatch

    def dispatch(self: BusDispatcher, *args: Any) -> Dispatch:
        return replace(right(self, *args), repeatable=True)

    _replace(stack, BusDispatcher, "_dispatch", dispatch)


def run_what_another_began(stack: ExitStack) -> None:
    """A worker that takes each command for the first of its call: the broker delivers it again after a death."""
    right = ToolWorker._result

    def result(self: ToolWorker, *args: Any, is_repeatable: bool) -> Any:
        return right(self, *args, is_repeatable=True)

    _replace(stack, ToolWorker, "_result", result)


def send_again_what_another_began(stack: ExitStack) -> None:
    right = ledger.due_call

    def due(dispatch: Dispatch, *rest: Any) -> tuple[Sending, float | None]:
        return right(replace(dispatch, repeatable=True), *rest)

    _replace(stack, ledger, "due_call", due)
    run_what_another_began(stack)


def run_before_the_claim(stack: ExitStack) -> None:
    right = ToolWorker._claim

    async def claim(self: ToolWorker, delivered: Delivered, asked: CallCard, *rows: Any) -> CallCard:
        dispatch, card = await self._store.dispatched(asked.record_id, project=asked.project)
        await self._run(replace(card, attempt=1), read_parcel(dispatch))
        return await right(self, delivered, asked, *rows)

    _replace(stack, ToolWorker, "_claim", claim)


def claim_again_with_another_token(stack: ExitStack) -> None:
    """A worker that does not hear that it holds a call leaves it alone, and so does everybody else."""

    async def claim(self: ToolWorker, delivered: Delivered, asked: CallCard, *rows: Any) -> CallCard:
        return await self._store.claim(asked, rows)

    _replace(stack, ToolWorker, "_claim", claim)


def run_commands_of_older_epochs(stack: ExitStack) -> None:
    """A worker goes by what it was sent, whatever has become of the turn since."""
    claim_without_epoch(stack)
    _replace(stack, worker, "call_card_violations", lambda *_: ())


def run_what_has_ended(stack: ExitStack) -> None:
    """A worker neither looks whether a call has a result, nor is it told."""
    right_claim, right_due = ledger.claim_call, ledger.due_call

    def claim(card: CallCard, kept: CallCard | None, *rest: Any) -> Any:
        return right_claim(card, replace(kept, result=None) if kept is not None else None, *rest)

    def planted(right: Any) -> Any:
        async def dispatched(store: Any, *args: Any, **more: Any) -> tuple[Dispatch, CallCard]:
            dispatch, card = await right(store, *args, **more)
            return dispatch, replace(card, result=None)

        return dispatched

    def due(dispatch: Dispatch, *rest: Any) -> tuple[Sending, float | None]:
        what, until = right_due(dispatch, *rest)
        return (Sending.WAIT if what is Sending.DROP else what), until

    _replace(stack, ledger, "claim_call", claim)
    _replace(stack, ledger, "due_call", due)
    for name in ("dispatched", "dispatched_call"):
        _replace_in_stores(stack, name, planted)
    run_what_another_began(stack)


def name_outputs_before_they_are_kept(stack: ExitStack) -> None:
    """The output is written behind its result, which names it already."""
    right, writing = results._kept, set()

    async def kept(services: Any, raw: bytes) -> str:
        async def keep_later() -> None:
            await asyncio.sleep(0.5)
            await right(services, raw)

        writing.add(asyncio.create_task(keep_later()))
        whole = MemoryStore()
        return await of_project(whole, services.store.project).keep(raw)

    _replace(stack, results, "_kept", kept)


def leave_turns_of_the_dead(stack: ExitStack) -> None:
    """A turn whose process died is taken for one that is run."""
    _replace(stack, Owners, "alive", lambda *_: True)
    _replace(stack, MemoryStore, "_is_run", lambda _, kept: kept.state == ledger.RUNNING)


def begin_again(stack: ExitStack) -> None:
    """A turn with an id that is taken begins all the same."""
    _replace(stack, ledger, "begin", lambda *_: None)


def look_only_when_woken(stack: ExitStack) -> None:
    """Runners do not look by themselves whether a result has come."""
    right_wake = turn_runner.TurnRunner.wake
    woken: list[bool] = []

    def wake(self: turn_runner.TurnRunner) -> None:
        woken.append(True)
        right_wake(self)

    def planted(right: Any) -> Any:
        async def ready_turns(store: Any, *args: Any, **more: Any) -> Any:
            found = await right(store, *args, **more)
            if woken and found:
                woken.clear()
                return found
            return [turn for turn in found if not any(isinstance(wait, ForResult) for wait in turn.waits)]

        return ready_turns

    _replace(stack, turn_runner.TurnRunner, "wake", wake)
    _replace_in_stores(stack, "ready_turns", planted)


def run_before_the_reply_is_kept(stack: ExitStack) -> None:
    """What the process itself runs begins as soon as the model has said it."""
    right_accept, right_execute = Runtime.accept, InProcessExecutor.execute
    early: dict[tuple[str, str], ToolResult] = {}

    async def accept(self: Runtime, turn: Turn, reply: Reply, *rest: Any, **more: Any) -> Any:
        for one in judge(self, turn, reply.calls, rest[0]) if reply.calls else ():
            if type(one.decision) is Allowed and isinstance(one.decision.tool.target, InProcess):
                context = Context(call_id=one.card.call.id, turn_id=turn.id, project=turn.project)
                early[turn.id, one.card.call.id] = await right_execute(InProcessExecutor(), one.decision, context)
        return await right_accept(self, turn, reply, *rest, **more)

    async def execute(self: InProcessExecutor, allowed: Allowed, context: Context) -> ToolResult:
        return early.pop((context.turn_id, allowed.call.id), None) or await right_execute(self, allowed, context)

    _replace(stack, Runtime, "accept", accept)
    _replace(stack, InProcessExecutor, "execute", execute)


def write_the_reply_again(stack: ExitStack) -> None:
    """What may be kept is kept once more, without a look at the record."""
    right = Runtime.accept

    async def accept(self: Runtime, *args: Any, **more: Any) -> Any:
        try:
            return await right(self, *args, **more)
        except StoreUnavailable:
            return await right(self, *args, **more)

    _replace(stack, Runtime, "accept", accept)


def go_on_without_the_reply(stack: ExitStack) -> None:
    """A reply that could not be kept is taken for one that is."""
    right = Runtime.accept

    async def accept(self: Runtime, turn: Turn, reply: Reply, names: Any, *rest: Any, **more: Any) -> Any:
        try:
            return await right(self, turn, reply, names, *rest, **more)
        except StoreUnavailable:
            return judge(self, turn, reply.calls, names) if reply.calls else []

    _replace(stack, Runtime, "accept", accept)


def trust_that_commands_come_once(stack: ExitStack) -> None:
    """Commands have no ids by which a broker could tell those that come again, and calls are claimed while held."""

    async def send(self: Relay, one: Any) -> None:
        message = one.message or command_message(read_parcel(one.dispatch), one.dispatch, one.card, is_checked=True)
        assert isinstance(message, BusMessage)
        await self._bus.publish(message)

    _replace(stack, Relay, "_send", send)
    claim_while_held(stack)


def acknowledge_when_received(stack: ExitStack) -> None:
    """A command is gone once a worker has it, and is not sent again."""
    never_send_again(stack)
    right = ToolWorker._handle

    async def handle(self: ToolWorker, delivered: Delivered) -> None:
        await delivered.ack()
        await asyncio.sleep(_HEARD_S)
        await right(self, delivered)

    _replace(stack, ToolWorker, "_handle", handle)


def leave_stranded_calls(stack: ExitStack) -> None:
    _replace(stack, ledger, "is_stranded", lambda *_: False)


def ready_after_one_result_and_sent_once(stack: ExitStack) -> None:
    """A turn goes on after the first of its results, and what it has sent before it does not send again."""
    right_ready, right_dispatch = ready.is_ready, BusDispatcher.dispatch
    sent: set[tuple[str, str, str]] = set()

    def is_ready(project: str, turn_id: str, waits: Any, now: float, come: Any) -> bool:
        results = (wait for wait in waits if isinstance(wait, ForResult))
        return any(come.is_back(project, turn_id, wait.call_id) for wait in results) or right_ready(
            project, turn_id, waits, now, come
        )

    async def dispatch(self: BusDispatcher, allowed: Any, context: Any) -> Any:
        key = (context.project, context.turn_id, context.call_id)
        if key in sent:
            return Dispatched()
        given = await right_dispatch(self, allowed, context)
        sent.add(key)
        return given

    _replace(stack, ready, "is_ready", is_ready)
    _replace(stack, BusDispatcher, "dispatch", dispatch)
    _replace(stack, ledger, "is_stranded", lambda *_: False)


def never_ready(stack: ExitStack) -> None:
    """Only wakeups bring turns back, and these get lost."""
    right = ready.is_ready

    def is_ready(project: str, turn_id: str, waits: Any, now: float, come: Any) -> bool:
        return not any(isinstance(wait, ForResult) for wait in waits) and right(project, turn_id, waits, now, come)

    _replace(stack, ready, "is_ready", is_ready)


def calls_of_all_projects(stack: ExitStack) -> None:
    """A call is found by its turn and id, whosever these are."""

    def kept(store: MemoryStore, card: CallCard) -> CallCard | None:
        found = (cards.get(card.call.id) for (_, turn_id), cards in store._cards.items() if turn_id == card.turn_id)
        return next((one for one in found if one is not None), None)

    _replace(stack, MemoryStore, "_kept", kept)


# Calls that run on their own


def settle_nothing_detached(stack: ExitStack) -> None:
    """No runner looks for calls that have lost their process."""

    async def settle(*_: Any) -> list[CallCard]:
        return []

    _replace(stack, turn_runner, "settle_detached", settle)


def detach_before_it_is_sent(stack: ExitStack) -> None:
    """A call runs on its own from before it is on its way: whoever dies in between loses it."""
    right, number = Journey._send, count()

    async def send(self: Journey, allowed: Allowed) -> Any:
        if self._card.agreed.after_execution is AfterExecution.DETACH:
            await self._services.store.detach(self._card)
            await asyncio.sleep(next(number) % 3 * _HEARD_S)
        return await right(self, allowed)

    _replace(stack, Journey, "_send", send)


def drop_detached_calls_with_their_turns(stack: ExitStack) -> None:
    right = ledger.due_call

    def due(dispatch: Dispatch, kept: CallCard | None, *rest: Any) -> tuple[Sending, float | None]:
        return right(dispatch, replace(kept, detached=False) if kept is not None else None, *rest)

    _replace(stack, ledger, "due_call", due)


def tell_results_of_detached_calls(stack: ExitStack) -> None:
    """A turn that is taken up reads the results that its calls have by then, and not what it had read."""
    _replace(stack, MemoryStore, "_detached", lambda *_: frozenset())


# Agents that set others to work


def begin_tasks_anew(stack: ExitStack) -> None:
    """A call that is made again after a crash does not find the turns that it began."""
    _replace(stack, orchestration, "child_turn_id", lambda *_: new_id())


def go_on_after_the_first_task(stack: ExitStack) -> None:
    """Who joins tasks takes the first that has ended for all of them."""
    right = orchestration.join

    async def join(sub_agents: Any, context: Any, orders: Any, now: float, **more: Any) -> Any:
        try:
            return await right(sub_agents, context, orders, now, **more)
        except Suspended as waits:
            if len(waits.waits) > len(orders) - 1:  # none has ended
                raise
            return await right(sub_agents, context, orders, now, **{**more, "deadline_s": -1e9})

    _replace(stack, orchestration, "join", join)


def never_ready_for_tasks(stack: ExitStack) -> None:
    right = ready.is_ready

    def is_ready(project: str, turn_id: str, waits: Any, now: float, come: Any) -> bool:
        return right(project, turn_id, [one for one in waits if not isinstance(one, ForTurn)], now, come)

    _replace(stack, ready, "is_ready", is_ready)


def fail_while_the_store_is_away(stack: ExitStack) -> None:
    """A call that gives tasks fails where the store does not answer, and its turn goes on without them."""
    _replace(stack, orchestration_tools, "_later_without_store", lambda _: nullcontext())


def share_tasks_of_all_projects(stack: ExitStack) -> None:
    """Sub-agents look for turns by their ids, whosever these are."""
    _replace(stack, SubAgents, "_store", lambda self, _: self.store)


# Reports of services


def forget_late_reports(stack: ExitStack) -> None:
    async def note(*_: Any) -> None:
        return

    _replace(stack, ReportReceiver, "_note_late", note)


def acknowledge_before_it_is_kept(stack: ExitStack) -> None:
    """A receiver that takes a report off the bus while the store is away."""
    right = ReportReceiver.handle

    async def handle(self: ReportReceiver, delivered: Delivered) -> None:
        with patch.object(delivered, "nak", lambda _: delivered.ack()):
            await right(self, delivered)

    _replace(stack, ReportReceiver, "handle", handle)


def claim_for_a_service_without_its_token(stack: ExitStack) -> None:
    """The process that gives a service its card dies before it has kept the token, or loses it."""

    async def claimed(_: Any, card: CallCard) -> CallCard:
        return card

    _replace(stack, reports, "with_service_claim", claimed)


def give_a_card_without_a_claim(stack: ExitStack) -> None:
    """A service may read the card of a call that is not held for it."""

    async def hold(*_: Any, **__: Any) -> bool:
        return True

    _replace(stack, cards, "hold_for_service", hold)


# Cancellation


def forget_that_a_turn_was_canceled(stack: ExitStack) -> None:
    """A turn whose call had to stop first goes on, once it has."""
    _replace(stack, ledger, "why_canceled", lambda _: "")


def ask_whether_it_was_canceled_too_early(stack: ExitStack) -> None:
    """A process goes by what it read of a turn before it took that over."""
    right_turn, right_resume = MemoryStore.turn, MemoryStore.resume
    read: dict[tuple[str, str | None, str], str] = {}

    async def turn(store: MemoryStore, turn_id: str, *, project: str | None = None) -> KeptTurn:
        kept = await right_turn(store, turn_id, project=project)
        read[PROCESS.get().name, project, turn_id] = kept.cancel
        return kept

    async def resume(store: MemoryStore, turn_id: str, *, project: str | None = None) -> KeptTurn:
        kept = await right_resume(store, turn_id, project=project)
        return replace(kept, cancel=read.get((PROCESS.get().name, project, turn_id), ""))

    _replace(stack, MemoryStore, "turn", turn)
    _replace(stack, MemoryStore, "resume", resume)


def end_what_was_claimed_since(stack: ExitStack) -> None:
    """Who ends a call for its turn goes by what it read, although a worker may have claimed the call and died since."""
    right = ledger.refuse_close

    def refuse(card: CallCard, result: ToolResult, kept: CallCard | None, *rest: Any) -> Any:
        return right(replace(card, attempt=kept.attempt) if kept is not None else card, result, kept, *rest)

    _replace(stack, ledger, "refuse_close", refuse)


def cancel_without_tasks(stack: ExitStack) -> None:
    async def unended(*_: Any) -> list[str]:
        return []

    _replace(stack, canceling, "_unended", unended)


_WORKERS: tuple[Plant, ...] = (
    claim_without_epoch,
    claim_while_held,
    close_without_token,
    close_twice,
    close_over_the_holder,
    resume_while_owned,
    resume_with_the_same_epoch,
    change_turns_of_others,
    send_once,
    drop_what_the_broker_refuses,
    repeat_unsafe_calls,
    run_what_another_began,
    send_again_what_another_began,
    run_before_the_claim,
    claim_again_with_another_token,
    leave_stranded_calls,
    ready_after_one_result_and_sent_once,
    never_ready,
    calls_of_all_projects,
)
_DETACHED: tuple[Plant, ...] = (
    settle_nothing_detached,
    detach_before_it_is_sent,
    drop_detached_calls_with_their_turns,
    tell_results_of_detached_calls,
)
_TASKS: tuple[Plant, ...] = (
    begin_tasks_anew,
    go_on_after_the_first_task,
    never_ready_for_tasks,
    fail_while_the_store_is_away,
    share_tasks_of_all_projects,
    cancel_without_tasks,
)
_SERVICE: tuple[Plant, ...] = (
    forget_late_reports,
    acknowledge_before_it_is_kept,
    claim_for_a_service_without_its_token,
    give_a_card_without_a_claim,
    forget_that_a_turn_was_canceled,
)
_CANCELED: tuple[Plant, ...] = (
    ask_whether_it_was_canceled_too_early,
    end_what_was_claimed_since,
)

_AT_POINTS: tuple[Plant, ...] = (
    run_commands_of_older_epochs,
    run_what_has_ended,
    name_outputs_before_they_are_kept,
    leave_turns_of_the_dead,
    begin_again,
    look_only_when_woken,
    run_before_the_reply_is_kept,
    write_the_reply_again,
    go_on_without_the_reply,
    trust_that_commands_come_once,
    acknowledge_when_received,
    never_send_again,
    rely_on_handoffs,
    drop_what_cannot_be_sent,
)
"""Missed at crash points, and seldom elsewhere."""

_BY_PART = {
    "workers": _WORKERS, "detached": _DETACHED, "tasks": _TASKS, "service": _SERVICE, "canceled": _CANCELED
}  # fmt: skip
PLANTED = {one.__name__: one for plants in _BY_PART.values() for one in plants}
ALL = {**PLANTED, **{one.__name__: one for one in _AT_POINTS}}
PARTS = {one.__name__: part for part, plants in _BY_PART.items() for one in plants}
"""The part of the protocol in which a defence is missed; see `workload.MIXTURES`."""


@contextmanager
def without(name: str) -> Iterator[None]:
    """Take one defence away inside the block."""
    with ExitStack() as stack:
        ALL[name](stack)
        yield
