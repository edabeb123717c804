"""When a schedule is due, across the hour that does not exist in Berlin on 28 March 2027."""

from datetime import UTC, datetime

from toolwire.breadcrumbs.rules.schedules import due_between, read_schedule

daily = {"interval": {"type": "daily", "time": "02:30"}, "timezone": "Europe/Berlin"}
first, last = datetime(2027, 3, 26, 12, tzinfo=UTC), datetime(2027, 3, 29, 12, tzinfo=UTC)

schedule = read_schedule(daily, anchor=first.timestamp())
due = due_between(schedule, first.timestamp(), last.timestamp())

assert [datetime.fromtimestamp(at, UTC).isoformat() for at in due] == [
    "2027-03-27T01:30:00+00:00",
    "2027-03-28T01:00:00+00:00",  # the moment in which clocks are put forward
    "2027-03-29T00:30:00+00:00",
]
