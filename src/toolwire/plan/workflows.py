"""Workflows: steps that call tools, in the order of what they need from each other. Pure.

`read_workflow` refuses whatever can be known to be wrong before anything runs. `next_calls` reads what has happened so
far and says which steps run next, so that a workflow goes on after a crash by asking again, like a turn does.
"""

import re
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from toolwire.plan.conditions import BadCondition, Condition, holds, read_condition
from toolwire.plan.references import NAME, BadReference, find_references, resolve
from toolwire.protocol.values import dataclass

MOST_STEPS = 2_000
MOST_ITEMS = 10_000
MOST_ATTEMPTS = 10
LONGEST_DELAY_S = 60.0
MOST_PARALLEL = 1_000
INPUTS, ITEM, INDEX = "inputs", "item", "index"
"""Names that references may use besides those of steps; the last two only in a step that maps over a list."""

_ID = re.compile(NAME)
_MOST_FAULTS = 20
_STEP_FIELDS = frozenset(
    "id tool input dependencies timeout retry continueOnError when forEach description".split()
)  # fmt: skip
_OTHER_NAMES = {
    "depends_on": "dependencies",
    "dependsOn": "dependencies",
    "needs": "dependencies",
    "continue_on_error": "continueOnError",
    "for_each": "forEach",
    "map": "forEach",
    "if": "when",
    "condition": "when",
    "args": "input",
    "arguments": "input",
    "timeout_s": "timeout",
}


class BadWorkflow(ValueError):
    """A workflow that cannot be run, with everything that is wrong with it."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class WorkflowStep:
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


@dataclass(frozen=True, slots=True)
class Workflow:
    """Steps in an order in which they can run, each after all that it needs."""

    steps: tuple[WorkflowStep, ...]
    name: str = ""
    inputs: Mapping[str, Any] | None = None
    parallel: int = 5

    def step(self, step_id: str) -> WorkflowStep:
        return next(step for step in self.steps if step.id == step_id)

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


def read_workflow(data: Any, tools: Iterable[str] | None = None) -> Workflow:
    """The workflow that an object of JSON, YAML or TOML describes. Raises BadWorkflow with all faults.

    With `tools`, a step that calls any other tool is one.
    """
    if not isinstance(data, Mapping):
        raise BadWorkflow(["a workflow is an object with a list of steps"])
    raw = data.get("steps")
    if not isinstance(raw, (list, tuple)) or not raw:
        raise BadWorkflow(["steps must be a list with at least one step"])
    if len(raw) > MOST_STEPS:
        raise BadWorkflow([f"a workflow has at most {MOST_STEPS} steps; this has {len(raw)}"])
    faults: list[str] = []
    steps = [step for number, one in enumerate(raw, 1) if (step := _read_step(one, number, faults)) is not None]
    inputs = data.get("inputs", {})
    if not isinstance(inputs, Mapping):
        faults.append("inputs must be an object")
        inputs = {}
    _check_ids(steps, faults)
    _check_tools(steps, tools, faults)
    steps = _with_inferred(steps, inputs, faults)
    ordered = _ordered(steps, faults)
    parallel = _whole(data.get("parallel", 5), 1, MOST_PARALLEL, "parallel", faults)
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        raise BadWorkflow([*faults[:_MOST_FAULTS], *more])
    return Workflow(tuple(ordered), str(data.get("name", ""))[:200], dict(inputs), parallel)


def _read_step(raw: Any, number: int, faults: list[str]) -> WorkflowStep | None:
    if not isinstance(raw, Mapping):
        faults.append(f"step {number} is not an object")
        return None
    fields: dict[str, Any] = {}
    for key, value in raw.items():
        name = _OTHER_NAMES.get(str(key), str(key))
        if name in fields:
            faults.append(f"step {number} says {name} twice, once as {key}")
        fields[name] = value
    step_id, tool = fields.get("id"), fields.get("tool")
    if not isinstance(step_id, str) or not _ID.fullmatch(step_id) or len(step_id) > 100:
        faults.append(f"step {number} needs an id of letters, digits, - and _ that begins with a letter")
        return None
    where = f"step {step_id!r}"
    if not isinstance(tool, str) or not tool:
        faults.append(f"{where} needs the name of a tool")
        return None
    if unknown := sorted(str(key)[:40] for key in fields.keys() - _STEP_FIELDS):
        faults.append(
            f"{where} has unknown fields: {', '.join(unknown[:5])}; known are {', '.join(sorted(_STEP_FIELDS))}"
        )
    given = fields.get("input", {})
    if not isinstance(given, Mapping):
        faults.append(f"the input of {where} must be an object")
        given = {}
    attempts, delay_s = _read_retry(fields.get("retry"), where, faults)
    return WorkflowStep(
        step_id,
        tool,
        given,
        frozenset(_read_names(fields.get("dependencies", ()), where, faults)),
        _read_seconds(fields.get("timeout"), f"timeout of {where}", faults),
        attempts,
        delay_s,
        _read_flag(fields.get("continueOnError", False), f"continueOnError of {where}", faults),
        _read_when(fields.get("when"), where, faults),
        fields.get("forEach"),
    )


def _read_names(value: Any, where: str, faults: list[str]) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        faults.append(f"dependencies of {where} must be a list of step ids")
        return ()
    return tuple(names)


def _read_retry(value: Any, where: str, faults: list[str]) -> tuple[int, float]:
    """How often a step is tried and how long is waited between: `3`, or `{"attempts": 3, "delay": 1.5}`."""
    match value:
        case None:
            return 1, 0.0
        case Mapping() if value.keys() <= {"attempts", "delay"}:
            attempts = _whole(value.get("attempts", 2), 1, MOST_ATTEMPTS, f"retry.attempts of {where}", faults)
            delay = value.get("delay", 0.0)
            if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay <= LONGEST_DELAY_S:
                faults.append(f"retry.delay of {where} must be 0 to {LONGEST_DELAY_S:g} seconds")
                delay = 0.0
            return attempts, float(delay)
        case int() if not isinstance(value, bool):
            return _whole(value, 1, MOST_ATTEMPTS, f"retry of {where}", faults), 0.0
        case _:
            faults.append(f"retry of {where} must be a number of attempts, or an object with attempts and delay")
            return 1, 0.0


def _read_when(value: Any, where: str, faults: list[str]) -> Condition | None:
    if value is None:
        return None
    if not isinstance(value, str):
        faults.append(f"when of {where} must be a text such as ${{step.count}} > 3")
        return None
    try:
        return read_condition(value)
    except BadCondition as wrong:
        faults.append(f"when of {where}: {wrong}")
        return None


def _read_seconds(value: Any, what: str, faults: list[str]) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 86_400:
        faults.append(f"{what} must be a number of seconds up to a day")
        return None
    return float(value)


def _read_flag(value: Any, what: str, faults: list[str]) -> bool:
    if not isinstance(value, bool):
        faults.append(f"{what} must be true or false")
        return False
    return value


def _whole(value: Any, least: int, most: int, what: str, faults: list[str]) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        faults.append(f"{what} must be a whole number from {least} to {most}")
        return least
    return value


def _check_ids(steps: Sequence[WorkflowStep], faults: list[str]) -> None:
    seen: set[str] = set()
    for step in steps:
        if step.id in seen:
            faults.append(f"two steps have the id {step.id!r}")
        if step.id in (INPUTS, ITEM, INDEX):
            faults.append(f"no step can have the id {step.id!r}, which has a meaning of its own")
        seen.add(step.id)


def _check_tools(steps: Iterable[WorkflowStep], tools: Iterable[str] | None, faults: list[str]) -> None:
    if tools is None:
        return
    known = frozenset(tools)
    faults.extend(
        f"step {step.id!r} calls {step.tool!r}, which is not a tool here" for step in steps if step.tool not in known
    )


def _with_inferred(steps: Iterable[WorkflowStep], inputs: Mapping[str, Any], faults: list[str]) -> list[WorkflowStep]:
    """Steps that also come after those whose values they use."""
    steps = list(steps)
    ids = {step.id for step in steps}
    found = []
    for step in steps:
        where = f"step {step.id!r}"
        faults.extend(f"{where} depends on {one!r}, which is not a step" for one in sorted(step.after - ids))
        try:
            used = {*find_references(step.input)}
            listed = set(find_references(step.for_each))
        except BadReference as wrong:
            faults.append(f"{where}: {wrong}")
            used = listed = set()
        conditions = set(step.when.references) if step.when is not None else set()
        own = {ITEM, INDEX} if step.for_each is not None else set()
        for one in sorted(used | listed | conditions, key=str):
            allowed = own if one in used else set()
            if one.name == INPUTS:
                if one.path and str(one.path[0]) not in inputs:
                    faults.append(f"{where}: {one} names an input that the workflow does not have")
            elif one.name not in ids and one.name not in allowed:
                faults.append(f"{where}: {one} names no step")
        names = {one.name for one in used | listed | conditions} & ids
        found.append(
            WorkflowStep(
                step.id, step.tool, step.input, (step.after & ids) | names, step.timeout_s, step.attempts, step.delay_s,
                step.continue_on_error, step.when, step.for_each,
            )
        )  # fmt: skip
    return found


def _ordered(steps: Sequence[WorkflowStep], faults: list[str]) -> list[WorkflowStep]:
    """Every step after those that it needs, otherwise in the order given; a circle is a fault that names it."""
    waiting = {step.id: len(step.after) for step in steps}
    needed_by: dict[str, list[str]] = {}
    for step in steps:
        for one in step.after:
            needed_by.setdefault(one, []).append(step.id)
    ready = [step.id for step in steps if not step.after]
    depth = dict.fromkeys(ready, 0)
    for one in ready:  # grows while it is read
        for other in needed_by.get(one, ()):
            waiting[other] -= 1
            depth[other] = max(depth.get(other, 0), depth[one] + 1)
            if waiting[other] == 0:
                ready.append(other)
    if len(ready) < len(waiting):
        faults.append(f"these steps need each other in a circle: {' -> '.join(_circle(steps, set(ready)))}")
        return list(steps)
    return sorted(steps, key=lambda step: depth[step.id])


def _circle(steps: Iterable[WorkflowStep], done: set[str]) -> list[str]:
    """One circle among the steps that never get ready."""
    after = {step.id: sorted(step.after - done) for step in steps if step.id not in done}
    way: list[str] = []
    one = next(iter(after))
    while one not in way:
        way.append(one)
        one = after[one][0]
    return [*way[way.index(one) :], one][:20]


@dataclass(frozen=True, slots=True)
class StepCall:
    """A call that a step wants: `key` says of which step, item and attempt it is."""

    key: str
    tool: str
    arguments: Mapping[str, Any]
    timeout_s: float | None = None
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What came of a step's call: its output, or why it failed."""

    output: Any = None
    error: str = ""


Outcomes = Mapping[str, CallOutcome]
"""What came of calls so far, by key."""


def call_key(step_id: str, item: int | None, attempt: int) -> str:
    """The key of a call: `fetch`, `fetch[3]` for an item, `fetch#2` for a second attempt."""
    part = "" if item is None else f"[{item}]"
    return f"{step_id}{part}" if attempt == 1 else f"{step_id}{part}#{attempt}"


@dataclass(frozen=True, slots=True)
class Progress:
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


def progress(workflow: Workflow, outcomes: Outcomes) -> Progress:
    """How a workflow stands after these outcomes, and which calls it wants next."""
    folded = _Folded(workflow, outcomes)
    for step in workflow.steps:
        folded.add(step)
    stopped = any(folded.states[step.id] is StepState.FAILED and not step.continue_on_error for step in workflow.steps)
    calls = () if stopped else tuple(folded.calls)
    order = _order(workflow, outcomes, folded.states)
    return Progress(folded.states, folded.outputs, folded.errors, order, calls)


class _Folded:
    """Steps in their order, each read once all before it are known."""

    def __init__(self, workflow: Workflow, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._known: dict[str, Any] = {INPUTS: workflow.inputs or {}}
        self.states: dict[str, StepState] = {}
        self.outputs: dict[str, Any] = {}
        self.errors: dict[str, str] = {}
        self.calls: list[StepCall] = []

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
                delay_s = step.delay_s if attempt > 1 else 0.0
                self.calls.append(StepCall(key, step.tool, resolve(step.input, known), step.timeout_s, delay_s))
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
