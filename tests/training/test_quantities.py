"""Amounts as the generator says them."""

from random import Random

import pytest
from training.composed import acts, clauses, compose
from training.naming import make
from training.quantities import measure
from training.requests import ask
from training.values import draw, schema_of

KNOWN: dict[tuple[str, str], dict[str, float]] = {
    ("duration", "minutes"): {"two and a half hours": 150, "a quarter of an hour": 15},
    ("duration", "seconds"): {"a quarter of an hour": 900, "a minute and a half": 90},
    ("volume", "millilitres"): {"half a litre": 500},
    ("weight", "kilograms"): {"half a kilo": 0.5},
    ("share", "percent"): {"three quarters": 75},
    ("share", "fraction"): {"half": 0.5},
    ("money", "cents"): {"a tenner": 1000},
    ("count", "items"): {"a dozen": 12, "a couple of": 2},
}
BOUNDS = {"money": ("1", "100"), "share": ("1", "100"), "weight": ("0.5", "40")}


@pytest.mark.parametrize(("quantity", "unit"), KNOWN)
def test_an_amount_is_what_it_says_in_the_unit_that_is_asked_for(quantity: str, unit: str) -> None:
    rng, known = Random(1), KNOWN[quantity, unit]
    drawn = dict(measure(rng, quantity, unit, *BOUNDS.get(quantity, ("1", "9000"))) for _ in range(6000))
    assert {said: drawn[said] for said in known} == known


@pytest.mark.parametrize(
    ("said", "clock"),
    [("half past four in the afternoon", "16:30"), ("quarter to nine in the morning", "08:45"), ("noon", "12:00")],
)
def test_a_time_of_day_is_told_by_the_clock(said: str, clock: str) -> None:
    rng = Random(2)
    drawn = dict(measure(rng, "clock", "HH:MM", "0", "23") for _ in range(20_000))
    assert drawn[said] == clock


def test_every_condition_of_every_act_is_known_and_makes_a_tool() -> None:
    rng = Random(3)
    for act in acts():
        assert set(act.clauses) <= clauses().keys()
        for _ in range(5):
            family = compose(act, rng)
            asked = ask(family, rng)
            made = make(family, rng, asked.need)
            assert set(made.tool.input_schema["required"]) <= asked.arguments(made).keys()


def test_no_condition_that_was_not_said_is_in_the_call() -> None:
    rng = Random(4)
    for act in acts():
        family = compose(act, rng)
        asked = ask(family, rng)
        assert asked.need == {role for role in asked.frame.roles if role in family.roles}


def test_a_measure_has_the_type_of_its_unit() -> None:
    rng = Random(5)
    for kind in ("measure duration minutes 1 90", "measure weight kilograms 1 9", "measure day iso"):
        expected = {"integer": int, "number": int | float, "string": str}[schema_of(kind)["type"]]
        assert all(isinstance(draw(kind, rng)[1], expected) for _ in range(200))
