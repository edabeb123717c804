"""Stretches of time in the unit that an input asks for. Pure.

The embedded model converts what people say (`5 seconds` for `timeout_ms`), and now and then copies the bare number. A
number that was said with another unit than the input's, and in no other way, is such a slip.
"""

import re
from collections.abc import Mapping
from typing import Any

MOST_CHARS = 4000
ABOUT_CHARS = 200
SHORTEST_ALONE = 3  # `min` is more often the least than minutes

_UNITS = (
    (0.001, "ms msec msecs millis millisecond milliseconds"),
    (1, "s sec secs second seconds"),
    (60, "min mins minute minutes"),
    (3600, "h hr hrs hour hours"),
    (86400, "day days"),
)
_SECONDS = {name: size for size, names in _UNITS for name in names.split()}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SAID = re.compile(r"(?<![\w.,:-])(\d{1,9}(?:\.\d{1,4})?)(?: ?([a-z]{1,12}))?(?![\w])", re.IGNORECASE)


def converted(value: float, name: str, schema: Mapping[str, Any], heard: str) -> float:
    """The number in the input's unit, if it was said in another one; otherwise as it is."""
    unit = _unit_of(name, schema)
    said = {_SECONDS.get((after or "").lower()) for number, after in _spoken(heard) if float(number) == value}
    if unit is None or len(said) != 1 or None in said or (size := said.pop()) == unit or size is None:
        return value
    exact = round(value * size / unit, 6)
    if exact == int(exact):
        return int(exact)
    return value if schema.get("type") == "integer" else exact


def _spoken(heard: str) -> list[tuple[str, str]]:
    return _SAID.findall(heard[-MOST_CHARS:])


def _unit_of(name: str, schema: Mapping[str, Any]) -> float | None:
    """How many seconds the input's unit has, told by the end of its name, else by what is said about it."""
    parts = _WORD.findall(name)
    last = parts[-1].lower() if parts else ""
    if last in _SECONDS and (len(parts) > 1 or len(last) > SHORTEST_ALONE):
        return _SECONDS[last]
    about = schema.get("description")
    words = _WORD.findall(about[:ABOUT_CHARS].lower()) if isinstance(about, str) else []
    known = {_SECONDS[word] for word in words if word in _SECONDS and len(word) > 1}
    return known.pop() if len(known) == 1 else None
