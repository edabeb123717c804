"""Which records are wanted, as a client says it: every part checked."""

import datetime
import math
from collections.abc import Mapping
from typing import Any

from toolwire.breadcrumbs.new_records import check_tag
from toolwire.errors import InvalidRecord
from toolwire.protocol.breadcrumbs import LONGEST_RECORD_NAME, RecordQuery

FILTERS = ("schema_name", "any_tags", "all_tags", "created_by", "since", "until")
MOST_FILTER_TAGS = 20
_LAST_SECOND = 2.0**40


def read_query(said: Mapping[str, Any]) -> RecordQuery:
    """The filters of a list or a search. Raises `InvalidRecord`."""
    return RecordQuery(
        schema_name=_name(said, "schema_name"), any_tags=_tags(said, "any_tags"), all_tags=_tags(said, "all_tags"),
        created_by=_name(said, "created_by"), since=_time(said, "since"), until=_time(said, "until"),
    )  # fmt: skip


def _name(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name, "")
    if not isinstance(value, str) or len(value) > LONGEST_RECORD_NAME or not value.isprintable():
        raise InvalidRecord(f"{name} is text of at most {LONGEST_RECORD_NAME} characters")
    return value


def _tags(said: Mapping[str, Any], name: str) -> tuple[str, ...]:
    tags = said.get(name, ())
    if not isinstance(tags, (list, tuple)) or len(tags) > MOST_FILTER_TAGS:
        raise InvalidRecord(f"{name} are at most {MOST_FILTER_TAGS} tags")
    return tuple(dict.fromkeys(map(check_tag, tags)))


def _time(said: Mapping[str, Any], name: str) -> float | None:
    value = said.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, str):
            at = _seconds(value)
        else:
            at = math.nan if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)
    except (ValueError, OverflowError):
        at = math.nan
    if not math.isfinite(at) or abs(at) > _LAST_SECOND:
        raise InvalidRecord(f"{name} is a date with its time zone, such as 2026-12-01T00:00:00Z, or seconds since 1970")
    return at


def _seconds(said: str) -> float:
    if said[:1].isdecimal() and "-" not in said:
        return float(said)
    at = datetime.datetime.fromisoformat(said.strip().upper())
    return at.timestamp() if at.tzinfo is not None else math.nan
