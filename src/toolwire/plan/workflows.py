"""Workflows: steps that call tools, in the order of what they need from each other. Pure.

`progress` reads what has happened so far and says which steps run next, so that a workflow goes on after a crash by
asking again, like a turn does.
"""

import re
from collections import ChainMap
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from toolwire.plan.conditions import BadCondition, Condition, holds
from toolwire.plan.references import LONGEST_INPUT, BadReference, Room, find_references, resolve

MOST_STEPS = 2_000
MOST_ITEMS = 10_000
MOST_ATTEMPTS = 10
MOST_CALLS = 1_000_000
CALLS_PER_ROUND = 1_000
CHARS_PER_ROUND = 4 * LONGEST_INPUT
"""So much is given to the calls of one round; the others come after them."""
LONGEST_DELAY_S = 60.0
MOST_PARALLEL = 1_000
INPUTS, ITEM, INDEX = "inputs", "item", "index"
"""Names that references may use besides those of steps; the last two only in a step that maps over a list."""


class WorkflowStep(Struct, frozen=True):
    """One call of a tool, or one for each item of a list (`for_each`)."""

    id: str
    tool: str
    input: Mapping[str, Any]
    after: frozenset[str] = frozenset()
    timeout_s: float | None = None
    attempts: int = 1
    delay_s: float = 0.0
    continue_on_error: bool = False
    when: Condition | None = None
    for_each: Any = None


class Workflow(Struct, frozen=True):
    """Steps in an order in which they can run, each after all that it needs."""

    steps: tuple[WorkflowStep, ...]
    name: str = ""
    inputs: Mapping[str, Any] | None = None
    parallel: int = 5

    def step(self, step_id: str) -> WorkflowStep:
        return next(step for step in self.steps if step.id == step_id)

    def uses_input(self, name: str) -> bool:
        """Whether a step refers to this input, or to all of them."""
        for step in self.steps:
            used = (
                *find_references(step.input),
                *find_references(step.for_each),
                *(step.when.references if step.when else ()),
            )
            if any(one.name == INPUTS and (not one.path or str(one.path[0]) == name) for one in used):
                return True
        return False

    def most_rounds(self) -> int:
        """In so many rounds it has surely ended, with at least one call in each."""
        return sum(step.attempts * (1 if step.for_each is None else MOST_ITEMS) for step in self.steps)

    def levels(self) -> tuple[tuple[str, ...], ...]:
        """The ids of steps that can run together, level by level."""
        depth: dict[str, int] = {}
        for step in self.steps:
            depth[step.id] = 1 + max((depth[one] for one in step.after), default=-1)
        found: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
        for step in self.steps:
            found[depth[step.id]].append(step.id)
        return tuple(map(tuple, found))


class StepState(StrEnum):
    """How a step stands."""

    WAITING = "waiting"
    SUCCESS = "success"
    FAILED = "failed"
    SKIPPED = "skipped"


class StepCall(Struct, frozen=True):
    """A call that a step wants: `key` says of which step, item and attempt it is."""

    key: str
    tool: str
    arguments: Mapping[str, Any]
    timeout_s: float | None = None
    delay_s: float = 0.0


class CallOutcome(Struct, frozen=True):
    """What came of a step's call: its output, or why it failed."""

    output: Any = None
    error: str = ""


Outcomes = Mapping[str, CallOutcome]
"""What came of calls so far, by key."""


def call_key(step_id: str, item: int | None, attempt: int) -> str:
    """The key of a call: `fetch`, `fetch[3]` for an item, `fetch#2` for a second attempt."""
    part = "" if item is None else f"[{item}]"
    return f"{step_id}{part}" if attempt == 1 else f"{step_id}{part}#{attempt}"


class WorkflowProgress(Struct, frozen=True):
    """A workflow so far: states and outputs of its steps, errors, the order in which they ended, and what runs next.

    Nothing runs next where all steps have ended, or one has failed that the others cannot go on without.
    """

    states: Mapping[str, StepState]
    outputs: Mapping[str, Any]
    errors: Mapping[str, str]
    order: tuple[str, ...]
    calls: tuple[StepCall, ...]

    @property
    def failed(self) -> bool:
        return any(state is StepState.FAILED for state in self.states.values())

    def report(self) -> dict[str, Any]:
        """The result of the workflow as its tool gives it."""
        skipped = [one for one, state in self.states.items() if state is StepState.SKIPPED]
        return {
            "results": dict(self.outputs),
            "executionOrder": list(self.order),
            "errors": dict(self.errors),
            "skipped": skipped,
        }


def progress(workflow: Workflow, outcomes: Outcomes) -> WorkflowProgress:
    """How a workflow stands after these outcomes, and which calls it wants next."""
    folded = _Folded(workflow, outcomes)
    for step in workflow.steps:
        folded.add(step)
    stopped = any(folded.states[step.id] is StepState.FAILED and not step.continue_on_error for step in workflow.steps)
    calls = () if stopped else tuple(folded.calls)
    order = _order(workflow, outcomes, folded.states)
    return WorkflowProgress(folded.states, folded.outputs, folded.errors, order, calls)


class _Folded:
    """Steps in their order, each read once all before it are known."""

    def __init__(self, workflow: Workflow, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._known: dict[str, Any] = {INPUTS: workflow.inputs or {}}
        self.states: dict[str, StepState] = {}
        self.outputs: dict[str, Any] = {}
        self.errors: dict[str, str] = {}
        self.calls: list[StepCall] = []
        self._left = CHARS_PER_ROUND

    def add(self, step: WorkflowStep) -> None:
        before = [self.states[one] for one in step.after]
        if any(state in (StepState.FAILED, StepState.SKIPPED) for state in before):
            self.states[step.id] = StepState.SKIPPED
            return
        if StepState.WAITING in before:
            self.states[step.id] = StepState.WAITING
            return
        try:
            if step.when is not None and not holds(step.when, self._known):
                self.states[step.id] = StepState.SKIPPED
                return
            if step.for_each is None:
                self._single(step)
            else:
                self._mapped(step)
        except (BadReference, BadCondition) as wrong:
            self._fail(step, str(wrong))
        except RecursionError:
            self._fail(step, "what it refers to is nested too deep")

    def _single(self, step: WorkflowStep) -> None:
        outcome = self._outcome(step, None, self._known)
        if outcome is None:
            self.states[step.id] = StepState.WAITING
        elif outcome.error:
            self._fail(step, outcome.error)
        else:
            self._succeed(step, outcome.output)

    def _mapped(self, step: WorkflowStep) -> None:
        items = resolve(step.for_each, self._known)
        if not isinstance(items, list):
            raise BadReference(f"forEach of {step.id!r} is not a list")
        if len(items) > MOST_ITEMS:
            raise BadReference(f"forEach of {step.id!r} has {len(items)} items; at most {MOST_ITEMS} are allowed")
        outcomes = [
            self._outcome(step, index, ChainMap({ITEM: item, INDEX: index}, self._known))
            for index, item in enumerate(items)
        ]
        failed = [f"item {n}: {one.error}" for n, one in enumerate(outcomes) if one is not None and one.error]
        if None in outcomes:
            self.states[step.id] = StepState.WAITING
        elif failed:
            self.outputs[step.id] = [one.output if one is not None else None for one in outcomes]
            self._fail(step, "; ".join(failed[:10]))
        else:
            self._succeed(step, [one.output for one in outcomes if one is not None])

    def _outcome(self, step: WorkflowStep, item: int | None, known: Mapping[str, Any]) -> CallOutcome | None:
        """What came of a call in the end; None while it runs or is to be tried, for which it then is among `calls`."""
        for attempt in range(1, step.attempts + 1):
            key = call_key(step.id, item, attempt)
            outcome = self._outcomes.get(key)
            if outcome is None:
                if len(self.calls) < CALLS_PER_ROUND and self._left > 0:
                    room = Room()
                    arguments = resolve(step.input, known, room)
                    self._left -= LONGEST_INPUT - room.left
                    delay_s = step.delay_s if attempt > 1 else 0.0
                    self.calls.append(StepCall(key, step.tool, arguments, step.timeout_s, delay_s))
                return None
            if not outcome.error or attempt == step.attempts:
                return outcome
        return None

    def _fail(self, step: WorkflowStep, error: str) -> None:
        self.states[step.id] = StepState.FAILED
        self.errors[step.id] = error

    def _succeed(self, step: WorkflowStep, output: Any) -> None:
        self.states[step.id] = StepState.SUCCESS
        self.outputs[step.id] = self._known[step.id] = output


def _order(workflow: Workflow, outcomes: Outcomes, states: Mapping[str, StepState]) -> tuple[str, ...]:
    """The steps that have ended, in the order of their last outcomes."""
    ended = {step.id for step in workflow.steps if states[step.id] in (StepState.SUCCESS, StepState.FAILED)}
    last: dict[str, int] = {}
    for place, key in enumerate(outcomes):
        last[re.split(r"[\[#]", key, maxsplit=1)[0]] = place
    return tuple(sorted((one for one in last if one in ended), key=last.__getitem__))
