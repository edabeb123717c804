"""Frozen values that are cheap to make and to change.

A frozen dataclass fills its slots through `object.__setattr__`, which takes three to five times as long as a plain
assignment, and the journey of one call makes about twenty values. `quick` gives such a class a `__new__` that fills
the slots of a mutable twin with the same layout and then turns it into what it is. Nobody else ever sees the twin;
equality, hashing, repr and frozenness are the dataclass's own.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar, cast

Value = TypeVar("Value")

_copiers: dict[type, Callable[[Any], Any]] = {}
_twins: dict[type, type] = {}


def quick(kind: type[Value]) -> type[Value]:
    """Make a frozen, slotted dataclass several times faster to make. Its meaning stays the same."""
    parts = fields(cast("Any", kind))
    names = tuple(part.name for part in parts)
    twin = type(kind.__name__, (), {"__slots__": names})
    scope: dict[str, Any] = {"_Twin": twin, "_Kind": kind, "_new": object.__new__}
    lines = [*_make(parts, scope, "_cls, "), *_copy(parts)]
    exec("\n".join(lines), scope)  # noqa: S102 (the text is made of our own field names)
    # Without an __init__ of its own the class takes object's, which ignores what __new__ was given.
    del kind.__init__
    setattr(kind, "__new__", scope["make"])  # noqa: B010 (a plain assignment is not understood by type checkers)
    setattr(kind, "__reduce__", lambda value: (kind, tuple(getattr(value, name) for name in names)))  # noqa: B010
    _copiers[kind], _twins[kind] = scope["copy"], twin
    return kind


def changed(value: Value, **changes: Any) -> Value:
    """A copy of a value with some fields replaced, like `dataclasses.replace` but for `quick` classes only."""
    kind = type(value)
    copy: Value = _copiers[kind](value)
    for name, item in changes.items():
        setattr(copy, name, item)
    copy.__class__ = kind
    return copy


def making(kind: type[Value]) -> type[Value]:
    """A function that makes a value of this `quick` class, to be called like the class itself.

    Calling a class costs as much again as making the value, so the few places where every call comes through do not.
    """
    scope: dict[str, Any] = {"_Twin": _twins[kind], "_Kind": kind, "_new": object.__new__}
    lines = _make(fields(cast("Any", kind)), scope)
    exec("\n".join(lines), scope)  # noqa: S102 (the text is made of our own field names)
    return cast("type[Value]", scope["make"])


def changing(kind: type[Value], *names: str) -> Callable[..., Value]:
    """A function that copies a value of this `quick` class with exactly these fields replaced.

    It does what `changed` does in half the time, for the few places where every call comes through.
    """
    parts = fields(cast("Any", kind))
    scope: dict[str, Any] = {"_Twin": _twins[kind], "_Kind": kind, "_new": object.__new__}
    lines = [
        f"def change(_value, {', '.join(names)}):",
        "    twin = _new(_Twin)",
        *(f"    twin.{part.name} = {'' if part.name in names else '_value.'}{part.name}" for part in parts),
        "    twin.__class__ = _Kind",
        "    return twin",
    ]
    exec("\n".join(lines), scope)  # noqa: S102 (the text is made of our own field names)
    return cast("Callable[..., Value]", scope["change"])


def _make(parts: tuple[Field[Any], ...], scope: dict[str, Any], first: str = "") -> list[str]:
    """The lines of a function with the dataclass's own parameters and defaults, that makes a value."""
    parameters, made = [], []
    for part in parts:
        default = ""
        if part.default is not MISSING:
            scope[f"_default_{part.name}"] = part.default
            default = f"=_default_{part.name}"
        elif part.default_factory is not MISSING:
            scope[f"_make_{part.name}"] = part.default_factory
            scope["_MISSING"] = MISSING
            default = "=_MISSING"
            made.append(f"    {part.name} = _make_{part.name}() if {part.name} is _MISSING else {part.name}")
        parameters.append(part.name + default)
    return [
        f"def make({first}{', '.join(parameters)}):",
        *made,
        "    twin = _new(_Twin)",
        *(f"    twin.{part.name} = {part.name}" for part in parts),
        "    twin.__class__ = _Kind",
        "    return twin",
    ]


def _copy(parts: tuple[Field[Any], ...]) -> list[str]:
    """The lines of a function that copies every slot into a twin."""
    return [
        "def copy(value):",
        "    twin = _new(_Twin)",
        *(f"    twin.{p.name} = value.{p.name}" for p in parts),
        "    return twin",
    ]
