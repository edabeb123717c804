"""The crash points of the protocol as a promise: each is hit by a test, and each has a control."""

from tests.crash_points import POINTS, controls, failpoints, hitting
from tests.marks import every_test
from tests.simulation.crash_points import CRASH_POINTS


def test_all_points_are_listed_in_order() -> None:
    assert list(POINTS) == [f"C{number}" for number in range(1, 49)]


def test_each_point_is_hit_by_a_test() -> None:
    assert [number for number in POINTS if not hitting(number)] == []


def test_each_point_has_a_control() -> None:
    """A test that passes where all is well is none: what a control is shows in its name."""
    assert [number for number in POINTS if not controls(number)] == []
    named = {one for number in POINTS for one in controls(number)}
    assert [one for one in named if "control" not in one.rpartition("::")[2]] == []


def test_every_test_that_is_named_exists() -> None:
    named = {one for number in POINTS for one in (*hitting(number), *controls(number))}

    assert named - set(every_test()) == set()


def test_every_simulated_point_with_a_number_is_one_of_these() -> None:
    known = {name for number in POINTS for name in failpoints(number)}

    assert {name for name in CRASH_POINTS if name.startswith("C")} == known
