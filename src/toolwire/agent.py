"""The front door in Python: a model, some tools, and a question."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from toolwire.decide.policy import grant_of_resumed
from toolwire.define.toolbox import Toolbox
from toolwire.deliver.secrets import NO_SECRETS, Secrets
from toolwire.disclose.intent import unlock
from toolwire.errors import Fenced, ModelError, ModelRefused, NotFound, StoreError, Suspended
from toolwire.execute.contract import Executor
from toolwire.hub.allowance import Allowance
from toolwire.hub.calls import Conclusion, end_with_call
from toolwire.hub.canceling import CANCELED, cancel_turn, end_canceled
from toolwire.hub.event_hub import EventHub
from toolwire.hub.judging import withhold_password
from toolwire.hub.resuming import require_same_tools
from toolwire.hub.runtime import Runtime
from toolwire.hub.services import APPROVAL_S, QUESTIONS, Approve, OpenConfig, Tell
from toolwire.lazy import lazy_module
from toolwire.lazy_attributes import lazy_attribute
from toolwire.loop.compaction import (
    QUESTION,
    messages_to_send,
    outgrown,
    summary_note,
    summary_request,
    summary_requests,
)
from toolwire.loop.step import end_turn, was_tainted
from toolwire.protocol.agents import AgentSpec
from toolwire.protocol.attached_text import own_words
from toolwire.protocol.budgets import Budget, Spending
from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import ChatModel, Message, Reply, Request, Usage, UserMessage
from toolwire.protocol.checked import describe_value
from toolwire.protocol.events import Emit, Event, TurnEnded, TurnStarted, TurnWaiting
from toolwire.protocol.outcomes import Status
from toolwire.protocol.records import AuditRow
from toolwire.protocol.tools import Grant, JsonObject, Tool
from toolwire.protocol.tracing import NO_TRACE, TraceContext
from toolwire.protocol.turns import NO_MODEL, Ending, EndReason, Limits, Turn, TurnKind
from toolwire.protocol.waits import Until, Wait
from toolwire.record.contract import KeptTurn, Reservation, Store, TurnStats, TurnSummary
from toolwire.record.projects import of_project

if TYPE_CHECKING:
    from toolwire.hub import submitting, turn_loop
    from toolwire.models import opening
    from toolwire.record import memory
else:
    # Loaded for questions, for models by name, and where no store is given: a single call needs none of them.
    submitting = lazy_module("toolwire.hub.submitting")
    turn_loop = lazy_module("toolwire.hub.turn_loop")
    opening = lazy_module("toolwire.models.opening")
    memory = lazy_module("toolwire.record.memory")

T = TypeVar("T")
News = Callable[[Toolbox], Toolbox | None]
"""Given the tools that an agent has, the ones that it is to have; None to keep them. It runs in a thread."""


class Answer(Struct, frozen=True):
    """How a turn ended: the words for the user, why it ended, and the whole turn for details."""

    text: str
    reason: EndReason
    turn: Turn

    @property
    def turn_id(self) -> str:
        return self.turn.id

    @property
    def usage(self) -> Usage:
        return self.turn.usage

    @property
    def value(self) -> Any:
        """What the tool that ended the turn gave as a value, if one did."""
        return self.turn.ending.value if self.turn.ending is not None else None

    @property
    def status(self) -> Status:
        """How the turn as a whole went: success, partial (it was stopped by a limit), canceled or failed."""
        return Ending(self.reason, self.text).status


class Agent:
    """A model that can use tools.

    `model` is a `provider:model` string or anything with an `ask` method; `tools` are functions, tools or toolboxes;
    `approve` is asked before tools that need approval; with `suspends`, a call without an answer yet
    raises `Suspended` and leaves an approval that anyone can answer in the store before the turn is resumed, within
    `approval_s`; `tell` hears of each such question as it opens; a turn puts at most `questions` to people; what the
    agents named in `accounts` use counts against the day's `budget`, too;
    `intervene` may speak or stop before each model call; `news` may give other tools before each turn, such as those of
    skills that came or changed; `spec` says how the agent was made and is kept with each turn, so that another process
    can make it again. With a `result_schema` its turns end with `submit_result`, and `Answer.value` is a value of it.
    """

    def __init__(
        self,
        model: str | ChatModel,
        tools: Sequence[Any] | Toolbox = (),
        *,
        system: str = "",
        grant: Grant | None = None,
        limits: Limits | None = None,
        store: Store | None = None,
        executor: Executor | None = None,
        approve: Approve | None = None,
        suspends: bool = False,
        tell: Tell | None = None,
        approval_s: float = APPROVAL_S,
        questions: int = QUESTIONS,
        secrets: Secrets = NO_SECRETS,
        open_config: OpenConfig | None = None,
        events: EventHub | None = None,
        budget: Budget | None = None,
        accounts: Sequence[str] = (),
        intervene: "turn_loop.Intervene | None" = None,
        tier_by_intent: bool = False,
        news: News | None = None,
        name: str = "agent",
        project: str = "default",
        max_tokens: int | None = None,
        temperature: float | None = None,
        spec: AgentSpec | None = None,
        result_schema: JsonObject | None = None,
    ) -> None:
        self.model: ChatModel = opening.open_model(model) if isinstance(model, str) else _required_model(model)
        self._submit = None if result_schema is None else submitting.submit_result_tool(result_schema)
        self.toolbox = self._with_submit(tools if isinstance(tools, Toolbox) else Toolbox.of(*_listed(tools)))
        for part, given, kind in (("grant", grant, Grant), ("limits", limits, Limits), ("budget", budget, Budget)):
            if given is not None and not isinstance(given, kind):
                raise TypeError(f"Agent({part}=…) must be a {kind.__name__}(…), not {describe_value(given)}")
        _require_text("Agent(system=…)", system, may_be_empty=True)
        _require_text("Agent(name=…)", name)
        _require_text("Agent(project=…)", project)
        self.store = of_project(_required_store(store), project)
        self._make_runtime = partial(
            Runtime, executor=executor, approve=approve, suspends=suspends, tell=tell, approval_s=approval_s,
            questions=questions, secrets=secrets, events=events, open_config=open_config,
        )  # fmt: skip
        self._lends = False  # until the tools are made; see `_take_up_tools`
        self.system = system
        self.grant = grant or Grant()
        self.limits = limits or Limits()
        if self._submit is not None and not self.limits.must_end_with:
            self.limits = replace(self.limits, must_end_with=(self._submit.name,))
        self.budget = budget
        self.accounts = tuple(accounts)
        self.name = name
        self._intervene = intervene
        self._tier_by_intent = tier_by_intent
        self._news = news
        self._max_tokens = max_tokens
        self._temperature = temperature
        self.spec = spec

    @lazy_attribute
    def runtime(self) -> Runtime:
        """What takes its calls through their journey; made with its first turn."""
        return self._make_runtime(self.toolbox, self.store)

    @property
    def project(self) -> str:
        """The project that this agent works for: it sees nothing of another one's record."""
        return self.store.project

    @project.setter
    def project(self, project: str) -> None:
        self.store = of_project(self.store, project)
        self.runtime.change_store(self.store)

    @property
    def events(self) -> EventHub:
        """Where watchers of all turns of this agent attach, and of all agents that were given the same one."""
        return self.runtime.events

    def change_tools(self, toolbox: Toolbox) -> None:
        """Offer other tools from the next step on. A call to a tool that is gone is refused."""
        toolbox = self._with_submit(toolbox)
        self.toolbox = toolbox
        self._lends = toolbox.delegates
        self.runtime.change_tools(toolbox)

    def _with_submit(self, toolbox: Toolbox) -> Toolbox:
        """The tools, with the one by which turns end if they must."""
        return toolbox if self._submit is None or self._submit.name in toolbox else toolbox.plus(self._submit)

    async def ask(self, question: str, *, thread: str = "", on_event: Emit | None = None) -> Answer:
        """Answer a question, using tools as needed. Questions with the same `thread` share one conversation.

        Raises `ModelError` when the model cannot be reached; the turn is kept and can be resumed. Raises TypeError and
        ValueError for what is no question.
        """
        await self._prepare(question, thread)
        turn = await self._begin(await self._make_turn(question, thread))
        return _answer(await self._runner(on_event, turn).run(turn))

    async def begin(
        self, question: str, *, thread: str = "", turn_id: str = "", trace: TraceContext = NO_TRACE
    ) -> Turn:
        """Keep a question as a turn that runs in whichever process takes it up next, such as a `TurnRunner`.

        It belongs to the `trace` of what asks for it; without one, to that of the code that calls this.
        Raises as `ask` does, and `StoreError` where a turn with this id is kept already.
        """
        await self._prepare(question, thread)
        turn = await self._make_turn(question, thread, turn_id=turn_id, waits=(Until(0.0),))
        return await self._begin(turn, trace=trace)

    async def _prepare(self, question: str, thread: str) -> None:
        """Check a question, and make room for it in the conversation. Raises as `ask` does."""
        _require_text("a question", question)
        most: int | None = getattr(self.model, "longest_question", None)
        if most is not None and len(question) > most:
            raise ModelRefused(
                f"the question has {len(question):,} characters, and {self.model.name} reads at most {most:,}; "
                "shorten it, or ask another model"
            )
        _require_text("the name of a thread", thread, may_be_empty=True)
        if thread:
            await self._compact(thread, question)

    async def resume(self, turn_id: str, *, on_event: Emit | None = None, left: KeptTurn | None = None) -> Answer:
        """Go on with a turn whose process died or was interrupted, from where its record ends.

        Time in which no process ran it does not count: its deadline goes on from where it was. Raises `NotFound` for an
        unknown turn, and `Fenced` when a living process owns it or it has ended. `BudgetSpent` and `CannotResume` leave
        it as it was. Who has just read the turn gives it as `left`.
        """
        left = left or await self.store.turn(turn_id)
        if not left.cancel:  # else it only ends
            if self.budget is not None:
                await self._require_left(left)
            await self._take_up_tools()
            if left.events:  # else it has made no calls, for which there could be approvals
                await require_same_tools(self.store, left.opening, self.toolbox, self.spec)
        kept = await self.store.resume(turn_id)
        if kept.cancel:
            return _answer(await self._end_canceled(kept, on_event))
        async with self._kept_free(kept.opening):
            turn = self._with_current_policy(turn_loop.fold(kept, self.runtime))
        turn = replace(turn, running_since=self.runtime.monotonic() - kept.ran_s)
        return _answer(await self._runner(on_event, turn).run(turn, resumed=True))

    async def ready(self, *, limit: int = 20) -> list[TurnSummary]:
        """Turns that can go on because what they wait for has come, the oldest first."""
        return await self.store.ready_turns(self.runtime.clock(), limit=limit)

    async def cancel(self, turn_id: str, reason: str = CANCELED) -> tuple[Wait, ...]:
        """End a turn that no process runs; what it had not run yet does not run. Ending one twice changes nothing.

        A call that another process runs is asked to stop: then gives what the turn waits for before it ends. Raises
        `NotFound` for an unknown turn and `Fenced` for one that a living process runs.
        """
        return await cancel_turn(self.store, turn_id, self.runtime.clock(), reason)

    async def _end_canceled(self, kept: KeptTurn, on_event: Emit | None) -> Turn:
        """End a turn, just taken over, that was canceled while another process ran a call of it.

        Raises `Suspended` while that process has not stopped.
        """
        turn = kept.opening
        if waits := await end_canceled(self.store, kept, self.runtime.clock(), kept.cancel):
            raise Suspended(turn.id, waits)
        ending = Ending(EndReason.CANCELED, kept.cancel)
        if emit := self.runtime.events.emitter(turn, on_event):
            emit(TurnEnded(turn.id, ending, 0.0))
        return replace(turn_loop.fold(kept, self.runtime), ending=ending, pending=())

    def stream(self, question: str, *, thread: str = "") -> AsyncGenerator[Event, None]:
        """Answer a question and show every event on the way; the last one is `TurnEnded`.

        Closing the stream early cancels the work and leaves a turn that can be resumed.
        """
        return _events(lambda emit: self.ask(question, thread=thread, on_event=emit))

    async def call(self, name: str, arguments: dict[str, Any], *, on_event: Emit | None = None) -> ToolResult:
        """Take one call through the whole journey, without a model."""
        _require_text("the name of a tool", name)
        _require_dict(arguments)
        asked = withhold_password(self.runtime, ToolCall(name, arguments, format="direct"))
        turn = await self._make_turn(f"call {name}", "", asked)
        call = replace(turn.pending[0], id=f"call_{turn.id[-12:]}_1_1")
        allowance, begins = self._allowance(turn), turn
        if is_begun := allowance is not None or self.runtime.events.emitter(turn, on_event) is not None:
            await self.store.begin(turn)  # what is told of, or reserved for, is on record by then
        async with self._kept_free(turn):
            reserve = None
            if allowance is not None:
                turn, reserve = await allowance.cut(turn), allowance.reservation()
            turn = replace(turn, pending=())
            return await self._concluded(turn, call, on_event, reserve, None if is_begun else begins)

    async def resume_call(self, turn_id: str, *, on_event: Emit | None = None) -> ToolResult:
        """Settle a single call whose process died: its result on record, or another run where its tool allows that.

        Any other call that had begun ends as `outcome_unknown`. Raises `NotFound` for a turn that is no single call
        and for a call that was never written down, `Fenced` and `CannotResume` as `resume` does.
        """
        left = await self.store.turn(turn_id)
        if left.opening.kind is not TurnKind.CALL:
            raise NotFound(f"turn {turn_id} is a question, not a single call")
        if not left.cancel:  # else it only ends
            await require_same_tools(self.store, left.opening, self.toolbox, self.spec)
        kept = await self.store.resume(turn_id)
        if kept.cancel:
            await self._end_canceled(kept, on_event)
            [card] = await self.store.calls(turn_id=turn_id, limit=1)
            assert card.result is not None
            return card.result
        turn = self._with_current_policy(kept.opening)
        async with self._kept_free(turn):
            for card in await self.store.calls(turn_id=turn_id, limit=1):
                return await self._concluded(replace(turn, running_since=self.runtime.monotonic()), card.call, on_event)
            never = f"the call of turn {turn_id} was never written down, so it did not run; make it again"
            await self.store.end(end_turn(turn, Ending(EndReason.CANCELED, never)), TurnStats())
            raise NotFound(never)

    @asynccontextmanager
    async def _kept_free(self, turn: Turn) -> AsyncIterator[None]:
        """Release a turn that is left without its end, so that it can be resumed; one that waits is free already."""
        try:
            yield
        except Suspended:
            raise
        except BaseException:
            with suppress(StoreError):  # one that has ended or was taken over is free; the store tries the rest again
                await asyncio.shield(self.store.release(turn))
            raise

    async def _ended_instead(self, turn: Turn, waits: tuple[Wait, ...]) -> ToolResult | None:
        """Release the turn of a single call with what it waits for; the result where it has just ended elsewhere."""
        with suppress(StoreError):  # what it cannot do now, the store does later
            try:
                await asyncio.shield(self.store.release(replace(turn, waits=waits)))
            except Fenced:
                if (await self.store.turn(turn.id)).state == "ended":
                    return (await self.store.calls(turn_id=turn.id, limit=1))[0].result
        return None

    def _with_current_policy(self, turn: Turn) -> Turn:
        """The turn with its own grant, less all that this agent's grant does not allow any more."""
        return turn if turn.grant == self.grant else replace(turn, grant=grant_of_resumed(turn.grant, self.grant))

    async def _concluded(
        self,
        turn: Turn,
        call: ToolCall,
        on_event: Emit | None,
        reserve: Reservation | None = None,
        begins: Turn | None = None,
    ) -> ToolResult:
        """The result of the one call of a turn, which ends with it, and may begin with it."""
        emit, began = self.runtime.events.emitter(turn, on_event), self.runtime.monotonic()
        if emit:
            emit(TurnStarted(turn.id, turn.question, turn.model, (call.name,), resumed=turn.epoch > 1))
        conclusion = Conclusion(partial(end_with_call, turn))
        try:
            result = await self.runtime.execute(call, turn, emit, reserve, begins=begins, conclusion=conclusion)
        except asyncio.CancelledError as canceled:
            given_up = end_turn(turn, Ending(EndReason.CANCELED, f"the call of {call.name!r} was canceled"))
            if not conclusion.is_written:
                with suppress(Fenced):  # a worker has ended it meanwhile, with the result
                    await asyncio.shield(self.store.end(given_up, TurnStats(calls=1, failed_calls=1)))
            self.runtime.events.interrupt(given_up, canceled)
            raise
        except Suspended as waiting:
            ended = await self._ended_instead(turn, waiting.waits)
            if ended is None:
                if emit:
                    emit(TurnWaiting(turn.id, waiting.waits))
                raise
            result, conclusion.is_written = ended, True
        except BaseException as error:
            self.runtime.events.interrupt(turn, error)
            raise
        done, stats = end_with_call(turn, result)
        if not conclusion.is_written:
            await self.store.end(done, stats)
        if emit and done.ending is not None:
            emit(TurnEnded(turn.id, done.ending, (self.runtime.monotonic() - began) * 1000))
        return result

    def _allowance(self, turn: Turn) -> Allowance | None:
        """What is looked up before each step of a turn; most turns share nothing with anybody."""
        if self.budget is None and not self._lends:
            return None
        return Allowance(
            self.store,
            turn,
            self.runtime.clock,
            self.runtime.monotonic,
            budget=self.budget,
            accounts=self.accounts,
            lends=self._lends,
            rates=self.runtime.rates,
        )

    async def close(self) -> None:
        """Let go of connections, threads and files. Harmless when called twice."""
        await self.model.close()
        await self.runtime.close()
        await self.store.close_store()

    async def __aenter__(self) -> "Agent":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _require_left(self, kept: KeptTurn) -> None:
        """Raise `BudgetSpent` when nothing is left of the day for a turn on record."""
        if (allowance := self._allowance(kept.opening)) is not None:
            used = turn_loop.fold(kept, self.runtime).used()
            await allowance.require(replace(used, calls=kept.calls, wall_s=kept.ran_s))

    def _runner(self, own: Emit | None, turn: Turn) -> "turn_loop.Runner":
        events = self.runtime.events
        return turn_loop.Runner(
            self.runtime,
            self.model,
            emit=events.emitter(turn, own),
            streams=own is not None or events.wants_deltas,
            intervene=self._intervene,
            allowance=self._allowance(turn),
            max_tokens=self._max_tokens,
            temperature=self._temperature,
        )

    async def _take_up_tools(self) -> None:
        """Make the tools, and take up those that are news: between turns, never within one."""
        self._lends = self.toolbox.delegates
        if self._news is not None and (toolbox := await asyncio.to_thread(self._news, self.toolbox)) is not None:
            self.change_tools(toolbox)

    async def _compact(self, thread: str, question: str) -> None:
        """Let the model summarise what has outgrown its window. The summary is a turn of the thread, on record.

        Where the model cannot, the conversation stays as it is, and the model is asked with all of it.
        """
        window = self.limits.window_tokens or getattr(self.model, "window_tokens", None)
        if window is None:
            return
        history = await self.store.thread(thread)
        sent = messages_to_send((*history, UserMessage(question)))[:-1]
        count = outgrown(sent, window, self.limits.compact_at)
        if count:
            turn = self._new_turn(QUESTION, thread, history)
            with suppress(ModelError):
                async with self._releasing_usage(turn):
                    summary, usage = await self._summarise(turn, sent[:count], window)
                    await self._keep_summary(turn, history, len(sent) - count, Reply(summary, usage=usage))

    @asynccontextmanager
    async def _releasing_usage(self, turn: Turn) -> AsyncIterator[None]:
        """Release what was reserved for a turn that does not come on record."""
        try:
            yield
        except BaseException:
            if self.budget is not None:
                await asyncio.shield(self.store.release_usage(turn))
            raise

    async def _summarise(self, turn: Turn, messages: Sequence[Message], window: int) -> tuple[str, Usage]:
        summary, usage, allowance = "", Usage(), self._allowance(turn)
        for piece in summary_requests(messages, window, getattr(self.model, "longest_question", None)):
            request = Request((UserMessage(summary_request(summary, piece)),), system=self.system)
            if allowance is not None and allowance.reserves_usage:
                used = Spending(0, usage.total_tokens, usage.cost_usd or 0.0)
                if (await allowance.reserve(turn, request, self.model, used)).ending is not None:
                    raise ModelError("the budget of today leaves nothing for a summary")
            reply = await self.model.ask(request)
            if not reply.content.strip():
                raise ModelError("the model gave no summary")
            summary, usage = reply.content.strip(), usage + reply.usage
        return summary, usage

    async def _keep_summary(self, turn: Turn, history: tuple[Message, ...], kept: int, summary: Reply) -> None:
        detail = {"messages": len(history), "kept": kept, "thread": turn.thread}
        row = AuditRow(self.runtime.clock(), "compacted", self.project, self.name, turn.id, detail=detail)
        await self.store.begin(turn)
        allowance = self._allowance(turn)
        reserve = None if allowance is None else allowance.reservation(settles=allowance.reserves_usage)
        await self.store.append_reply(turn, summary, [], [row], reserve)
        await self.store.append_note(turn, summary_note(kept))
        usage = summary.usage
        stats = TurnStats(
            1, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cost_usd=usage.cost_usd
        )
        await self.store.end(end_turn(turn, Ending(EndReason.ANSWERED, summary.content)), stats)

    def _new_turn(self, question: str, thread: str, history: tuple[Message, ...], *alone: ToolCall) -> Turn:
        grant = unlock(self.grant, own_words(question)) if self._tier_by_intent and not alone else self.grant
        return Turn(
            id=self.runtime.new_id(),
            project=self.project,
            agent=self.name,
            thread=thread,
            model=NO_MODEL if alone else self.model.name,
            system=self.system,
            grant=grant,
            limits=self.limits,
            started_at=self.runtime.clock(),
            running_since=self.runtime.monotonic(),
            messages=(*history, UserMessage(question)),
            tainted=was_tainted(history),
            pending=alone,
            spec=self.spec,
            trace=self.runtime.events.current_trace(),
        )

    async def _begin(self, turn: Turn, *, trace: TraceContext = NO_TRACE) -> Turn:
        """The turn, on record. One that waits from the first moment on is taken up by any process."""
        turn = replace(turn, trace=trace) if trace else turn
        await self.store.begin(turn, runs=not turn.waits)
        return turn

    async def _make_turn(
        self, question: str, thread: str, *alone: ToolCall, turn_id: str = "", waits: tuple[Wait, ...] = ()
    ) -> Turn:
        """A new turn: a question to the model, or a call `alone`. It is not on record yet. Raises `BudgetSpent`."""
        await self._take_up_tools()
        history = await self.store.thread(thread) if thread else ()
        turn = self._new_turn(question, thread, history, *alone)
        if turn_id or waits:
            turn = replace(turn, id=turn_id or turn.id, waits=waits)
        if self.budget is not None and (allowance := self._allowance(turn)) is not None:
            await allowance.require()
        return turn


def _require_text(what: str, said: Any, *, may_be_empty: bool = False) -> None:
    if not isinstance(said, str):
        raise TypeError(f"{what} must be text, not {describe_value(said)}")
    if not (may_be_empty or said.strip()):
        raise ValueError(f"{what} must not be empty")


def _require_dict(arguments: Any) -> None:
    if not isinstance(arguments, dict):
        raise TypeError(f"arguments must be a dict with one entry for each, not {describe_value(arguments)}")


def _required_model(model: Any) -> ChatModel:
    missing = [name for name in ("name", "ask", "close") if not hasattr(model, name)]
    if missing or isinstance(model, type):
        what = "a class and not one of its objects" if isinstance(model, type) else f"without {' and '.join(missing)}"
        raise TypeError(
            f"Agent({describe_value(model)}, …): this is {what}; a model is a text such as 'ollama:qwen3' or "
            "'local:smollm2', or an object with a name and the async methods ask and close"
        )
    return cast("ChatModel", model)


def _listed(tools: Any) -> Sequence[Any]:
    if tools is None:
        return ()
    if isinstance(tools, Tool) or callable(tools):
        return (tools,)
    if isinstance(tools, (str, bytes)) or not isinstance(tools, Iterable):
        raise TypeError(
            f"Agent(tools=…) must be a list of functions and tools, or a Toolbox, not {describe_value(tools)}"
        )
    return tuple(tools)


def _required_store(store: Any) -> Store:
    if store is None:
        return memory.MemoryStore()
    if not isinstance(store, type) and callable(getattr(store, "begin", None)):
        return cast("Store", store)
    if isinstance(store, Coroutine):
        store.close()
        raise TypeError("Agent(store=…) was given a coroutine; await it: store=await SqliteStore.at(…)")
    raise TypeError(
        f"Agent(store=…) must be a store such as await SqliteStore.at('folder'), not {describe_value(store)}"
    )


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code. The only bridge between the two worlds."""
    return asyncio.run(work)


def _answer(turn: Turn) -> Answer:
    assert turn.ending is not None
    return Answer(turn.ending.answer, turn.ending.reason, turn)


async def _events(work: Callable[[Emit], Awaitable[Answer]]) -> AsyncGenerator[Event, None]:
    """Run the work in a task and hand out its events; leaving early cancels the work."""
    queue: asyncio.Queue[Event | None] = asyncio.Queue()

    async def worker() -> None:
        try:
            await work(queue.put_nowait)
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(worker(), name="toolwire-turn")
    try:
        while (event := await queue.get()) is not None:
            yield event
        await task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait((task,))
