"""Change is a new value: a copy of a noun with some fields replaced."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast

Noun = TypeVar("Noun")
_set = object.__setattr__


def changed(noun: Noun, **changes: Any) -> Noun:
    """A copy of a frozen noun with these fields replaced.

    Does what `dataclasses.replace` does, a few times faster: a turn is copied twice for every step of the loop.
    """
    read, write = _copier(type(noun))
    copy = object.__new__(type(noun))
    for put, value in zip(write, read(noun), strict=True):
        put(copy, value)
    for name, value in changes.items():
        _set(copy, name, value)
    return copy


@cache
def _copier(kind: type) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[Callable[[Any, Any], None], ...]]:
    """How to read all slots of a noun at once, and how to fill them one by one."""
    names = [field.name for field in fields(cast("Any", kind))]
    return attrgetter(*names), tuple(getattr(kind, name).__set__ for name in names)
