"""At each point, the defence that is missed there: without it a struck run must fail, and no other.

Most points name theirs; see `tests/simulation/crash_points.py` and `devices.py`. Some real processes have to lose
another one, or a second one that would stand in for it.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.crash_sweep.device_controls import DEVICE_PLANTED
from tests.crash_sweep.runs import points_over, run, seeds_at
from tests.crash_sweep.server_controls import SERVER_PLANTED
from tests.postgres_server import PostgresServer
from tests.simulation.crash_points import CRASH_POINTS, NOWHERE
from tests.simulation.fleet import simulate, simulate_point
from tests.simulation.planted import ALL

DEFENCES = {**ALL, **DEVICE_PLANTED, **SERVER_PLANTED}
_MOST_SIMULATED = 100
_ENDED = ("run_what_has_ended", "keep_commands_of_what_has_ended")
_TOKEN = "keep_tokens_of_services_after_their_claims"
_INSTEAD = {
    "C4 a turn is begun, and its client does not hear of it": ("begin_again", "write_over_what_has_the_same_id"),
    "C11 published, and the relay hears that it may not be": ("trust_that_commands_come_once", *_ENDED),
    "C13 the broker is away for long": ("drop_what_cannot_be_sent", "send_only_while_connected"),
    "C29 the result is kept, and its worker does not hear of it": (*_ENDED, "run_commands_of_older_epochs"),
    "C30 the result is kept, before the broker hears of it": (*_ENDED, "run_commands_of_older_epochs"),
    "C33 a report comes five times": _ENDED,
    "C37 two runners take up the same turn": ("resume_while_owned", "change_turns_of_others"),
    "a call is claimed for its service, which has no card yet": (_TOKEN,),
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
    """Seeds that fail in the simulation without the defence, and do not where nothing is struck; if none is, any."""
    found = []
    if name in CRASH_POINTS and over != "mqtt":
        point = CRASH_POINTS[name]
        for seed in range(point.first, point.first + _MOST_SIMULATED):
            is_harmless = simulate_point(name, seed).is_sound
            if not is_harmless and simulate(seed, crash=NOWHERE, part=point.part).is_sound:
                found.append(seed)
            if len(found) == number:
                break
    return found or seeds_at(over, name, number)


def show(over: str, name: str, seeds: int, limit_s: float, server: PostgresServer | None) -> Shown:
    """Strike a point without its defences until a run fails that does not with them, nor where nothing is struck."""
    missed, runs = defences(over, name), 0
    if not missed:
        return Shown(name, missed)
    with _without(missed):
        promising = _promising(over, name, seeds)
    for seed in promising:
        with _without(missed):
            ran = run(over, name, seed, limit_s, server=server)
            runs += 1
            if ran.is_sound or not ran.struck:
                continue
            is_calm_sound = run(over, name, seed, limit_s, server=server, is_calm=True).is_sound
        runs += 2
        if is_calm_sound and run(over, name, seed, limit_s, server=server).is_sound:
            return Shown(name, missed, seed, ran.verdict.wrong[0], runs)
    return Shown(name, missed, runs=runs)


@contextmanager
def _without(missed: tuple[str, ...]) -> Iterator[None]:
    with ExitStack() as closing:
        for one in missed:
            DEFENCES[one](closing)
        yield
