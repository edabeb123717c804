"""A short storm over a real fleet: what is killed is started again, and nothing is lost or done twice."""

import subprocess
import sys

import pytest

LIMIT_S = 240


def storm(*words: str) -> "subprocess.CompletedProcess[str]":
    run = [sys.executable, "-m", "benchmarks.fleet_storm", "--store", "sqlite", *words]
    return subprocess.run(run, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.feature("F185")
def test_a_fleet_that_is_killed_again_and_again_loses_nothing_and_does_nothing_twice() -> None:
    ran = storm("--calls", "48", "--mean", "1.0", "--seed", "11")

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "lost 0, doubled 0" in ran.stdout


def test_control_a_worker_that_runs_calls_without_a_claim_is_found_out() -> None:
    ran = storm("--calls", "12", "--mean", "60", "--seed", "12", "--control", "blind")

    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "took effect 2 times" in ran.stdout
