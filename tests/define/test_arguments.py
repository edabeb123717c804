"""Arguments against a schema: what passes, what is read losslessly, and what the model is told."""

import math
import uuid
from types import MappingProxyType
from typing import Any

import pytest

from toolwire.define.arguments import Checked, Checker
from toolwire.errors import DefinitionError
from toolwire.protocol.tools import Tool

READ: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "offset": {"type": "integer", "minimum": 0},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "mode": {"enum": ["text", "binary"]},
        "follow": {"type": "boolean"},
        "ratio": {"type": "number", "exclusiveMaximum": 1},
        "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "where": {
            "type": "object",
            "properties": {"host": {"type": "string"}, "port": {"type": "integer"}},
            "required": ["host"],
            "additionalProperties": False,
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


def check(schema: dict[str, Any], arguments: Any, **more: Any) -> Checked:
    return Checker(Tool("read", "Read a file.", schema, **more)).check(arguments)


def only(schema: dict[str, Any], value: Any) -> Checked:
    """Check one value under the name `v`."""
    return check({"type": "object", "properties": {"v": schema}}, {"v": value})


@pytest.mark.feature("F107")
def test_arguments_that_fit_pass_unchanged() -> None:
    given = {"path": "a", "offset": 3, "limit": None, "lines": [1], "where": {"host": "h", "port": 1}}
    assert check(READ, given) == Checked(given)
    assert check(READ, MappingProxyType(given)) == Checked(given)


@pytest.mark.feature("F107")
@pytest.mark.feature("F155")
def test_every_fault_is_told_at_once_in_an_order_that_does_not_change() -> None:
    given = {
        "pathh": 1,
        "mode": "txt",
        "offset": -1,
        "ratio": 1,
        "follow": "maybe",
        "lines": [1, 2, 3, 4],
        "where": {"hst": "h", "port": []},
    }
    assert check(READ, given).faults == (
        "missing 'path'",
        "missing 'host' in where",
        "follow: expected a boolean, got the string 'maybe'",
        "where.port: expected an integer, got the array []",
        "unknown 'pathh'; did you mean 'path'?",
        "unknown 'hst' in where; did you mean 'host'?",
        "mode: expected one of 'text', 'binary', got 'txt'; did you mean 'text'?",
        "offset: must be at least 0, got -1",
        "ratio: must be less than 1, got 1",
        "lines: must have at most 3 items, has 4",
        "Required: [path]. Optional: [offset, limit, mode, follow, ratio, lines, where].",
    )


@pytest.mark.feature("F109")
def test_a_missing_parameter_is_named_with_what_else_there_is() -> None:
    schema = {"properties": {"path": {}, "offset": {}, "limit": {}}, "required": ["path"]}
    assert check(schema, {}).faults == ("missing 'path'", "Required: [path]. Optional: [offset, limit].")


def test_a_tool_without_parameters_says_so() -> None:
    fault, last = check({"type": "object", "additionalProperties": False}, {"x": 1}).faults
    assert (fault, last) == ("unknown 'x'", "Required: []. Optional: [].")


@pytest.mark.contrast("T12")
@pytest.mark.feature("F108")
@pytest.mark.parametrize(
    ("types", "given", "read"),
    [
        ("integer", "5", 5),
        ("integer", "-12", -12),
        ("integer", "5.0", 5),
        ("integer", "1e3", 1000),
        ("integer", 5.0, 5),
        ("number", "2.5", 2.5),
        ("number", "7", 7),
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("array", "[1, 2]", [1, 2]),
        ("object", ' {"a": 1}', {"a": 1}),
        ("string", 42, "42"),
        (["integer", "null"], "null", None),
        (["integer", "null"], "6", 6),
    ],
)
def test_a_value_is_read_as_the_wanted_type_where_nothing_is_lost(types: Any, given: Any, read: Any) -> None:
    checked = only({"type": types}, given)
    assert checked.faults == ()
    assert checked.arguments == {"v": read}
    assert type(checked.arguments["v"]) is type(read)


@pytest.mark.threat("T12")
@pytest.mark.feature("F108")
@pytest.mark.parametrize(
    ("types", "given"),
    [
        ("integer", "5.5"),
        ("integer", "five"),
        ("integer", "05"),
        ("integer", " 5"),
        ("integer", ""),
        ("integer", "٣"),
        ("integer", True),
        ("integer", 5.5),
        ("integer", "9" * 500),
        ("number", "1e999"),
        ("number", "NaN"),
        ("boolean", 1),
        ("boolean", "yes"),
        ("string", 1.5),
        ("string", True),
        ("string", None),
        (["string", "null"], 5),
        ("null", "None"),
        ("array", "{}"),
        ("array", "[1"),
        ("array", "a, b"),
        ("array", 1),
        ("object", "[]"),
    ],
)
def test_nothing_is_guessed(types: Any, given: Any) -> None:
    checked = only({"type": types}, given)
    assert len(checked.faults) == 1
    assert checked.arguments == {"v": given}


@pytest.mark.parametrize("text", ["5", "true", "null", "[1]", '{"a":1}'])
def test_text_stays_text_where_text_is_welcome(text: str) -> None:
    for schema in (
        {"type": "string"},
        {"type": ["string", "integer", "null"]},
        {},
        {"anyOf": [{"type": "string"}, {}]},
    ):
        assert only(schema, text) == Checked({"v": text})


def test_what_was_read_otherwise_is_noted() -> None:
    checked = check(READ, {"path": "a", "offset": "5", "where": '{"host": "h", "port": "80"}'})
    assert checked.arguments == {"path": "a", "offset": 5, "where": {"host": "h", "port": 80}}
    assert checked.notes == (
        "offset: '5' read as 5",
        'where: \'{"host": "h", "port": "80"}\' read as {"host":"h","port":"80"}',
        "where.port: '80' read as 80",
    )


def test_a_value_read_for_two_schemas_at_once_is_noted_once() -> None:
    checked = only({"allOf": [{"type": "integer"}, {"type": "integer", "minimum": 1}]}, "5")
    assert checked == Checked({"v": 5}, (), ("v: '5' read as 5",))


def test_the_given_arguments_are_never_changed() -> None:
    given = {"path": "a", "lines": ["1", 2.0]}
    assert check(READ, given).arguments == {"path": "a", "lines": [1, 2]}
    assert given == {"path": "a", "lines": ["1", 2.0]}


def test_a_whole_float_becomes_an_integer_only_where_one_is_wanted() -> None:
    schema = {"properties": {"i": {"type": "integer"}, "n": {"type": "number"}, "deep": {"items": {"type": "integer"}}}}
    read = check(schema, {"i": 1.0, "n": 1.0, "deep": [2.0], "free": 1.0}).arguments
    assert [type(read[name]) for name in ("i", "n", "free")] == [int, float, float]
    assert type(read["deep"][0]) is int


CIRCLE = {"properties": {"kind": {"const": "circle"}, "radius": {"type": "integer"}}, "required": ["kind", "radius"]}
SQUARE = {"properties": {"kind": {"const": "square"}, "side": {"type": "integer"}}, "required": ["kind", "side"]}
SHAPE = {"oneOf": [{"type": "object"} | CIRCLE, {"type": "object"} | SQUARE, {"type": "null"}]}


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        ({"kind": "circle", "radius": "big"}, ("v.radius: expected an integer, got the string 'big'",)),
        ({"kind": "square"}, ("missing 'side' in v", "Required: []. Optional: [v].")),
        ({"kind": "line", "side": 1}, ("v.kind: expected one of 'circle', 'square'",)),
        (7, ("v: expected an object or null, got the number 7",)),
    ],
)
def test_of_several_forms_the_closest_one_is_explained(given: Any, faults: tuple[str, ...]) -> None:
    assert only(SHAPE, given).faults == faults


def test_values_inside_the_closest_form_are_read_too() -> None:
    assert only(SHAPE, {"kind": "circle", "radius": "3"}).arguments == {"v": {"kind": "circle", "radius": 3}}


@pytest.mark.parametrize(
    ("schema", "given", "fault"),
    [
        ({"maximum": 3}, 4, "v: must be at most 3, got 4"),
        ({"exclusiveMinimum": 3}, 3, "v: must be greater than 3, got 3"),
        ({"multipleOf": 5}, 7, "v: must be a multiple of 5, got 7"),
        ({"minLength": 2}, "a", "v: must have at least 2 characters, has 1"),
        ({"maxLength": 2}, "abc", "v: must have at most 2 characters, has 3"),
        ({"minItems": 2}, [1], "v: must have at least 2 items, has 1"),
        ({"uniqueItems": True}, [1, 1], "v: items must all be different"),
        ({"pattern": "^a+$"}, "b", "v: must match the pattern '^a+$', got 'b'"),
        ({"format": "date"}, "tomorrow", "v: must be written as a 'date', got 'tomorrow'"),
        ({"format": "date-time"}, "2024-13-01T00:00", "v: must be written as a 'date-time', got '2024-13-01T00:00'"),
        ({"const": "x"}, "y", "v: must be 'x', got 'y'"),
        ({"minProperties": 1}, {}, "v: must have at least 1 entries, has 0"),
        (False, 1, "v: is not allowed here"),
        ({"not": {}}, 1, "v: is not allowed (not), got 1"),
    ],
)
def test_each_limit_is_told_in_its_own_words(schema: Any, given: Any, fault: str) -> None:
    assert only(schema, given).faults == (fault,)


def test_long_values_and_long_lists_of_faults_are_cut() -> None:
    long = only({"type": "integer"}, "x" * 1000).faults[0]
    assert len(long) < 200
    schema = {"type": "object", "properties": {"v": {"items": {"type": "integer"}}}}
    faults = check(schema, {"v": ["x"] * 50}).faults
    assert len(faults) == 21
    assert faults[-1] == "… and 30 more"


DEEP: Any = 0
for _ in range(70):
    DEEP = [DEEP]


@pytest.mark.threat("T3", "T5")
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"a": math.nan}, "finite"),
        ({"a": -math.inf, "b": None}, "finite"),
        ({"a": "\ud800"}, "surrogate"),
        ({"a": 10**401}, "400 digits"),
        ({"a\0b": 1}, "name"),
        ({"\udfff": 1}, "name"),
        ({"a": DEEP}, "deeper than 64"),
        ({"a": {1: 2}}, "name"),
        ({"a": {1, 2}}, "set is not a JSON value"),
    ],
)
def test_what_is_not_sound_json_is_refused_whatever_the_schema(closed: bool, given: Any, words: str) -> None:
    schema: dict[str, Any] = {"type": "object"}
    if closed:
        schema |= {"properties": {"a": {"type": ["string", "number", "integer"]}}, "additionalProperties": False}
    faults = check(schema, given).faults
    assert words in " ".join(faults)
    " ".join(faults).encode()


def test_python_values_that_are_not_json_are_a_fault_not_a_crash() -> None:
    assert not only({"type": "string"}, uuid.UUID(int=1)).ok
    assert not check({"type": "object"}, ["not", "an", "object"]).ok


def test_large_sound_values_pass() -> None:
    given = {"big": 10**399, "text": "null \\u0000 \0 {[" * 100, "deep": [[[[None]]]]}
    assert check({"type": "object"}, given) == Checked(given)


@pytest.mark.threat("T16")
def test_a_pattern_runs_in_linear_time() -> None:
    """With a backtracking engine this would take longer than the universe has."""
    assert not only({"type": "string", "pattern": "^(a+)+$"}, "a" * 50_000 + "!").ok


@pytest.mark.threat("T16")
def test_a_pattern_with_look_ahead_works_within_bounds() -> None:
    assert only({"type": "string", "pattern": "^(?!x)[a-z]+$"}, "abc").ok
    assert not only({"type": "string", "pattern": "^(?=(a+)+$)b"}, "a" * 5_000 + "!").ok


@pytest.mark.threat("T16")
def test_a_branching_recursive_schema_cannot_make_the_check_explode() -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}},
        "required": ["y"],
    }
    given: dict[str, Any] = {}
    for _ in range(60):
        given = {"x": given}
    assert "nested too deeply" in check(schema, given).faults[0]


def test_a_recursive_schema_is_checked_as_any_other() -> None:
    schema = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}, "n": {"type": "integer"}},
    }
    assert check(schema, {"kids": [{"kids": [{"n": "1"}]}]}).arguments == {"kids": [{"kids": [{"n": 1}]}]}


def test_very_many_wrong_values_cost_one_sentence() -> None:
    assert only({"items": {"type": "string"}}, [True] * 200_000).faults == ("v[0]: expected a string, got true",)


def test_older_drafts_are_read_as_they_say() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"items": [{"type": "integer"}, {"type": "string"}]}},
    }
    assert check(schema, {"pair": [1, "a"]}).ok
    assert not check(schema, {"pair": ["a", "a"]}).ok


def test_a_schema_that_cannot_be_compiled_is_refused_when_the_checker_is_made() -> None:
    with pytest.raises(DefinitionError, match="input_schema of tool 'read'"):
        check({"type": "nothing"}, {})


@pytest.mark.feature("F065")
def test_a_tools_own_validator_has_the_last_word() -> None:
    def within_reason(arguments: dict[str, Any]) -> dict[str, Any] | None:
        if arguments["first"] > arguments["last"]:
            raise ValueError("first must not be after last")
        return {**arguments, "count": arguments["last"] - arguments["first"]}

    schema = {"properties": {"first": {"type": "integer"}, "last": {"type": "integer"}}, "required": ["first", "last"]}
    assert check(schema, {"first": "1", "last": 4}, validator=within_reason).arguments["count"] == 3
    assert check(schema, {"first": 9, "last": 4}, validator=within_reason).faults == ("first must not be after last",)
    assert check(schema, {"first": 9}, validator=within_reason).faults[0] == "missing 'last'"


def test_a_validator_gets_a_copy_and_cannot_crash_the_check() -> None:
    def spoil(arguments: dict[str, Any]) -> None:
        arguments["v"].clear()
        raise KeyError("oops")

    given = {"v": [1]}
    checked = check({"type": "object"}, given, validator=spoil)
    assert checked.faults == ("the tool's validator failed: KeyError: 'oops'",)
    assert given == {"v": [1]}
