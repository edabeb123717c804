"""Measure toolwire beside floors and peers and print one table of ratios: `python -m benchmarks`."""

import argparse
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from statistics import median

import orjson

from benchmarks.collecting import GROUPS, PEERS_PYTHON, ROOT, Collected, collect, jobs
from benchmarks.machine import Machine, describe, load
from benchmarks.measures import Row, rows
from benchmarks.table import page, text

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
ABSENT = "not installed (make bench-peers)"


def main() -> None:
    options = _options()
    peers = options.peers and PEERS_PYTHON.exists()
    before = load()
    wanted = jobs(options.only or GROUPS, options.seconds, peers=peers)
    collected = collect(wanted, options.repetitions, lambda words: print(words, file=sys.stderr, flush=True))
    found = list(rows(collected))
    machine = describe(before, options.repetitions, PEERS_PYTHON, _probe_us(collected))
    absent = "left out" if PEERS_PYTHON.exists() else ABSENT
    print(f"{text(found, absent)}\n\n{machine.words()}")
    for name, why in collected.failures.items():
        print(f"{name} could not be measured: {why}")
    _keep(found, machine, collected)
    if options.write:
        PAGE.write_text(page(found, machine, collected.failures, absent))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each figure in each repetition")
    parser.add_argument("--only", action="append", choices=GROUPS, help="measure this group (may be repeated)")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="leave the other frameworks out")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)} too")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write needs the whole table; leave --only out")
    return options


def _probe_us(collected: Collected) -> float | None:
    known = collected.figures.get("durable_floor")
    return median(figures["probe_us"] for figures in known) if known else None


def _keep(found: list[Row], machine: Machine, collected: Collected) -> None:
    """The raw figures too, so that another question can be asked of the same run."""
    RESULTS.mkdir(exist_ok=True)
    kept = {"machine": asdict(machine), "rows": [asdict(row) for row in found], "figures": collected.figures}
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    (RESULTS / f"{stamp}.json").write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
