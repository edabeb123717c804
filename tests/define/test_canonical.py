"""Equal JSON values have equal bytes."""

import hashlib
import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from toolwire.define.canonical import canonical, digest

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SAFE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(10**9), 10**9).map(lambda thousandths: thousandths / 1000),
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@given(SAFE)
def test_values_that_the_standard_knows_are_written_as_it_says(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(ANY)
def test_every_json_value_has_a_canonical_form_and_a_digest(value: Any) -> None:
    assert digest(value) == hashlib.sha256(canonical(value)).hexdigest()


FLAT = st.dictionaries(
    st.text(st.characters(max_codepoint=0x80)),
    st.none() | st.booleans() | st.integers() | st.text(st.characters(max_codepoint=0x80)),
)


@given(FLAT)
def test_an_object_of_texts_and_integers_is_written_as_its_parts_are(value: dict[str, Any]) -> None:
    parts = [canonical(name) + b":" + canonical(value[name]) for name in sorted(value)]
    assert canonical(value) == b"{" + b",".join(parts) + b"}"


def test_order_and_number_spelling_do_not_matter() -> None:
    assert canonical({"b": 1.0, "a": [1e2, -0.0]}) == canonical({"a": [100, 0], "b": 1}) == b'{"a":[100,0],"b":1}'
    assert canonical({"\U0001f600": 1, "\ufb33": 2}) == '{"\U0001f600":1,"\ufb33":2}'.encode()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (10**30, b"1" + b"0" * 30),
        (2**53, b"9007199254740992"),
        ("a\ud800é", '"a\\ud800é"'.encode()),
        ([math.nan, math.inf], b"[null,null]"),
        ((1, 2), b"[1,2]"),
        ({}, b"{}"),
        ([], b"[]"),
    ],
)
def test_what_the_standard_leaves_open_has_one_documented_spelling(value: Any, written: bytes) -> None:
    assert canonical(value) == written


def test_neither_depth_nor_size_breaks_it() -> None:
    deep: Any = []
    for _ in range(50_000):
        deep = [deep]
    assert len(canonical(deep)) == 2 * 50_001
    assert canonical(10**5_000).startswith(b"0x")


@pytest.mark.parametrize("value", [{1: 2}, {"a": {1, 2}}, object()])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        canonical(value)
