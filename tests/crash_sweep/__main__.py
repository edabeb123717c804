"""Strikes real processes at every crash point: `python -m tests.crash_sweep --over nats --seeds 20 --jobs 2`.

`--point NAME --seed 7` runs one; `--keep FOLDER` leaves its files there. As a control, `--without DEFENCE` takes away a
defence of `tests/simulation/planted.py` or `device_controls.py`; then it must fail. `--controls` takes away what is
missed at each point, tries as many seeds as are given until a run fails, and lists what was seen.
"""

import argparse
import os
import pickle
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TypeVar

from tests.crash_sweep.controls import DEFENCES, Shown, defences, show
from tests.crash_sweep.runs import Ran, die_with_parent, points_over, ready_to_fork, run, seeds_at
from tests.postgres_server import PostgresServer, postgres_server

OVER = ("embedded", "nats", "postgres", "mqtt")
"""Over `postgres` is over NATS with the store in a PostgreSQL server, and else it is in SQLite."""

_FIRST_SHOWN = 5
Job = tuple[str, int]
_Job = TypeVar("_Job")
_Came = TypeVar("_Came")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash_sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--over", choices=OVER, nargs="+", default=list(OVER))
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds at each point")
    parser.add_argument("--jobs", type=int, default=1, help="how many runs at the same time")
    parser.add_argument("--point", metavar="NAME", action="append", help="strike at this one only; more than once")
    parser.add_argument("--seed", type=int, help="with this seed only")
    parser.add_argument("--limit", type=float, default=60.0, help="how many seconds a run may take")
    parser.add_argument(
        "--without", choices=DEFENCES, metavar="DEFENCE", action="append", default=[], help="take this defence away"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the files of the one run there")
    parser.add_argument("--controls", action="store_true", help="show that each point misses its defence")
    given = parser.parse_args(words)
    known = {name for over in given.over for name in points_over(over)}
    if unknown := [name for name in given.point or () if name not in known]:
        parser.error(f"no such points: {unknown}; there are: {sorted(known)}")
    with ExitStack() as closing:
        for defence in given.without:
            DEFENCES[defence](closing)
        closing.enter_context(ready_to_fork())
        return max([_show_controls(over, given) if given.controls else _sweep(over, given) for over in given.over])


def _sweep(over: str, given: argparse.Namespace) -> int:
    points = [name for name in points_over(over) if name in (given.point or points_over(over))]
    jobs = [
        (name, seed)
        for name in points
        for seed in ([given.seed] if given.seed is not None else seeds_at(over, name, given.seeds))
    ]
    began = time.monotonic()
    if given.keep is not None:
        with _server(over) as server:
            runs = (run(over, *job, given.limit, given.keep, server) for job in jobs)
            return _count(over, points, runs, began)

    def strike(job: Job, server: PostgresServer | None) -> Ran:
        return run(over, *job, given.limit, server=server)

    return _count(over, points, _side_by_side(over, jobs, given.jobs, strike), began)


def _show_controls(over: str, given: argparse.Namespace) -> int:
    points = [name for name in points_over(over) if name in (given.point or points_over(over)) and defences(over, name)]

    def strike(name: str, server: PostgresServer | None) -> Shown:
        return show(over, name, given.seeds, given.limit, server)

    missed = 0
    for shown in _side_by_side(over, points, given.jobs, strike):
        missed += shown.seed is None
        _say(str(shown))
    _say(f"over {over}: {len(points)} points with a defence, {len(points) - missed} shown to miss it")
    return 1 if missed else 0


def _side_by_side(
    over: str, jobs: Sequence[_Job], lanes: int, strike: Callable[[_Job, PostgresServer | None], _Came]
) -> Iterator[_Came]:
    """Runs in processes of their own, which fork again: this one keeps no threads and no loop."""
    pipes = []
    for lane in range(lanes):
        ours, theirs = os.pipe()
        if os.fork() == 0:
            try:
                die_with_parent(signal.SIGTERM)
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that its broker ends with it
                with os.fdopen(theirs, "wb") as told, _server(over) as server:
                    for job in jobs[lane::lanes]:
                        pickle.dump(strike(job, server), told)
                        told.flush()
            finally:
                os._exit(0)
        os.close(theirs)
        pipes.append(os.fdopen(ours, "rb"))
    for place in range(len(jobs)):
        yield pickle.load(pipes[place % lanes])
    for pipe in pipes:
        pipe.close()
        os.wait()


def _server(over: str) -> AbstractContextManager[PostgresServer | None]:
    return postgres_server() if over == "postgres" else nullcontext()


def _count(over: str, points: list[str], runs: Iterable[Ran], began: float) -> int:
    counts: Counter[str] = Counter()
    failed: list[Ran] = []
    struck: Counter[str] = Counter()
    for number, ran in enumerate(runs, 1):
        verdict = ran.verdict
        struck[ran.point] += bool(ran.struck)
        counts[ran.point] += 1
        counts.update(
            runs=1, struck=int(bool(ran.struck)), strikes=len(ran.struck), kills=ran.kills, turns=verdict.turns,
            calls=verdict.calls, lost=verdict.lost, duplicated=verdict.duplicated, unknown=verdict.unknown,
        )  # fmt: skip
        if not ran.is_sound:
            failed.append(ran)
            if len(failed) <= _FIRST_SHOWN:
                _say(str(ran))
        if number % 50 == 0:
            _say(f"  {time.monotonic() - began:5.0f} s: {number} runs, {counts['strikes']} strikes")
    told = ", ".join(f"{counts[name]} {name}" for name in ("strikes", "kills", "turns", "calls"))
    ended = ", ".join(f"{name} {counts[name]}" for name in ("lost", "duplicated", "unknown"))
    _say(
        f"over {over}: {len(points)} points, {counts['runs']} runs of which {counts['struck']} were struck, {told}, "
        f"{time.monotonic() - began:.0f} s: {ended}"
    )
    if failed:
        _say(f"{len(failed)} runs failed: {[(ran.point, ran.seed) for ran in failed[:20]]}")
    if seldom := {name: struck[name] for name in points if 0 < struck[name] < counts[name]}:
        _say(f"not struck by every seed: {seldom}")
    if missed := [name for name in points if not struck[name]]:
        _say(f"never struck: {missed}")
    return 1 if failed or missed else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
