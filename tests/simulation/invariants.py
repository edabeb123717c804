"""What must be true at the end of a run, whatever went wrong. What must never happen is checked where it would."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from tests.simulation.workload import DELEGATING, HELPER, ONCE, Key, final_answer
from toolwire.fleet.reports import REFUSED
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import EndReason

if TYPE_CHECKING:
    from tests.simulation.fleet import SimulatedFleet

Call = tuple[str, str, str]
"""A project, a turn and a call."""

_TRACES = ("late_result", REFUSED)
MOST_RECEIVERS = 2
REPEATABLE = frozenset(["look", "put", "pay", "peek", "sync", "scan", "file", *DELEGATING])
_PURE = ("look", "peek", "scan", *DELEGATING)
NO_RESULT, TWICE = "it has no result", "it took effect more than once"
_NOT_STARTED = "had not been started"


def check_end(fleet: "SimulatedFleet") -> None:
    """Compare what is on record with what was planned, and with what happened outside."""
    seen: set[Key] = set()
    for (project, turn_id), kept in fleet.store._turns.items():
        question = kept.opening.question
        reason = None if kept.ending is None else kept.ending.reason
        fleet.counts["canceled"] += reason is EndReason.CANCELED
        if (project, turn_id) in fleet.must_cancel and reason is not EndReason.CANCELED:
            fleet.violate(f"{turn_id} was canceled, and ended as {reason}")
        planned = [one for step in fleet.plans.of(project, turn_id, question).steps for one in step]
        cards = fleet.store._cards.get((project, turn_id), {}).values()
        for number in _repeated(card.call.arguments.get("number") for card in cards):
            fleet.violate(f"call {number} of {turn_id} was accepted more than once")
        for card in cards:
            fleet.counts["calls"] += 1
            fleet.counts["detached"] += card.detached
            key = (project, f"{turn_id}/{card.call.id}")
            seen.add(key)
            if not any(one.is_made_by(card.call) for one in planned):
                fleet.violate(f"call {key} was never planned")
            if card.result is not None and card.result.handle and not fleet.store.has_body(card.result.handle):
                fleet.violate(f"the whole output of {key} is not kept")
            for wrong in wrong_about_call(card, fleet.ledger.effects.get(key, [])):
                fleet.violate(f"{card.call.name} {key}: {wrong}")
                fleet.counts["lost"] += wrong == NO_RESULT
                fleet.counts["duplicated"] += wrong == TWICE
    if stray := fleet.ledger.effects.keys() - seen:
        fleet.violate(f"effects of calls that are not on record: {stray}")
    _check_tasks(fleet)
    _check_log(fleet)


def _repeated(numbers: Iterable[int | None]) -> list[int]:
    return [number for number, times in Counter(numbers).items() if number is not None and times > 1]


def _check_tasks(fleet: "SimulatedFleet") -> None:
    """Each task that was accepted is done in one turn, however often it was asked for."""
    asked = Counter(kept.opening.question for kept in fleet.store._turns.values() if kept.opening.agent == HELPER)
    if twice := [question for question, times in asked.items() if times > 1]:
        fleet.violate(f"tasks that were begun more than once: {twice}")
    fleet.counts["tasks"] += len(asked)


def _check_log(fleet: "SimulatedFleet") -> None:
    chain = fleet.store._audit.chain((), None)
    if chain.broken_at is not None:
        fleet.violate(f"the audit log does not hold at {chain.broken_at}")
    rows: list[AuditRow] = list(fleet.store._audit._rows)
    attempts = {
        (*key, call_id): card.attempt for key, cards in fleet.store._cards.items() for call_id, card in cards.items()
    }
    for wrong in wrong_in_log(rows, attempts, fleet.bus.reports):
        fleet.violate(wrong)
    fleet.counts["reported"] += len(fleet.bus.reports)
    fleet.counts["late"] += _late(rows).total()


def wrong_in_log(rows: Sequence[AuditRow], attempts: Mapping[Call, int], reports: Set[Call]) -> Iterator[str]:
    """What the audit log says that must not be, given how often each call was begun, and of which reports came."""
    finished = Counter((row.project, row.turn_id, row.call_id) for row in rows if row.event == "finished")
    if twice := [key for key, times in finished.items() if times > 1]:
        yield f"calls that finished more than once: {twice}"
    if again := [card for card, times in _late(rows).items() if times > MOST_RECEIVERS]:
        yield f"late reports that were noted more often than there are receivers: {again}"
    held = (row for row in rows if row.event == REFUSED and row.code == "call_held")
    if any(attempts.get((row.project, row.turn_id, row.call_id)) == 1 for row in held):
        yield "a report was refused since its call is held, and only the service could hold it"
    noted = {(row.project, row.turn_id, row.call_id) for row in rows if "card" in row.detail or row.event in _TRACES}
    if silent := reports - noted:
        yield f"reports that were received and left no trace: {silent}"


def _late(rows: Sequence[AuditRow]) -> Counter[tuple[str, str]]:
    """How often late reports were noted, by card."""
    noted = [row for row in rows if row.event == "late_result" and "card" in row.detail]
    return Counter((row.project, row.detail["card"]) for row in noted)


def wrong_about_call(card: CallCard, effects: Sequence[object]) -> Iterator[str]:
    """What the record of a call says otherwise of it than the outside, or does not say."""
    name, result = card.call.name, card.result
    if result is None:
        yield NO_RESULT
        return
    code = "" if result.error is None else result.error.code
    if name in ONCE and len(effects) > 1:
        yield TWICE
    if result.ok and name not in _PURE and not effects:
        yield "it has a result and took no effect"
    if code in (Code.UNAVAILABLE, Code.PERMISSION_DENIED) and effects:
        yield f"it is said not to have run ({code}) and took effect"
    if code == Code.CANCELED and _NOT_STARTED in result.text and effects:
        yield "it is said not to have been started and took effect"
    if code == Code.OUTCOME_UNKNOWN and name in REPEATABLE:
        yield "it could have run again, and its outcome is unknown"
    if code and code not in _EXPECTED:
        yield f"it ended in {code}: {result.text}"


_EXPECTED: Mapping[str, None] = dict.fromkeys((Code.PERMISSION_DENIED, Code.CANCELED, Code.OUTCOME_UNKNOWN))


def wrong_about_tasks(
    turns: Mapping[tuple[str, str], Any], card: CallCard, result: ToolResult, now: float
) -> Iterator[str]:
    """What a call says otherwise of the turns that it began than the record does, at the moment when it ends."""
    said: Any = result.structured
    if card.call.name not in DELEGATING or not result.ok or not isinstance(said, dict):
        return
    for one in said.get("results", [said]):
        child = turns.get((card.project, one["agent_turn_id"]))
        if child is None:
            yield "a task was accepted, and its turn is not on record"
        elif "accepted" in one:
            continue
        elif child.ending is None and one["status"] not in (Status.TIMEOUT, Status.CANCELED):
            yield f"its task is said to have ended ({one['status']}), and goes on"
        elif one["status"] == Status.TIMEOUT and now < card.created_at + card.call.arguments["deadline_seconds"]:
            yield "its task is said to be late, and has time left"
        elif child.ending is None:
            continue
        elif one["status"] not in (child.ending.status, Status.TIMEOUT, Status.CANCELED):
            yield f"its task has ended as {child.ending.status}, and not as {one['status']}"
        elif one["status"] == Status.SUCCESS:
            answer = one.get("answer", one.get("summary"))
            if answer != final_answer(child.opening.question, card.project):
                yield f"its task was answered otherwise: {answer!r}"
