"""Between what a clock on the wall shows in a time zone and the instants at which it shows that.

Where clocks are put forward some times do not exist, and where they are put back some exist twice. There are two ways
to follow a schedule across such a change:

- **At a time of day** (`clock_after`): a time that does not exist is due at the moment of the change, and one that
  exists twice is due the first time. It is due once on each day.
- **As time passes** (`elapsed_after`): times that do not exist are left out, and those that exist twice are due twice.

Instants are whole seconds since 1970. A rule for times is a function that gives the next one on the wall after another.
"""

import datetime
import difflib
import zoneinfo
from collections.abc import Callable
from functools import lru_cache

from toolwire.errors import InvalidRecord

LAST_INSTANT = 221_845_392_000
"""The year 9000: dates that are calculated with stay within what a date can be."""

NextTime = Callable[[datetime.datetime], datetime.datetime | None]
"""The next time on the wall, without a zone, strictly after another; None where there is none."""

_DAY = 86_400
_LONGEST_NAME = 64


@lru_cache(maxsize=256)
def read_zone(name: str) -> datetime.tzinfo:
    """The time zone of a name such as Europe/Berlin. Raises InvalidRecord."""
    if name.upper() in ("UTC", "Z"):
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name[:_LONGEST_NAME])
    except (KeyError, ValueError, OSError):
        pass
    known = zoneinfo.available_timezones()
    if not known:
        raise InvalidRecord(
            f"time zone {name[:_LONGEST_NAME]!r} cannot be read, since this machine has no time zone data: "
            "pip install 'toolwire[records]'"
        )
    near = difflib.get_close_matches(name[:_LONGEST_NAME], sorted(known), 1)
    raise InvalidRecord(
        f"there is no time zone {name[:_LONGEST_NAME]!r}; "
        + (f"did you mean {near[0]}?" if near else "take a name such as Europe/Berlin, or UTC")
    )


def wall_time(instant: int, zone: datetime.tzinfo) -> datetime.datetime:
    """What the clock shows at an instant."""
    return datetime.datetime.fromtimestamp(instant, zone).replace(tzinfo=None, fold=0)


def clock_after(next_time: NextTime, instant: int, zone: datetime.tzinfo) -> int | None:
    """The next instant strictly after another that is due by the clock on the wall."""
    due = next_time(wall_time(instant, zone))
    while due is not None:
        found = first_instant(due, zone)
        if found > instant:
            return found
        due = next_time(due)  # it is the second time that the clock shows this
    return None


def elapsed_after(next_time: NextTime, instant: int, zone: datetime.tzinfo) -> int | None:
    """The next instant strictly after another whose time on the wall is due, each time that it is shown."""
    at, offset = instant, _offset(instant, zone)
    while True:
        due = next_time(_shown(at, offset))
        if due is None:
            return None
        found = _instant_at(due, offset)
        if found > LAST_INSTANT:
            return None
        change = _change(at, min(found, at + _DAY), offset, zone)
        if change is not None:  # what the clock shows from there on counts, be it for the second time
            at, offset = change - 1, _offset(change, zone)
        elif _offset(found, zone) == offset:
            return found
        else:  # nothing is due before, since no change moves the clock by more than a day
            at = found - _DAY
            offset = _offset(at, zone)


def first_instant(shown: datetime.datetime, zone: datetime.tzinfo) -> int:
    """When the clock shows a time first; where it never does, the moment in which it is put forward past that."""
    found = int(shown.replace(tzinfo=zone, fold=0).timestamp())
    if wall_time(found, zone) == shown:
        return found
    before = int(shown.replace(tzinfo=zone, fold=1).timestamp())
    change = _change(before, found, _offset(before, zone), zone)
    return found if change is None else change


def _offset(instant: int, zone: datetime.tzinfo) -> int:
    offset = datetime.datetime.fromtimestamp(instant, zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _shown(instant: int, offset: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(instant + offset, datetime.UTC).replace(tzinfo=None)


def _instant_at(shown: datetime.datetime, offset: int) -> int:
    return int(shown.replace(tzinfo=datetime.UTC).timestamp()) - offset


def _change(low: int, high: int, offset: int, zone: datetime.tzinfo) -> int | None:
    """The first instant after `low`, up to `high`, with another offset. There is one change at most in between."""
    if _offset(high, zone) == offset:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(middle, zone) == offset:
            low = middle
        else:
            high = middle
    return high
