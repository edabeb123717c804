"""What goes wrong in a run, and how often: drawn from the seed, a different mixture for each.

A run in which everything goes wrong at once shows less than many runs with a few things each: what one fault does is
undone by the next.
"""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """How a run is disturbed, until `lasts_s`. Times are seconds between two of a kind on average; None is never."""

    lasts_s: float
    kill_steps: int | None
    pause_s: float | None
    cut_off_s: float | None
    store_outage_s: float | None
    bus_outage_s: float | None
    wipe_s: float | None
    stop_s: float | None
    drop: float
    double: float
    reorder: float
    lost_ack: float
    lost_answers: float
    slow_s: float
    model_fails: float
    same_machine: bool


def draw_faults(random: Random) -> FaultPlan:
    def maybe(odds: float, low: float, high: float) -> float | None:
        return random.uniform(low, high) if random.random() < odds else None

    return FaultPlan(
        lasts_s=random.uniform(5.0, 25.0),
        kill_steps=random.choice((20, 60, 200)) if random.random() < 0.7 else None,
        pause_s=maybe(0.5, 1.5, 8.0),
        cut_off_s=maybe(0.3, 2.0, 10.0),
        store_outage_s=maybe(0.2, 4.0, 12.0),
        bus_outage_s=maybe(0.3, 3.0, 12.0),
        wipe_s=maybe(0.2, 3.0, 12.0),
        stop_s=maybe(0.2, 3.0, 12.0),
        drop=random.choice((0.0, 0.0, 0.1, 0.5)),
        double=random.choice((0.0, 0.3, 0.8)),
        reorder=random.choice((0.0, 0.5, 1.0)),
        lost_ack=random.choice((0.0, 0.0, 0.3)),
        lost_answers=random.choice((0.0, 0.0, 0.02)),
        slow_s=random.choice((0.01, 0.1, 1.0)),
        model_fails=random.choice((0.0, 0.0, 0.1)),
        same_machine=random.random() < 0.5,
    )


CALM = FaultPlan(
    lasts_s=30.0, kill_steps=None, pause_s=None, cut_off_s=None, store_outage_s=None, bus_outage_s=None, wipe_s=None,
    stop_s=None, drop=0.0, double=0.0, reorder=0.0, lost_ack=0.0, lost_answers=0.0, slow_s=0.01, model_fails=0.0,
    same_machine=False,
)  # fmt: skip
"""Nothing goes wrong but what is asked for."""
