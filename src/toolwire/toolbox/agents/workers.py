"""Workers and their delegations: who may be set to work, for whom, in which conversation, and with how much.

A sub-agent's conversation is a thread whose name says who sent it: `sub/ROOT/DEPTH/CALL`, where ROOT is the turn of a
person's question at the bottom of it all.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from toolwire.agent import Agent, Answer
from toolwire.errors import StoreError, Suspended, ToolFailure, ToolwireError
from toolwire.protocol.budgets import Allotment, least
from toolwire.protocol.chat import Message, untrusted_sources
from toolwire.protocol.context import Context
from toolwire.protocol.events import CallStarted, Event, TurnStarted
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Grant
from toolwire.protocol.turns import Limits

DEEPEST = 3
SUB = "sub/"
_ASKED_BY = "~"


class SubAgentProfile(Struct, frozen=True):
    """An agent that others may set to work. `make` gets the grant it will run under and gives a new agent.

    What `make` gives is used and left open: models, executors and stores belong to the author of `make`.
    """

    name: str
    description: str
    grant: Grant
    make: Callable[[Grant], Agent]


class DeviceView(Struct, frozen=True):
    """A device that runs an edge agent, as other agents see it."""

    name: str
    state: str
    tools: tuple[str, ...]
    running: int
    slots: int


class DeviceDirectory(Protocol):
    """The devices whose agents others may set to work: who is there, what each can do, and who suits best."""

    def devices(self) -> Sequence[DeviceView]: ...

    def choose(self, tool: str, key: str) -> str:
        """The device with a tool that is there and has the most room for work with this key; "" without any."""
        ...

    def worker(self, device: str) -> SubAgentProfile:
        """An agent that has the tools of this device, and no others."""
        ...


class Delegation(Struct, frozen=True):
    """What a sub-agent is to do, in which thread, and for whom; `after` is the thread's newest turn, if it has one.

    `limits` are what its turn has instead of the usual ones, before they are cut down to its share.
    """

    worker: SubAgentProfile
    question: str
    thread: str
    context: Context
    after: str = ""
    limits: Callable[[Limits], Limits] | None = None

    @property
    def root(self) -> str:
        return origin(self.context)[0]


class DelegatedWork(Struct):
    """A delegation with the share it may use, and the turn in which it is done, once that has begun."""

    delegation: Delegation
    share: Allotment
    own_time: bool
    turn_id: str = ""


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
    above = "".join(f"{_ASKED_BY}{_plain(name)}" for name in askers(context))
    return "/".join(("sub", _plain(root), str(depth), _plain(f"{context.turn_id[-12:]}-{context.call_id}{above}")))


def askers(context: Context) -> tuple[str, ...]:
    """The agents that wait for what comes of a call, from the first one to the one that makes it."""
    above = context.thread.split(_ASKED_BY)[1:] if context.thread.startswith(SUB) else []
    return (*above, context.agent)


def require_no_circle(delegation: Delegation) -> None:
    """Raise ToolFailure where an agent is asked that waits for this very answer, by way of others."""
    *above, asker = askers(delegation.context)
    name = _plain(delegation.worker.name)
    if name in above and name != _plain(asker):
        raise ToolFailure(f"{delegation.worker.name!r} waits for this answer itself; do this part yourself")


def _plain(name: str) -> str:
    return name.replace("/", "-") or "-"


def require_depth(delegation: Delegation) -> None:
    """Raise ToolFailure where agents have sent agents often enough."""
    if origin(delegation.context)[1] > DEEPEST:
        raise ToolFailure(f"agents may send agents {DEEPEST} deep; do this part yourself")


def pass_on(context: Context, messages: Iterable[Message]) -> None:
    """Say of a result that it was made of all that was read there: what a sub-agent has read its caller reads."""
    for source in untrusted_sources(messages):
        for place in source.uris or (f"tool:{source.name}",):
            context.read_from(place)


def within_share(limits: Limits, seconds: float, work: DelegatedWork) -> Limits:
    """Limits cut down to a share and to the time that is left."""
    return replace(
        limits,
        deadline_s=least(seconds, limits.deadline_s),
        tokens=least(limits.tokens, work.share.tokens),
        cost_usd=least(limits.cost_usd, work.share.cost_usd),
        own_time=work.own_time,
    )


async def ask_sub_agent(agent: Agent, work: DelegatedWork) -> Answer:
    """The agent's answer; what it cannot do is told in words that the caller's model can act on."""
    delegation = work.delegation

    def tell(event: Event) -> None:
        if isinstance(event, TurnStarted):
            work.turn_id = event.turn_id
        if isinstance(event, CallStarted):
            delegation.context.progress(f"{delegation.worker.name} uses {event.call.name}")

    try:
        if work.turn_id:
            return await agent.resume(work.turn_id, on_event=tell)
        return await agent.ask(delegation.question, thread=delegation.thread, on_event=tell)
    except (StoreError, ToolFailure, Suspended):
        raise
    except ToolwireError as error:
        raise ToolFailure(f"{delegation.worker.name} cannot work now: {error}", code=Code.UNAVAILABLE) from None
