"""Simulates seeds: `python -m tests.simulation --seed 7` shows one, `--seeds 20000` runs many and counts."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial
from multiprocessing import Pool
from time import perf_counter

from tests.simulation.fleet import Report, simulate
from tests.simulation.workload import MIXTURES

_SHOWN = 100_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed and show its events")
    parser.add_argument("--verbose", action="store_true", help="show what the store is asked, too")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes share them")
    parser.add_argument("--part", default="", choices=MIXTURES, help="make only calls of this part of the protocol")
    given = parser.parse_args()
    if given.seed is not None:
        report = simulate(given.seed, trace=_SHOWN, is_verbose=given.verbose, part=given.part)
        sys.stdout.write(f"{report}\n{dict(report.counts)}\n")
        return 0 if report.is_sound else 1
    seeds = range(given.first, given.first + given.seeds)
    began = perf_counter()
    one = partial(simulate, part=given.part)
    if given.jobs == 1:
        return _count(map(one, seeds), given.seeds, began)
    with Pool(given.jobs) as pool:
        return _count(pool.imap_unordered(one, seeds, chunksize=20), given.seeds, began)


def _count(reports: Iterable[Report], seeds: int, began: float) -> int:
    counts: Counter[str] = Counter()
    failed = []
    for report in reports:
        counts += report.counts
        if not report.is_sound:
            failed.append(report.seed)
            if len(failed) == 1:
                sys.stdout.write(f"{report}\n")
    took_s = perf_counter() - began
    told = ", ".join(f"{counts[name]} {name}" for name in ("kills", "exits", "wipes", "calls", "lost", "duplicated"))
    sys.stdout.write(f"{seeds} seeds, {told} ({took_s:.1f} s)\n")
    if failed:
        sys.stdout.write(f"{len(failed)} seeds failed: {failed[:20]}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
