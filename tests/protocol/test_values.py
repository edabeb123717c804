"""Values made quickly mean what the plain dataclass means."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from toolwire.protocol.values import changed, changing, making, quick


@quick
@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    tags: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plain:
    x: int
    y: int = 2
    tags: dict[str, int] = field(default_factory=dict)


def test_defaults_keywords_equality_and_repr_are_the_dataclasss_own() -> None:
    assert (Point(1).y, Point(1, y=5).y, Point(x=3).x) == (2, 5, 3)
    assert Point(1) == Point(1) != Point(2)
    assert repr(Point(1)) == repr(Plain(1)).replace("Plain", "Point")
    assert Point(1).tags is not Point(1).tags


def test_a_wrong_number_of_arguments_is_an_error() -> None:
    make: Any = Point
    wrong: list[tuple[tuple[Any, ...], dict[str, int]]] = [((), {}), ((1, 2, {}, 4), {}), ((1,), {"z": 1})]
    for args, named in wrong:
        with pytest.raises(TypeError):
            make(*args, **named)


def test_a_made_or_changed_value_is_frozen_and_of_its_own_class() -> None:
    for value in (Point(1), changed(Point(1), x=9), replace(Point(1), x=9)):
        assert type(value) is Point
        with pytest.raises(FrozenInstanceError):
            value.x = 5  # type: ignore[misc]
        with pytest.raises(FrozenInstanceError):
            del value.y


def test_changing_leaves_the_original_alone() -> None:
    before = Point(1)
    assert (changed(before, x=9, y=8), before) == (Point(9, 8), Point(1))


def test_shortcuts_make_and_change_values_like_the_class_itself() -> None:
    make, move = making(Point), changing(Point, "x")
    assert [make(1), make(1, y=5), make(1, 2, {"a": 1})] == [Point(1), Point(1, y=5), Point(1, 2, {"a": 1})]
    assert move(Point(1, 5), 9) == Point(9, 5)
    assert make(1).tags is not make(1).tags
    for value in (make(1), move(Point(1), 9)):
        assert type(value) is Point
        with pytest.raises(FrozenInstanceError):
            value.x = 5  # type: ignore[misc]


def test_values_can_be_copied_pickled_and_matched() -> None:
    value = Point(1, 2, {"a": 1})
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
    match value:
        case Point(x, y):
            assert (x, y) == (1, 2)
