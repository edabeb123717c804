"""Frozen values that are cheap to define, to make and to change.

`dataclass` means what the standard library's means, in the forms that are used here: with slots, frozen or not.
The standard one compiles six functions for each class, which takes half a millisecond; a command loads 170 such
classes, and that was a quarter of its processor time. Here only `__init__` is compiled, when the first value is made;
the rest is shared.

A frozen dataclass fills its slots through `object.__setattr__`, which takes three to five times as long as a plain
assignment, and the journey of one call makes about twenty values. `fast_frozen` gives such a class a `__new__` that
fills the slots of a mutable twin with the same layout and then turns it into what it is. It is never seen outside;
equality, hashing, repr and frozenness are the dataclass's own. The twin is a subclass without slots of its own: that
its layout is the same is then seen at a glance, where two separate classes are compared slot by slot for each value.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, cast

Value = TypeVar("Value")

_copiers: dict[type, Callable[[Any], Any]] = {}
_twins: dict[type, type] = {}

if TYPE_CHECKING:  # type checkers know the standard one by name
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 (to be imported from here)
else:

    def dataclass(*, slots: bool, frozen: bool = False, kw_only: bool = False) -> Callable[[type[Value]], type[Value]]:
        """The standard library's `dataclass`, several times faster to define."""
        define = dataclasses.dataclass(init=not frozen, repr=False, eq=False, slots=slots, kw_only=kw_only)

        def decorate(kind: type[Value]) -> type[Value]:
            kind.__doc__ = kind.__doc__ or kind.__name__  # else a signature is written for it, which takes long
            return _with_methods(define(kind), frozen=frozen)

        return decorate


def _with_methods(kind: type[Value], *, frozen: bool) -> type[Value]:
    """Add what a dataclass has besides its fields, unless the class has its own."""
    params = cast("Any", kind).__dataclass_params__
    params.init = params.repr = params.eq = True
    params.frozen = frozen
    parts = fields(cast("Any", kind))
    own = vars(kind)
    has_hash = own.get("__hash__") is not None
    methods: dict[str, Any] = _comparing(tuple(part.name for part in parts if part.compare))
    methods["__repr__"] = _repr
    if frozen:
        methods |= _FROZEN | {"__init__": _init_on_first_use(kind)}
    else:
        methods["__hash__"] = None
    for name, method in methods.items():
        if name not in own or (name == "__hash__" and not has_hash):
            setattr(kind, name, method)
    return kind


def _comparing(names: tuple[str, ...]) -> dict[str, Any]:
    """Equality and hash by the fields that take part in them."""
    values: Callable[[Any], Any] = attrgetter(*names) if len(names) > 1 else _few(names)

    def equal(value: Any, other: Any) -> bool:
        return bool(values(value) == values(other)) if other.__class__ is value.__class__ else NotImplemented

    return {"__eq__": equal, "__hash__": lambda value: hash(values(value))}


def _few(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """The value of one field or none, in a tuple: `attrgetter` gives only several of them in one."""
    return lambda value: tuple([getattr(value, name) for name in names])


@recursive_repr()
def _repr(value: Any) -> str:
    shown = ", ".join(f"{part.name}={getattr(value, part.name)!r}" for part in fields(value) if part.repr)
    return f"{type(value).__qualname__}({shown})"


def _refuse(_value: Any, name: str, _new: Any = None) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _state(value: Any) -> list[Any]:
    return [getattr(value, part.name) for part in fields(value)]


def _fill(value: Any, state: list[Any]) -> None:
    """Fill a value that is being copied or unpickled, which may not be assigned to."""
    for part, item in zip(fields(value), state, strict=True):
        object.__setattr__(value, part.name, item)


_MUTABLE = {
    "__slots__": (),
    "__new__": object.__new__,
    "__init__": object.__init__,
    "__setattr__": object.__setattr__,
    "__delattr__": object.__delattr__,
}
_FROZEN = {"__setattr__": _refuse, "__delattr__": _refuse, "__getstate__": _state, "__setstate__": _fill}


def _init_on_first_use(kind: Any) -> Callable[..., None]:
    """An `__init__` that compiles the real one and gives way to it: one command makes values of few classes."""

    def init(value: Any, /, *args: Any, **named: Any) -> None:
        kind.__init__ = _init_of(fields(kind), post=hasattr(kind, "__post_init__"))
        kind.__init__(value, *args, **named)

    return init


def _init_of(parts: tuple[Field[Any], ...], *, post: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"_set": object.__setattr__}
    parameters, made = _parameters(parts, scope)
    lines = [
        f"def __init__(self, {', '.join(parameters)}):",
        *made,
        *(f"    _set(self, {part.name!r}, {part.name})" for part in parts),
        "    self.__post_init__()" if post else "    return",
    ]
    exec("\n".join(lines), scope)  # noqa: S102 (the text is made of our own field names)
    init: Callable[..., None] = scope["__init__"]
    return init


def fast_frozen(kind: type[Value]) -> type[Value]:
    """Make a frozen, slotted dataclass several times faster to make. Its meaning stays the same."""
    twin = type(kind.__name__, (kind,), _MUTABLE)  # before the class has a __new__, so that the twin's is object's
    # Without an __init__ of its own the class takes object's, which ignores what __new__ was given.
    del kind.__init__
    setattr(kind, "__new__", _new_on_first_use(kind, twin))  # noqa: B010 (an assignment confuses type checkers)
    setattr(kind, "__reduce__", lambda value: (_filled, (kind, _state(value))))  # noqa: B010
    _twins[kind] = twin
    return kind


def _filled(kind: type[Value], state: list[Any]) -> Value:
    """A copied or unpickled value: as it was, whichever of its fields can be given."""
    value: Value = _twins[kind]()
    for part, item in zip(fields(cast("Any", kind)), state, strict=True):
        setattr(value, part.name, item)
    value.__class__ = kind
    return value


def _new_on_first_use(kind: type[Value], twin: type) -> Callable[..., Value]:
    """A `__new__` that compiles the real one and gives way to it: one command makes values of few classes."""

    compiled: list[Callable[..., Value]] = []

    def new(cls: type[Value], /, *args: Any, **named: Any) -> Value:
        if not compiled:
            scope: dict[str, Any] = {"_Twin": twin, "_Kind": kind}
            lines = _make(fields(cast("Any", kind)), scope, "_cls, ")
            exec("\n".join(lines), scope)  # noqa: S102 (the text is made of our own field names)
            compiled.append(scope["make"])
            if kind.__new__ is new:  # else it stands behind another one, as in a `check_fields` class
                setattr(kind, "__new__", scope["make"])  # noqa: B010 (an assignment confuses type checkers)
        return compiled[0](cls, *args, **named)

    return new


def replace(value: Value, /, **changes: Any) -> Value:
    """A copy of a value with some fields replaced, like `dataclasses.replace`, and faster for `fast_frozen` classes."""
    kind = type(value)
    copier = _copiers.get(kind)
    if copier is None:
        if kind not in _twins:
            return cast("Value", dataclasses.replace(cast("Any", value), **changes))
        copier = _copier(kind)
    copy: Value = copier(value)
    for name, item in changes.items():
        setattr(copy, name, item)
    copy.__class__ = kind
    return copy


def constructor(kind: type[Value]) -> type[Value]:
    """A function that makes a value of this `fast_frozen` class, to be called like the class itself.

    Calling a class costs as much again as making the value, so the few places where every call comes through do not.
    """
    scope: dict[str, Any] = {"_Twin": _twins[kind], "_Kind": kind}
    lines = _make(fields(cast("Any", kind)), scope)
    exec("\n".join(lines), scope)  # noqa: S102 (the text is made of our own field names)
    return cast("type[Value]", scope["make"])


def constructor_from(kind: type[Value], *names: str) -> Callable[..., Value]:
    """A function that makes a value of this `fast_frozen` class from exactly these fields, in this order.

    All others have their defaults. It is for the few places where every call comes through and few of many fields are
    given: matching keywords and filling in defaults costs more than making the value.
    """
    parts = fields(cast("Any", kind))
    scope: dict[str, Any] = {"_Twin": _twins[kind], "_Kind": kind}
    _parameters(parts, scope)
    lines = [
        f"def make({', '.join(names)}):",
        "    twin = _Twin()",
        *(f"    twin.{part.name} = {part.name if part.name in names else _default(part)}" for part in parts),
        "    twin.__class__ = _Kind",
        "    return twin",
    ]
    exec("\n".join(lines), scope)  # noqa: S102 (the text is made of our own field names)
    return cast("Callable[..., Value]", scope["make"])


def _default(part: Field[Any]) -> str:
    """What stands for a field's default, as `_parameters` names it."""
    if part.default is MISSING and part.default_factory is MISSING:
        raise TypeError(f"{part.name!r} has no default and must be given")
    return f"_default_{part.name}" if part.default is not MISSING else f"_make_{part.name}()"


def changing(kind: type[Value], *names: str) -> Callable[..., Value]:
    """A function that copies a value of this `fast_frozen` class with exactly these fields replaced.

    It does what `replace` does in half the time, for the few places where every call comes through.
    """
    parts = fields(cast("Any", kind))
    scope: dict[str, Any] = {"_Twin": _twins[kind], "_Kind": kind}
    lines = [
        f"def change(_value, {', '.join(names)}):",
        "    twin = _Twin()",
        *(f"    twin.{part.name} = {'' if part.name in names else '_value.'}{part.name}" for part in parts),
        "    twin.__class__ = _Kind",
        "    return twin",
    ]
    exec("\n".join(lines), scope)  # noqa: S102 (the text is made of our own field names)
    return cast("Callable[..., Value]", scope["change"])


def _make(parts: tuple[Field[Any], ...], scope: dict[str, Any], first: str = "") -> list[str]:
    """The lines of a function with the dataclass's own parameters and defaults, that makes a value."""
    parameters, made = _parameters(parts, scope)
    return [
        f"def make({first}{', '.join(parameters)}):",
        *made,
        "    twin = _Twin()",
        *(f"    twin.{part.name} = {part.name}" for part in parts),
        "    twin.__class__ = _Kind",
        "    return twin",
    ]


def _parameters(parts: tuple[Field[Any], ...], scope: dict[str, Any]) -> tuple[list[str], list[str]]:
    """A dataclass's own parameters with their defaults, and the lines that make those which are made each time."""
    parameters: list[str] = []
    named: list[str] = []
    made: list[str] = []
    for part in parts:
        name, default = part.name, ""
        if part.default is not MISSING:
            scope[f"_default_{name}"] = part.default
            default = f"_default_{name}"
        elif part.default_factory is not MISSING:
            scope[f"_make_{name}"], scope["_MISSING"] = part.default_factory, MISSING
            default = "_MISSING"
        if part.init:
            (named if part.kw_only else parameters).append(f"{name}={default}" if default else name)
        else:
            made.append(f"    {name} = {default}")
        if default == "_MISSING":
            made.append(f"    {name} = _make_{name}() if {name} is _MISSING else {name}")
    return [*parameters, *(["*", *named] if named else [])], made


def _copier(kind: type) -> Callable[[Any], Any]:
    """A function that copies every slot into a twin, compiled when the first value of a class is changed."""
    lines = [
        "def copy(value):",
        "    twin = _Twin()",
        *(f"    twin.{part.name} = value.{part.name}" for part in fields(cast("Any", kind))),
        "    return twin",
    ]
    scope: dict[str, Any] = {"_Twin": _twins[kind]}
    exec("\n".join(lines), scope)  # noqa: S102 (the text is made of our own field names)
    copy: Callable[[Any], Any] = scope["copy"]
    _copiers[kind] = copy
    return copy
