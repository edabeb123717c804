"""Defences of the protocol, each taken away: a simulation that does not notice one of these shows nothing.

Each is a patch of one function of the product, for as long as the block lasts.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from toolwire.bus.contract import Delivered
from toolwire.errors import BusUnavailable
from toolwire.execute.contract import Dispatched
from toolwire.fleet.dispatcher import BusDispatcher
from toolwire.fleet.parcels import read_parcel
from toolwire.fleet.relay import Relay
from toolwire.fleet.worker import ToolWorker
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.records import CallCard, Dispatch
from toolwire.protocol.values import replace
from toolwire.protocol.waits import ForResult
from toolwire.record import ledger, ready
from toolwire.record.contract import DueDispatch
from toolwire.record.ledger import Sending
from toolwire.record.memory import MemoryStore
from toolwire.wire.utp.violations import Refusal

Plant = Callable[[ExitStack], None]


def _replace(stack: ExitStack, where: Any, name: str, planted: Any) -> None:
    stack.enter_context(patch.object(where, name, planted))


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
    right = ledger.close_call

    def close(card: CallCard, result: Any, kept: CallCard | None, *rest: Any) -> Any:
        if kept is not None and kept.result is not None:
            return result, replace(kept, result=result), (), 0
        return right(card, result, kept, *rest)

    _replace(stack, ledger, "close_call", close)


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

    async def send(self: Relay, dispatch: Dispatch, card: CallCard, message: BusMessage | Refusal | None) -> None:
        try:
            await right(self, dispatch, card, message)
        except BusUnavailable:
            return

    _replace(stack, Relay, "_send", send)


def repeat_unsafe_calls(stack: ExitStack) -> None:
    right = BusDispatcher._dispatch

    def dispatch(self: BusDispatcher, *args: Any) -> Dispatch:
        return replace(right(self, *args), repeatable=True)

    _replace(stack, BusDispatcher, "_dispatch", dispatch)


def run_what_another_began(stack: ExitStack) -> None:
    """A worker that takes each command for the first of its call: the broker delivers it again after a death."""
    right = ToolWorker._result

    def result(self: ToolWorker, delivered: Delivered, held: CallCard, parcel: Any, *, is_repeatable: bool) -> Any:
        return right(self, delivered, held, parcel, is_repeatable=True)

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


PLANTED: dict[str, Plant] = {
    one.__name__: one
    for one in (
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
}


@contextmanager
def without(name: str) -> Iterator[None]:
    """Take one defence away inside the block."""
    with ExitStack() as stack:
        PLANTED[name](stack)
        yield
