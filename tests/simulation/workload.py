"""What a simulated fleet works on: turns with several steps, tools of all effect classes, and what these really do.

An outside ledger notes every effect at the moment when it happens, whatever the store hears of it. The model says what
the seed says for each step, however often it is asked, and looks whether all that it is told is in order.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tests.simulation.virtual_loop import PROCESS
from toolwire import Tier, tool
from toolwire.errors import ModelUnavailable
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Delta, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.context import Context
from toolwire.protocol.tools import BusService, Effect, Tool
from toolwire.testing import call, says
from toolwire.toolbox.agents.workers import DEEPEST

if TYPE_CHECKING:
    from toolwire import Agent, Grant

SUBJECT = "cg.v1r4.{project_id}.{channel_id}.cmd.tool."
SERVED = "cg.v1r4.*.*.cmd.tool."
THINGS, MACHINES = "things", "machines"
"""What workers serve, and what a service serves that has no access to the store."""

FAR = ("look", "put", "book", "pay", "send", "ask")
"""Tools that workers run."""
NEAR = ("peek", "post")
"""Tools that the process runs which runs the turn."""
DETACHED = ("mail", "sync", "jot")
"""Tools that no turn waits for: two of workers, and one of the process which runs the turn."""
FOREIGN = ("scan", "file", "order", "fax")
"""Tools of the foreign service; no turn waits for the last one."""
DELEGATING = ("ask_expert", "fork_join", "delegate_async")
"""Tools that set other agents to work."""

ONCE = frozenset(["book", "send", "ask", "post", "mail", "jot", "order", "fax"])
"""Tools of which no call may take effect twice: they are unsafe, or transactional without a journal."""

LONG, MOST_CHARS = 200, 500
"""Some results are too long for the model, so that the store keeps them apart: one more thing that can fail."""

HELPER = "helper"
"""The agent that others set to work."""
_TASK = "Do task "

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

    def take_effect(self, name: str, number: int, key: Key, told: str) -> None:
        done = self.effects.setdefault(key, [])
        if done and name == "pay":  # its journal knows the key
            return
        if done and (done[0].tool, done[0].number) != (name, number):
            self._violate(f"{key} stands for two different calls")
        process = PROCESS.get()
        if process.is_dead or process.is_paused:
            self._violate(f"{process.name} did {name} although it does not run")
        done.append(Effected(name, number, process.name, process.loop.time()))
        self._note(f"effect of {name} {number} ({key[1]}, {told})")
        if name in ONCE and len(done) > 1:
            self._violate(f"{name} {number} of {key} took effect {len(done)} times: {done}")


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of a tool with a number, or of one that gives `tasks` to other agents."""

    name: str
    number: int
    tasks: tuple[int, ...] = ()
    fail_fast: bool = False
    deadline_s: float = 900.0

    @property
    def arguments(self) -> dict[str, Any]:
        words = [f"{_TASK}{task}" for task in self.tasks]
        match self.name:
            case "ask_expert":
                return {"expert_profile": HELPER, "question": words[0]}
            case "delegate_async":
                return {"target_strategy": "new", "target_ref": HELPER, "instruction": words[0]}
            case "fork_join":
                orders = [{"target_strategy": "new", "target_ref": HELPER, "instruction": one} for one in words]
                return {"tasks": orders, "fail_fast": self.fail_fast, "deadline_seconds": self.deadline_s}
        return {"number": self.number}

    def is_made_by(self, made: ToolCall) -> bool:
        return made.name == self.name and made.arguments == self.arguments


Steps = tuple[tuple[PlannedCall, ...], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens in a turn: the calls of each step, and whether someone wants to cancel it.

    One that is the turn of an agent which another one sets to work has no id before it begins.
    """

    project: str
    turn_id: str
    begins_at: float
    steps: Steps
    canceled_at: float | None = None
    question: str = "Do it."


class Plans:
    """All turns of a run: those that a client begins, and the tasks that agents give to others, by number."""

    def __init__(self, begun: Sequence[Plan], tasks: Mapping[int, Plan]) -> None:
        self.begun = begun
        self.tasks = tasks
        self._by_key = {(plan.project, plan.turn_id): plan for plan in begun}
        calls = [one.name for plan in (*begun, *tasks.values()) for step in plan.steps for one in step]
        self.has_foreign = any(name in FOREIGN for name in calls)

    def of(self, project: str, turn_id: str, question: str) -> Plan:
        """Raises KeyError for a turn that was never planned."""
        if question.startswith(_TASK):
            plan = self.tasks[int(question.removeprefix(_TASK))]
            if plan.project == project:
                return plan
        return self._by_key[project, turn_id]


_WORKERS = ([*FAR, *FAR, *NEAR], [*FAR, *FAR, *NEAR], [*FAR], ["look", "put", "pay"])
_DETACHED = [*DETACHED, *DETACHED, "look", "send"]
_SERVICE = [*FOREIGN, *FOREIGN, "put", "send"]
_TASKS = [*FAR, *NEAR, *DELEGATING, *DELEGATING]
_EVERYTHING = [*FAR, *NEAR, *DETACHED, *FOREIGN, *DELEGATING]

MIXTURES = {
    "": (*_WORKERS, _DETACHED, _SERVICE, _TASKS, _EVERYTHING),
    "workers": _WORKERS,
    "detached": (_DETACHED,),
    "service": (_SERVICE,),
    "tasks": (_TASKS,),
    "canceled": (_DETACHED,),
}
"""The tools of which a run draws its calls; a part of the protocol alone shows more of it in fewer runs."""
_CANCELED = 0.15
"""Of so many turns someone wants to cancel them."""


class _Draft:
    """Draws the turns of a run, and numbers their calls and tasks."""

    def __init__(self, random: Random, names: Sequence[str], canceled: float) -> None:
        self._random = random
        self._canceled = canceled
        self._names = names
        self._plain = [name for name in names if name not in DELEGATING]
        self._number = self._depth = 0
        self.tasks: dict[int, Plan] = {}

    def steps(self, project: str, most: int, names: Sequence[str]) -> Steps:
        random = self._random
        return tuple(
            tuple(self._call(project, random.choice(names)) for _ in range(random.choice((1, 1, 2, 3)[: most + 1])))
            for _ in range(random.randint(1, most))
        )

    def _call(self, project: str, name: str) -> PlannedCall:
        self._number += 1
        number = self._number
        if name not in DELEGATING:
            return PlannedCall(name, number)
        random = self._random
        parts = random.randint(1, 3) if name == "fork_join" else 1
        tasks = tuple(self._task(project) for _ in range(parts))
        return PlannedCall(name, number, tasks, random.random() < 0.5, random.choice((6.0, 900.0, 900.0)))

    def _task(self, project: str) -> int:
        """A task of one step. A few give a part of it to yet another agent, which is at most the third."""
        random = self._random
        self._number += 1
        number = self._number
        self._depth += 1
        names = ["ask_expert"] if random.random() < 0.15 and self._depth < DEEPEST else self._plain
        canceled_at = random.uniform(0.1, 12.0) if random.random() < self._canceled else None
        steps = self.steps(project, 1, names)
        self._depth -= 1
        self.tasks[number] = Plan(project, "", 0.0, steps, canceled_at, f"{_TASK}{number}")
        return number

    def plans(self) -> Plans:
        """One to four turns. Two projects may use the same ids."""
        random = self._random
        projects = ["red", "blue"] if random.random() < 0.3 else ["red"]
        delegates = len(self._plain) < len(self._names)
        begun = []
        for place in range(random.randint(1, 2 if delegates else 4)):
            project = projects[place % len(projects)]
            steps = self.steps(project, 2 if delegates else 3, self._names)
            canceled_at = random.uniform(0.1, 12.0) if random.random() < self._canceled else None
            begun.append(Plan(project, f"turn-{place // len(projects)}", random.uniform(0.0, 3.0), steps, canceled_at))
        return Plans(begun, self.tasks)


def draw_plans(random: Random, part: str = "") -> Plans:
    return _Draft(random, random.choice(MIXTURES[part]), 1.0 if part == "canceled" else _CANCELED).plans()


class Surroundings:
    """What the tools of a run meet: the ledger of the outside, and chance. In some runs they take long."""

    def __init__(
        self, ledger: OutsideLedger, random: Random, stores: Mapping[str, Any], help_out: "Callable[[Grant], Agent]"
    ) -> None:
        self.ledger = ledger
        self.stores = stores
        self.help_out = help_out
        self._random = random
        self._pace = random.choice((0.3, 1.0, 3.0))

    async def take_time(self) -> None:
        await asyncio.sleep(self._random.random() * self._random.choice((0.01, 0.3, 3.0)) * self._pace)


def result_text(name: str, number: int, project: str) -> str:
    return f"{name} {number} done for {project}" + " and more" * (LONG if number % 3 == 0 else 0)


def _define(name: str, effect: Effect, **more: Any) -> Tool:
    async def work(number: int, context: Context) -> str:
        """Do a thing."""
        run: Surroundings = PROCESS.get().loop.surroundings
        await run.take_time()
        if effect is not Effect.PURE:
            key = (context.project, context.idempotency_key)
            run.ledger.take_effect(name, number, key, f"attempt {context.attempt}")
        await run.take_time()
        return result_text(name, number, context.project)

    work.__name__ = name
    made = tool(effect=effect, tier=Tier.WALK, **more)(work)
    assert isinstance(made, Tool)
    return made


_LEAVES = AfterExecution.DETACH
_SERVICE_S = {"timeout_s": 3.0, "max_timeout_s": 3.0}

TOOLS = {
    "look": _define("look", Effect.PURE),
    "put": _define("put", Effect.IDEMPOTENT),
    "book": _define("book", Effect.TRANSACTIONAL),
    "pay": _define("pay", Effect.TRANSACTIONAL, journaled=True),
    "send": _define("send", Effect.UNSAFE),
    "ask": _define("ask", Effect.UNSAFE, requires_confirmation=True),
    "peek": _define("peek", Effect.PURE),
    "post": _define("post", Effect.UNSAFE),
    "mail": _define("mail", Effect.UNSAFE),
    "sync": _define("sync", Effect.IDEMPOTENT),
    "jot": _define("jot", Effect.UNSAFE, after_execution=_LEAVES),
    "scan": _define("scan", Effect.PURE, **_SERVICE_S),
    "file": _define("file", Effect.IDEMPOTENT, **_SERVICE_S),
    "order": _define("order", Effect.UNSAFE, **_SERVICE_S),
    "fax": _define("fax", Effect.UNSAFE, **_SERVICE_S),
}
"""The tools as the processes that run them know them; made once, since that takes a tenth of the time of a run."""

OF_WORKERS = [one for name, one in TOOLS.items() if name in (*FAR, "mail", "sync")]


def _as_called(name: str, one: Tool) -> Tool:
    """A tool as turns know it: those of workers and of the service are behind the bus."""
    if name in ("jot", *NEAR):
        return one
    waits = AfterExecution.DETACH if name in ("mail", "sync", "fax") else AfterExecution.SUSPEND
    return replace(one, target=BusService(SUBJECT + (MACHINES if name in FOREIGN else THINGS), waits))


CALLED = {name: _as_called(name, one) for name, one in TOOLS.items()}


class PlannedModel:
    """Says what is planned for each step. What it is told must hold each result once, in the order of the calls."""

    name = "planned:model"

    def __init__(
        self,
        project: str,
        plans: Plans,
        random: Random,
        violate: Callable[[str], None],
        reach: Callable[[str, str], Awaitable[object]],
        told: dict[tuple[str, str], str],
        *,
        fails: float,
        slow_s: float = 1.0,
    ) -> None:
        """In `told` stands what models of this run were told, by project and call."""
        self._project = project
        self._plans = plans
        self._random = random
        self._violate = violate
        self._reach = reach
        self._told = told
        self._slow_s = slow_s
        self.fails = fails

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        asked = next(one.text for one in request.messages if isinstance(one, UserMessage))
        steps = self._plans.of(self._project, request.conversation, asked).steps
        replies = [one for one in request.messages if isinstance(one, Reply)]
        results = [one for one in request.messages if isinstance(one, ResultsMessage)]
        self._check(replies, results)
        await asyncio.sleep(self._random.random() * self._random.choice((0.01, self._slow_s)))
        await self._reach("ask model", "before")
        if self._random.random() < self.fails:
            raise ModelUnavailable("the planned model is overloaded")
        if len(replies) >= len(steps):
            return says(final_answer(asked, self._project))
        return says("", *(call(one.name, **one.arguments) for one in steps[len(replies)]))

    def _check(self, replies: list[Reply], results: list[ResultsMessage]) -> None:
        asked = [[one.id for one in reply.calls] for reply in replies]
        told = [[one.call_id for one in message.results] for message in results]
        if asked != told:
            self._violate(f"the model asked for {asked} and was told of {told}")
        for message in results:
            for result in message.results:
                said = self._told.setdefault((self._project, result.call_id), result.text)
                if said != result.text:
                    self._violate(f"the model is told of {result.call_id}: {result.text!r}, and was told: {said!r}")
                if result.ok and not any(mark in result.text for mark in (f" for {self._project}", *_RECEIPTS)):
                    self._violate(f"a result of another project came to {self._project}: {result.text}")

    async def close(self) -> None:
        """It holds nothing."""


_RECEIPTS = ("runs on its own", '"accepted":true', '"timeout"', '"canceled"')
"""What is told of calls that give nothing of their own."""


def final_answer(question: str, project: str) -> str:
    return f"All done for {project}: {question}"
