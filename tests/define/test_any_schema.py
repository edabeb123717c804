"""Whatever the schema and whatever the arguments."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolwire.define.arguments import Checker
from toolwire.define.canonical import canonical
from toolwire.protocol.tools import Tool

NAMES = st.text("abcxyz_é", min_size=1, max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)

# Pairs of a schema and a value that fits it.
Fit = tuple[dict[str, Any], Any]
LEAVES: st.SearchStrategy[Fit] = st.one_of(
    st.integers(-(2**60), 2**60).map(lambda value: ({"type": "integer", "minimum": value}, value)),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: ({"type": "number"}, value)),
    st.text(st.characters(exclude_categories=["Cs"])).map(lambda value: ({"type": "string"}, value)),
    st.booleans().map(lambda value: ({"type": "boolean"}, value)),
    st.just(({"type": ["string", "null"]}, None)),
    st.sampled_from(["5", "true", "null"]).map(lambda value: ({"enum": [value, 5]}, value)),
)


def _array(fit: Fit, count: int) -> Fit:
    return {"type": "array", "items": fit[0]}, [fit[1]] * count


def _object(fits: dict[str, Fit]) -> Fit:
    schema = {
        "type": "object",
        "properties": {name: fit[0] for name, fit in fits.items()},
        "additionalProperties": False,
    }
    return schema | {"required": list(fits)}, {name: fit[1] for name, fit in fits.items()}


FITS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(_array, inner, st.integers(0, 3)),
        st.dictionaries(NAMES, inner, max_size=4).map(_object),
        inner.map(lambda fit: ({"anyOf": [{"type": "null"}, fit[0]]}, fit[1])),
    ),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, FITS, max_size=4).map(_object))
def test_arguments_that_fit_their_schema_survive_the_check_unchanged(fit: Fit) -> None:
    schema, value = fit
    checked = Checker(Tool("t", "A tool.", schema)).check(value)
    assert checked.faults == checked.notes == ()
    assert canonical(checked.arguments) == canonical(value)


@given(st.dictionaries(NAMES, FITS, max_size=3).map(_object), JSON)
def test_no_json_whatsoever_makes_the_check_raise(fit: Fit, value: Any) -> None:
    checker = Checker(Tool("t", "A tool.", fit[0]))
    for arguments in (value, {"a": value}, dict.fromkeys(fit[1], value)):
        checked = checker.check(arguments)
        assert checked.ok == (not checked.faults)
        "\n".join((*checked.faults, *checked.notes)).encode()
        assert checked.ok <= checker.check(checked.arguments).ok


NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -2.5])
SIMPLE = st.one_of(
    st.builds(lambda low, high: {"type": "integer", "minimum": low, "maximum": high}, NUMBERS, NUMBERS),
    st.builds(lambda low: {"type": "number", "exclusiveMinimum": low, "description": "A number."}, NUMBERS),
    st.builds(lambda high, one: {"type": "number", "exclusiveMaximum": high, "enum": [one, 9]}, NUMBERS, NUMBERS),
    st.builds(lambda size: {"type": "string", "minLength": size, "maxLength": 3}, st.integers(0, 4)),
    st.builds(lambda size: {"type": "string", "maxLength": size, "pattern": "^a"}, st.integers(0, 4)),
    st.builds(lambda value: {"const": value}, st.sampled_from(["ab", 1, True, None])),
    st.sampled_from(
        [
            {"enum": ["north", "south", "north-east", 4]},
            {"type": "string", "format": "date"},
            {"type": "boolean"},
            {"type": ["integer", "null"]},
            {"$ref": "#/$defs/size"},
            {"type": "array", "items": {"$ref": "#/$defs/size"}},
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        ]
    ),
)
WORDS = st.sampled_from(["", "a", "ab", "abba", "South", "nort", "2020-01-01", "5", "true", "[1]"])
VALUES = WORDS | NUMBERS | st.sampled_from([math.nan, -math.inf, None, True, 4, 10**20, [1], [math.nan], {"a": 1}])


@given(
    st.dictionaries(NAMES, SIMPLE, max_size=4), st.dictionaries(NAMES | st.just("a\0"), VALUES, max_size=4), st.data()
)
def test_the_same_is_told_however_the_faults_are_found(
    properties: dict[str, Any], arguments: dict[str, Any], data: st.DataObject
) -> None:
    """Single limits are read off the schema; with a branch beside them, or an inner document, they are not."""
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": list(properties)[:2]}
    schema |= {"additionalProperties": False, "$defs": {"size": {"type": "integer", "maximum": 2}}}
    arguments |= {name: data.draw(VALUES) for name in properties}
    beside: dict[str, Any] = {"allOf": [{}]}
    inner: dict[str, Any] = {"$defs": {**schema["$defs"], "other": {"$id": "https://example.com/other"}}}
    told = [Checker(Tool("t", "A tool.", schema | more)).check(arguments) for more in ({}, beside, beside | inner)]
    assert repr(told[0]) == repr(told[1]) == repr(told[2])
