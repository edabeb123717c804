"""What a simulated fleet works on: turns with several steps, tools of all effect classes, and what these really do.

An outside ledger notes every effect at the moment when it happens, whatever the store hears of it. The model says what
the seed says for each step, however often it is asked, and looks whether all that it is told is in order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

from tests.simulation.virtual_loop import PROCESS
from toolwire import Tier, tool
from toolwire.errors import ModelUnavailable
from toolwire.protocol.chat import Delta, Reply, Request, ResultsMessage
from toolwire.protocol.context import Context
from toolwire.protocol.tools import BusService, Effect, Tool
from toolwire.protocol.values import dataclass, replace
from toolwire.testing import call, says

SUBJECT = "cg.v1r4.{project_id}.{channel_id}.cmd.tool.things"
SERVED = "cg.v1r4.*.*.cmd.tool.things"

FAR = ("look", "put", "book", "pay", "send", "ask")
"""Tools that workers run."""
NEAR = ("peek", "post")
"""Tools that the process runs which runs the turn."""

ONCE = frozenset(["book", "send", "ask", "post"])
"""Tools of which no call may take effect twice: they are unsafe, or transactional without a journal."""

LONG, MOST_CHARS = 200, 500
"""Some results are too long for the model, so that the store keeps them apart: one more thing that can fail."""

Key = tuple[str, str]
"""A project, and the idempotency key of a call in it."""


@dataclass(frozen=True, slots=True)
class Effected:
    tool: str
    number: int
    process: str
    at: float


class OutsideLedger:
    """What tools did to the world, by call."""

    def __init__(self, violate: Callable[[str], None], note: Callable[[str], None]) -> None:
        self.effects: dict[Key, list[Effected]] = {}
        self._violate = violate
        self._note = note

    def take_effect(self, name: str, number: int, context: Context) -> None:
        key = (context.project, context.idempotency_key)
        done = self.effects.setdefault(key, [])
        if done and name == "pay":  # its journal knows the key
            return
        if done and (done[0].tool, done[0].number) != (name, number):
            self._violate(f"{key} stands for two different calls")
        process = PROCESS.get()
        if process.is_dead or process.is_paused:
            self._violate(f"{process.name} did {name} although it does not run")
        done.append(Effected(name, number, process.name, process.loop.time()))
        self._note(f"effect of {name} {number} ({context.idempotency_key}, attempt {context.attempt})")
        if name in ONCE and len(done) > 1:
            self._violate(f"{name} {number} of {key} took effect {len(done)} times: {done}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens in a turn: the calls of each step, and whether someone wants to cancel it."""

    project: str
    turn_id: str
    begins_at: float
    steps: tuple[tuple[tuple[str, int], ...], ...]
    canceled_at: float | None = None


def draw_plans(random: Random) -> list[Plan]:
    """One to four turns. Two projects may use the same ids."""
    projects = ["red", "blue"] if random.random() < 0.3 else ["red"]
    names = random.choice(([*FAR, *FAR, *NEAR], [*FAR, *FAR, *NEAR], [*FAR], ["look", "put", "pay"]))
    plans = []
    number = 0
    for place in range(random.randint(1, 4)):
        steps = []
        for _ in range(random.randint(1, 3)):
            step = []
            for _ in range(random.choice((1, 1, 2, 3))):
                number += 1
                step.append((random.choice(names), number))
            steps.append(tuple(step))
        canceled_at = random.uniform(0.1, 12.0) if random.random() < 0.15 else None
        project = projects[place % len(projects)]
        plans.append(
            Plan(project, f"turn-{place // len(projects)}", random.uniform(0.0, 3.0), tuple(steps), canceled_at)
        )
    return plans


class Surroundings:
    """What the tools of a run meet: the ledger of the outside, and chance. In some runs they take long."""

    def __init__(self, ledger: OutsideLedger, random: Random) -> None:
        self.ledger = ledger
        self._random = random
        self._pace = random.choice((0.3, 1.0, 3.0))

    async def take_time(self) -> None:
        await asyncio.sleep(self._random.random() * self._random.choice((0.01, 0.3, 3.0)) * self._pace)


def _define(name: str, effect: Effect, **more: Any) -> Tool:
    async def work(number: int, context: Context) -> str:
        """Do a thing."""
        run: Surroundings = PROCESS.get().loop.surroundings
        await run.take_time()
        if effect is not Effect.PURE:
            run.ledger.take_effect(name, number, context)
        await run.take_time()
        return f"{name} {number} done for {context.project}" + " and more" * (LONG if number % 3 == 0 else 0)

    work.__name__ = name
    made = tool(effect=effect, tier=Tier.WALK, **more)(work)
    assert isinstance(made, Tool)
    return made


TOOLS = {
    "look": _define("look", Effect.PURE),
    "put": _define("put", Effect.IDEMPOTENT),
    "book": _define("book", Effect.TRANSACTIONAL),
    "pay": _define("pay", Effect.TRANSACTIONAL, journaled=True),
    "send": _define("send", Effect.UNSAFE),
    "ask": _define("ask", Effect.UNSAFE, requires_confirmation=True),
    "peek": _define("peek", Effect.PURE),
    "post": _define("post", Effect.UNSAFE),
}
"""The tools as the processes that run them know them; made once, since that takes a tenth of the time of a run."""

CALLED = [replace(one, target=BusService(SUBJECT)) if name in FAR else one for name, one in TOOLS.items()]
"""The tools as turns know them: those of workers are behind the bus."""


class PlannedModel:
    """Says what is planned for each step. What it is told must hold each result once, in the order of the calls."""

    name = "planned:model"

    def __init__(
        self,
        project: str,
        plans: Mapping[Key, Plan],
        random: Random,
        violate: Callable[[str], None],
        reach: Callable[[str, str], Awaitable[None]],
        *,
        fails: float,
    ) -> None:
        self._project = project
        self._plans = plans
        self._random = random
        self._violate = violate
        self._reach = reach
        self.fails = fails

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        steps = self._plans[self._project, request.conversation].steps
        replies = [one for one in request.messages if isinstance(one, Reply)]
        results = [one for one in request.messages if isinstance(one, ResultsMessage)]
        self._check(replies, results)
        await asyncio.sleep(self._random.random() * self._random.choice((0.01, 1.0)))
        await self._reach("ask model", "before")
        if self._random.random() < self.fails:
            raise ModelUnavailable("the planned model is overloaded")
        if len(replies) >= len(steps):
            return says("All done.")
        return says("", *(call(name, number=number) for name, number in steps[len(replies)]))

    def _check(self, replies: list[Reply], results: list[ResultsMessage]) -> None:
        asked = [[one.id for one in reply.calls] for reply in replies]
        told = [[one.call_id for one in message.results] for message in results]
        if asked != told:
            self._violate(f"the model asked for {asked} and was told of {told}")
        for message in results:
            for result in message.results:
                if result.ok and f"done for {self._project}" not in result.text:
                    self._violate(f"a result of another project came to {self._project}: {result.text}")

    async def close(self) -> None:
        """It holds nothing."""
