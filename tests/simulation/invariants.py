"""What must be true at the end of a run, whatever went wrong. What must never happen is checked where it would."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.simulation.workload import ONCE, Effected, Key
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import CallCard

if TYPE_CHECKING:
    from tests.simulation.fleet import SimulatedFleet

REPEATABLE = frozenset(["look", "put", "pay", "peek"])
NO_RESULT, TWICE = "it has no result", "it took effect more than once"
_NOT_STARTED = "had not been started"


def check_end(fleet: "SimulatedFleet") -> None:
    """Compare what is on record with what was planned, and with what happened outside."""
    seen: set[Key] = set()
    for (project, turn_id), cards in fleet.store._cards.items():
        planned = fleet.wanted[project, turn_id].steps
        numbers = {number: name for step in planned for name, number in step}
        for card in cards.values():
            fleet.counts["calls"] += 1
            key = (project, f"{turn_id}/{card.call.id}")
            seen.add(key)
            if numbers.get(card.call.arguments["number"]) != card.call.name:
                fleet.violate(f"call {key} was never planned")
            for wrong in _wrong(card, fleet.ledger.effects.get(key, [])):
                fleet.violate(f"{card.call.name} {key}: {wrong}")
                fleet.counts["lost"] += wrong == NO_RESULT
                fleet.counts["duplicated"] += wrong == TWICE
    if stray := fleet.ledger.effects.keys() - seen:
        fleet.violate(f"effects of calls that are not on record: {stray}")
    chain = fleet.store._audit.chain((), None)
    if chain.broken_at is not None:
        fleet.violate(f"the audit log does not hold at {chain.broken_at}")


def _wrong(card: CallCard, effects: list[Effected]) -> list[str]:
    name, result, wrong = card.call.name, card.result, []
    if result is None:
        return [NO_RESULT]
    code = "" if result.error is None else result.error.code
    if name in ONCE and len(effects) > 1:
        wrong.append(TWICE)
    if result.ok and name not in ("look", "peek") and not effects:
        wrong.append("it has a result and took no effect")
    if code in (Code.UNAVAILABLE, Code.PERMISSION_DENIED) and effects:
        wrong.append(f"it is said not to have run ({code}) and took effect")
    if code == Code.CANCELED and _NOT_STARTED in result.text and effects:
        wrong.append("it is said not to have been started and took effect")
    if code == Code.OUTCOME_UNKNOWN and name in REPEATABLE:
        wrong.append("it could have run again, and its outcome is unknown")
    if code and code not in _EXPECTED:
        wrong.append(f"it ended in {code}: {result.text}")
    return wrong


_EXPECTED: Mapping[str, None] = dict.fromkeys(
    (Code.UNAVAILABLE, Code.PERMISSION_DENIED, Code.CANCELED, Code.OUTCOME_UNKNOWN)
)
