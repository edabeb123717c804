"""Foreign text on a terminal: it can be read, and it can do nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.cli.terminal.json_output import encode_json
from toolwire.cli.terminal.text import arguments_line, clean, duration, one_line


@given(st.text())
def test_clean_text_holds_no_control_character_but_tab_and_line_end(text: str) -> None:
    shown = clean(text)
    assert len(shown) == len(text)
    assert all(char in "\t\n" or (ord(char) >= 0x20 and not 0x7F <= ord(char) < 0xA0) for char in shown)
    shown.encode()


def test_an_escape_sequence_is_shown_as_a_symbol() -> None:
    assert clean("\x1b[31mred\x07") == "␛[31mred␇"


@pytest.mark.threat("T66")
@given(st.text(), st.integers(2, 80))
def test_one_line_is_one_short_line(text: str, most: int) -> None:
    line = one_line(text, most)
    assert len(line) <= most
    assert "\n" not in line


@given(
    st.dictionaries(st.text(max_size=5), st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5))
)
def test_arguments_fit_on_one_line(arguments: dict[str, object]) -> None:
    assert len(arguments_line(arguments, 40)) <= 40


def test_arguments_are_written_as_a_person_would() -> None:
    assert (
        arguments_line({"a": "x", "b": 2, "c": True, "d": [1, 2], "e": None}, 60)
        == 'a="x", b=2, c=true, d=[1, 2], e=null'
    )


def test_a_number_that_python_would_not_write_is_shown_in_words() -> None:
    assert arguments_line({"n": 10**5000}, 60) == "n=(a very long number)"


@pytest.mark.parametrize(("ms", "said"), [(0.42, "0.4 ms"), (87.2, "87 ms"), (2345, "2.3 s"), (125_000, "2 min 5 s")])
def test_durations_are_said_in_the_fitting_unit(ms: float, said: str) -> None:
    assert duration(ms) == said


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(), st.lists, max_leaves=10))
def test_json_is_strict_whatever_is_in_it(value: object) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(encode_json(value), parse_constant=refuse)


def test_json_carries_half_a_surrogate_and_infinity() -> None:
    assert json.loads(encode_json({"a": "\ud800", "b": float("inf")})) == {"a": "\ud800", "b": "inf"}


def test_json_carries_a_number_that_python_would_not_write() -> None:
    assert int(json.loads(encode_json(10**5000)), 16) == 10**5000


@given(st.dictionaries(st.text(), st.text()))
def test_T307_json_is_the_same_and_holds_nothing_that_a_terminal_obeys_or_hides(value: dict[str, str]) -> None:
    written = encode_json(value, indent=True)
    assert json.loads(written) == value
    assert clean(written.decode()) == written.decode()


def test_T307_control_letters_and_pictures_are_written_as_they_are() -> None:
    """Also those that are joined of several."""
    assert encode_json(["é", "日本", "👩‍🚀"]) == '["é","日本","👩‍🚀"]'.encode()
    assert encode_json("a\x9b31m\x7f\u202eb\U000e0041") == b'"a\\u009b31m\\u007f\\u202eb\\udb40\\udc41"'
