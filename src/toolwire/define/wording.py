"""What is said of a value that breaks a limit, and in which order faults are told."""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from toolwire.define.nearest import Names
from toolwire.define.quoting import list_values, quote_value

MAX_FAULTS = 20
_MAX_NAMES = 40

Ranked = tuple[int, str]
# The order in which faults are told: what is missing first, what needs the most reading last.
MISSING, TYPE, UNKNOWN, VALUE, RANGE, LENGTH, PATTERN, OTHER = range(8)
# After these it helps to know what the tool takes.
_NAMING = frozenset((MISSING, UNKNOWN))
_RANK = itemgetter(0)


def _size(value: Any) -> str:
    return str(len(value)) if isinstance(value, (str, list, dict)) else "0"


# For each keyword that sets a limit: the rank of its fault, the words before and after the limit, and what is told of
# the value.
LIMITS: Mapping[str, tuple[int, str, str, Callable[[Any], str]]] = {
    "const": (VALUE, "must be ", ", got ", quote_value),
    "minimum": (RANGE, "must be at least ", ", got ", quote_value),
    "maximum": (RANGE, "must be at most ", ", got ", quote_value),
    "exclusiveMinimum": (RANGE, "must be greater than ", ", got ", quote_value),
    "exclusiveMaximum": (RANGE, "must be less than ", ", got ", quote_value),
    "multipleOf": (RANGE, "must be a multiple of ", ", got ", quote_value),
    "minLength": (LENGTH, "must have at least ", " characters, has ", _size),
    "maxLength": (LENGTH, "must have at most ", " characters, has ", _size),
    "minItems": (LENGTH, "must have at least ", " items, has ", _size),
    "maxItems": (LENGTH, "must have at most ", " items, has ", _size),
    "additionalItems": (LENGTH, "must have at most ", " items, has ", _size),
    "minProperties": (LENGTH, "must have at least ", " entries, has ", _size),
    "maxProperties": (LENGTH, "must have at most ", " entries, has ", _size),
    "pattern": (PATTERN, "must match the pattern ", ", got ", quote_value),
    "format": (PATTERN, "must be written as a ", ", got ", quote_value),
}


def ranked_sentences(ranked: list[Ranked], schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The sentences by rank, otherwise in the order given, each once; and what the tool takes, where that helps."""
    ranked.sort(key=_RANK)
    once = first_sentences(list(dict.fromkeys([sentence for _, sentence in ranked])))
    if not ranked or ranked[0][0] > UNKNOWN or _NAMING.isdisjoint([rank for rank, _ in ranked]):
        return once
    return (*once, signature_line(schema))


def first_sentences(told: list[str]) -> tuple[str, ...]:
    """The first twenty, and how many more there are."""
    if len(told) <= MAX_FAULTS:
        return tuple(told)
    return (*told[:MAX_FAULTS], f"… and {len(told) - MAX_FAULTS} more")


def signature_line(schema: Mapping[str, Any]) -> str:
    """`Required: [path]. Optional: [offset, limit].`"""
    required = [name for name in schema.get("required", ()) if isinstance(name, str)]
    optional = [name for name in schema.get("properties", ()) if name not in set(required)]
    return f"Required: [{names(required)}]. Optional: [{names(optional)}]."


def names(known: list[str]) -> str:
    """Names one after the other, the first forty of them."""
    return ", ".join(known[:_MAX_NAMES]) + (f", … {len(known) - _MAX_NAMES} more" if len(known) > _MAX_NAMES else "")


class Choices:
    """The values that a list allows, as they are told, and ready for a guess at which of them was meant."""

    __slots__ = ("_expected", "_names", "options")

    def __init__(self, options: list[Any]) -> None:
        self.options = options
        self._expected = f"expected one of {list_values(options)}, got "
        self._names = Names(option for option in options if isinstance(option, str))

    def told(self, value: Any) -> str:
        meant = self._names.nearest(value, 1) if isinstance(value, str) else ()
        return f"{self._expected}{quote_value(value)}{did_you_mean(meant)}"


def did_you_mean(meant: tuple[str, ...]) -> str:
    """A question about the first of these, if there is one."""
    return f"; did you mean {quote_value(meant[0])}?" if meant else ""
