"""How long a record lasts: for ever, until a date, for a while, for some uses, or for whichever of those ends first.

A lifetime is asked for as an object with a `type`:

    {"type": "never"}
    {"type": "datetime", "at": "2026-12-01T00:00:00Z"}        a time with its zone, or seconds since 1970
    {"type": "duration", "duration": "24h"}                   or {"type": "duration", "seconds": 86400}
    {"type": "usage", "uses": 3}
    {"type": "hybrid", "duration": "7d", "uses": 10}          the end that comes first

A text stands for the first three: `never`, a date, or a duration.
"""

import datetime
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from toolwire.errors import InvalidRecord
from toolwire.lazy import lazy_pattern

MOST_USES = 1_000_000_000
LAST_DATE = 253_402_300_799.0
"""The end of the year 9999: what a date can be in any place where one is shown."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_KEYS = {
    "never": (),
    "datetime": ("at",),
    "duration": ("duration", "seconds"),
    "usage": ("uses",),
    "hybrid": ("at", "duration", "seconds", "uses"),
}
_DURATION = lazy_pattern(r"(?:\d{1,9}(?:\.\d{1,3})?[smhdw])(?:\s*\d{1,9}(?:\.\d{1,3})?[smhdw]){0,4}", re.ASCII)
_PART = lazy_pattern(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
_DATE = lazy_pattern(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:?\d\d)", re.ASCII)
_FORMS = 'such as {"type": "duration", "duration": "24h"}, {"type": "usage", "uses": 3} or {"type": "never"}'


class Lifetime(Struct, frozen=True):
    """A lifetime as it was asked for, and what follows from it: both None for a record that lasts."""

    ttl: Mapping[str, Any] | None = None
    expires_at: float | None = None
    uses_left: int | None = None


LASTS = Lifetime()


def read_lifetime(asked: Any, now: float) -> Lifetime:
    """The lifetime that was asked for, counted from `now`. Raises InvalidRecord with a sentence for any other."""
    if asked is None:
        return LASTS
    ttl = _from_text(asked) if isinstance(asked, str) else asked
    if not isinstance(ttl, Mapping):
        raise InvalidRecord(f"ttl must be an object {_FORMS}")
    kind = ttl.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise InvalidRecord(f"ttl.type must be one of {', '.join(_KEYS)}{_meant(kind, _KEYS)}")
    for name in ttl:
        if name != "type" and name not in _KEYS[kind]:
            allowed = f"has {' or '.join(_KEYS[kind])}" if _KEYS[kind] else "has nothing else"
            raise InvalidRecord(f"a ttl of type {kind} {allowed}, not {_shown(name)}{_meant(name, _KEYS[kind])}")
    ends = [end for end in (_date(ttl), _end_of_duration(ttl, now)) if end is not None]
    uses = _uses(ttl)
    _check_complete(kind, len(ends), uses)
    if ends and min(ends) <= now:
        raise InvalidRecord("the ttl ends in the past; give a later time, or leave ttl out")
    return Lifetime(dict(ttl), min(ends, default=None), uses)


def _check_complete(kind: str, ends: int, uses: int | None) -> None:
    if kind == "hybrid" and (ends == 0 or uses is None):
        raise InvalidRecord("a ttl of type hybrid has uses, and one of at, duration or seconds")
    if kind in ("datetime", "duration") and ends == 0:
        raise InvalidRecord(f"a ttl of type {kind} has {' or '.join(_KEYS[kind])}")
    if kind == "usage" and uses is None:
        raise InvalidRecord("a ttl of type usage has uses, the number of reads after which the record ends")
    if ends > 1:
        raise InvalidRecord("a ttl has one of at, duration and seconds, not several")


def _from_text(text: str) -> Mapping[str, Any]:
    if text == "never":
        return {"type": "never"}
    if _DURATION.fullmatch(text):
        return {"type": "duration", "duration": text}
    if _DATE.fullmatch(text):
        return {"type": "datetime", "at": text}
    raise InvalidRecord('a ttl written as text is never, a duration such as "24h", or a date with its time zone')


def _date(ttl: Mapping[str, Any]) -> float | None:
    given = ttl.get("at")
    if "at" not in ttl:
        return None
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return _checked_date(given)
    if isinstance(given, str) and _DATE.fullmatch(given):
        try:
            return _checked_date(datetime.datetime.fromisoformat(given.upper()).timestamp())
        except (ValueError, OverflowError):
            pass
    raise InvalidRecord('ttl.at must be a date with its time zone, such as "2026-12-01T00:00:00Z"')


def _checked_date(seconds: float) -> float:
    if not seconds <= LAST_DATE:  # not a number is neither
        raise InvalidRecord("ttl ends after the year 9999; use never for a record that lasts")
    return float(max(seconds, 0.0))


def _end_of_duration(ttl: Mapping[str, Any], now: float) -> float | None:
    if "duration" in ttl and "seconds" in ttl:
        raise InvalidRecord("a ttl has duration or seconds, not both")
    if "seconds" in ttl:
        return _checked_date(now + _positive(ttl["seconds"]))
    if "duration" not in ttl:
        return None
    text = ttl["duration"]
    if not isinstance(text, str) or not _DURATION.fullmatch(text):
        raise InvalidRecord('ttl.duration must be text such as "90s", "15m", "24h", "7d", "2w" or "1h 30m"')
    return _checked_date(now + _positive(sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(text))))


def _positive(seconds: Any) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= LAST_DATE:
        raise InvalidRecord("the duration of a ttl must be longer than 0 seconds")
    return float(seconds)


def _uses(ttl: Mapping[str, Any]) -> int | None:
    if "uses" not in ttl:
        return None
    uses = ttl["uses"]
    if isinstance(uses, bool) or not isinstance(uses, int) or not 1 <= uses <= MOST_USES:
        raise InvalidRecord(f"ttl.uses must be a whole number from 1 to {MOST_USES}")
    return uses


def _meant(name: Any, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name[:40], known, 1) if isinstance(name, str) else []
    return f"; did you mean {near[0]}?" if near else ""


def _shown(name: Any) -> str:
    return repr(str(name)[:40])
