"""Simulates seeds: `python -m tests.simulation --seed 7` shows one, `--seeds 20000` runs many and counts.

`--points` runs the seeds at each crash point, `--point NAME --seed 7` shows one of these.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from multiprocessing import get_context
from time import perf_counter

from tests.simulation.crash_points import CRASH_POINTS
from tests.simulation.fleet import EVENTS, Report, simulate, simulate_point
from tests.simulation.planted import ALL, without
from tests.simulation.workload import MIXTURES

_SHOWN = 100_000
_TOGETHER = 20
"""So many runs are given to a process at once. It is a fork, so that it has no defence which was taken away."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed and show its events")
    parser.add_argument("--verbose", action="store_true", help="show what the store is asked, too")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes share them")
    parser.add_argument("--part", default="", choices=MIXTURES, help="make only calls of this part of the protocol")
    parser.add_argument("--points", action="store_true", help="run the seeds at each crash point")
    parser.add_argument("--point", choices=CRASH_POINTS, metavar="NAME", help="run them at this one")
    parser.add_argument("--without", choices=ALL, metavar="DEFENCE", help="a control: take this defence away")
    given = parser.parse_args(words)
    if given.without:
        with without(given.without):
            return _run(given)
    return _run(given)


def _run(given: argparse.Namespace) -> int:
    if given.seed is not None:
        report = _one(given.point or "", given.part, given.seed, trace=_SHOWN, is_verbose=given.verbose)
        sys.stdout.write(f"{report}\n{dict(report.counts)}\n")
        return 0 if report.is_sound else 1
    points = list(CRASH_POINTS) if given.points else [given.point or ""]
    runs = [(point, given.part, seed) for point in points for seed in range(given.first, given.first + given.seeds)]
    began = perf_counter()
    if given.jobs == 1:
        return _count((_one(*run) for run in runs), points, given.seeds, began)
    with get_context("fork").Pool(given.jobs) as pool:
        return _count(pool.imap_unordered(_run_one, runs, chunksize=_TOGETHER), points, given.seeds, began)


def _run_one(run: tuple[str, str, int]) -> Report:
    return _one(*run)


def _one(point: str, part: str, seed: int, *, trace: int = EVENTS, is_verbose: bool = False) -> Report:
    if point:
        return simulate_point(point, seed, trace=trace, is_verbose=is_verbose)
    return simulate(seed, trace=trace, is_verbose=is_verbose, part=part)


def _count(reports: Iterable[Report], points: list[str], seeds: int, began: float) -> int:
    counts: Counter[str] = Counter()
    struck: Counter[tuple[str, str]] = Counter()
    failed: list[Report] = []
    for report in reports:
        counts += report.counts
        if report.point:
            faults = {one.fault for one in CRASH_POINTS[report.point].all_of_it if report.counts[one.fault]}
            struck.update((report.point, fault) for fault in faults)
        if not report.is_sound:
            failed.append(report)
            if len(failed) == 1:
                sys.stdout.write(f"{report}\n")
    took_s = perf_counter() - began
    told = ", ".join(f"{counts[name]} {name}" for name in ("kills", "exits", "wipes", "calls", "lost", "duplicated"))
    named = [point for point in points if point]
    missed = [name for name in named if any(not struck[name, one.fault] for one in CRASH_POINTS[name].all_of_it)]
    if named:
        sys.stdout.write(f"{len(named)} points, {counts['crashes']} times struck, at ")
    sys.stdout.write(f"{seeds} seeds, {told} ({took_s:.1f} s)\n")
    if failed:
        again = [f"{one.seed} {one.point}".rstrip() for one in failed[:20]]
        sys.stdout.write(f"{len(failed)} seeds failed: {', '.join(again)}\n")
    if missed:
        sys.stdout.write(f"never struck: {', '.join(missed)}\n")
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
