"""Amounts as people say them (`two and a half hours`), and what they are in the unit that a tool asks for."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from training.numbers import in_words, plain_number, spoken

Value = tuple[str, Any]

# How much of the smallest unit of its quantity each unit is.
UNITS: dict[str, dict[str, float]] = {
    "duration": {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400},
    "weight": {"grams": 1, "kilograms": 1000},
    "length": {"centimetres": 1, "metres": 100, "kilometres": 100_000},
    "volume": {"millilitres": 1, "litres": 1000},
}
WHOLE = {"seconds", "minutes", "days", "grams", "centimetres", "millilitres"}
SHORT: dict[str, tuple[str, ...]] = {
    "seconds": ("s", " sec", " secs"),
    "minutes": (" min", "min", " mins"),
    "hours": ("h", " h", " hrs"),
    "days": (" days", "d"),
    "grams": ("g", " g", " gram"),
    "kilograms": ("kg", " kg", " kilos"),
    "centimetres": ("cm", " cm", " centimeters"),
    "metres": ("m", " m", " meters"),
    "kilometres": ("km", " km", " kilometers"),
    "millilitres": ("ml", " ml", " milliliters"),
    "litres": ("l", " l", " liters"),
}


@cache
def _idioms(quantity: str) -> tuple[tuple[str, float], ...]:
    """Set phrases and how much of the smallest unit they are."""
    rows = (Path(__file__).parent / "data" / "idioms.txt").read_text(encoding="utf-8").splitlines()
    parted = [row.split(" ", 2) for row in rows]
    return tuple(
        (said, float(size)) for name, size, listed in parted if name == quantity for said in listed.split("; ")
    )


def measure(rng: Random, quantity: str, unit: str, low: str = "1", high: str = "100") -> Value:
    """So much of a quantity between two bounds, as a number of that unit; said in this unit or in another."""
    special = _SPECIAL.get(quantity)
    if special:
        return special(rng, unit, float(low), float(high))
    size = UNITS[quantity][unit]
    least, most = float(low) * size, float(high) * size
    luck = rng.random()
    known = [
        (said, amount) for said, amount in _idioms(quantity) if least <= amount <= most and _fits(amount, unit, size)
    ]
    if luck < 0.35 and known:
        said, amount = rng.choice(known)
        return said, _in(amount, size)
    if luck < 0.45 and quantity == "duration" and (composed := _composed(rng, unit, least, most)):
        return composed
    return _counted(rng, quantity, unit, least, most)


def _counted(rng: Random, quantity: str, unit: str, least: float, most: float) -> Value:
    """A number and a unit, mostly the one that is asked for."""
    size = UNITS[quantity][unit]
    for _ in range(40):
        other = unit if rng.random() < 0.5 else rng.choice(list(UNITS[quantity]))
        step = UNITS[quantity][other]
        top = min(most / step, 120 if other in ("seconds", "minutes") else 2500 if step == 1 else 60)
        if top < 1 or least / step > top:
            continue
        number: float = rng.randint(max(1, int(least / step)), max(1, int(top)))
        if number > 12 and rng.random() < 0.6:
            number = max(1, round(number / 5) * 5)
        if other not in WHOLE and rng.random() < 0.25:
            number += rng.choice([0.5, 0.5, 0.25, 0.75, 0.2])
        amount = number * step
        if least <= amount <= most and _fits(amount, unit, size):
            return _unit_said(rng, plain_number(number), other), _in(amount, size)
    return f"{int(most / size)} {unit}", int(most / size)


def _unit_said(rng: Random, number: float, unit: str) -> str:
    if rng.random() < 0.3:
        return f"{number}{rng.choice(SHORT[unit])}"
    if number != int(number):
        halves = int(number)
        if number - halves == 0.5 and rng.random() < 0.6:
            return f"{in_words(halves)} and a half {unit}"
        return f"{number} {unit}"
    name = {"kilograms": rng.choice(["kilograms", "kilos", "kilos"])}.get(unit, unit)
    return f"{spoken(int(number), rng)} {name if number != 1 else name.removesuffix('s')}"


def _composed(rng: Random, unit: str, least: float, most: float) -> Value | None:
    hours, minutes = rng.randint(1, 4), rng.choice([5, 10, 15, 20, 25, 30, 40, 45, 50])
    shapes = (
        f"{hours} hour{'s' * (hours > 1)} and {minutes} minutes",
        f"{hours}h{minutes}",
        f"{hours} h {minutes} min",
    )
    amount: float = hours * 3600 + minutes * 60
    if amount > most or rng.random() < 0.3:
        amount = hours * 60 + minutes
        shapes = (
            f"{hours} minute{'s' * (hours > 1)} and {minutes} seconds",
            f"{hours}m{minutes}s",
            f"{hours} min {minutes} s",
        )
    size = UNITS["duration"][unit]
    if not (least <= amount <= most and _fits(amount, unit, size)):
        return None
    return rng.choice(shapes), _in(amount, size)


def _fits(amount: float, unit: str, size: float) -> bool:
    value = amount / size
    return value == int(value) if unit in WHOLE else abs(round(value, 2) - value) < 1e-9


def _in(amount: float, size: float) -> int | float:
    return plain_number(round(amount / size, 2))


def _money(rng: Random, unit: str, low: float, high: float) -> Value:
    """A sum; `cents` wants it in cents."""
    known = [pair for pair in _idioms("money") if low <= pair[1] <= high]
    if known and rng.random() < 0.25:
        said, value = rng.choice(known)
    else:
        value = round(rng.uniform(low, min(high, 200 if rng.random() < 0.5 else high)), rng.choice([0, 0, 0, 2]))
        value = max(value, low)
        shown = f"{value:.2f}" if value != int(value) else str(int(value))
        worded = in_words(int(value)) if value == int(value) and value <= 100 and rng.random() < 0.3 else shown
        forms = [f"${shown}", f"{worded} dollars", f"{shown} euros", f"{worded} euros", f"€{shown}", f"{worded} bucks"]
        said = rng.choice([*forms, f"{shown} pounds", f"{shown} USD", f"{shown} EUR"])
    return said, plain_number(round(value * 100)) if unit == "cents" else plain_number(value)


def _share(rng: Random, unit: str, low: float, high: float) -> Value:
    """A part of the whole, as `percent` or as a `fraction`."""
    known = [pair for pair in _idioms("share") if low <= pair[1] <= high]
    if known and rng.random() < 0.3:
        said, value = rng.choice(known)
    else:
        value = rng.randint(int(low), int(high))
        value = round(value / 5) * 5 if value > 10 and rng.random() < 0.6 else value
        number = in_words(int(value)) if rng.random() < 0.15 else str(int(value))
        said = rng.choice([f"{int(value)}%", f"{int(value)} %", f"{number} percent", f"{number} per cent"])
    return said, plain_number(round(value / 100, 2)) if unit == "fraction" else int(value)


def _count(rng: Random, unit: str, low: float, high: float) -> Value:
    """A number of things, said before their name: `a dozen`, `a couple of`, `three`."""
    known = [pair for pair in _idioms("count") if low <= pair[1] <= high]
    if known and rng.random() < 0.3:
        said, value = rng.choice(known)
        return said, int(value)
    number = rng.randint(int(low), int(min(high, 12 if rng.random() < 0.6 else high)))
    return (in_words(number) if number <= 20 and rng.random() < 0.35 else str(number)), number


def _degrees(rng: Random, unit: str, low: float, high: float) -> Value:
    value = plain_number(rng.randint(int(low), int(high)) + rng.choice([0, 0, 0, 0.5]))
    if value < 0:
        return rng.choice(
            [f"minus {abs(value)} degrees", f"{value} degrees", f"{abs(value)} below zero", f"{value}°"]
        ), value
    if value != int(value):
        return rng.choice([f"{value} degrees", f"{in_words(int(value))} and a half degrees", f"{value}°"]), value
    return rng.choice([f"{value} degrees", f"{in_words(int(value))} degrees", f"{value}°", f"{value}°C"]), value


_PARTS = {"am": ("am", " am", " AM"), "pm": ("pm", " pm", " PM")}


def _clock(rng: Random, unit: str, low: float, high: float) -> Value:
    """A time of day: as `HH:MM`, as its `hour`, or `said` as it was."""
    hour = rng.randint(int(low), int(high)) % 24
    minute = 0 if unit == "hour" else rng.choice([0, 0, 30, 30, 15, 45, 45, 10, 20, 50, 40, 5, rng.randint(1, 59)])
    shape, exact = rng.random(), f"{hour:02}:{minute:02}"
    if shape < 0.3:
        said = (
            rng.choice([exact, f"{hour}:{minute:02}"])
            if unit != "hour"
            else rng.choice([f"{hour} o'clock", f"{hour}:00"])
        )
        return said, _shown(unit, hour, minute, said)
    if minute == 0 and hour in (0, 12) and shape < 0.9:
        said = "midnight" if hour == 0 else rng.choice(["noon", "midday", "12 noon"])
        return said, _shown(unit, hour, minute, said)
    part = "am" if hour < 12 else "pm"
    if shape < 0.65 or minute not in (0, 5, 10, 15, 20, 30, 40, 45, 50):
        number = str((hour - 1) % 12 + 1)
        said = f"{number}:{minute:02}" if minute else number
        said += rng.choice(_PARTS[part])
        return said, _shown(unit, hour, minute, said)
    bare = rng.random() < 0.25 and 1 <= hour <= 11
    said = _worded(rng, hour, minute) + ("" if bare else _daytime(rng, hour))
    return said, f"{(hour - 1) % 12 + 1}:{minute:02}" if unit == "said" and bare else _shown(unit, hour, minute, exact)


def _shown(unit: str, hour: int, minute: int, said: str) -> Any:
    match unit:
        case "hour":
            return hour
        case "said":
            return said
    return f"{hour:02}:{minute:02}"


def _worded(rng: Random, hour: int, minute: int) -> str:
    here, following = in_words((hour - 1) % 12 + 1), in_words(hour % 12 + 1)
    match minute:
        case 0:
            return rng.choice([f"{here} o'clock", f"{(hour - 1) % 12 + 1} o'clock", here])
        case 15:
            return rng.choice([f"quarter past {here}", f"a quarter past {here}"])
        case 30:
            return rng.choice([f"half past {here}", f"half past {here}", f"{here} thirty"])
        case 45:
            return rng.choice([f"quarter to {following}", f"a quarter to {following}"])
    if minute < 30:
        return f"{in_words(minute)} past {here}"
    return f"{in_words(60 - minute)} to {following}"


def _daytime(rng: Random, hour: int) -> str:
    if hour < 12:
        return rng.choice([" in the morning", " am"]) if hour > 3 else " at night"
    if hour < 18:
        return rng.choice([" in the afternoon", " pm"])
    return rng.choice([" in the evening", " tonight", " pm"]) if hour < 22 else rng.choice([" at night", " pm"])


MONTHS = "January February March April May June July August September October November December".split()


def _day(rng: Random, unit: str, low: float, high: float) -> Value:
    """A day with its year, as YYYY-MM-DD."""
    year, month, day = rng.randint(2023, 2029), rng.randint(1, 12), rng.randint(1, 28)
    name = MONTHS[month - 1]
    ending = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(day, "th")
    exact = f"{year}-{month:02}-{day:02}"
    forms = [exact, f"{name} {day}, {year}", f"{day} {name} {year}", f"the {day}{ending} of {name} {year}"]
    return rng.choice([*forms, f"{name} {day}{ending} {year}", f"{name[:3]} {day} {year}"]), exact


_SPECIAL: dict[str, Callable[[Random, str, float, float], Value]] = {
    "money": _money,
    "share": _share,
    "count": _count,
    "degrees": _degrees,
    "clock": _clock,
    "day": _day,
}


def schema_of(quantity: str, unit: str) -> str:
    """The JSON type of an amount in that unit."""
    if quantity in ("clock", "day"):
        return "integer" if unit == "hour" else "string"
    whole = unit in WHOLE or unit == "cents" or quantity == "count"
    return "integer" if whole else "number"
