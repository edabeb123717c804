"""What a `schedule.definition.v1` record says, and which firings follow from it. Pure.

    {"interval": {"type": "daily", "time": "09:00"}, "timezone": "Europe/Berlin",
     "missed": "once",
     "action": {"type": "ask", "question": "Summarise what has happened since yesterday."}}

Beside each definition there is a state: up to which time it was looked after, and which firings are decided and not
done yet. Deciding is one change of that state, so that of many processes one decides; doing can be repeated, since
everything that a firing does has an id that follows from the schedule and the time.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.breadcrumbs.rules.schedules import Schedule, check_schedule, due_between, next_after, read_schedule
from toolwire.errors import InvalidRecord

SCHEDULE, TICK, STATE = "schedule.definition.v1", "schedule.tick.v1", "schedule.state.v1"
GRACE_S = 60.0
"""What is due is on time for so long; after that it was missed."""
MOST_AT_ONCE = 100
MOST_LABELS = 20
LONGEST_QUESTION = 50_000
_LONGEST_NAME = 200
_KEYS = (
    "interval", "timezone", "start", "end", "enabled", "missed", "most_missed", "max_runs", "labels", "action", "grant",
)  # fmt: skip
_ACTION_KEYS = {
    "record": ("record",),
    "ask": ("question", "agent", "thread"),
    "call": ("tool", "arguments"),
    "tick": (),
}


class MissedRuns(StrEnum):
    """What is done about times at which no process was there: nothing, one run for all of them, or each of them."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class CreateRecord(Struct, frozen=True):
    """Create a record. Texts of the template may refer to the tick: `${tick.fired_at}`."""

    template: Mapping[str, Any]


class AskAgent(Struct, frozen=True):
    """Begin a turn of an agent of the project."""

    question: str
    agent: str = ""
    thread: str = ""


class CallTool(Struct, frozen=True):
    """Call a tool, without a model."""

    tool: str
    arguments: Mapping[str, Any]


ScheduleAction = CreateRecord | AskAgent | CallTool | None
"""What a firing does beside its tick."""


class ScheduleDefinition(Struct, frozen=True):
    """A definition that was read. `grant` is that of the turn that made it, where an agent did."""

    schedule: Schedule
    enabled: bool = True
    missed: MissedRuns = MissedRuns.ONCE
    most_missed: int = 10
    max_runs: int | None = None
    labels: tuple[str, ...] = ()
    action: ScheduleAction = None
    grant: Mapping[str, Any] | None = None

    @property
    def basis(self) -> str:
        """What the state is about: where this changes, times that passed before do not count any more."""
        when = self.schedule
        return repr((sorted(when.interval.items(), key=str), when.timezone, when.start, when.end, self.enabled))


class Firing(Struct, frozen=True):
    """One firing: when it was `due`, and when it was decided that it happens."""

    due: float
    fired_at: float


class ScheduleState(Struct, frozen=True):
    """How far a schedule was looked after, what is decided and not done yet, and how often it has run."""

    last_due: float
    basis: str = ""
    pending: tuple[Firing, ...] = ()
    runs: int = 0
    missed: int = 0
    last_error: str = ""


def read_definition(context: Mapping[str, Any], created_at: float) -> ScheduleDefinition:
    """The definition in a record. Raises InvalidRecord."""
    for name in context:
        if name not in _KEYS:
            raise InvalidRecord(f"a schedule has no field {str(name)[:40]!r}; there are {', '.join(_KEYS)}")
    enabled, labels, grant = context.get("enabled", True), context.get("labels", ()), context.get("grant")
    if not isinstance(enabled, bool):
        raise InvalidRecord("enabled must be true or false")
    if not isinstance(labels, (list, tuple)) or len(labels) > MOST_LABELS or not all(map(_is_label, labels)):
        raise InvalidRecord(
            f"labels must be a list of at most {MOST_LABELS} texts on one line, since each tick has them as tags"
        )
    try:
        missed = MissedRuns(context.get("missed", MissedRuns.ONCE))
    except ValueError:
        raise InvalidRecord(f"missed must be one of {', '.join(MissedRuns)}") from None
    if grant is not None and not isinstance(grant, Mapping):
        raise InvalidRecord("grant must be an object; leave it out")
    return ScheduleDefinition(
        read_schedule(context, created_at),
        enabled,
        missed,
        _count(context, "most_missed", 10, MOST_AT_ONCE),
        None if context.get("max_runs") is None else _count(context, "max_runs", 1, 1_000_000_000),
        tuple(labels),
        _action(context.get("action")),
        grant,
    )


def check_definition(context: Mapping[str, Any], now: float) -> None:
    """Raises InvalidRecord for a definition that cannot be used, or that is enabled and never due."""
    if read_definition(context, now).enabled:
        check_schedule(context, now)


def first_state(definition: ScheduleDefinition, since: float) -> ScheduleState:
    """The state of a schedule that was written at a time: nothing was due before that."""
    return ScheduleState(since, definition.basis)


def read_state(context: Mapping[str, Any]) -> ScheduleState:
    return ScheduleState(
        context["last_due"],
        context["basis"],
        tuple(Firing(one["due"], one["fired_at"]) for one in context["pending"]),
        context["runs"],
        context["missed"],
        context["last_error"],
    )


def write_state(state: ScheduleState) -> dict[str, Any]:
    return {
        "last_due": state.last_due,
        "basis": state.basis,
        "pending": [{"due": one.due, "fired_at": one.fired_at} for one in state.pending],
        "runs": state.runs,
        "missed": state.missed,
        "last_error": state.last_error,
    }


def decide(definition: ScheduleDefinition, state: ScheduleState, changed_at: float, now: float) -> ScheduleState:
    """The state with the firings that happen now. The same state where there are none.

    What is decided and not done yet comes first. A clock that was set back makes no time due for the second time: a
    firing does nothing that one with the same time has done.
    """
    if state.basis != definition.basis:
        left = state.pending if definition.enabled else ()  # decided before; what is paused does not run, nor count
        runs = state.runs - len(state.pending) + len(left)
        return ScheduleState(max(state.last_due, changed_at), definition.basis, left, runs, state.missed)
    if state.pending or not definition.enabled:
        return state
    if state.last_due > now + GRACE_S:  # the clock was ahead, and is right again
        return replace(state, last_due=now)
    if definition.max_runs is not None and state.runs >= definition.max_runs:
        return state
    due = due_between(definition.schedule, state.last_due, now)
    if not due:
        return state
    chosen = _chosen(definition, due, now)
    if definition.max_runs is not None:
        chosen = chosen[: definition.max_runs - state.runs]
    return replace(
        state,
        last_due=due[-1],
        pending=tuple(Firing(time, now) for time in chosen),
        runs=state.runs + len(chosen),
        missed=state.missed + len(due) - len(chosen),
    )


def next_run(definition: ScheduleDefinition, state: ScheduleState | None, now: float) -> float | None:
    """When the schedule fires next; None where it does not."""
    runs = 0 if state is None else state.runs
    if not definition.enabled or (definition.max_runs is not None and runs >= definition.max_runs):
        return None
    after = now if state is None or state.last_due > now + GRACE_S else min(state.last_due, now)
    if definition.missed is MissedRuns.SKIP:
        after = max(after, now - GRACE_S)
    return next_after(definition.schedule, after)


def firing_key(schedule_id: str, due: float) -> str:
    """What tells a firing from every other one, whichever process does it."""
    return f"schedule:{schedule_id}:{int(due)}"


def _chosen(definition: ScheduleDefinition, due: list[float], now: float) -> list[float]:
    match definition.missed:
        case MissedRuns.SKIP:
            return [time for time in due if now - time <= GRACE_S]
        case MissedRuns.ONCE:
            return due[-1:]
        case MissedRuns.ALL:
            return due[-definition.most_missed :]


def _action(asked: Any) -> ScheduleAction:
    if asked is None:
        return None
    kind = asked.get("type") if isinstance(asked, Mapping) else None
    if not isinstance(kind, str) or kind not in _ACTION_KEYS:
        raise InvalidRecord(f"action.type must be one of {', '.join(_ACTION_KEYS)}")
    for name in asked:
        if name != "type" and name not in _ACTION_KEYS[kind]:
            known = ", ".join(_ACTION_KEYS[kind]) or "nothing else"
            raise InvalidRecord(f"an action of type {kind} has {known}, not {str(name)[:40]!r}")
    match kind:
        case "record":
            template = asked.get("record")
            if not isinstance(template, Mapping) or not isinstance(template.get("schema_name"), str):
                raise InvalidRecord("action.record must be the record to create, with its schema_name")
            return CreateRecord(template)
        case "ask":
            question = _text(asked, "question", LONGEST_QUESTION)
            return AskAgent(question, _name(asked, "agent"), _name(asked, "thread"))
        case "call":
            arguments = asked.get("arguments", {})
            if not isinstance(arguments, Mapping):
                raise InvalidRecord("action.arguments must be an object")
            return CallTool(_text(asked, "tool", _LONGEST_NAME), arguments)
    return None


def _is_label(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable() and value == value.strip()


def _text(asked: Mapping[str, Any], name: str, most: int) -> str:
    text = asked.get(name)
    if not isinstance(text, str) or not text.strip() or len(text) > most:
        raise InvalidRecord(f"action.{name} must be text of 1 to {most} characters")
    return text


def _name(asked: Mapping[str, Any], name: str) -> str:
    return _text(asked, name, _LONGEST_NAME) if asked.get(name) else ""


def _count(context: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = context.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidRecord(f"{name} must be a whole number from 1 to {most}")
    return value
