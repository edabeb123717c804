"""When a schedule is due: cron expressions and plain intervals, in a time zone, between a start and an end. Pure.

An interval is an object with a `type`:

    {"type": "cron", "expression": "30 9 * * MON-FRI"}         five fields, as Debian's cron reads them
    {"type": "minutely", "every_n_minutes": 15}
    {"type": "hourly", "minute": 5}
    {"type": "daily", "time": "09:30"}
    {"type": "weekly", "weekdays": ["mon", "fri"], "time": "09:30"}
    {"type": "monthly", "day_of_month": 15, "time": "09:30"}   or "last"
    {"type": "monthly", "nth_weekday": {"nth": "last", "weekday": "fri"}, "time": "17:00"}
    {"type": "every", "hours": 36}                             minutes, hours, days or weeks, counted from the start

Times of day are due once on each day, whatever clocks are changed; what is due every so many minutes or hours follows
the time that passes. `wall_clock.py` has the rules for both.
"""

import datetime
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolwire.breadcrumbs.rules.wall_clock import (
    LAST_INSTANT,
    NextTime,
    clock_after,
    elapsed_after,
    read_zone,
    wall_time,
)
from toolwire.errors import InvalidRecord
from toolwire.lazy import lazy_module, lazy_pattern

if TYPE_CHECKING:
    import cronsim
else:
    cronsim = lazy_module("cronsim")

LONGEST_EXPRESSION = 200
MOST_DUE = 1_000
"""So many missed times of a schedule are counted one by one."""

_NEEDS_EXTRA = "schedules need an extra: pip install 'toolwire[records]'"
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_UNITS = {"minutes": 60, "hours": 3_600, "days": 86_400, "weeks": 604_800}
_KEYS = {
    "cron": ("expression",),
    "minutely": ("every_n_minutes",),
    "hourly": ("minute",),
    "daily": ("time",),
    "weekly": ("weekdays", "time"),
    "monthly": ("day_of_month", "nth_weekday", "time"),
    "every": (*_UNITS, "time"),
}
_TIME = lazy_pattern(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_LONGEST_STEP_S = 10 * 366 * 86_400


class CronTimes(Struct, frozen=True):
    """What a cron expression of five fields is due at."""

    expression: str

    @property
    def by_elapsed_time(self) -> bool:
        """As Debian's cron has it: what has a star for its minute or hour is due as time passes."""
        minute, hour, *_ = self.expression.split()
        return minute.startswith("*") or hour.startswith("*")

    def next_time(self, shown: datetime.datetime) -> datetime.datetime | None:
        try:
            return next(cronsim.CronSim(self.expression, shown), None)
        except OverflowError:  # after the last year that a date can have
            return None


class DayTimes(Struct, frozen=True):
    """A time of day on every so many days, counted from a day."""

    first: datetime.date
    days: int
    time: datetime.time

    def next_time(self, shown: datetime.datetime) -> datetime.datetime | None:
        passed = max((shown.date() - self.first).days, 0)
        day = self.first + datetime.timedelta(days=passed - passed % self.days)
        due = datetime.datetime.combine(day, self.time)
        return due if due > shown else due + datetime.timedelta(days=self.days)


class StepTimes(Struct, frozen=True):
    """Every so many seconds, counted from an instant."""

    first: int
    seconds: int

    def next_instant(self, instant: int) -> int:
        return self.first + max((instant - self.first) // self.seconds + 1, 0) * self.seconds


class Schedule(Struct, frozen=True):
    """When something is due. `interval` is what was asked for, in its own words."""

    times: CronTimes | DayTimes | StepTimes
    interval: Mapping[str, Any]
    timezone: str = "UTC"
    start: float | None = None
    end: float | None = None


def read_schedule(asked: Mapping[str, Any], anchor: float) -> Schedule:
    """The schedule of a definition with `interval`, `timezone`, `start` and `end`. Raises InvalidRecord.

    What is counted from the start is counted from the `anchor` where there is no start.
    """
    interval = asked.get("interval")
    if isinstance(interval, str):
        interval = {"type": "cron", "expression": interval}
    if not isinstance(interval, Mapping):
        raise InvalidRecord('interval must be an object such as {"type": "daily", "time": "09:30"}, or a cron line')
    name = asked.get("timezone") or interval.get("timezone") or "UTC"
    if not isinstance(name, str):
        raise InvalidRecord("timezone must be a name such as Europe/Berlin, or UTC")
    zone = read_zone(name)
    start, end = _moment(asked, "start", zone), _moment(asked, "end", zone)
    if start is not None and end is not None and end < start:
        raise InvalidRecord("the schedule ends before it starts; give a later end")
    kept = {key: value for key, value in interval.items() if key != "timezone"}
    times = _read_times(kept, int(anchor if start is None else math.ceil(start)), zone)
    return Schedule(times, kept, name, start, end)


def check_schedule(asked: Mapping[str, Any], now: float) -> Schedule:
    """The schedule of a definition that is written now. Raises InvalidRecord, also where it is never due any more."""
    schedule = read_schedule(asked, now)
    if next_after(schedule, now) is None:
        raise InvalidRecord("this schedule is never due from now on; check its dates, start and end")
    return schedule


def next_after(schedule: Schedule, instant: float) -> float | None:
    """When the schedule is due next, strictly after an instant; None where it is never due again."""
    at = _whole(instant)
    if schedule.start is not None:
        at = max(at, math.ceil(schedule.start) - 1)
    if at >= LAST_INSTANT:
        return None
    due = _next(schedule, at)
    if due is None or due > LAST_INSTANT or (schedule.end is not None and due > schedule.end):
        return None
    return float(due)


def due_between(schedule: Schedule, after: float, until: float, most: int = MOST_DUE) -> list[float]:
    """When the schedule is due after an instant and up to another one: the newest of those times, in order.

    Of a time that was much longer than `most` of them, only the end is looked at.
    """
    found: list[float] = []
    at = after
    while (due := next_after(schedule, at)) is not None and due <= until:
        found.append(due)
        at = due
        if len(found) > most:  # skip ahead, to about as many before the end
            step = (found[-1] - found[0]) / (len(found) - 1)
            at = max(at, until - step * most)
            found = found[-most:]
    return found[-most:]


def _whole(instant: float) -> int:
    """Due times are whole seconds: what comes after this comes after the instant."""
    if math.isnan(instant):
        raise InvalidRecord("an instant must be a number")
    return math.floor(min(max(instant, 0.0), float(LAST_INSTANT)))


def _next(schedule: Schedule, at: int) -> int | None:
    match schedule.times:
        case StepTimes() as steps:
            return steps.next_instant(at)
        case CronTimes(by_elapsed_time=True) as cron:
            return elapsed_after(_required(cron.next_time), at, read_zone(schedule.timezone))
        case DayTimes() | CronTimes() as times:
            return clock_after(_required(times.next_time), at, read_zone(schedule.timezone))


def _required(next_time: NextTime) -> NextTime:
    """The function, for which an extra may be missing. Raises InvalidRecord with what to install."""

    def checked(shown: datetime.datetime) -> datetime.datetime | None:
        try:
            return next_time(shown)
        except ImportError:
            raise InvalidRecord(_NEEDS_EXTRA) from None

    return checked


def _read_times(interval: Mapping[str, Any], anchor: int, zone: datetime.tzinfo) -> CronTimes | DayTimes | StepTimes:
    kind = interval.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise InvalidRecord(f"interval.type must be one of {', '.join(_KEYS)}{_meant(kind, _KEYS)}")
    for name in interval:
        if name != "type" and name not in _KEYS[kind]:
            shown = repr(str(name)[:40])
            raise InvalidRecord(f"a {kind} interval has {' and '.join(_KEYS[kind])}, not {shown}")
    match kind:
        case "cron":
            return _cron(interval.get("expression"))
        case "minutely":
            return _minutely(_count(interval, "every_n_minutes", 1, 1, 527_040), anchor)
        case "hourly":
            return CronTimes(f"{_count(interval, 'minute', 0, 0, 59)} * * * *")
        case "daily":
            return CronTimes(f"{_minute_and_hour(interval)} * * *")
        case "weekly":
            return CronTimes(f"{_minute_and_hour(interval)} * * {_weekdays(interval.get('weekdays'))}")
        case "monthly":
            return CronTimes(f"{_minute_and_hour(interval)} {_day_of_month(interval)}")
    return _every(interval, anchor, zone)


def _cron(expression: Any) -> CronTimes:
    if not isinstance(expression, str) or len(expression) > LONGEST_EXPRESSION:
        raise InvalidRecord('a cron interval has an expression of five fields, such as "30 9 * * MON-FRI"')
    expression = _NICKNAMES.get(expression.strip().lower(), expression)
    if len(expression.split()) != 5:
        raise InvalidRecord(
            f"a cron expression has five fields (minute, hour, day of month, month, day of week), not "
            f"{len(expression.split())}; {', '.join(_NICKNAMES)} stand for some"
        )
    try:
        cronsim.CronSim(expression, datetime.datetime(2000, 1, 1))
    except ImportError:
        raise InvalidRecord(_NEEDS_EXTRA) from None
    except cronsim.CronSimError as wrong:
        raise InvalidRecord(f"cron expression {expression!r}: {str(wrong).lower()}") from None
    return CronTimes(" ".join(expression.split()))


def _minutely(minutes: int, anchor: int) -> CronTimes | StepTimes:
    """On the full hour and so on where that comes out even; otherwise counted from the start."""
    if minutes < 60 and 60 % minutes == 0:
        return CronTimes(f"*/{minutes} * * * *")
    return StepTimes(anchor, minutes * 60)


def _every(interval: Mapping[str, Any], anchor: int, zone: datetime.tzinfo) -> DayTimes | StepTimes:
    given = [unit for unit in _UNITS if unit in interval]
    if len(given) != 1:
        raise InvalidRecord("an every interval has one of minutes, hours, days and weeks")
    [unit] = given
    count = _count(interval, unit, 1, 1, _LONGEST_STEP_S // _UNITS[unit])
    if unit in ("minutes", "hours"):
        if "time" in interval:
            raise InvalidRecord("a time of day goes with every so many days or weeks, not with minutes or hours")
        return StepTimes(anchor, count * _UNITS[unit])
    shown = wall_time(anchor, zone)
    time = shown.time().replace(second=0)
    if "time" in interval:
        minute, hour = map(int, _minute_and_hour(interval).split())
        time = datetime.time(hour, minute)
    return DayTimes(shown.date(), count * (7 if unit == "weeks" else 1), time)


def _minute_and_hour(interval: Mapping[str, Any]) -> str:
    given = interval.get("time")
    found = _TIME.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise InvalidRecord('interval.time must be a time of day such as "09:30"')
    return f"{int(found[2])} {int(found[1])}"


def _day_of_month(interval: Mapping[str, Any]) -> str:
    day, nth = interval.get("day_of_month"), interval.get("nth_weekday")
    if (day is None) == (nth is None):
        raise InvalidRecord("a monthly interval has day_of_month or nth_weekday, one of them")
    if day is not None:
        return "L * *" if day == "last" else f"{_count(interval, 'day_of_month', 1, 1, 31)} * *"
    if not isinstance(nth, Mapping) or nth.keys() != {"nth", "weekday"}:
        raise InvalidRecord('nth_weekday must be an object such as {"nth": 1, "weekday": "mon"}; nth may be "last"')
    weekday = _weekday(nth["weekday"])
    return f"* * {weekday}L" if nth["nth"] == "last" else f"* * {weekday}#{_count(nth, 'nth', 1, 1, 5)}"


def _weekdays(given: Any) -> str:
    if not isinstance(given, (list, tuple)) or not given:
        raise InvalidRecord('interval.weekdays must be a list such as ["mon", "fri"]')
    return ",".join(sorted({str(_weekday(day)) for day in given}))


def _weekday(given: Any) -> int:
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= 7:
        return given % 7
    word = given.strip().lower() if isinstance(given, str) else ""
    for number, name in enumerate(_WEEKDAYS):
        if len(word) >= 2 and name.startswith(word):
            return number
    raise InvalidRecord("a weekday is a name such as mon or monday, or a number from 0 (Sunday) to 6")


def _count(given: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidRecord(f"{name} must be a whole number from {least} to {most}")
    return value


def _moment(asked: Mapping[str, Any], name: str, zone: datetime.tzinfo) -> float | None:
    """A date that was asked for; one without a zone is of the schedule's own."""
    given = asked.get(name)
    if given is None:
        return None
    if isinstance(given, str):
        try:
            read = datetime.datetime.fromisoformat(given)
            given = (read if read.tzinfo is not None else read.replace(tzinfo=zone)).timestamp()
        except (ValueError, OverflowError):
            pass
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given <= LAST_INSTANT:
        raise InvalidRecord(f'{name} must be a date such as "2026-12-01T09:00", or seconds since 1970')
    return float(given)


def _meant(name: Any, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name[:40], known, 1) if isinstance(name, str) else []
    return f"; did you mean {near[0]}?" if near else ""
