"""Which waiting turns can go on: what they wait for has come. A pure rule, for all stores.

One thing is enough, but of results that other processes bring all that are missing must be there: a turn goes on with
the whole step.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from toolwire.protocol.waits import ForApproval, ForResult, ForTurn, Until, Wait

MOST_AT_ONCE = 2_000
"""So many waiting turns are looked at in one piece, the oldest first."""

_AT_ONCE = 500
T = TypeVar("T")


class KnownOutcomes(Struct, frozen=True):
    """What has come of what turns wait for. What is not on record any more has: its turn is told what became of it.

    A call `is_back` when it has a result, and when none comes any more; see `ledger.is_stranded`.
    """

    is_decided: Callable[[str, str], bool]
    has_ended: Callable[[str, str], bool]
    is_back: Callable[[str, str, str], bool]


def is_ready(project: str, turn_id: str, waits: Sequence[Wait], now: float, come: KnownOutcomes) -> bool:
    """Whether a turn that waits for these can go on."""
    results = [wait for wait in waits if isinstance(wait, ForResult)]
    if results and all(_is_back(project, turn_id, wait, now, come) for wait in results):
        return True
    for wait in waits:
        match wait:
            case ForApproval(approval_id) if come.is_decided(project, approval_id):
                return True
            case ForTurn(other) if come.has_ended(project, other):
                return True
            case Until(at) if now >= at:
                return True
    return False


def _is_back(project: str, turn_id: str, wait: ForResult, now: float, come: KnownOutcomes) -> bool:
    return come.is_back(project, turn_id, wait.call_id) or (wait.until is not None and now >= wait.until)


def batches(ids: Sequence[str]) -> list[Sequence[str]]:
    """Ids to ask for, so many at once."""
    return [ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE)]


def in_turn(items: Iterable[T], project_of: Callable[[T], str], running: Mapping[str, int] | None = None) -> list[T]:
    """The items in the order in which their projects come: first of each, then second of each, and so on.

    A project that has so many `running` already comes that much later. Of one project the order stays.
    """
    places: dict[str, int] = dict(running or {})
    placed = []
    for item in items:
        project = project_of(item)
        place = places.get(project, 0)
        places[project] = place + 1
        placed.append((place, item))
    placed.sort(key=lambda one: one[0])
    return [item for _, item in placed]
