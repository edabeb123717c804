"""Setting other agents to work: never with more than both sides may do, and out of one purse.

A sub-agent's conversation is a thread whose name says who sent it: `sub/ROOT/DEPTH/CALL`, where ROOT is the turn of a
person's question at the bottom of it all. Everything under one root shares its calls, tokens and number of agents.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

from toolwire.agent import Agent, Answer
from toolwire.decide.policy import narrowed
from toolwire.define.nearest import nearest
from toolwire.define.toolbox import Toolbox
from toolwire.errors import NotKept, StoreError, Suspended, ToolFailure, ToolwireError
from toolwire.loop.events import CallStarted, Event
from toolwire.loop.limits import within_budget
from toolwire.loop.step import was_tainted
from toolwire.protocol.chat import Message, Reply, ResultsMessage
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.policy import Rule, Verdict
from toolwire.protocol.tools import Effect, Grant, Tier
from toolwire.protocol.turns import Budget, Limits, Purse, Spending
from toolwire.protocol.values import changed
from toolwire.record.contract import Store

DEEPEST = 3
MOST_AT_ONCE = 8
MOST_UNDER_ONE_ROOT = 32
LONGEST_S = 3600.0
SUB = "sub/"
TAINTED = "Whoever asks for this has read what strangers may have written"
_MOST_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Worker:
    """An agent that others may set to work. `make` gets the grant it will run under and gives a new agent.

    What `make` gives is used and left open: models, executors and stores belong to whoever wrote `make`.
    """

    name: str
    description: str
    grant: Grant
    make: Callable[[Grant], Agent]


@dataclass(frozen=True, slots=True)
class Errand:
    """What a sub-agent is to do, in which thread, and for whom; `after` is the thread's newest turn, if it has one."""

    worker: Worker
    question: str
    thread: str
    context: Context
    after: str = ""

    @property
    def root(self) -> str:
        return origin(self.context)[0]


class Crew:
    """Workers that keep their turns in one store. Those who work in the background stop when the block ends.

    `tokens` is how many all sub-agents of one question may use together, whichever process runs them; `budget` is what
    the asking agent and all workers may use together in a day, with what those have used who are still at it.
    """

    def __init__(
        self,
        store: Store,
        workers: Sequence[Worker],
        *,
        tokens: int | None = None,
        budget: Budget | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.workers = {worker.name: worker for worker in workers}
        self.failures: dict[str, str] = {}
        self._tokens = tokens
        self._budget = budget
        self._clock = clock
        self._background: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> "Crew":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = list(self._background.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def worker(self, name: str) -> Worker:
        """The worker of that name, or the only one. Raises ToolFailure."""
        if not self.workers:
            raise ToolFailure("no agent can be set to work here", code=Code.UNAVAILABLE)
        if not name and len(self.workers) == 1:
            return next(iter(self.workers.values()))
        if name in self.workers:
            return self.workers[name]
        near = nearest(name, self.workers)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(self.workers)[:20])}"
        if not name:
            raise ToolFailure(f"say which agent; {hint}", code=Code.NOT_FOUND)
        raise ToolFailure(f"there is no agent {name!r}; {hint}", code=Code.NOT_FOUND)

    async def run(self, errand: Errand, seconds: float, share: Purse | None = None) -> Answer:
        """Let a worker answer, under what both it and the caller may do. Raises ToolFailure."""
        tainted = await self._tainted(errand)
        spent = await self._spent(errand.context)
        purse = share or await self._share(errand)
        grant = changed(narrowed(errand.context.grant, errand.worker.grant), max_calls=purse.calls)
        agent = self._agent(errand, grant, purse, seconds)
        self._charge(agent, spent)
        if grant.wary and tainted:
            agent.grant = changed(agent.grant, rules=(*grant.rules, _wariness(agent.toolbox)))
        answer = await _asked(agent, errand)
        unused = (purse.tokens or 0) - answer.usage.total_tokens
        await self.store.give_back(errand.root, purse.calls - answer.turn.calls, unused)
        return answer

    async def start(self, errand: Errand) -> None:
        """Let a worker answer in the background. Raises ToolFailure when too many do already, or nothing is left."""
        if len(self._background) >= MOST_AT_ONCE:
            raise ToolFailure(f"{MOST_AT_ONCE} agents are at work already; wait for one", code=Code.UNAVAILABLE)
        share = await self._share(errand)
        unwatched = replace(errand, context=changed(errand.context, report=_nobody_watches))
        task = asyncio.create_task(self._work(unwatched, share), name="toolwire-sub-agent")
        self._background[errand.thread] = task
        task.add_done_callback(lambda _: self._background.pop(errand.thread, None))

    def is_working(self, thread: str) -> bool:
        """Whether someone works on a thread in the background of this process."""
        return thread in self._background

    async def wait(self, thread: str) -> None:
        """Wait until nobody works on a thread in the background any more."""
        if task := self._background.get(thread):
            await asyncio.wait((task,))

    async def _work(self, errand: Errand, share: Purse) -> None:
        try:
            await self.run(errand, LONGEST_S, share)
        except ToolFailure as failure:
            while len(self.failures) >= _MOST_KEPT:
                del self.failures[next(iter(self.failures))]
            self.failures[errand.thread] = str(failure)

    async def _share(self, errand: Errand) -> Purse:
        """A share of what the question has left. Raises ToolFailure when that is nothing."""
        _require_depth(errand)
        allowed = errand.context.grant.max_calls
        opening = Purse(allowed, self._tokens, MOST_UNDER_ONE_ROOT)
        most = min(allowed, errand.worker.grant.max_calls)
        purse = await self.store.draw(errand.root, opening, most)
        if purse is None:
            raise ToolFailure("what agents may use for this question is used up; go on without", code=Code.UNAVAILABLE)
        return purse

    def _agent(self, errand: Errand, grant: Grant, purse: Purse, seconds: float) -> Agent:
        """A new agent, held to its grant and limits whatever its maker has set."""
        agent = errand.worker.make(grant)
        agent.grant, agent.name, agent.project = grant, errand.worker.name, errand.context.project
        agent.limits = _within(agent.limits, seconds, purse.tokens)
        return agent

    async def _spent(self, context: Context) -> Spending:
        """What everyone together has used today, with what those have used who are still at it."""
        spent = Spending()
        if self._budget is None:
            return spent
        for name in {context.agent, *self.workers}:
            spent += await self.store.spent(name, self._clock())
        root, _ = origin(context)
        under = [
            one.id
            for one in await self.store.turns(limit=_MOST_KEPT, state="running")
            if one.thread.startswith(f"{SUB}{_plain(root)}/")
        ]
        for turn_id in dict.fromkeys([root, context.turn_id, *under]):
            spent += await self._so_far(turn_id)
        return spent

    async def _so_far(self, turn_id: str) -> Spending:
        """What a turn has used that has not ended; one that has is in the day's sum already."""
        try:
            kept = await self.store.turn(turn_id)
        except NotKept:
            return Spending()
        return Spending() if kept.state == "ended" else sum(map(_used, kept.events), Spending())

    def _charge(self, agent: Agent, spent: Spending) -> None:
        """Cut an agent's limits down to what is left of the day. Raises ToolFailure."""
        if self._budget is None:
            return
        left = within_budget(agent.limits, agent.grant, self._budget, spent)
        if left is None:
            raise ToolFailure("the budget of today is used up; go on without other agents", code=Code.UNAVAILABLE)
        agent.limits, agent.grant = left

    async def _tainted(self, errand: Errand) -> bool:
        """Whether strangers may have had a hand in what is asked for now, or was before in this thread."""
        if _is_wary(errand.context.grant):
            return True
        try:
            asking = await self.store.turn(errand.context.turn_id)
            before = await self.store.turn(errand.after) if errand.after else None
        except NotKept:
            return True
        return (
            asking.opening.tainted
            or was_tainted(asking.events)
            or (before is not None and _is_wary(before.opening.grant))
        )


def _is_wary(grant: Grant) -> bool:
    return any(rule.reason == TAINTED for rule in grant.rules)


def origin(context: Context) -> tuple[str, int]:
    """The turn at the bottom of it all, and how deep a sub-agent of this call would be."""
    match context.thread.split("/"):
        case ["sub", root, depth, _] if depth.isdecimal() and len(depth) < 3:
            return root, int(depth) + 1
        case _:
            return context.turn_id, 1


def new_thread(context: Context) -> str:
    """A thread for the sub-agent of a call: the same each time the same call is tried."""
    root, depth = origin(context)
    return "/".join(("sub", _plain(root), str(depth), _plain(f"{context.turn_id[-12:]}-{context.call_id}")))


def _plain(name: str) -> str:
    return name.replace("/", "-") or "-"


def _nobody_watches(message: str, fraction: float | None) -> None:
    """The call that started a sub-agent in the background is over."""


def _require_depth(errand: Errand) -> None:
    if origin(errand.context)[1] > DEEPEST:
        raise ToolFailure(f"agents may send agents {DEEPEST} deep; do this part yourself")


def _used(said: Message) -> Spending:
    match said:
        case Reply(usage=usage):
            return Spending(0, usage.total_tokens, usage.cost_usd or 0.0)
        case ResultsMessage(results):
            return Spending(len(results))
    return Spending()


def _within(limits: Limits, seconds: float, tokens: int | None) -> Limits:
    known = [one for one in (limits.tokens, tokens) if one is not None]
    deadline_s = min(seconds, limits.deadline_s) if limits.deadline_s else seconds
    return changed(limits, deadline_s=deadline_s, tokens=min(known) if known else None)


def _wariness(toolbox: Toolbox) -> Rule:
    """Asks people before anything that goes out or changes things. In the grant, so that it is kept with the turn."""
    tools = [tool for name in toolbox.names if (tool := toolbox.get(name)) is not None]
    outward = {
        tool.name
        for tool in tools
        if tool.effect is not Effect.PURE and (tool.tier is Tier.RUN or "network" in tool.needs)
    }
    return Rule(Verdict.ASK, frozenset(outward), reason=TAINTED)


async def _asked(agent: Agent, errand: Errand) -> Answer:
    """The agent's answer; what it cannot do is told in words that the caller's model can act on."""

    def tell(event: Event) -> None:
        if isinstance(event, CallStarted):
            errand.context.progress(f"{errand.worker.name} uses {event.call.name}")

    try:
        return await agent.ask(errand.question, thread=errand.thread, on_event=tell)
    except (StoreError, ToolFailure):
        raise
    except Suspended as waiting:
        raise ToolFailure(
            f"{errand.worker.name} waits for a person's word ({', '.join(waiting.approvals)}); its turn "
            f"{waiting.turn_id} goes on when that is given",
            detail={"turn_id": waiting.turn_id, "approvals": list(waiting.approvals)},
        ) from None
    except ToolwireError as error:
        raise ToolFailure(f"{errand.worker.name} cannot work now: {error}", code=Code.UNAVAILABLE) from None
