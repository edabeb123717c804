"""References in workflows keep types, and say what is wrong with them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.plan.references import BadReference, find_references, resolve

KNOWN = {"a": {"n": 5, "list": [{"x": "y"}], "text": "hi", "none": None, "odd key": 1, "0": "zero"}, "b": [1, 2]}


@pytest.mark.feature("F167")
@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${a.n}", 5),
        ("${ a.n }", 5),
        ("${a.list[0].x}", "y"),
        ("${a.list.0.x}", "y"),
        ("${a['odd key']}", 1),
        ('${a["odd key"]}', 1),
        ("${a.0}", "zero"),
        ("${b}", [1, 2]),
        ("${b[1]}", 2),
        ("${a.none}", None),
        ("n is ${a.n}", "n is 5"),
        ("${a.n}${a.n}", "55"),
        ("${a.text} ${b} ${a.none}", "hi [1,2] null"),
        ("$${a.n}", "${a.n}"),
        ("$${a.n} is ${a.n}", "${a.n} is 5"),
        ("$5 {x}", "$5 {x}"),
        ({"k": ["${a.n}", {"d": "${a.text}"}]}, {"k": [5, {"d": "hi"}]}),
        (3.5, 3.5),
    ],
)
def test_a_reference_becomes_the_value_with_its_type(written: Any, value: Any) -> None:
    assert resolve(written, KNOWN) == value


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("${c.n}", "nothing is called 'c'"),
        ("${a.missing}", "a has no 'missing', only n, list"),
        ("${a.list[3]}", "a.list has 1 items, and no [3]"),
        ("${a.list.x}", "is a list, which has no 'x'"),
        ("${a.n.deeper}", "a.n is int, which has no 'deeper'"),
        ("${a.none.deeper}", "a.none is null"),
        ("${a.text[0]}", "a.text is str"),
        ("${}", "does not begin with the id of a step"),
        ("${a..n}", "cannot be read from"),
        ("${a.n", "no closing brace"),
        ("x ${a.n", "no closing brace"),
        ("${${a.n}}", "no closing brace"),
    ],
)
def test_a_wrong_reference_is_refused_with_a_sentence(written: str, said: str) -> None:
    with pytest.raises(BadReference) as wrong:
        resolve(written, KNOWN)
    assert said in str(wrong.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_lone_reference_is_the_value_itself_and_escaped_text_stays_as_it_is(value: Any) -> None:
    assert resolve({"v": "${x.v}"}, {"x": {"v": value}}) == {"v": value}
    if isinstance(value, str):
        assert resolve(value.replace("${", "$${"), {}) == value


def test_text_that_grows_without_bound_is_refused() -> None:
    with pytest.raises(BadReference, match="longer than"):
        resolve("${x}" * 50, {"x": "a" * 100_000})
    deep: Any = "${x}"
    for _ in range(100):
        deep = [deep]
    with pytest.raises(BadReference, match="nested more than"):
        find_references(deep)
