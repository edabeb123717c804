"""How long a record lasts, as it may be asked for."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.breadcrumbs.rules.lifetimes import LAST_DATE, LASTS, Lifetime, read_lifetime
from toolwire.errors import InvalidRecord

NOW = 1_800_000_000.0
DATE = "2027-06-01T12:00:00+02:00"
DATE_S = 1_811_844_000.0

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("asked", "expires_at", "uses_left"),
    [
        ({"type": "never"}, None, None),
        ("never", None, None),
        ({"type": "datetime", "at": DATE}, DATE_S, None),
        (DATE, DATE_S, None),
        ({"type": "datetime", "at": NOW + 5}, NOW + 5, None),
        ({"type": "duration", "duration": "24h"}, NOW + 86_400, None),
        ({"type": "duration", "duration": "1h 30m"}, NOW + 5_400, None),
        ({"type": "duration", "seconds": 0.5}, NOW + 0.5, None),
        ("7d", NOW + 7 * 86_400, None),
        ({"type": "usage", "uses": 3}, None, 3),
        ({"type": "hybrid", "duration": "2w", "uses": 10}, NOW + 14 * 86_400, 10),
        ({"type": "hybrid", "at": DATE, "uses": 1}, DATE_S, 1),
    ],
)
def test_a_lifetime_is_read_in_each_of_its_forms(asked: Any, expires_at: float | None, uses_left: int | None) -> None:
    lifetime = read_lifetime(asked, NOW)

    assert (lifetime.expires_at, lifetime.uses_left) == (expires_at, uses_left)
    assert read_lifetime(lifetime.ttl, NOW) == lifetime, "what is kept can be read again"


def test_a_record_lasts_unless_something_else_is_asked_for() -> None:
    assert read_lifetime(None, NOW) == LASTS == Lifetime(None, None, None)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (7, "ttl must be an object"),
        ({}, "ttl.type must be one of never, datetime"),
        ({"type": "durations", "duration": "1h"}, "did you mean duration?"),
        ({"type": ["never"]}, "ttl.type must be one of"),
        ({"type": "never", "uses": 1}, "has nothing else"),
        ({"type": "usage", "use": 1}, "did you mean uses?"),
        ({"type": "usage"}, "has uses"),
        ({"type": "usage", "uses": 0}, "from 1 to"),
        ({"type": "usage", "uses": True}, "from 1 to"),
        ({"type": "usage", "uses": 1.5}, "from 1 to"),
        ({"type": "usage", "uses": 10**30}, "from 1 to"),
        ({"type": "duration"}, "has duration or seconds"),
        ({"type": "duration", "duration": "1h", "seconds": 1}, "not both"),
        ({"type": "duration", "duration": "soon"}, "must be text such as"),
        ({"type": "duration", "duration": "-1h"}, "must be text such as"),
        ({"type": "duration", "duration": "0s"}, "longer than 0"),
        ({"type": "duration", "seconds": math.nan}, "longer than 0"),
        ({"type": "duration", "seconds": 10**400}, "longer than 0"),
        ({"type": "duration", "seconds": LAST_DATE}, "year 9999"),
        ({"type": "datetime", "at": "2027-06-01T12:00:00"}, "with its time zone"),
        ({"type": "datetime", "at": "2027-13-01T12:00:00Z"}, "with its time zone"),
        ({"type": "datetime", "at": None}, "with its time zone"),
        ({"type": "datetime", "at": math.inf}, "year 9999"),
        ({"type": "datetime", "at": 10**400}, "year 9999"),
        ({"type": "datetime", "at": "2001-01-01T00:00:00Z"}, "in the past"),
        ({"type": "hybrid", "uses": 2}, "one of at, duration or seconds"),
        ({"type": "hybrid", "duration": "1h"}, "has uses"),
        ({"type": "hybrid", "duration": "1h", "at": DATE, "uses": 2}, "not several"),
        ("tomorrow", "written as text"),
        ("2027-06-01", "written as text"),
    ],
)
def test_a_lifetime_that_cannot_be_meant_is_refused_with_a_sentence(asked: Any, sentence: str) -> None:
    with pytest.raises(InvalidRecord, match=sentence):
        read_lifetime(asked, NOW)


@given(JSON | st.fixed_dictionaries({"type": st.sampled_from(["usage", "duration", "datetime", "hybrid"])}, optional={
    "uses": JSON, "at": JSON, "duration": JSON, "seconds": JSON}))  # fmt: skip
def test_whatever_is_asked_for_gives_a_lifetime_in_the_future_or_a_refusal(asked: Any) -> None:
    try:
        lifetime = read_lifetime(asked, NOW)
    except InvalidRecord:
        return
    assert lifetime.expires_at is None or NOW < lifetime.expires_at <= LAST_DATE
    assert lifetime.uses_left is None or lifetime.uses_left >= 1
