"""Slips of the pen in a call of the embedded model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.models.local_repair import repair_text
from toolwire.protocol.calls import ToolCall

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "guest": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def put_right(heard: str, **arguments: object) -> dict[str, object]:
    return dict(repair_text(ToolCall("t", arguments), SCHEMA, heard).arguments)


@pytest.mark.parametrize(
    ("heard", "written", "meant"),
    [
        ("register Brondge today", "Bondge", "Brondge"),
        ("read docs/quarast.cfg.", "docs/quarst.cfg", "docs/quarast.cfg"),
        ("look for glaciers museum", "golaciers museum", "glaciers museum"),
        ("book the room Pozu", "Poozu", "Pozu"),
    ],
)
def test_a_word_that_lost_a_letter_becomes_the_word_that_was_said(heard: str, written: str, meant: str) -> None:
    assert put_right(heard, name=written) == {"name": meant}


@pytest.mark.parametrize(
    ("heard", "written"),
    [
        ("list the python files", "**/*.py"),
        ("run the tests", "make test"),
        ("say Hello World", "hello world"),
        ("The tent costs 129 euros. Take it 3 times", "129*3"),
        ("port 8080 is taken", "8081"),
        ("translate good morning", "buenos dias"),
        ("", "anything"),
    ],
)
def test_what_was_said_or_made_on_purpose_stays(heard: str, written: str) -> None:
    assert put_right(heard, name=written) == {"name": written}


@pytest.mark.parametrize(
    ("heard", "written", "meant"),
    [
        ('run this: print(len("bread"))', 'print(len("bread")', 'print(len("bread"))'),
        ("evaluate f([1, 2]) please", "f([1, 2", "f([1, 2])"),
        ('find "print(" in the code', "print(", "print("),
        ("say f(x) and f(x", "f(x", "f(x"),
        ("say a) b (c)", "a) b (c", "a) b (c"),
    ],
)
def test_a_bracket_is_closed_where_it_was_closed_in_what_was_said(heard: str, written: str, meant: str) -> None:
    assert put_right(heard, name=written) == {"name": meant}


@pytest.mark.parametrize(
    ("heard", "written", "meant"),
    [
        ("(44-17)*(8+5)", "(44-17) * 8 + 5", "(44-17)*(8+5)"),
        ("execute the code len('straße')", "len('straße\")", "len('straße')"),
        ('find "print(x)" please', "print( x", "print(x)"),
        ("add 12, 5", "12+5", "12+5"),
        ("say don't panic", "dont panic", "don't panic"),
        ("a(b) and a[b]", "a b b", "a b b"),
    ],
)
def test_brackets_and_quotes_that_were_lost_on_the_way_come_back(heard: str, written: str, meant: str) -> None:
    assert put_right(heard, name=written) == {"name": meant}


def test_choices_and_numbers_stay_as_the_schema_wants_them() -> None:
    assert put_right("12 degrees in Celcius", unit="celsius", count=13) == {"unit": "celsius", "count": 13}


def test_text_inside_lists_and_objects_is_put_right_too() -> None:
    arguments = put_right("tag it zebrafish and send it to Tallinn", tags=["zebrfish"], guest={"city": "Talinn"})
    assert arguments == {"tags": ["zebrafish"], "guest": {"city": "Tallinn"}}


def test_a_very_long_text_costs_little() -> None:
    heard = "word " * 50_000
    assert put_right(heard, name="wrod " * 2000)["name"] == "wrod " * 2000


@pytest.mark.parametrize(
    ("heard", "name", "written", "meant"),
    [
        ("run make with a timeout of 5 seconds", "timeout_ms", 5, 5000),
        ("keep it open for 2 hours", "durationMinutes", 2, 120),
        ("wait 30min", "delay", 30, 1800),
        ("wait 90 minutes", "delay_hours", 90, 1.5),
        ("log 1500 metres in 40 minutes", "distance_km", 1500, 1.5),
        ("stock: olive oil, 0.75 l", "amountMl", 0.75, 750),
        ("a parcel of 2 kilos", "weight_g", 2, 2000),
        ("the oven to 392 fahrenheit", "temp_c", 392, 200),
        ("cool it to 64.4°F", "celsius", 64.4, 18),
        ("5 km in 5 minutes", "distance_km", 5, 5),
        ("5 km in 5 minutes", "duration_s", 5, 300),
        ("20 degrees celsius", "celsius", 20, 20),
        ("gate 7, 7 km away", "distance_m", 7, 7),
    ],
)
def test_an_amount_copied_in_another_unit_becomes_the_unit_that_the_input_asks_for(
    heard: str, name: str, written: int, meant: float
) -> None:
    schema = {"properties": {name: {"type": "number", "description": "in seconds" if name == "delay" else ""}}}
    assert repair_text(ToolCall("t", {name: written}), schema, heard).arguments == {name: meant}


@pytest.mark.parametrize(
    ("heard", "name", "written"),
    [
        ("wait 90 seconds", "seconds", 90),
        ("wait a minute", "seconds", 60),
        ("2 tries within 2 minutes", "timeout_seconds", 2),
        ("a number between 5 minutes", "min", 5),
        ("ping it 3 times for 3 seconds", "count", 3),
        ("90 minutes", "whole_hours", 90),
    ],
)
def test_a_number_that_may_mean_what_it_says_stays(heard: str, name: str, written: int) -> None:
    schema = {"properties": {name: {"type": "integer"}}}
    assert repair_text(ToolCall("t", {name: written}), schema, heard).arguments == {name: written}


@given(st.floats(0, 1e6) | st.integers(0, 10**6), st.text(), st.text())
def test_a_number_that_nobody_said_stays(value: float, name: str, before: str) -> None:
    schema = {"properties": {name: {"type": "number", "description": "in seconds"}}}
    heard = "".join(char for char in before if not char.isdigit())
    assert repair_text(ToolCall("t", {name: value}), schema, heard).arguments == {name: value}
