"""The runner: asks `next_step` what a turn needs, does it, and folds the outcome back in until the turn is finished."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from time import perf_counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.define.canonical import digest
from toolwire.deliver.quotations import drop_quoted_calls
from toolwire.disclose.likely import likeliest, wish_of
from toolwire.errors import StoreError, Suspended
from toolwire.hub.allowance import Allowance
from toolwire.hub.calls import Accepted
from toolwire.hub.judging import withhold_passwords
from toolwire.hub.runtime import Runtime
from toolwire.hub.slots import Slots
from toolwire.loop.compaction import messages_to_send
from toolwire.loop.limits import WITHOUT_ANSWER, estimated_usage, time_left_s
from toolwire.loop.step import (
    AskModel,
    Echo,
    Finished,
    RunCalls,
    append_note,
    append_reply,
    append_results,
    end_turn,
    is_bounded,
    last_words,
    next_step,
    was_tainted,
    with_last_request,
    with_own_ids,
    within_step,
)
from toolwire.models.waits import waits_end_in, waits_told_to
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import ChatModel, Message, Note, Reply, Request, ResultsMessage
from toolwire.protocol.events import Emit, ModelAsked, ModelReplied, Noted, TurnEnded, TurnStarted, TurnWaiting
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record.contract import KeptTurn, TurnStats
from toolwire.wire.formats.tally import FormatTally, merge_tallies, tally

_name_of = attrgetter("name")

Intervene = Callable[[Turn], Awaitable[str | Ending | None]]


def fold(kept: KeptTurn, runtime: Runtime) -> Turn:
    """A stored turn as it stands: everything that happened, folded over how it began."""
    turn = replace(kept.opening, tainted=was_tainted(kept.opening.messages))
    for event in kept.events:
        match event:
            case Reply():
                turn = append_reply(with_last_request(turn), event)
            case ResultsMessage(results):
                asked = ((call.name, digest(call.arguments)) for call in turn.pending)
                told = [echo(runtime, *call, result) for call, result in zip(asked, results, strict=True)]
                turn = append_results(turn, results, [one for one in told if one is not None])
            case Note():
                turn = append_note(turn, event)
    return turn


def echo(runtime: Runtime, name: str, arguments: str, result: ToolResult) -> Echo | None:
    """What was asked and what came of it, for a call that should make progress; None for a tool that is polled."""
    tool = runtime.toolbox.get(name)
    return (arguments, name, result.status, result.text) if tool is None or not tool.polling else None


class _Tally(Struct):
    """What the runner counts for the metrics while it goes."""

    began: float
    batches: int = 0
    saved_ms: float = 0.0

    def add_batch(self, results: Sequence[ToolResult], slots: Slots, wall_ms: float) -> None:
        """A step with several calls is a batch; it saved what its calls took together beyond the time it took."""
        self.batches += 1
        working_ms = wall_ms - slots.waited_s * 1000
        self.saved_ms += max(0.0, sum(result.elapsed_ms for result in results) - working_ms)


class _DeadlineOver(Exception):
    """The turn's deadline passed while the model was speaking."""


class Runner:
    """Turns the wheel for one turn. Where it `streams`, the model's replies are told letter by letter, too."""

    def __init__(
        self,
        runtime: Runtime,
        model: ChatModel,
        *,
        emit: Emit | None = None,
        streams: bool = True,
        intervene: Intervene | None = None,
        allowance: Allowance | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> None:
        self._runtime = runtime
        self._model = model
        self._emit = emit
        self._deltas = emit if streams else None
        self._intervene = intervene
        self._allowance = allowance
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._tools: tuple[Tool, ...] = ()
        self._names: frozenset[str] = frozenset()
        self._accepted: list[Accepted] = []
        self._writing: list[asyncio.Task[Any]] = []
        self._slots = Slots(0)
        self._told: tuple[int, tuple[Message, ...]] | None = None
        self._tally = _Tally(perf_counter())
        # Models behind an API say in which formats they are spoken to; others have none to compare.
        self._offered: str = getattr(getattr(model, "formats", None), "definition_format", "")
        self._formats: list[FormatTally] = []

    async def run(self, turn: Turn, *, resumed: bool = False) -> Turn:
        """Run the turn to its end.

        When it cannot go on (a model that does not answer, a cancellation, a watcher that raises) the turn is released,
        so that it can be resumed, and the exception passes through.
        """
        self._runtime.require_own(turn)
        self._tools = self._offer(turn)
        self._names = frozenset(map(_name_of, self._tools))
        self._slots = Slots(turn.limits.parallel)
        required = turn.limits.must_end_with
        if required and turn.ending is None and not self._names.intersection(required):
            said = f"This turn must end with {' or '.join(required)}, which it is not offered."
            turn = end_turn(turn, Ending(EndReason.MUST_END_WITH, said))
        held = _Held(turn)
        try:
            if self._emit:
                names = tuple(map(_name_of, self._tools))
                self._emit(TurnStarted(turn.id, turn.question, turn.model, names, resumed, self._lost()))
            if turn.pending:
                self._accepted = await self._runtime.reopen(turn, self._names)
            with waits_told_to(self._emit):
                return await self._turn_the_wheel(held)
        except BaseException as error:  # whatever it was, the turn is given back, so that it can be resumed
            await asyncio.gather(*self._writing, return_exceptions=True)
            left = self._left(held.turn)
            if isinstance(error, Suspended):
                left = replace(left, waits=error.waits)
            with suppress(StoreError):  # the store tries again what it cannot do now; a turn taken over is not ours
                await asyncio.shield(self._runtime.store.release(left))
            if not isinstance(error, Suspended):
                self._runtime.events.interrupt(turn, error)
            elif self._emit:
                self._emit(TurnWaiting(turn.id, error.waits))
            raise

    def _left(self, turn: Turn) -> Turn:
        """A turn as it is left in mid-step: people may have been waited for, whatever became of it."""
        return replace(turn, waited_s=turn.waited_s + self._slots.waited_s)

    def _offer(self, turn: Turn) -> tuple[Tool, ...]:
        """What the turn may see; a model that cannot be shown so many tools gets the ones most likely meant."""
        offered = self._runtime.offer(turn)
        most: int | None = getattr(self._model, "most_tools", None)
        return offered if most is None else likeliest(offered, wish_of(turn.messages), most)

    def _lost(self) -> tuple[str, ...]:
        """What the model cannot be told of its tools."""
        losses = getattr(self._model, "losses", None)
        return losses(self._tools) if losses else ()

    async def _turn_the_wheel(self, held: "_Held") -> Turn:
        runtime, allowance = self._runtime, self._allowance
        bounded = allowance is not None or is_bounded(held.turn.limits)  # else it does not matter how late it is
        while True:
            if allowance is not None:
                held.turn = await allowance.cut(held.turn)
            turn = held.turn
            step = next_step(turn, runtime.monotonic() if bounded else 0.0)
            match step:  # patterns without fields: those that take a value apart cost a microsecond each
                case AskModel():
                    unread = runtime.unread
                    if unread is not None and (shown := unread.take(turn.id)):
                        turn = held.turn = await self._note(turn, shown)
                    if self._intervene is not None:
                        turn = held.turn = await self._intervened(turn, self._intervene)
                    if turn.ending is not None:
                        continue
                    held.turn = turn = await self._ask(turn if step.closing is None else with_last_request(turn))
                    if turn.pending and not bounded:  # about such a turn, `next_step` has nothing else to say
                        held.turn = await self._run_calls(turn)
                case RunCalls():
                    held.turn = await self._run_calls(turn)
                case Finished():
                    return await self._end(turn, step.ending)

    async def _intervened(self, turn: Turn, intervene: Intervene) -> Turn:
        """Let a person steer before the model speaks: say something to it, or stop the turn."""
        asked_at = self._runtime.monotonic()
        word = await intervene(turn)
        turn = replace(turn, waited_s=turn.waited_s + self._runtime.monotonic() - asked_at)
        match word:
            case Ending():
                return end_turn(turn, word)
            case str():
                return await self._note(turn, word)
        return turn

    async def _note(self, turn: Turn, text: str) -> Turn:
        note = Note(text)
        await self._runtime.store.append_note(turn, note)
        if self._emit:
            self._emit(Noted(text))
        return append_note(turn, note)

    async def _ask(self, turn: Turn) -> Turn:
        closing, limits, allowance, emit = turn.closing, turn.limits, self._allowance, self._emit
        tools, names, tools_off = self._tools, self._names, closing is not None
        if tools_off and limits.must_end_with:
            tools, tools_off = tuple(tool for tool in tools if tool.name in limits.must_end_with), False
            names = frozenset(map(_name_of, tools))
        request = Request(
            self._sent(turn) if turn.thread else turn.messages, tools, turn.system, turn.id, tools_off,
            self._max_tokens, self._temperature,
        )  # fmt: skip
        reserves = False
        if allowance is not None and (reserves := allowance.reserves_usage):
            turn = await allowance.reserve(turn, request, self._model)
            if turn.ending is not None:
                return turn
        if emit:
            emit(ModelAsked(turn.iterations + 1, closing))
        began = perf_counter() if emit else 0.0
        try:
            answer = self._model.ask(request, self._deltas)
            reply = await (answer if limits.deadline_s is None else self._in_time(turn, answer))
        except _DeadlineOver:
            return end_turn(turn, Ending(EndReason.DEADLINE, last_words(turn) or WITHOUT_ANSWER[EndReason.DEADLINE]))
        left_out = 0
        if reply.calls or reply.left_out:
            if reply.left_out or len(reply.calls) > limits.calls_per_step:
                reply, left_out = within_step(turn, reply)
            reply = withhold_passwords(self._runtime, with_own_ids(turn, drop_quoted_calls(reply, turn.messages)))
        if limits.tokens is not None and not reply.usage.total_tokens:
            reply = replace(reply, usage=estimated_usage(request, reply))
        if self._offered and self._tools and closing is None:
            self._formats.append(tally(self._model.name, self._offered, reply))
        if emit:
            emit(ModelReplied(turn.iterations + 1, reply, (perf_counter() - began) * 1000))
        after = append_reply(turn, reply)
        if emit:
            self._tell_notes(turn.messages, after.messages, emit)
        if reply.calls and not after.pending:
            reply = replace(reply, calls=())
        reserve = None
        if allowance is not None:
            allowance.learn_price(reply, self._model)
            reserve = allowance.reservation(settles=reserves)
        writing = self._writing if allowance is None else None
        self._accepted = await self._runtime.accept(turn, reply, names, left_out, reserve, writing)
        return after

    def _sent(self, turn: Turn) -> tuple[Message, ...]:
        """What the model is sent of a conversation. A summary is made between turns, never within one."""
        if self._told is None:
            self._told = len(turn.messages), messages_to_send(turn.messages)
        count, sent = self._told
        return turn.messages if len(sent) == count else (*sent, *turn.messages[count:])

    async def _in_time(self, turn: Turn, answer: Awaitable[Reply]) -> Reply:
        try:
            left_s = time_left_s(turn, self._runtime.monotonic())
            async with asyncio.timeout(left_s) as limit:
                with waits_end_in(left_s):
                    return await answer
        except TimeoutError:
            if limit.expired():
                raise _DeadlineOver from None
            raise

    async def _run_calls(self, turn: Turn) -> Turn:
        runtime, accepted, slots, emit = self._runtime, self._accepted, self._slots, self._emit
        if self._allowance is not None:
            accepted = self._accepted = self._allowance.within(turn, accepted)
        began = perf_counter() if len(accepted) > 1 else 0.0
        if self._writing:
            results = await runtime.run_early(self._writing.pop(), turn, accepted, slots, emit)
        else:
            results = await runtime.run(turn, accepted, slots, emit)
        if began:
            self._tally.add_batch(results, slots, (perf_counter() - began) * 1000)
        echoes = []
        for place, result in enumerate(results):
            card = accepted[place].card
            if (told := echo(runtime, card.call.name, card.args_digest, result)) is not None:
                echoes.append(told)
        after = append_results(turn, results, echoes)
        if emit:
            self._tell_notes(turn.messages, after.messages, emit)
        if slots.waited_s:  # from now on it is in the turn
            after, slots.waited_s = replace(after, waited_s=after.waited_s + slots.waited_s), 0.0
        return after

    async def _end(self, turn: Turn, ending: Ending) -> Turn:
        while self._writing:
            await self._writing.pop()
        if turn.pending:
            await self._runtime.abandon(self._accepted)
        if turn.pending or turn.ending is not ending:
            turn = end_turn(turn, ending)
        elapsed_ms = (perf_counter() - self._tally.began) * 1000
        stats = TurnStats(
            turn.iterations, turn.calls, turn.failed_calls, elapsed_ms, self._tally.batches, self._slots.peak,
            self._tally.saved_ms, turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.cost_usd,
            merge_tallies(self._formats) if self._formats else (), turn.own_s(self._runtime.monotonic()),
        )  # fmt: skip
        await self._runtime.store.end(turn, stats)
        if self._emit:
            self._emit(TurnEnded(turn.id, ending, elapsed_ms))
        return turn

    def _tell_notes(self, before: tuple[Message, ...], after: tuple[Message, ...], emit: Emit) -> None:
        for message in after[len(before) :]:
            if isinstance(message, Note):
                emit(Noted(message.text))


class _Held(Struct):
    """The newest value of the turn, for the code that must release it."""

    turn: Turn
