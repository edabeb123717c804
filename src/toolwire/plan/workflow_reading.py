"""From JSON, YAML or TOML to a workflow that can run. Whatever can be known to be wrong is refused here. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolwire.plan.conditions import BadCondition, Condition, read_condition
from toolwire.plan.references import NAME, BadReference, find_references
from toolwire.plan.workflows import (
    INDEX,
    INPUTS,
    ITEM,
    LONGEST_DELAY_S,
    MOST_ATTEMPTS,
    MOST_PARALLEL,
    MOST_STEPS,
    Workflow,
    WorkflowStep,
)

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
        f"step {step.id!r} calls {step.tool!r}, which cannot be used here" for step in steps if step.tool not in known
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
