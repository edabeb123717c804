"""Handing work to agents that run as turns of their own: kept first, then taken up by any process that runs turns.

Nothing of it depends on the process that asked. The turn of an agent has an id that follows from the call that began
it, so that a call which is made again after a crash finds the same turn; and what a caller waits for is kept with its
own turn. Free of any transport: a tool here and a command of the protocol do the same.
"""

import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolwire.errors import Fenced, NotFound, Suspended, ToolFailure
from toolwire.hub.canceling import cancel_turn
from toolwire.protocol.chat import Reply, UserMessage
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.records import CallCard
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.protocol.waits import ForTurn, Until
from toolwire.record.contract import KeptTurn, Store, TurnStats
from toolwire.record.projects import of_project
from toolwire.toolbox.agents.delegation import LONGEST_S, SubAgents
from toolwire.toolbox.agents.session_tools import no_session, summaries
from toolwire.toolbox.agents.workers import SUB, Delegation, SubAgentProfile, new_thread, pass_on

MOST_TASKS = 8
USUAL_JOIN_S = 900.0
READY = "Ready."
_CHILDREN = uuid.UUID("3a5b0b0e-6f53-4b53-8f0d-9c6f2f1f7a55")
_MOST_CALLS = 10_000

Strategy = Literal["new", "reuse"]


class WorkOrder(Struct, frozen=True):
    """What an agent is to do: a new one of a profile (`target` names it), or one that has worked before (a session)."""

    strategy: Strategy
    target: str
    instruction: str


class Delegated(Struct, frozen=True):
    """The turn in which an agent works, as it stands."""

    turn_id: str
    epoch: int
    session: str
    agent: str


class JoinedTask(Struct, frozen=True):
    """What came of one of several tasks; `status` is that of its turn, or `timeout`."""

    delegated: Delegated
    status: Status
    summary: str
    error: str = ""


async def delegate(
    sub_agents: SubAgents, context: Context, order: WorkOrder, part: int = 0, parts: int = 1
) -> Delegated:
    """Keep what an agent is to do as a turn that any process takes up; the same call gives the same turn again.

    Raises ToolFailure where there is no such agent or session, nothing is left to give it, or it would be too deep.
    """
    turn_id = child_turn_id(context, part)
    store = of_project(sub_agents.store, context.project)
    try:
        kept = await store.turn(turn_id)
    except NotFound:
        delegation = await _delegation(sub_agents, context, order, part)
        kept = await sub_agents.keep(delegation, turn_id, LONGEST_S, parts)
    return _delegated(kept)


async def ask(sub_agents: SubAgents, context: Context, order: WorkOrder) -> tuple[Delegated, KeptTurn]:
    """The ended turn of an agent that was asked. Raises `Suspended` while it has not ended: the caller waits for it."""
    delegated = await delegate(sub_agents, context, order)
    kept = await of_project(sub_agents.store, context.project).turn(delegated.turn_id)
    if kept.ending is None:
        raise Suspended(delegated.turn_id, ())
    _read(context, delegated, kept)
    return delegated, kept


async def join(
    sub_agents: SubAgents,
    context: Context,
    orders: Sequence[WorkOrder],
    now: float,
    *,
    fail_fast: bool,
    deadline_s: float,
) -> list[JoinedTask]:
    """What came of several tasks, each a turn of its own. Raises `Suspended` while some have not ended.

    How long the caller waits follows from its tasks: until the last has ended, or the time for all of them is over.
    Then, and with `fail_fast` as soon as one has failed, those that have not ended are canceled; one that a living
    process runs at that moment cannot be, and goes on without being waited for.
    """
    if len(orders) > MOST_TASKS:
        raise ToolFailure(f"at most {MOST_TASKS} tasks can be joined, not {len(orders)}", code=Code.INVALID_PARAMS)
    again = [order.target for order in orders if order.strategy == "reuse"]
    if len(set(again)) < len(again):
        raise ToolFailure("the same session is named twice; an agent does one task at a time", code=Code.INVALID_PARAMS)
    store = of_project(sub_agents.store, context.project)
    begun = [await delegate(sub_agents, context, order, part, len(orders)) for part, order in enumerate(orders)]
    kept = {one.turn_id: await store.turn(one.turn_id) for one in begun}
    until = await _asked_at(store, context, now) + deadline_s
    failed = any(turn.ending is not None and turn.ending.status is not Status.SUCCESS for turn in kept.values())
    still = [one.turn_id for one in begun if kept[one.turn_id].ending is None]
    if still and now < until and not (fail_fast and failed):
        first, *others = still
        raise Suspended(first, (*map(ForTurn, others), Until(until, "the time for all tasks")))
    for turn_id in still:
        with suppress(Fenced):
            why = "The time for all tasks is over." if now >= until else "Another failed."
            await cancel_turn(store, turn_id, now, why)
    return [_joined(context, one, kept[one.turn_id], late=now >= until) for one in begun]


async def provision(
    sub_agents: SubAgents, context: Context, agent_id: str, profile: str, about: str, *, new: bool
) -> Delegated:
    """Keep an agent by name, ready to be given work: a session of a profile that begins with what it is.

    Its name belongs to the question at the bottom of it all. Raises ToolFailure for a `new` one that is there already.
    """
    worker = sub_agents.worker(profile)
    store = of_project(sub_agents.store, context.project)
    session = _named_session(context, agent_id)
    turn_id = str(uuid.uuid5(_CHILDREN, f"{context.project}\0{session}"))
    try:
        kept = await store.turn(turn_id)
    except NotFound:
        kept = None
    if kept is not None and kept.state == "ended":
        if new:
            raise ToolFailure(f"there is an agent {agent_id!r} already; reuse {session!r}", code=Code.INVALID_PARAMS)
        return _delegated(kept)
    if kept is None:
        turn = Turn(turn_id, context.project, worker.name, session, messages=(UserMessage(about),))
        await store.begin(turn)
    else:  # a process died over it
        turn = (await store.resume(turn_id)).opening
    await store.append_reply(turn, Reply(READY), [], [])
    await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, READY)), TurnStats())
    return Delegated(turn_id, turn.epoch, session, turn.agent)


async def find_agent(sub_agents: SubAgents, context: Context, agent_id: str) -> Delegated:
    """An agent that was provisioned under a name. Raises ToolFailure."""
    session = _named_session(context, agent_id)
    known = (await summaries(sub_agents.store, context)).get(session)
    if not known:
        raise ToolFailure(f"there is no agent {agent_id!r}; provision it first", code=Code.NOT_FOUND)
    return Delegated(known[-1].id, 1, session, known[-1].agent)


async def detached_call(sub_agents: SubAgents, context: Context, call_id: str) -> CallCard:
    """A call of the same agent that its turn did not wait for, of the newest ones. Raises ToolFailure."""
    cards = await of_project(sub_agents.store, context.project).calls(limit=_MOST_CALLS)
    for card in cards:
        if card.call.id == call_id and card.detached and card.agent == context.agent:
            return card
    raise ToolFailure(f"no call {call_id!r} of this agent runs on its own, or did", code=Code.NOT_FOUND)


def child_turn_id(context: Context, part: int) -> str:
    """The id of the turn that a call begins, or of one of several: the same each time the same call is made."""
    return str(uuid.uuid5(_CHILDREN, f"{context.project}\0{context.turn_id}\0{context.call_id}\0{part}"))


async def _delegation(sub_agents: SubAgents, context: Context, order: WorkOrder, part: int) -> Delegation:
    if order.strategy == "new":
        thread = new_thread(context)
        return Delegation(
            sub_agents.worker(order.target), order.instruction, f"{thread}-{part}" if part else thread, context
        )
    known = await summaries(sub_agents.store, context)
    session = order.target if order.target in known else _named_session(context, order.target)
    turns = known.get(session, [])
    if not session.startswith(SUB) or not turns:
        raise no_session(order.target, "; only an agent that was given work or provisioned can be reused")
    if session == context.thread or turns[0].state != "ended":
        raise ToolFailure(f"the agent of {session!r} is at work; wait until it has ended", code=Code.UNAVAILABLE)
    worker: SubAgentProfile = sub_agents.worker(turns[0].agent)
    return Delegation(worker, order.instruction, session, context, after=turns[0].id)


def _named_session(context: Context, agent_id: str) -> str:
    *place, _ = new_thread(context).split("/")
    return "/".join((*place, f"@{agent_id.replace('/', '-')}"))


async def _asked_at(store: Store, context: Context, now: float) -> float:
    """When the call was accepted: its time goes on while no process runs its turn."""
    cards = await store.calls(turn_id=context.turn_id, limit=_MOST_CALLS)
    return next((card.created_at for card in cards if card.call.id == context.call_id), now)


def _delegated(kept: KeptTurn) -> Delegated:
    turn = kept.opening
    return Delegated(turn.id, turn.epoch, turn.thread, turn.agent)


def _joined(context: Context, one: Delegated, kept: KeptTurn, *, late: bool) -> JoinedTask:
    ending = kept.ending
    if ending is None:
        status = Status.TIMEOUT if late else Status.CANCELED
        return JoinedTask(
            one, status, "", "its time was over" if late else "another task failed, so it was not waited for"
        )
    _read(context, one, kept)
    failed = ending.status in (Status.FAILED, Status.CANCELED)
    return JoinedTask(one, ending.status, "" if failed else ending.answer, ending.answer if failed else "")


def _read(context: Context, one: Delegated, kept: KeptTurn) -> None:
    """The caller's turn counts as having read what the agent has read."""
    pass_on(context, (*kept.opening.messages, *kept.events))
    context.read_from(f"agent:{one.agent}")
