"""Real processes that are killed at crash points, over real brokers: a few of the many runs of `make chaos`."""

import re
import subprocess

import pytest

from tests.crash_points import POINTS
from tests.crash_sweep.controls import DEFENCES, defences
from tests.crash_sweep.devices import DEVICE_POINTS
from tests.crash_sweep.runs import SERVER_POINTS, points_over, seeds_at
from tests.forked import run_python
from tests.simulation.crash_points import CRASH_POINTS
from tests.simulation.fleet import simulate_point

_AFTER_THE_EFFECT = ("C26 the effect is done, and its result not kept", "C23 during the run, after its effect")
_OVER = ("nats", "postgres", "mqtt")
_SENDS_TWICE = "94"
"""A seed with one turn whose two steps call nothing else than a tool that must not take effect twice."""


def sweep(*words: str) -> "subprocess.CompletedProcess[str]":
    chosen = [word for name in _AFTER_THE_EFFECT for word in ("--point", name)]
    return run_python("-m", "tests.crash_sweep", "--over", *_OVER, "--seed", _SENDS_TWICE, *chosen, *words)


def test_real_processes_that_die_after_an_effect_repeat_none_that_must_not_be() -> None:
    ran = sweep()

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("1 runs of which 1 were struck") == len(_OVER)
    assert ran.stdout.count("lost 0, duplicated 0") == len(_OVER)


def test_control_processes_that_repeat_what_they_began_are_found_out() -> None:
    ran = sweep("--without", "repeat_unsafe_calls", "--without", "run_again_what_a_device_began")

    assert ran.returncode == 1, ran.stdout + ran.stderr
    each = re.split("\nover [a-z]+: ", ran.stdout)[: len(_OVER)]
    for over, said in zip(_OVER, each, strict=True):
        assert "it took effect more than once" in said, ran.stdout
        assert f"--over {over} " in said
        assert f"--seed {_SENDS_TWICE}" in said


def test_over_nats_each_simulated_point_is_struck_in_real_processes_too() -> None:
    assert points_over("nats") == CRASH_POINTS


def test_each_numbered_point_of_a_device_or_a_server_is_one_of_the_protocol() -> None:
    named = {name.partition(" ")[0] for name in {**DEVICE_POINTS, **SERVER_POINTS} if re.match("C[0-9]", name)}

    assert named <= set(POINTS)


@pytest.mark.parametrize("over", ["embedded", "nats", "postgres"])
def test_each_point_names_the_defences_that_are_missed_there(over: str) -> None:
    missed = {name: defences(over, name) for name in points_over(over)}

    assert [name for name, some in missed.items() if not some] == []
    assert {one for some in missed.values() for one in some} <= set(DEFENCES)


def test_seeds_are_those_whose_turns_come_to_the_point() -> None:
    point = "C7 while a call awaits approval"
    found = seeds_at("nats", point, 2)

    assert [bool(simulate_point(point, seed).counts["kill"]) for seed in found] == [True, True]
    assert any(not simulate_point(point, seed).counts["kill"] for seed in range(found[-1]))
