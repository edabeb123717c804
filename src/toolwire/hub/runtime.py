"""The hub's verbs: a call is judged, written down, run where its tool lives, and written down again.

The record wins over everything: what was answered before is never run twice, and what another process started is
never started again blindly.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from toolwire.define.toolbox import Toolbox
from toolwire.deliver.endings import canceled_result
from toolwire.disclose.offer import visible_tools
from toolwire.errors import NotFound, Suspended
from toolwire.hub.calls import Accepted, Conclusion, Waiting
from toolwire.hub.journey import Journey, close_call
from toolwire.hub.judging import as_kept, decision_row, heed_password, judge, refuse_rest
from toolwire.hub.services import Services
from toolwire.hub.slots import Slots
from toolwire.plan.call_order import CallPlan, call_order, depends
from toolwire.protocol.calls import Allowed, ToolCall, ToolResult
from toolwire.protocol.chat import Reply
from toolwire.protocol.events import Emit
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import USUAL, Effect, Grant, InProcess, Tool
from toolwire.protocol.turns import Turn
from toolwire.record.contract import Reservation
from toolwire.task_groups import TaskGroup


class Runtime(Services):
    """Takes calls through their journey. Shared by all turns of a process; see `Services` for what it is made of."""

    _offer: tuple[Grant | None, tuple[Tool, ...]] = (None, ())

    def change_tools(self, toolbox: Toolbox) -> None:
        """Know other tools from now on."""
        self.toolbox = toolbox
        self._offer = (None, ())

    def offer(self, turn: Turn) -> tuple[Tool, ...]:
        """The tools that this turn may see. Turns with the same grant get the same list, so its encoding is kept."""
        if not turn.limits.tools_enabled:
            return ()
        if turn.grant is not self._offer[0]:
            self._offer = (turn.grant, visible_tools(self.toolbox, turn.grant))
        return self._offer[1]

    async def execute(
        self,
        call: ToolCall,
        turn: Turn,
        emit: Emit | None = None,
        reserve: Reservation | None = None,
        *,
        begins: Turn | None = None,
        conclusion: Conclusion | None = None,
    ) -> ToolResult:
        """One call through the whole journey. The same call of the same turn again gives the stored result.

        A turn that `begins` with the call is written down with it, and ends with it by its `conclusion` where this
        process writes the result.
        """
        key = (turn.id, call.id)
        while running := self.executing.get(key):
            await asyncio.wait((running,))
            if not running.cancelled():
                return running.result()
        answer = self.executing[key] = asyncio.get_running_loop().create_future()
        emit = self.events.emitter(turn, emit)
        try:
            result = await self._execute(call, turn, emit, reserve, begins, conclusion)
            answer.set_result(result)
        finally:
            answer.cancel()
            del self.executing[key]
        return result

    async def _execute(
        self,
        call: ToolCall,
        turn: Turn,
        emit: Emit | None,
        reserve: Reservation | None,
        begins: Turn | None,
        conclusion: Conclusion | None,
    ) -> ToolResult:
        heed_password(self, call)
        [one] = judge(self, turn, (call,), None)
        is_new = begins is not None and self._may_be_kept_late([one])
        if reserve is None and turn.epoch == 1 and (is_new or self._sends_all([one])):
            opening = await _begun(self.store.open(one.card, [decision_row(one)], begins=begins, may_wait=is_new))
            [result] = await self.run_early(opening, turn, [one], Slots(1), emit, conclusion)
            return result
        kept = await self.store.open(one.card, [decision_row(one)], reserve, begins=begins)
        if kept.record_id != one.card.record_id:
            one = Accepted(kept, one.decision, interrupted=kept.attempt > 0)
        elif reserve is not None:
            one = as_kept(one, kept)
        [result] = await self.run(turn, [one], Slots(1), emit, conclusion)
        return result

    async def accept(
        self,
        turn: Turn,
        reply: Reply,
        names: frozenset[str],
        left_out: int = 0,
        reserve: Reservation | None = None,
        writing: "list[asyncio.Task[Any]] | None" = None,
    ) -> list[Accepted]:
        """Judge the calls of a reply and write reply and calls down together, before any of them takes effect.

        Where they may run before they are written down, what writes them is put into `writing`, if that is given, and
        not waited for: see `run_early`.

        With `reserve`, those are refused that the day has no room for. Of a reply with too many calls, the last is
        refused for itself and all that were `left_out`.
        """
        accepted = judge(self, turn, reply.calls, names) if reply.calls else []
        if left_out and accepted:
            accepted[-1] = refuse_rest(self, turn, accepted[-1].card.call, left_out)
        cards, rows = [], []
        for one in accepted:  # nearly always one: for so few, `map` costs more than it saves
            cards.append(one.card)
            rows.append(decision_row(one))
        if writing is not None and reserve is None and accepted:
            is_late = self._may_be_kept_late(accepted)
            if is_late or self._sends_all(accepted):
                writing.append(await _begun(self.writes.append_reply(turn, reply, cards, rows, may_wait=is_late)))
                return accepted
        kept = await self.writes.append_reply(turn, reply, cards, rows, reserve)
        return accepted if reserve is None else list(map(as_kept, accepted, kept))

    async def reopen(self, turn: Turn, names: frozenset[str]) -> list[Accepted]:
        """Take up the calls of a turn that another process left behind."""
        reopened = []
        for call in turn.pending:
            heed_password(self, call)
        for one in judge(self, turn, turn.pending, names):
            card = await self.store.open(one.card, [decision_row(one)])
            interrupted = card.record_id != one.card.record_id and card.attempt > 0
            reopened.append(Accepted(card, one.decision, interrupted))
        return reopened

    def _sends_all(self, accepted: Sequence[Accepted]) -> bool:
        """Whether these calls are all sent to other processes, which cannot see one before it is written down."""
        dispatcher = self.dispatcher
        return dispatcher is not None and all(
            type(one.decision) is Allowed and one.card.agreed is USUAL and dispatcher.dispatches(one.decision.tool)
            for one in accepted
        )

    def _may_be_kept_late(self, accepted: Sequence[Accepted]) -> bool:
        """Whether these calls are written down with their results, if those come soon.

        They change nothing and run in this process: if it dies before, nobody has heard of them.
        """
        return self.writes.groups_changes and all(
            type(one.decision) is Allowed
            and one.card.effect == Effect.PURE
            and one.card.agreed is USUAL
            and type(one.decision.tool.target) is InProcess
            for one in accepted
        )

    async def run_early(
        self, writing: "asyncio.Task[Any]", turn: Turn, accepted: Sequence[Accepted], slots: Slots,
        emit: Emit | None = None, conclusion: Conclusion | None = None,
    ) -> tuple[ToolResult, ...]:  # fmt: skip
        """The same as `run` for calls that are being written down.

        They are all sent to other processes, which is kept in the same transaction, or change nothing. The store takes
        what it is given in this order.
        """
        try:
            try:
                return await self.run(turn, accepted, slots, emit, conclusion)
            except NotFound:  # one agent writes so much that its changes wait in line, and this one was let in first
                await asyncio.shield(writing)
                return await self.run(turn, accepted, slots, emit, conclusion)
        finally:
            await asyncio.shield(writing)  # if that went wrong, that is what is told

    async def run(
        self,
        turn: Turn,
        accepted: Sequence[Accepted],
        slots: Slots,
        emit: Emit | None = None,
        conclusion: Conclusion | None = None,
    ) -> tuple[ToolResult, ...]:
        """Run the calls of one step, together where they may; results come in the order of the calls.

        Raises `Suspended` when everything that could run has run, and the rest waits.
        """
        if len(accepted) == 1 and not depends(accepted[0].card.call):
            outcome = await Journey(self, turn, slots, emit, accepted[0], True, (), conclusion).finish()
            if type(outcome) is ToolResult:
                return (outcome,)
            outcomes: list[ToolResult | Waiting] = [outcome]
        else:
            outcomes = await self._run_together(turn, accepted, slots, emit)
        waits = tuple(wait for one in outcomes if isinstance(one, Waiting) for wait in one.waits)
        if waits:
            raise Suspended(turn.id, waits)
        return tuple(one for one in outcomes if isinstance(one, ToolResult))

    async def _run_together(
        self, turn: Turn, accepted: Sequence[Accepted], slots: Slots, emit: Emit | None
    ) -> list[ToolResult | Waiting]:
        tasks: list[asyncio.Task[ToolResult | Waiting]] = []
        firsts: dict[tuple[str, ...], asyncio.Task[ToolResult | Waiting]] = {}
        failed: list[BaseException] = []
        plans = _plans(turn, accepted)
        try:
            async with TaskGroup() as group:
                for place, one in enumerate(accepted):
                    journey = Journey(self, turn, slots, emit, one, failed=failed)
                    first = firsts.get(key) if (key := _repetition_key(one)) else None
                    work = journey.finish if first is None else partial(journey.repeat, first)
                    if plans and plans[place] and first is None:
                        work = partial(journey.finish_after, plans[place], tasks)
                    tasks.append(group.create_task(_noting(failed, work), name="toolwire-journey"))
                    if key and first is None:
                        firsts[key] = tasks[-1]
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        except asyncio.CancelledError:
            # Calls that run elsewhere go on without this process: their turn waits for them.
            ended = [] if any(task.cancelled() for task in tasks) else [task.result() for task in tasks]
            if not any(isinstance(outcome, Waiting) for outcome in ended):
                raise
        return [task.result() for task in tasks]

    async def abandon(self, accepted: Iterable[Accepted]) -> None:
        """End calls that will not run any more, so that every accepted call has its result."""
        for one in accepted:
            if one.card.result is None:
                await self.cancel_call(one.card, begun=one.interrupted)

    async def cancel_call(self, card: CallCard, *, begun: bool) -> None:
        """End a call that will not run any more. One that had `begun` may have taken effect."""
        await close_call(self, card, canceled_result(card.call, begun=begun), ran=begun)

    async def close(self) -> None:
        """Let calls that run on their own finish, each within its time, and let go of what was started.

        Who is interrupted does not wait for them: they are canceled.
        """
        task = asyncio.current_task()
        try:
            while self.detached and not (task is not None and task.cancelling()):
                await asyncio.wait(self.detached)
        finally:
            for left in self.detached:
                left.cancel()
            if self.detached:
                await asyncio.wait(self.detached)
            await self.executor.close()


async def _begun(writing: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """Something that is written, handed over before what comes next."""
    task = asyncio.create_task(writing, name="toolwire-write")
    await asyncio.sleep(0)
    return task


def _plans(turn: Turn, accepted: Sequence[Accepted]) -> list[CallPlan]:
    """What each call waits for; empty where none waits for another."""
    for one in accepted:
        if depends(one.card.call):
            break
    else:
        return []
    calls = [one.card.call for one in accepted]
    replies = (said for said in turn.messages if isinstance(said, Reply))
    return call_order(calls, {call.alias for said in replies for call in said.calls if call.alias})


def _repetition_key(one: Accepted) -> tuple[str, ...] | None:
    """What makes two calls of one reply the same call: the id that the provider gave, the name and the arguments.

    A tool that may well be asked the same thing twice (`polling`) is always run.
    """
    call, decision = one.card.call, one.decision
    if not call.alias or not isinstance(decision, Allowed) or decision.tool.polling:
        return None
    return (call.alias, call.name, one.card.args_digest)


async def _noting(
    failed: list[BaseException], work: Callable[[], Awaitable[ToolResult | Waiting]]
) -> ToolResult | Waiting:
    """The outcome of a call. Why it has none is noted before the other calls of its step are stopped."""
    try:
        return await work()
    except Exception as error:
        failed.append(error)
        raise
