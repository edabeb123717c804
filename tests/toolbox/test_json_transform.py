"""The tool that transforms JSON."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toolbox.conftest import Call
from toolwire.define.conformance import report
from toolwire.errors import ToolFailure
from toolwire.toolbox.data.json_transform import json_transform_tool
from toolwire.toolbox.data.queries import BadQuery, search

TOOL = json_transform_tool()
PEOPLE = [{"name": "Ada", "age": 36, "home": {"city": "London"}}, {"name": "Bob", "age": 7, "home": {"city": "Rome"}}]


@pytest.mark.feature("F243", "F182")
@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ({"path": "[0].name"}, "Ada"),
        ({"path": "[*].home.city"}, ["London", "Rome"]),
        ({"path": "[?age > `10`].name | [0]"}, "Ada"),
        ({"path": "nothing"}, None),
        ({}, PEOPLE),
        (
            {"operation": "map", "mapping": {"n": "name", "c": "home.city"}},
            [{"n": "Ada", "c": "London"}, {"n": "Bob", "c": "Rome"}],
        ),
        ({"operation": "map", "path": "[0]", "mapping": {"n": "name"}}, {"n": "Ada"}),
        ({"operation": "filter", "condition": {"age": 7}}, [PEOPLE[1]]),
        ({"operation": "filter", "condition": {"home.city": "Rome", "age": 7}}, [PEOPLE[1]]),
        ({"operation": "filter", "condition": {"no-such field": "`"}}, []),
        ({"operation": "filter", "condition": "age < `10` || name == 'Ada'"}, PEOPLE),
        ({"operation": "sort", "sort_by": "age"}, [PEOPLE[1], PEOPLE[0]]),
        ({"operation": "sort", "sort_by": "name", "descending": True}, [PEOPLE[1], PEOPLE[0]]),
        ({"operation": "sort", "path": "[*].age", "sort_by": "@"}, [7, 36]),
    ],
)
def test_data_is_transformed(call: Call, arguments: dict[str, Any], result: Any) -> None:
    output = call(TOOL, data=PEOPLE, **arguments)

    assert output["result"] == result
    assert output["operation"] == arguments.get("operation", "extract")


@pytest.mark.parametrize("data", [0, "", False, None, [], {}])
def test_data_that_counts_as_false_is_data_all_the_same(call: Call, data: Any) -> None:
    assert call(TOOL, data=data)["result"] == data


def test_the_expression_says_what_was_evaluated(call: Call) -> None:
    output = call(TOOL, data={"p": PEOPLE}, path="p", operation="filter", condition={"age": 7})

    assert output["expression"] == "p | [?(age) == `7`]"
    assert search(output["expression"], {"p": PEOPLE}) == output["result"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "[0"}, "is no JMESPath"),
        ({"path": "no_such(@)"}, "Unknown function"),
        ({"path": "abs(@)"}, "does not fit the data"),
        ({"operation": "map"}, "map needs mapping"),
        ({"operation": "filter"}, "filter needs condition"),
        ({"operation": "sort"}, "sort needs sort_by"),
        ({"operation": "sort", "sort_by": "home"}, "does not fit the data"),
        ({"operation": "sort", "path": "[0]", "sort_by": "a"}, "works on a list"),
        ({"operation": "filter", "path": "x", "condition": "a"}, "path finds nothing"),
        ({"path": "(" * 900 + "a" + ")" * 900}, "nested too deeply"),
    ],
)
def test_a_wrong_query_is_answered_with_what_is_wrong(call: Call, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolFailure, match=words) as failed:
        call(TOOL, data=PEOPLE, **arguments)

    assert len(str(failed.value)) < 600


@pytest.mark.parametrize(
    "query",
    [
        " | ".join(["[@,@]"] * 60),
        " | ".join(["[@,@][]"] * 60),
        "{a: @, b: @}" + " | {a: @, b: @}" * 40,
        " | ".join(["[@,@,@,@,@,@,@,@]"] * 12) + " | to_string(@)",
        "join(to_string([*].[@,@,@,@]), [*].to_string(@))",
        "[*].[@,@,@,@,@,@,@,@][].[@,@,@,@,@,@,@,@][].[@,@,@,@,@,@,@,@][].[@,@,@,@,@,@,@,@][].[@,@,@,@][]",
    ],
)
def test_a_query_that_multiplies_its_data_is_stopped(query: str) -> None:
    with pytest.raises(BadQuery, match=r"too large|too much|steps|items"):
        search(query, list(range(5000)))


def test_a_query_that_goes_over_its_data_too_often_is_stopped() -> None:
    with pytest.raises(BadQuery, match="items"):
        search(" | ".join(["reverse(@)"] * 100), list(range(50_000)))


def test_a_long_query_is_refused_before_it_is_read() -> None:
    with pytest.raises(BadQuery, match="2000"):
        search("a" * 3000, {})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_the_whole_of_any_data_is_itself(data: Any) -> None:
    assert search("@", data) == data


@given(st.text(max_size=40), st.lists(st.integers()))
def test_any_text_is_a_query_or_refused(query: str, data: list[int]) -> None:
    try:
        search(query, data)
    except BadQuery:
        return


def test_the_tool_conforms() -> None:
    assert report(TOOL) == []
