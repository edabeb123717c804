"""Faults found parameter by parameter, for arguments that are a plain list of named values.

The validator says of each value whether it fits, which is quick; its own list of errors is not. What is wrong with one
number, text or choice can be read from the few limits of its parameter.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from toolwire.define.nearest import Names
from toolwire.define.quoting import quote_value
from toolwire.define.schemas import compile_parameters
from toolwire.define.wording import LIMITS, MISSING, UNKNOWN, VALUE, Choices, Ranked, did_you_mean

_MOST = 64
_SAYING_NOTHING = frozenset("title description default examples deprecated readOnly writeOnly $comment".split())
_AROUND = frozenset("type properties required additionalProperties $defs definitions $schema".split())
_SCALARS = frozenset((str, int, bool))


def _is_shorter(text: str, limit: int) -> bool:
    return len(text) < limit


def _is_longer(text: str, limit: int) -> bool:
    return len(text) > limit


_Tests = Mapping[str, Callable[[Any, Any], bool]]
_OF_NUMBERS: _Tests = {
    "minimum": operator.lt,
    "maximum": operator.gt,
    "exclusiveMinimum": operator.le,
    "exclusiveMaximum": operator.ge,
}
_OF_TEXT: _Tests = {"minLength": _is_shorter, "maxLength": _is_longer}
_TYPES: Mapping[str, tuple[frozenset[type], _Tests]] = {
    "string": (frozenset((str,)), _OF_TEXT),
    "integer": (frozenset((int,)), _OF_NUMBERS),
    "number": (frozenset((int, float)), _OF_NUMBERS),
    "boolean": (frozenset((bool,)), {}),
    "scalar": (_SCALARS, {}),
}
# What a value breaks if it breaks none of the limits above.
_LEFT = frozenset(("enum", "const", "pattern", "format"))


class _Rule(Struct, frozen=True):
    """One limit of a parameter and the sentence about a value that breaks it."""

    rank: int
    words: str
    tell: Callable[[Any], str]
    is_broken: Callable[[Any, Any], bool]
    limit: Any


class _Parameter(Struct, frozen=True):
    """What is known of a parameter; without types it has more to it than limits of a single value."""

    types: frozenset[type] = frozenset()
    rules: tuple[_Rule, ...] = ()
    left: _Rule | None = None

    def faults(self, value: Any) -> list[Ranked]:
        """What is wrong with a value that does not fit, or nothing if that cannot be said for sure."""
        if type(value) not in self.types or (type(value) is float and not math.isfinite(value)):
            return []
        broken = [rule for rule in self.rules if rule.is_broken(value, rule.limit)] if self.rules else []
        if self.left is not None:
            broken = [] if broken else [self.left]
        return [(rule.rank, rule.words + rule.tell(value)) for rule in broken]


class CompiledParameters:
    """The parameters of a schema that takes no others, compiled when a fault is first looked for."""

    __slots__ = ("_known", "_names", "_parameters", "_required", "_schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._known: dict[str, Callable[[Any], bool]] | None = None
        self._parameters: dict[str, _Parameter] = {}
        self._required: list[str] = []
        self._names = Names(())

    def faults(self, arguments: dict[str, Any]) -> list[Ranked]:
        """All faults of arguments that do not fit, or nothing where it takes the validator's errors to tell them.

        The arguments must be such as JSON can write.
        """
        known = self._known if self._known is not None else self._compiled()
        if len(arguments) > _MOST or not known:
            return []
        found: list[Ranked] = []
        for name, value in arguments.items():
            takes = known.get(name)
            if takes is None:
                faults = self._unknown(name, value)
            elif takes(value):
                continue
            else:
                faults = self._parameters[name].faults(value)
            if not faults:
                return []
            found += faults
        found += [(MISSING, f"missing {quote_value(name)}") for name in self._required if name not in arguments]
        return found

    def _unknown(self, name: str, value: Any) -> list[Ranked]:
        # Nothing has looked at this value yet, so only one that is sound at a glance is passed over.
        if type(value) not in _SCALARS or "\0" in name:
            return []
        return [(UNKNOWN, f"unknown {quote_value(name)}{did_you_mean(self._names.nearest(name, 1))}")]

    def _compiled(self) -> dict[str, Callable[[Any], bool]]:
        schema = self._schema
        properties = schema["properties"]
        self._known = {}
        is_plain = schema.keys() <= _AROUND | _SAYING_NOTHING and schema.get("additionalProperties") is False
        if is_plain and len(properties) <= _MOST and all(isinstance(inner, dict) for inner in properties.values()):
            self._known = compile_parameters(schema)
            self._parameters = {name: _parameter(name, inner) for name, inner in properties.items()}
            self._required = schema.get("required", [])
            self._names = Names(properties)
        return self._known


def _parameter(name: str, schema: dict[str, Any]) -> _Parameter:
    limits = {key: held for key, held in schema.items() if key not in _SAYING_NOTHING}
    kind = limits.pop("type", "scalar")
    if not isinstance(kind, str) or kind not in _TYPES:
        return _Parameter()
    types, tests = _TYPES[kind]
    left = [key for key in limits if key in _LEFT]
    if len(left) > 1 or any(key not in tests or not _is_number(limits[key]) for key in limits.keys() - {*left}):
        return _Parameter()
    rules = tuple(_rule(name, key, limits[key], test) for key, test in tests.items() if key in limits)
    return _Parameter(types, rules, _rule(name, left[0], limits[left[0]]) if left else None)


def _is_number(limit: Any) -> bool:
    return type(limit) in (int, float)


def _rule(name: str, keyword: str, limit: Any, is_broken: Callable[[Any, Any], bool] = operator.ne) -> _Rule:
    if keyword == "enum":
        return _Rule(VALUE, f"{name}: ", Choices(limit).told, is_broken, limit)
    rank, before, after, tell = LIMITS[keyword]
    return _Rule(rank, f"{name}: {before}{quote_value(limit)}{after}", tell, is_broken, limit)
