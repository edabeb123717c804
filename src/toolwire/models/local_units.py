"""Amounts in the unit that an input asks for. Pure.

The embedded model converts what people say (`5 seconds` for `timeout_ms`), and now and then copies the bare number. A
number that was said with another unit than the input's, and in no other way, is such a slip.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

MOST_CHARS = 4000
ABOUT_CHARS = 200
SHORTEST_ALONE = 3  # `min` is more often the least than minutes
CLOSE = 1e-6


class MeasureUnit(Struct, frozen=True):
    """A unit of some quantity: how many basic ones it is, and where its zero lies among these."""

    quantity: str
    size: float
    zero: float = 0.0


_NAMES = (
    (MeasureUnit("time", 0.001), "ms msec msecs millis millisecond milliseconds"),
    (MeasureUnit("time", 1), "s sec secs second seconds"),
    (MeasureUnit("time", 60), "min mins minute minutes"),
    (MeasureUnit("time", 3600), "h hr hrs hour hours"),
    (MeasureUnit("time", 86400), "day days"),
    (MeasureUnit("time", 604800), "week weeks"),
    (MeasureUnit("mass", 0.001), "mg milligram milligrams"),
    (MeasureUnit("mass", 1), "g gram grams"),
    (MeasureUnit("mass", 1000), "kg kgs kilo kilos kilogram kilograms"),
    (MeasureUnit("mass", 1_000_000), "tonne tonnes"),
    (MeasureUnit("length", 0.001), "mm millimetre millimetres millimeter millimeters"),
    (MeasureUnit("length", 0.01), "cm centimetre centimetres centimeter centimeters"),
    (MeasureUnit("length", 1), "m metre metres meter meters"),
    (MeasureUnit("length", 1000), "km kms kilometre kilometres kilometer kilometers"),
    (MeasureUnit("volume", 0.001), "ml millilitre millilitres milliliter milliliters"),
    (MeasureUnit("volume", 0.01), "cl centilitre centilitres"),
    (MeasureUnit("volume", 1), "l litre litres liter liters"),
    (MeasureUnit("temperature", 1), "c celsius centigrade"),
    (MeasureUnit("temperature", 5 / 9, -160 / 9), "f fahrenheit"),
)
_UNITS = {name: unit for unit, names in _NAMES for name in names.split()}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SAID = re.compile(r"(?<![\w.,:-])(\d{1,9}(?:\.\d{1,4})?)(?: ?(?:degrees |° ?)?([a-z]{1,12}))?(?![\w])", re.IGNORECASE)


def convert_units(value: float, name: str, schema: Mapping[str, Any], heard: str) -> float:
    """The number in the input's unit, if it was said in another one; otherwise as it is."""
    own = _unit_of(name, schema)
    said = {_UNITS.get(after.lower()) for number, after in _spoken(heard) if float(number) == value}
    if own is None or None in said:
        return value
    alike = {unit for unit in said if unit and unit.quantity == own.quantity}
    if len(alike) != 1 or (unit := alike.pop()) == own:
        return value
    exact = round((value * unit.size + unit.zero - own.zero) / own.size, 6)
    if abs(exact - round(exact)) < CLOSE:
        return round(exact)
    return value if schema.get("type") == "integer" else exact


def _spoken(heard: str) -> list[tuple[str, str]]:
    return _SAID.findall(heard[-MOST_CHARS:])


def _unit_of(name: str, schema: Mapping[str, Any]) -> MeasureUnit | None:
    """The input's unit, told by the end of its name, else by what is said about it."""
    parts = _WORD.findall(name)
    last = parts[-1].lower() if parts else ""
    if last in _UNITS and (len(parts) > 1 or len(last) > SHORTEST_ALONE):
        return _UNITS[last]
    about = schema.get("description")
    words = _WORD.findall(about[:ABOUT_CHARS].lower()) if isinstance(about, str) else []
    known = {_UNITS[word] for word in words if word in _UNITS and len(word) > 1}
    return known.pop() if len(known) == 1 else None
