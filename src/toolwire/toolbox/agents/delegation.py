"""Setting other agents to work: never with more than both sides may do, and out of one allotment.

Everything under one person's question shares what that turn may use, and what a sub-agent holds is not the turn's own
any more until it is given back. Time is not handed out: all of it passes for all of them.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from msgspec.structs import replace

from toolwire.agent import Agent, Answer
from toolwire.decide.policy import narrow_grant
from toolwire.define.nearest import nearest
from toolwire.define.toolbox import Toolbox
from toolwire.errors import Fenced, NotFound, StoreError, StoreUnavailable, Suspended, ToolFailure, ToolwireError
from toolwire.hub.turn_loop import fold
from toolwire.loop.step import was_tainted
from toolwire.protocol.agents import ModelSpec
from toolwire.protocol.budgets import Allotment, Budget, Spending
from toolwire.protocol.chat import Message, Reply
from toolwire.protocol.outcomes import Code
from toolwire.protocol.policy import TAINTED, Rule, Verdict, inherits_taint
from toolwire.protocol.tools import Effect, Tier
from toolwire.protocol.turns import EndReason, Turn
from toolwire.record.contract import KeptTurn, Store, TurnSummary
from toolwire.record.projects import ProjectStore, of_project
from toolwire.toolbox.agents.workers import (
    DelegatedWork,
    Delegation,
    DeviceDirectory,
    DeviceView,
    SubAgentProfile,
    ask_sub_agent,
    pass_on,
    require_depth,
    require_no_circle,
    within_share,
)

MOST_AT_ONCE = 8
MOST_UNDER_ONE_ROOT = 32
LONGEST_S = 3600.0
_MOST_KEPT = 1000
_MOST_CALLS = 10_000


class SubAgents:
    """Workers that keep their turns in one store. Those who work in the background stop when the block ends.

    `workflow` runs workflows in the place of a model. `tokens` is how many all sub-agents of one question may use
    together, whichever process runs them; `budget` is what the asking agent and all workers may use together in a day.
    """

    def __init__(
        self,
        store: Store,
        workers: Sequence[SubAgentProfile],
        *,
        tokens: int | None = None,
        budget: Budget | None = None,
        directory: DeviceDirectory | None = None,
        workflow: SubAgentProfile | None = None,
    ) -> None:
        self.store = store
        self.workflow = workflow
        self._directory = directory
        self.workers = {worker.name: worker for worker in workers}
        self.failures: dict[str, str] = {}
        self._tokens = tokens
        self._budget = budget
        self._background: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> "SubAgents":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.sleep(0)  # an agent that has not begun yet could not give back its share
        tasks = list(self._background.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def devices(self) -> Sequence[DeviceView]:
        """The devices whose agents can be set to work."""
        return self._directory.devices() if self._directory is not None else ()

    def worker_with(self, tool: str, name: str, key: str) -> SubAgentProfile:
        """A worker that has a tool: the one that is named, else a device that is there and has room.

        The same `key` gives the same device while that has room. Raises ToolFailure.
        """
        if not tool:
            return self.worker(name)
        able = [one for one in self.devices() if tool in one.tools]
        if name:
            if name in self.workers or any(one.name == name for one in able):
                return self.worker(name)
            raise ToolFailure(f"{name!r} has no tool {tool!r}; agents_list shows who has it", code=Code.NOT_FOUND)
        chosen = self._directory.choose(tool, key) if self._directory is not None else ""
        if chosen:
            return self.worker(chosen)
        if able:
            raise ToolFailure(f"no device with the tool {tool!r} is online", code=Code.UNAVAILABLE)
        known = sorted({one for device in self.devices() for one in device.tools})
        near = nearest(tool, known)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ToolFailure(f"no other agent has the tool {tool!r}{hint}", code=Code.NOT_FOUND)

    def worker(self, name: str) -> SubAgentProfile:
        """The worker of that name, or the only one. Raises ToolFailure."""
        is_device = name not in self.workers and any(one.name == name for one in self.devices())
        if is_device and self._directory is not None:
            return self._directory.worker(name)
        if not self.workers:
            raise ToolFailure("no agent can be set to work here", code=Code.UNAVAILABLE)
        if not name and len(self.workers) == 1:
            return next(iter(self.workers.values()))
        if name in self.workers:
            return self.workers[name]
        near = nearest(name, [*self.workers, *(one.name for one in self.devices())])
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(self.workers)[:20])}"
        if not name:
            raise ToolFailure(f"say which agent; {hint}", code=Code.NOT_FOUND)
        raise ToolFailure(f"there is no agent {name!r}; {hint}", code=Code.NOT_FOUND)

    async def run(self, delegation: Delegation, seconds: float, share: Allotment | None = None) -> Answer:
        """Let a worker answer, under what both it and the caller may do. Raises ToolFailure.

        Where its turn waits, `Suspended` is raised, and the caller's call waits for it; made again, the call goes on
        with that turn instead of beginning another.
        """
        if (begun := await self._begun_before(delegation)) is not None:
            return await self._go_on(delegation, begun, seconds)
        work = DelegatedWork(delegation, share or await self._share(delegation), own_time=share is not None)
        try:
            tainted = await self._tainted(delegation)
            agent = await self._agent(work, seconds)
            if agent.grant.wary and tainted:
                agent.grant = replace(agent.grant, rules=(*agent.grant.rules, ask_before_effects(agent.toolbox)))
            answer = await ask_sub_agent(agent, work)
        except Suspended:  # it keeps its share until it goes on
            raise
        except BaseException:
            with suppress(StoreError):
                await asyncio.shield(self._settle(work, await self._so_far(work)))
            raise
        await self._settle(work, answer.turn.used())
        return _told(delegation, answer)

    async def _begun_before(self, delegation: Delegation) -> TurnSummary | None:
        """The turn that this very call began before it had to wait."""
        context, store = delegation.context, self._store(delegation)
        try:
            if (await store.turn(context.turn_id)).opening.epoch == 1:
                return None
        except NotFound:
            return None
        cards = await store.calls(turn_id=context.turn_id, limit=_MOST_CALLS)
        asked_at = next((card.created_at for card in cards if card.call.id == context.call_id), None)
        if asked_at is None:
            return None
        turns = await store.turns(limit=_MOST_KEPT)
        return next((turn for turn in turns if _is_its_turn(turn, delegation, asked_at)), None)

    async def _go_on(self, delegation: Delegation, begun: TurnSummary, seconds: float) -> Answer:
        """The answer of a turn that waited: it goes on here, or has ended elsewhere meanwhile."""
        store = self._store(delegation)
        kept = await store.turn(begun.id)
        share = Allotment(kept.opening.grant.max_calls)
        work = DelegatedWork(delegation, share, own_time=kept.opening.limits.own_time, turn_id=begun.id)
        agent = await self._agent(work, seconds)
        if begun.state == "ended":
            answer = Answer(
                begun.answer, EndReason(begun.reason), replace(fold(kept, agent.runtime), ending=kept.ending)
            )
        else:
            agent.grant = replace(agent.grant, rules=kept.opening.grant.rules)
            try:
                answer = await ask_sub_agent(agent, work)
            except Fenced:  # a runner goes on with it; the caller waits until it has ended
                raise Suspended(begun.id, ()) from None
        # Of tokens and money, what was reserved stays so: how much that was is not on record.
        await store.release_unused(delegation.root, Spending(calls=max(share.calls - answer.turn.used().calls, 0)))
        return _told(delegation, answer)

    async def keep(self, delegation: Delegation, turn_id: str, seconds: float, parts: int = 1) -> KeptTurn:
        """Keep what a worker is to do as a turn that any runner takes up, under what both it and the caller may do.

        It is one of so many `parts` that begin together. What is reserved for it stays so, since it ends elsewhere.
        Raises ToolFailure.
        """
        work = DelegatedWork(delegation, await self._share(delegation, parts), own_time=True)
        store = self._store(delegation)
        try:
            agent = await self._agent(work, seconds)
            if agent.grant.wary and await self._tainted(delegation):
                agent.grant = replace(agent.grant, rules=(*agent.grant.rules, ask_before_effects(agent.toolbox)))
            await agent.begin(delegation.question, thread=delegation.thread, turn_id=turn_id)
        except BaseException as error:
            with suppress(StoreError):
                await asyncio.shield(self._settle(work, Spending()))
            if not isinstance(error, ToolwireError) or isinstance(error, StoreUnavailable):
                raise
            with suppress(NotFound):  # the same call, made again at the same moment, was faster
                return await store.turn(turn_id)
            reason = f"{delegation.worker.name} cannot be given work now: {error}"
            raise ToolFailure(reason, code=Code.UNAVAILABLE) from None
        return await store.turn(turn_id)

    async def start(self, delegation: Delegation) -> None:
        """Let a worker answer in the background. Raises ToolFailure when too many do already, or nothing is left."""
        if len(self._background) >= MOST_AT_ONCE:
            raise ToolFailure(f"{MOST_AT_ONCE} agents are at work already; wait for one", code=Code.UNAVAILABLE)
        share = await self._share(delegation)
        unwatched = replace(delegation, context=replace(delegation.context, report=_ignore_progress))
        task = asyncio.create_task(self._work(unwatched, share), name="toolwire-sub-agent")
        self._background[delegation.thread] = task
        task.add_done_callback(lambda _: self._background.pop(delegation.thread, None))

    def is_working(self, thread: str) -> bool:
        """Whether someone works on a thread in the background of this process."""
        return thread in self._background

    async def wait(self, thread: str) -> None:
        """Wait until no agent works on a thread in the background any more."""
        if task := self._background.get(thread):
            await asyncio.wait((task,))

    async def _work(self, delegation: Delegation, share: Allotment) -> None:
        try:
            await self.run(delegation, LONGEST_S, share)
        except (ToolFailure, Suspended) as failure:
            while len(self.failures) >= _MOST_KEPT:
                del self.failures[next(iter(self.failures))]
            self.failures[delegation.thread] = str(failure)

    async def _share(self, delegation: Delegation, parts: int = 1) -> Allotment:
        """A share of what the question has left. Raises ToolFailure when that is nothing."""
        require_depth(delegation)
        require_no_circle(delegation)
        allowed = delegation.context.grant.max_calls
        asker = await self._root(delegation)
        question = None if asker is None else _allotment(asker.opening)
        together = Allotment(question.calls if question else allowed, self._tokens, MOST_UNDER_ONE_ROOT)
        most = min(allowed, delegation.worker.grant.max_calls)
        if parts > 1:  # something stays for the one that waits for all of them
            most = max(min(most, allowed // (parts + 1)), 1)
        allotment = await self._store(delegation).reserve_share(delegation.root, together, most, question=question)
        if allotment is None:
            raise ToolFailure("what agents may use for this question is used up; go on without", code=Code.UNAVAILABLE)
        return allotment

    async def _agent(self, work: DelegatedWork, seconds: float) -> Agent:
        """A new agent, held to its grant, its limits and the day's budget whatever its maker has set."""
        delegation, context = work.delegation, work.delegation.context
        asker = await self._root(delegation)
        if asker is not None and (deadline_s := asker.opening.limits.deadline_s) is not None:
            seconds = max(min(seconds, deadline_s - asker.ran_s), 0.0)
        grant = replace(narrow_grant(context.grant, delegation.worker.grant), max_calls=work.share.calls)
        agent = delegation.worker.make(grant)
        agent.grant, agent.name, agent.project = grant, delegation.worker.name, context.project
        limits = agent.limits if delegation.limits is None else delegation.limits(agent.limits)
        agent.limits = within_share(limits, seconds, work)
        if asker is not None and asker.opening.spec is not None:
            model = agent.spec.model if agent.spec is not None else ModelSpec(agent.model.name)
            agent.spec = replace(asker.opening.spec, name=agent.name, model=model, result_schema="")
        if self._budget is not None:
            first = asker.opening.agent if asker is not None else context.agent
            agent.budget, agent.accounts = self._budget, (first, context.agent, *self._accounts())
        return agent

    def _accounts(self) -> tuple[str, ...]:
        """All under whose names sub-agents may use something."""
        steps = () if self.workflow is None else (self.workflow.name,)
        return (*self.workers, *steps, *(device.name for device in self.devices()))

    async def _root(self, delegation: Delegation) -> KeptTurn | None:
        """The turn of the person's question, if it is on record here."""
        try:
            return await self._store(delegation).turn(delegation.root)
        except NotFound:
            return None

    async def _settle(self, work: DelegatedWork, used: Spending) -> None:
        await self._store(work.delegation).release_unused(work.delegation.root, work.share.held - used)

    async def _so_far(self, work: DelegatedWork) -> Spending:
        """What a turn has used that came to no answer."""
        if not work.turn_id:
            return Spending()
        return sum(map(_used, (await self._store(work.delegation).turn(work.turn_id)).events), Spending())

    def _store(self, delegation: Delegation) -> ProjectStore:
        """What the project of a delegation sees of the store."""
        return of_project(self.store, delegation.context.project)

    async def _tainted(self, delegation: Delegation) -> bool:
        """Whether what is asked for now, or was before in this thread, rests on untrusted content."""
        if inherits_taint(delegation.context.grant.rules):
            return True
        try:
            store = self._store(delegation)
            asking = await store.turn(delegation.context.turn_id)
            before = await store.turn(delegation.after) if delegation.after else None
        except NotFound:
            return True
        return (
            asking.opening.tainted
            or was_tainted(asking.events)
            or (before is not None and inherits_taint(before.opening.grant.rules))
        )


def _is_its_turn(turn: TurnSummary, delegation: Delegation, asked_at: float) -> bool:
    same = turn.thread == delegation.thread and turn.question == delegation.question
    return same and turn.started_at >= asked_at


def _told(delegation: Delegation, answer: Answer) -> Answer:
    """The answer, once the caller's turn counts as having read what the worker has read."""
    pass_on(delegation.context, answer.turn.messages)
    delegation.context.read_from(f"agent:{delegation.worker.name}")
    return answer


def _ignore_progress(message: str, fraction: float | None) -> None:
    """The call that started a sub-agent in the background is over."""


def _allotment(turn: Turn) -> Allotment:
    """What a question may use, itself and its sub-agents together."""
    return Allotment(turn.grant.max_calls, turn.limits.tokens, MOST_UNDER_ONE_ROOT, turn.limits.cost_usd)


def _used(said: Message) -> Spending:
    match said:
        case Reply(usage=usage, calls=calls):
            return Spending(len(calls), usage.total_tokens, usage.cost_usd or 0.0)
    return Spending()


def ask_before_effects(toolbox: Toolbox) -> Rule:
    """Asks people before anything that goes out or changes things. In the grant, so that it is kept with the turn."""
    tools = [tool for name in toolbox.names if (tool := toolbox.get(name)) is not None]
    outward = {
        tool.name
        for tool in tools
        if tool.effect is not Effect.PURE and (tool.tier is Tier.RUN or "network" in tool.needs)
    }
    return Rule(Verdict.ASK, frozenset(outward), reason=TAINTED)
