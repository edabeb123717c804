"""At each point, the defence that is missed there: without it a struck run must fail, and no other.

Most points name theirs; see `tests/simulation/crash_points.py` and `devices.py`. Some real processes have to lose
another one, or a second one that would stand in for it.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice

from tests.crash_sweep.device_controls import DEVICE_PLANTED
from tests.crash_sweep.runs import points_over, run, seeds_at
from tests.crash_sweep.store_controls import STORE_PLANTED
from tests.postgres_server import PostgresServer
from tests.simulation.crash_points import CRASH_POINTS
from tests.simulation.fleet import simulate_point
from tests.simulation.planted import ALL

DEFENCES = {**ALL, **DEVICE_PLANTED, **STORE_PLANTED}
_MOST_SIMULATED = 100
_INSTEAD = {
    "C4 a turn is begun, and its client does not hear of it": ("begin_again", "write_over_what_has_the_same_id"),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What was seen at a point without its defences: with which seed it failed, if with any, and what was wrong."""

    point: str
    without: tuple[str, ...]
    seed: int | None = None
    wrong: str = ""
    runs: int = 0

    def __str__(self) -> str:
        told = "NOT SHOWN" if self.seed is None else f"seed {self.seed}: {self.wrong[:90]}"
        return f"{self.point} | {' + '.join(self.without) or 'none'} | {told} | {self.runs} runs"


def defences(over: str, name: str) -> tuple[str, ...]:
    """The defences that are missed at a point, all of which must be taken away to miss one."""
    control = points_over(over)[name].control
    return _INSTEAD.get(name) or ((control,) if control else ())


def _promising(over: str, name: str, number: int) -> list[int]:
    """Seeds of which the simulation fails without the defence, where it knows the point; and then any."""
    found = []
    if name in CRASH_POINTS and over != "mqtt":
        first = CRASH_POINTS[name].first
        failing = (seed for seed in range(first, first + _MOST_SIMULATED) if not simulate_point(name, seed).is_sound)
        found = list(islice(failing, number))
    return found or seeds_at(over, name, number)


def show(over: str, name: str, seeds: int, limit_s: float, server: PostgresServer | None) -> Shown:
    """Strike a point without its defences until a run fails."""
    missed = defences(over, name)
    if not missed:
        return Shown(name, missed)
    runs = 0
    with ExitStack() as closing:
        for one in missed:
            DEFENCES[one](closing)
        for seed in _promising(over, name, seeds):
            ran = run(over, name, seed, limit_s, server=server)
            runs += 1
            if ran.is_sound or not ran.struck:
                continue
            runs += 1
            if run(over, name, seed, limit_s, server=server, is_calm=True).is_sound:
                return Shown(name, missed, seed, ran.verdict.wrong[0], runs)
    return Shown(name, missed, runs=runs)
