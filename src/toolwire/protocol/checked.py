"""Values whose constructor takes what is clearly meant, and refuses the rest with a sentence.

A wrong kind in a grant or a limit would otherwise be noticed when the first call is judged, or not at all. Only the
constructor checks: `replace` is for values that are right already.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar, cast

from msgspec import Struct, StructMeta

Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=Enum)
Check = Callable[[Any], Any]
"""Gives the value of a field as it must be. Raises TypeError or ValueError; their text follows the field's name."""

_checks: dict[type, Mapping[str, Check]] = {}


def check_fields(**checks: Check) -> Callable[[type[Value]], type[Value]]:
    """Have the constructor of a `CheckedStruct` look at these fields. Those left out are right already."""

    def decorate(kind: type[Value]) -> type[Value]:
        _checks[kind] = checks
        return kind

    return decorate


class _CheckedMeta(StructMeta):
    """Looks at what is given before a value is made. A `Struct` has no place of its own for that."""

    def __call__(self, *args: Any, **given: Any) -> Any:
        fields, checks = self.__struct_fields__, _checks_of(self)
        _refuse_unknown(self.__name__, fields, given)
        right = [_checked(self, checks, name, item) for name, item in zip(fields, args, strict=False)]
        return super().__call__(
            *right, *args[len(right) :], **{name: _checked(self, checks, name, item) for name, item in given.items()}
        )


class CheckedStruct(Struct, frozen=True, metaclass=_CheckedMeta):
    """A value whose constructor looks at the fields that `check_fields` names."""


def _checks_of(kind: type) -> Mapping[str, Check]:
    """Those of a class, and of what it is a subclass of."""
    found = _checks.get(kind)
    return found if found is not None else next((_checks[one] for one in kind.__mro__ if one in _checks), {})


def _checked(kind: type, checks: Mapping[str, Check], name: str, item: Any) -> Any:
    return _right(f"{kind.__name__}({name}=…)", checks[name], item) if name in checks else item


def _right(place: str, check: Check, item: Any) -> Any:
    try:
        return check(item)
    except TypeError as wrong:
        raise TypeError(f"{place} {wrong}") from None
    except ValueError as wrong:
        raise ValueError(f"{place} {wrong}") from None


def _refuse_unknown(kind: str, names: tuple[str, ...], given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in names:
            raise TypeError(f"{kind} has no field {name!r}; it has {', '.join(names)}")


def one_of(kind: type[Choice]) -> Check:
    """A member of an enumeration, or its name or value."""
    choices = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)

    def check(item: Any) -> Choice:
        if isinstance(item, kind):
            return item
        if isinstance(item, str) and item.strip().upper() in kind.__members__:
            return kind[item.strip().upper()]
        if not isinstance(item, bool):
            try:
                return kind(item)
            except ValueError:
                pass
        raise ValueError(f"must be one of {choices}, not {describe_value(item)}")

    return check


def names(item: Any) -> frozenset[str]:
    """A set of names from any collection of them, or from a single one."""
    return item if type(item) is frozenset and all(map(_is_name, item)) else frozenset(_texts(item, "names"))


def texts(item: Any) -> tuple[str, ...]:
    """A tuple of texts from any collection of them, or from a single one."""
    return item if type(item) is tuple and all(map(_is_name, item)) else tuple(_texts(item, "texts"))


def folders(item: Any) -> tuple[str, ...]:
    """A tuple of paths from any collection of texts and paths, or from a single one."""
    listed = [item] if isinstance(item, (str, os.PathLike)) else item
    if isinstance(listed, (list, tuple, set, frozenset)):
        listed = [os.fspath(one) if isinstance(one, os.PathLike) else one for one in listed]
    return tuple(_texts(listed, "folders"))


def _texts(item: Any, what: str) -> Iterable[str]:
    listed = [item] if isinstance(item, str) else item
    if isinstance(listed, (Mapping, bytes)) or not isinstance(listed, Iterable):
        raise TypeError(f"must be {what} in a list or set, not {describe_value(item)}")
    found = list(listed)
    for one in found:
        if not _is_name(one):
            raise TypeError(f"must be {what} in a list or set; {describe_value(one)} is not one of them")
    return found


def _is_name(item: Any) -> bool:
    return isinstance(item, str) and bool(item.strip())


def text(item: Any) -> str:
    """A text."""
    if not isinstance(item, str):
        raise TypeError(f"must be text, not {describe_value(item)}")
    return item


def flag(item: Any) -> bool:
    """True or False, and nothing that passes for one of them."""
    if not isinstance(item, bool):
        raise TypeError(f"must be True or False, not {describe_value(item)}")
    return item


def mapping(item: Any) -> Any:
    """A mapping, such as a JSON Schema."""
    if not isinstance(item, Mapping):
        raise TypeError(f"must be a dict, not {describe_value(item)}")
    return item


def count(least: int) -> Check:
    """A whole number that is not too small."""

    def check(item: Any) -> int:
        if isinstance(item, float) and item.is_integer():
            item = int(item)
        if isinstance(item, bool) or not isinstance(item, int):
            raise TypeError(f"must be a whole number, not {describe_value(item)}")
        if item < least:
            raise ValueError(f"must be at least {least}, not {item}")
        return item

    return check


def amount(item: Any) -> float:
    """A number that is not negative."""
    if isinstance(item, bool) or not isinstance(item, (int, float)):
        raise TypeError(f"must be a number, not {describe_value(item)}")
    if not item >= 0 or math.isinf(item):
        raise ValueError(f"must be a number that is not negative, not {item}")
    return item


def above_zero(item: Any) -> float:
    """A number of seconds, or of something else that there must be some of."""
    if not amount(item):
        raise ValueError("must be above 0")
    return float(item) if isinstance(item, float) else cast("float", item)


def optional(check: Check) -> Check:
    """The same, or None for no limit; infinity is no limit too."""
    return lambda item: None if item is None or item == math.inf else check(item)


def describe_value(item: Any) -> str:
    """A value as it is named in a sentence."""
    said = repr(item)
    return said if len(said) <= 60 else f"{said[:59]}…"
