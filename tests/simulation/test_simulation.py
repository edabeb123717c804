"""A fleet under faults, in virtual time: a thousand seeds, and proof that they notice what goes wrong."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.__main__ import main
from tests.simulation.crash_points import CRASH_POINTS, NOWHERE
from tests.simulation.fleet import simulate
from tests.simulation.planted import PARTS, PLANTED, without

SEEDS, CANCELED_SEEDS = 1_000, 300
_TOGETHER = 25
_MOST_TRIED = 400
_LATE = {
    "acknowledge_before_it_is_kept": 60,
    "ask_whether_it_was_canceled_too_early": 690,
    "cancel_without_tasks": 65,
    "change_turns_of_others": 25,
    "claim_again_with_another_token": 185,
    "claim_without_epoch": 20,
    "close_without_token": 270,
    "detach_before_it_is_sent": 25,
    "end_what_was_claimed_since": 1220,
    "fail_while_the_store_is_away": 20,
    "go_on_after_the_first_task": 30,
    "leave_stranded_calls": 240,
    "run_what_another_began": 135,
}
"""Where seeds notice something only now and then, the first one that is tried: a seed costs 40 ms."""
_AT_EACH_POINT = 8
_AFTER_THE_EFFECT = "C26 the effect is done, and its result not kept"
_MOST_TRIED_AT_A_POINT = 100


@pytest.mark.parametrize("first", range(0, SEEDS, _TOGETHER))
def test_whatever_goes_wrong_each_call_has_one_result_and_takes_effect_once(first: int) -> None:
    for seed in range(first, first + _TOGETHER):
        report = simulate(seed)
        assert report.is_sound, str(report)


@pytest.mark.parametrize("first", range(0, CANCELED_SEEDS, 4 * _TOGETHER))
def test_whenever_a_turn_is_canceled_it_ends_so_and_each_call_has_one_result(first: int) -> None:
    for seed in range(first, first + 4 * _TOGETHER):
        report = simulate(seed, part="canceled")
        assert report.is_sound, str(report)


@pytest.mark.parametrize("name", CRASH_POINTS)
def test_a_process_that_is_killed_at_a_crash_point_does_no_harm(name: str) -> None:
    point = CRASH_POINTS[name]
    reports = [simulate(seed, crash=point, part=point.part) for seed in range(_AT_EACH_POINT)]

    assert all(any(report.counts[one.fault] for report in reports) for one in point.all_of_it)
    assert [str(report) for report in reports if not report.is_sound] == []


@pytest.mark.parametrize("name", CRASH_POINTS)
def test_control_without_its_defence_a_crash_point_does_harm(name: str) -> None:
    """And a calm run of the same seed does none, so that it is missed at this point."""
    point = CRASH_POINTS[name]

    def does_harm(seed: int) -> bool:
        calm = simulate(seed, crash=NOWHERE, part=point.part)
        return calm.is_sound and not simulate(seed, crash=point, part=point.part).is_sound

    with without(point.control):
        assert any(map(does_harm, range(point.first, point.first + _MOST_TRIED_AT_A_POINT)))


def test_a_sweep_of_a_point_counts_what_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--point", _AFTER_THE_EFFECT, "--seeds", "8"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1 points, ")
    assert "0 lost, 0 duplicated" in said


def test_control_a_sweep_without_a_defence_fails_and_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--point", _AFTER_THE_EFFECT, "--seeds", "8", "--without", "repeat_unsafe_calls"]) == 1
    said = capsys.readouterr().out
    assert " 0 duplicated" not in said
    assert f'again: python -m tests.simulation --seed 1 --point "{_AFTER_THE_EFFECT}"' in said


def test_a_sweep_that_never_strikes_a_point_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """No turn of this seed asks anyone."""
    point = "C7 while a call awaits approval"
    assert main(["--point", point, "--seeds", "1"]) == 1
    assert f"never struck: {point}" in capsys.readouterr().out


@pytest.mark.parametrize("name", PLANTED)
def test_a_defence_that_is_taken_away_is_noticed(name: str) -> None:
    with without(name):
        first = _LATE.get(name, 0)
        assert any(not simulate(seed, part=PARTS[name]).is_sound for seed in range(first, first + _MOST_TRIED))


def test_kills_pauses_and_outages_do_happen() -> None:
    reports = [simulate(seed) for seed in range(20)]
    told = "\n".join(event for report in reports for event in report.events)
    assert sum(report.counts["kills"] for report in reports) > 20
    for fault in ("pauses for", "cannot reach the store", "the store is away", "the bus is away", "loses everything"):
        assert fault in told


@pytest.mark.parametrize("part", ["detached", "service", "tasks", "canceled"])
def test_all_that_a_part_of_the_protocol_is_about_does_happen(part: str) -> None:
    counts = sum((simulate(seed, part=part).counts for seed in range(2 * _AT_EACH_POINT)), Counter[str]())
    expected = {
        "detached": ["detached"], "service": ["reported", "late"], "tasks": ["tasks", "canceled"],
        "canceled": ["canceled", "detached"],
    }  # fmt: skip

    assert all(counts[what] > 0 for what in expected[part]), counts


def test_the_same_seed_gives_the_same_run_in_another_process() -> None:
    seed = 63
    told = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", str(seed)],
        env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = simulate(seed, trace=100_000)

    assert told.returncode == 0, told.stderr
    assert [line for line in told.stdout.splitlines() if line in report.events] == list(report.events)


def test_a_seed_that_fails_says_how_to_run_it_again() -> None:
    with without("run_before_the_claim"):
        report = next(report for report in map(simulate, range(_MOST_TRIED)) if not report.is_sound)

    assert "took effect 2 times" in str(report)
    assert str(report).endswith(f"again: python -m tests.simulation --seed {report.seed}")
    assert any("effect of" in event for event in report.events)
