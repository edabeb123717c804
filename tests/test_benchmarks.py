"""The benchmarks run. What they measure is none of this suite's business."""

import sys
from functools import cache
from pathlib import Path

import pytest
from benchmarks import starting
from benchmarks.collecting import Collected, jobs
from benchmarks.machine import describe, load
from benchmarks.measures import MEASURES, rows
from benchmarks.subjects import LOOPS, OTHERS, PEERS, figures
from benchmarks.table import page, text


@cache
def quick_figures(name: str) -> dict[str, float]:
    """What one run of a subject gives; two tests look at it."""
    return figures(name, seconds=0)


@pytest.mark.parametrize("name", [*LOOPS, *OTHERS])
def test_every_subject_of_ours_does_its_work_and_gives_figures(name: str) -> None:
    assert quick_figures(name)


def test_an_import_is_measured_in_a_fresh_interpreter() -> None:
    assert set(starting.import_figures(sys.executable, "toolwire")) == {"import_ms", "rss_mib"}


def test_every_measure_finds_its_figures_and_has_a_line_in_the_table() -> None:
    collected = Collected({name: [dict(quick_figures(name))] for name in [*LOOPS, *OTHERS]})
    started = {"import_ms": 20.0, "rss_mib": 10.0, "help_ms": 70.0}
    started |= {f"call_{name}_ms": 250.0 for name in starting.CALLS}
    for name in ("interpreter", "toolwire", "toolwire_agent"):
        collected.figures.setdefault(name, [{}])[0].update(started)

    found = list(rows(collected))

    assert [row.measure for row in found] == [measure.label for measure in MEASURES]
    assert all(row.floor for row in found)
    table = text(found, absent="not installed")
    assert all(row.measure in table for row in found)
    assert "peers: not installed" in table


def test_a_page_says_where_its_numbers_come_from_and_who_could_not_be_measured() -> None:
    collected = Collected({"validating": [quick_figures("validating")]}, {"langgraph": "out of memory"})
    machine = describe(load(), 1, peers_python=Path("nowhere"), probe_us=None)

    written = page(list(rows(collected)), machine, collected.failures, absent="not installed")

    assert f"Python {machine.python}" in written
    assert "make bench-peers" in written
    assert "langgraph could not be measured: out of memory" in written


def test_peers_are_measured_only_when_asked_for() -> None:
    ours = {job.subject for job in jobs(["loops", "starting"], 0, peers=False)}
    everyone = {job.subject for job in jobs(["loops", "starting"], 0, peers=True)}

    assert everyone - ours == set(PEERS)
