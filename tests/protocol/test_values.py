"""Values made quickly mean what the plain dataclass means."""

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field, fields
from typing import Any

import pytest

from toolwire.protocol.values import changing, constructor, constructor_from, dataclass, fast_frozen, replace


@fast_frozen
@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    tags: dict[str, int] = field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
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
    for value in (Point(1), replace(Point(1), x=9), dataclasses.replace(Point(1), x=9)):
        assert type(value) is Point
        with pytest.raises(FrozenInstanceError):
            value.x = 5  # type: ignore[misc]
        with pytest.raises(FrozenInstanceError):
            del value.y


def test_changing_leaves_the_original_alone() -> None:
    before = Point(1)
    assert (replace(before, x=9, y=8), before) == (Point(9, 8), Point(1))
    assert replace(Plain(1), x=9) == Plain(9)


def test_shortcuts_make_and_change_values_like_the_class_itself() -> None:
    make, move = constructor(Point), changing(Point, "x")
    assert [make(1), make(1, y=5), make(1, 2, {"a": 1})] == [Point(1), Point(1, y=5), Point(1, 2, {"a": 1})]
    assert move(Point(1, 5), 9) == Point(9, 5)
    assert make(1).tags is not make(1).tags
    for value in (make(1), move(Point(1), 9)):
        assert type(value) is Point
        with pytest.raises(FrozenInstanceError):
            value.x = 5  # type: ignore[misc]


def test_a_value_made_from_some_fields_has_the_defaults_of_all_others() -> None:
    make = constructor_from(Point, "y", "x")
    assert (make(5, 1), type(make(5, 1))) == (Point(1, 5), Point)
    assert make(5, 1).tags is not make(5, 1).tags
    with pytest.raises(FrozenInstanceError):
        setattr(make(5, 1), "x", 2)  # noqa: B010
    with pytest.raises(TypeError, match="'x' has no default"):
        constructor_from(Point, "y")


def test_values_can_be_copied_pickled_and_matched() -> None:
    value = Point(1, 2, {"a": 1})
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
    match value:
        case Point(x, y):
            assert (x, y) == (1, 2)


@dataclass(frozen=True, slots=True)
class Card:
    """Everything that a frozen class of ours makes use of."""

    name: str
    pages: list[Any] = field(default_factory=list, repr=False)
    seen: int = field(default=0, compare=False)
    made: str = field(default="", init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "made", self.name.upper())


@dataclasses.dataclass(frozen=True, slots=True)
class StandardCard:
    """The same with the standard library's decorator."""

    name: str
    pages: list[Any] = field(default_factory=list, repr=False)
    seen: int = field(default=0, compare=False)
    made: str = field(default="", init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "made", self.name.upper())


@dataclass(frozen=True, slots=True)
class One:
    only: Any


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(slots=True)
class Tally:
    count: int = 0


@pytest.mark.parametrize("kind", [Card, StandardCard])
def test_our_dataclass_means_what_the_standard_one_means(kind: Any) -> None:
    value = kind("a", [1], seen=3)
    assert (value.name, value.pages, value.seen, value.made) == ("a", [1], 3, "A")
    assert value == kind("a", [1], seen=4) != kind("b", [1])
    assert value != Point(1)
    assert value != "a"
    assert kind("a").pages is not kind("a").pages
    assert repr(value) == f"{kind.__name__}(name='a', seen=3, made='A')"
    assert dataclasses.replace(value, name="b").made == "B"
    assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
    assert [part.name for part in fields(kind)] == ["name", "pages", "seen", "made"]
    assert kind.__match_args__ == ("name", "pages", "seen")
    assert not hasattr(value, "__dict__")
    for wrong in ({}, {"name": "a", "made": "b"}, {"name": "a", "other": 1}):
        with pytest.raises(TypeError):
            kind(**wrong)
    with pytest.raises(FrozenInstanceError):
        value.name = "b"
    with pytest.raises(FrozenInstanceError):
        del value.name
    with pytest.raises(TypeError):
        hash(value)  # as its list


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Each field is named by whoever makes it, so those with a default may stand first."""

    unit: str = "m"
    size: int


@dataclass(frozen=True, slots=True)
class Mixed:
    size: int
    unit: str = field(default="m", kw_only=True)
    note: str = ""


@dataclass(slots=True, kw_only=True)
class Counted:
    unit: str = "m"
    size: int


@pytest.mark.parametrize("kind", [Named, Counted])
def test_fields_that_are_only_named_cannot_be_given_by_their_place(kind: Any) -> None:
    value = kind(size=1)
    assert (value.unit, value.size, kind.__match_args__) == ("m", 1, ())
    assert value == kind(unit="m", size=1) != kind(unit="km", size=1)
    assert copy.copy(value) == pickle.loads(pickle.dumps(value)) == dataclasses.replace(value, unit="m") == value
    for args, named in (((1,), {}), ((), {"unit": "m"})):
        with pytest.raises(TypeError):
            kind(*args, **named)


def test_one_field_that_is_only_named_leaves_the_others_their_places() -> None:
    value: Any = Mixed(1, "thin", unit="km")
    assert (value.size, value.note, value.unit) == (1, "thin", "km")
    assert constructor(Named)(size=1) == Named(size=1) == replace(Named(size=2), size=1)
    with pytest.raises(TypeError):
        Mixed(1, "thin", "km")  # type: ignore[call-arg]


def test_frozen_values_with_one_field_or_none_are_equal_and_hash_by_it() -> None:
    assert {One(1), One(1), One(2), Nothing(), Nothing()} == {One(1), One(2), Nothing()}


def test_a_value_that_contains_itself_can_be_shown() -> None:
    value = One([])
    value.only.append(value)
    assert repr(value) == "One(only=[...])"


def test_a_class_that_is_not_frozen_can_be_assigned_to_and_has_no_hash() -> None:
    tally = Tally()
    tally.count += 1
    assert tally == Tally(1)
    assert repr(tally) == "Tally(count=1)"
    with pytest.raises(TypeError):
        hash(tally)
