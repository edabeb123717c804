"""When schedules are due: forms, time zones, both changes of the clock, and schedules that are never due."""

import datetime
import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.breadcrumbs.rules.agent_definitions import read_agent
from toolwire.breadcrumbs.rules.schedule_definitions import read_definition
from toolwire.breadcrumbs.rules.schedules import Schedule, check_schedule, due_between, next_after, read_schedule
from toolwire.errors import InvalidRecord

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z, a Friday
UTC = datetime.UTC
# Clocks change by an hour, by half an hour, at midnight, in other months, and not at all.
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kathmandu")


def schedule_of(interval: Any, zone: str = "UTC", **more: Any) -> Schedule:
    return read_schedule({"interval": interval, "timezone": zone, **more}, NOW)


def next_due(interval: Any, after: str, zone: str = "UTC", count: int = 1, **more: Any) -> list[str]:
    """The next times in local notation, with the offset at the time."""
    schedule, at = schedule_of(interval, zone, **more), moment(after, zone)
    found: list[str] = []
    while len(found) < count:
        due = next_after(schedule, at)
        assert due is not None
        found.append(datetime.datetime.fromtimestamp(due, ZoneInfo(zone)).isoformat(timespec="minutes"))
        at = due
    return found


def moment(text: str, zone: str = "UTC") -> float:
    read = datetime.datetime.fromisoformat(text)
    return (read if read.tzinfo else read.replace(tzinfo=ZoneInfo(zone))).timestamp()


@pytest.mark.parametrize(
    ("interval", "due"),
    [
        ({"type": "minutely", "every_n_minutes": 15}, ["2027-01-15T08:15", "2027-01-15T08:30"]),
        ({"type": "minutely", "every_n_minutes": 7}, ["2027-01-15T08:07", "2027-01-15T08:14"]),
        ({"type": "minutely"}, ["2027-01-15T08:01", "2027-01-15T08:02"]),
        ({"type": "hourly", "minute": 5}, ["2027-01-15T08:05", "2027-01-15T09:05"]),
        ({"type": "daily", "time": "07:30"}, ["2027-01-16T07:30", "2027-01-17T07:30"]),
        ({"type": "weekly", "weekdays": ["mon", "friday"], "time": "9:00"}, ["2027-01-15T09:00", "2027-01-18T09:00"]),
        ({"type": "weekly", "weekdays": [0, 7], "time": "09:00"}, ["2027-01-17T09:00", "2027-01-24T09:00"]),
        ({"type": "monthly", "day_of_month": 31, "time": "12:00"}, ["2027-01-31T12:00", "2027-03-31T12:00"]),
        ({"type": "monthly", "day_of_month": "last", "time": "12:00"}, ["2027-01-31T12:00", "2027-02-28T12:00"]),
        (
            {"type": "monthly", "nth_weekday": {"nth": 2, "weekday": "tue"}, "time": "12:00"},
            ["2027-02-09T12:00", "2027-03-09T12:00"],
        ),
        (
            {"type": "monthly", "nth_weekday": {"nth": "last", "weekday": "fri"}, "time": "12:00"},
            ["2027-01-29T12:00", "2027-02-26T12:00"],
        ),
        ({"type": "every", "hours": 36}, ["2027-01-16T20:00", "2027-01-18T08:00"]),
        ({"type": "every", "days": 3, "time": "06:00"}, ["2027-01-18T06:00", "2027-01-21T06:00"]),
        ({"type": "every", "weeks": 2}, ["2027-01-29T08:00", "2027-02-12T08:00"]),
        ({"type": "cron", "expression": "0 9 13 * FRI"}, ["2027-01-15T09:00", "2027-01-22T09:00"]),
        ({"type": "cron", "expression": "0 0 29 2 *"}, ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ({"type": "cron", "expression": "@monthly"}, ["2027-02-01T00:00", "2027-03-01T00:00"]),
        ("*/20 8-9 * * *", ["2027-01-15T08:20", "2027-01-15T08:40"]),
    ],
)
def test_every_form_of_schedule_is_due_when_it_says(interval: Any, due: list[str]) -> None:
    assert next_due(interval, "2027-01-15T08:00", count=2) == [f"{time}+00:00" for time in due]


DAILY = {"type": "daily", "time": "02:30"}
QUARTERS = {"type": "minutely", "every_n_minutes": 30}


@pytest.mark.parametrize(
    ("interval", "zone", "after", "due"),
    [
        # A time of day that does not exist is due in the moment of the change, and only then.
        (DAILY, "Europe/Berlin", "2027-03-27T12:00", ["2027-03-28T03:00+02:00", "2027-03-29T02:30+02:00"]),
        (DAILY, "America/New_York", "2027-03-13T12:00", ["2027-03-14T03:00-04:00", "2027-03-15T02:30-04:00"]),
        (
            {"type": "daily", "time": "02:15"},
            "Australia/Lord_Howe",
            "2027-10-02T12:00",
            ["2027-10-03T02:30+11:00", "2027-10-04T02:15+11:00"],
        ),
        (
            {"type": "every", "days": 1, "time": "00:30"},
            "America/Santiago",
            "2027-09-04T12:00",
            ["2027-09-05T01:00-03:00", "2027-09-06T00:30-03:00"],
        ),
        # One that exists twice is due the first time, and only then.
        (DAILY, "Europe/Berlin", "2027-10-30T12:00", ["2027-10-31T02:30+02:00", "2027-11-01T02:30+01:00"]),
        (
            {"type": "daily", "time": "01:30"},
            "America/New_York",
            "2027-11-06T12:00",
            ["2027-11-07T01:30-04:00", "2027-11-08T01:30-05:00"],
        ),
        # What is due as time passes leaves the missing hour out and comes in both of the doubled one.
        (
            QUARTERS,
            "Europe/Berlin",
            "2027-03-28T01:30",
            ["2027-03-28T03:00+02:00", "2027-03-28T03:30+02:00"],
        ),
        (
            QUARTERS,
            "Europe/Berlin",
            "2027-10-31T02:00+02:00",
            [f"2027-10-31T{time}" for time in ("02:30+02:00", "02:00+01:00", "02:30+01:00", "03:00+01:00")],
        ),
        (
            {"type": "hourly", "minute": 15},
            "America/New_York",
            "2027-11-07T00:30",
            ["2027-11-07T01:15-04:00", "2027-11-07T01:15-05:00", "2027-11-07T02:15-05:00"],
        ),
        # An hour that does not exist on a day with nothing else: the next day counts.
        ("*/30 2 * * *", "Europe/Berlin", "2027-03-28T00:00", ["2027-03-29T02:00+02:00"]),
        # Far away, and across several changes.
        ("* 3 1 1 *", "Europe/Berlin", "2027-02-01T00:00", ["2028-01-01T03:00+01:00", "2028-01-01T03:01+01:00"]),
    ],
)
def test_both_changes_of_the_clock(interval: Any, zone: str, after: str, due: list[str]) -> None:
    assert next_due(interval, after, zone, count=len(due)) == due


def test_a_schedule_keeps_to_its_start_and_end() -> None:
    limits = {"start": "2027-02-01T09:00", "end": "2027-02-02T09:00:00+01:00"}
    schedule = schedule_of({"type": "daily", "time": "09:00"}, "Europe/Berlin", **limits)

    assert due_between(schedule, 0, NOW * 2) == [moment("2027-02-01T08:00+00:00"), moment("2027-02-02T08:00+00:00")]
    assert next_due({"type": "every", "hours": 5}, "2027-01-15", start="2027-02-01T09:20") == ["2027-02-01T09:20+00:00"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"interval": "0 0 30 2 *"}, "day-of-month"),
        ({"interval": "0 0 31 4,6 *"}, "day-of-month"),
        ({"interval": {"type": "daily", "time": "09:00"}, "end": "2020-01-01"}, "never due"),
        ({"interval": {"type": "daily", "time": "09:00"}, "start": "2020-01-02", "end": "2020-01-01"}, "before"),
        ({"interval": {"type": "daily", "time": "09:00"}, "timezone": "Europe/Berlim"}, "did you mean Europe/Berlin?"),
        ({"interval": {"type": "daily", "time": "09:00"}, "timezone": "../etc/passwd"}, "no time zone"),
        ({"interval": {"type": "daily", "time": "09:00"}, "timezone": 3}, "timezone must be"),
        ({"interval": {"type": "daily", "time": "24:00"}}, "time of day"),
        ({"interval": {"type": "dayly", "time": "09:00"}}, "did you mean daily?"),
        ({"interval": {"type": "daily", "tme": "09:00"}}, "not 'tme'"),
        ({"interval": {"type": "weekly", "weekdays": ["m"], "time": "09:00"}}, "weekday"),
        ({"interval": {"type": "monthly", "time": "09:00"}}, "one of them"),
        ({"interval": {"type": "monthly", "nth_weekday": {"nth": 6, "weekday": "mon"}, "time": "9:00"}}, "1 to 5"),
        ({"interval": {"type": "every", "days": 1, "hours": 2}}, "one of minutes"),
        ({"interval": {"type": "every", "hours": 1, "time": "09:00"}}, "time of day"),
        ({"interval": {"type": "minutely", "every_n_minutes": 0}}, "from 1"),
        ({"interval": "* * * * * *"}, "five fields"),
        ({"interval": "61 * * * *"}, "minute"),
        ({"interval": "*" * 5000}, "five fields"),
        ({}, "interval must be"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused_when_it_is_written(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRecord, match=says):
        check_schedule(asked, NOW)


def test_a_long_time_without_a_process_is_counted_within_bounds() -> None:
    schedule = schedule_of({"type": "minutely"})
    due = due_between(schedule, NOW, NOW + 10 * 365 * 86_400, most=5)
    assert due == [NOW + 10 * 365 * 86_400 - 60 * before for before in (4, 3, 2, 1, 0)]


CHANGES = [
    moment(when, zone)
    for zone, *both in (
        ("Europe/Berlin", "2027-03-28T03:00", "2027-10-31T03:00"),
        ("America/New_York", "2027-03-14T03:00", "2027-11-07T02:00"),
        ("Australia/Lord_Howe", "2027-04-04T02:00", "2027-10-03T02:30"),
        ("America/Santiago", "2027-04-04T00:00", "2027-09-05T01:00"),
    )
    for when in both
]
intervals = st.one_of(
    st.builds(lambda n: {"type": "minutely", "every_n_minutes": n}, st.integers(1, 200)),
    st.builds(lambda m: {"type": "hourly", "minute": m}, st.integers(0, 59)),
    st.builds(lambda h, m: {"type": "daily", "time": f"{h:02}:{m:02}"}, st.integers(0, 4), st.integers(0, 59)),
    st.builds(lambda h: {"type": "every", "hours": h}, st.integers(1, 50)),
    st.builds(lambda d: {"type": "every", "days": d, "time": "02:30"}, st.integers(1, 9)),
    st.builds(
        lambda m, h, d: f"{m} {h} * * {d}",
        st.sampled_from(["0", "*/20", "15,45", "*"]),
        st.sampled_from(["*", "2", "0-3", "*/2"]),
        st.sampled_from(["*", "SUN", "MON-FRI", "SUN#1", "0L"]),
    ),
)
# Around changes of the clock of the zones above, and anywhere.
instants = st.one_of(
    st.sampled_from(CHANGES).flatmap(lambda near: st.integers(int(near) - 100_000, int(near) + 10_000)),
    st.integers(1_700_000_000, 2_000_000_000),
).map(float)


@given(intervals, st.sampled_from(ZONES), instants)
def test_due_times_ascend_and_are_the_same_after_a_restart(interval: Any, zone: str, instant: float) -> None:
    schedule = schedule_of(interval, zone)
    first = next_after(schedule, instant)
    assert first is not None
    second = next_after(schedule, first)
    assert second is not None
    assert instant < first < second
    middle = (instant + first) / 2
    assert next_after(schedule_of(interval, zone), middle if middle < first else instant) == first
    assert next_after(schedule, first + 0.5) == second


@given(st.integers(0, 4), st.sampled_from(ZONES), instants)
def test_a_time_of_day_is_due_once_on_each_day(hour: int, zone: str, instant: float) -> None:
    schedule = schedule_of({"type": "daily", "time": f"{hour:02}:30"}, zone)
    due = list(itertools.islice(_all(schedule, instant), 5))
    days = [datetime.datetime.fromtimestamp(time, ZoneInfo(zone)).date() for time in due]
    assert days == [days[0] + datetime.timedelta(days=passed) for passed in range(5)]


@given(st.sampled_from(["0", "*/20", "15,45"]), st.sampled_from(["*", "*/2"]), st.sampled_from(ZONES), instants)
def test_what_follows_the_time_that_passes_is_due_whenever_the_clock_shows_it(
    minutes: str, hours: str, zone: str, instant: float
) -> None:
    """Compared with a look at every minute of a day and a half."""
    shown = {"0": {0}, "*/20": {0, 20, 40}, "15,45": {15, 45}}[minutes]
    start = instant - instant % 60
    expected = [
        at
        for at in (start + 60 * step for step in range(1, 36 * 60))
        if (local := datetime.datetime.fromtimestamp(at, ZoneInfo(zone))).minute in shown
        and (hours == "*" or local.hour % 2 == 0)
    ]
    assert due_between(schedule_of(f"{minutes} {hours} * * *", zone), start, start + 36 * 3600 - 60) == expected


@given(st.text(alphabet="0123456789*/,-#LWMONFRI ", max_size=24) | st.text(max_size=12))
def test_any_text_is_a_cron_expression_or_is_refused(text: str) -> None:
    try:
        schedule = read_schedule({"interval": text}, NOW)
    except InvalidRecord:
        return
    due = next_after(schedule, NOW)
    assert due is None or due > NOW


def _all(schedule: Schedule, instant: float) -> Iterator[float]:
    while (due := next_after(schedule, instant)) is not None:
        yield due
        instant = due


NAMES = st.sampled_from(["type", "time", "role", "on", "schema_name", "fetch", "excluded_tags"]) | st.text(max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["ask", "daily"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
SCHEDULE_FIELDS = (
    "interval", "timezone", "start", "end", "enabled", "missed", "most_missed", "max_runs", "labels", "action", "grant",
)  # fmt: skip
AGENT_FIELDS = (
    "name", "system_prompt", "model", "tools", "subscriptions", "context", "tier", "permissions", "max_calls",
    "deadline_s", "enabled",
)  # fmt: skip
DAILY_FIELDS = {"interval": {"type": "daily", "time": "09:00"}}
AGENT_NAMED = {"name": "a", "system_prompt": "b"}


@given(st.dictionaries(st.sampled_from(SCHEDULE_FIELDS), JSON, max_size=4))
def test_any_json_is_the_definition_of_a_schedule_or_is_refused(said: dict[str, Any]) -> None:
    """What is refused is refused with a sentence: no other error comes out, whatever the types are."""
    for context in (said, {**DAILY_FIELDS, **said}):
        with suppress(InvalidRecord):
            assert read_definition(context, NOW).schedule.timezone


@given(st.dictionaries(st.sampled_from(AGENT_FIELDS), JSON, max_size=4))
def test_any_json_is_the_definition_of_an_agent_or_is_refused(said: dict[str, Any]) -> None:
    for context in (said, {**AGENT_NAMED, **said}):
        with suppress(InvalidRecord):
            assert read_agent(context).name
