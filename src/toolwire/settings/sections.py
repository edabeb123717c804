"""Sections of settings: frozen values, and what each of their fields takes.

`schema.py` declares sections in the way of pydantic models, of which this is the small part that settings need:
loading pydantic and building its models took longer than most commands. A value is taken as it is or refused; nothing
is converted, except a whole number for a number and a list for a tuple.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, Union, dataclass_transform, get_args, get_origin

from msgspec import Struct

MISSING: Any = object()


class AfterValidator(Struct, frozen=True):
    """Judges a value of the right type: gives it back, or raises ValueError with what it must be, or NotAllowed."""

    judge: Callable[[Any], Any]


class BeforeValidator(Struct, frozen=True):
    """Sees a value as it was written, and gives the one that is meant."""

    read: Callable[[Any], Any]


class NotAllowed(Exception):
    """A value is none of those that are allowed; the words for those are said elsewhere."""


class SettingField(Struct, frozen=True):
    """One field of a section: its default, its bounds and its meaning."""

    default: Any = MISSING
    default_factory: Callable[[], Any] | None = None
    description: str = ""
    alias: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int = 0
    pattern: str = ""
    allow_inf_nan: bool = True

    @property
    def is_required(self) -> bool:
        return self.default is MISSING and self.default_factory is None

    def usual(self) -> Any:
        """The value where none is set."""
        return self.default_factory() if self.default_factory else self.default

    def allows(self, value: Any) -> bool:
        """Whether text or a number is within the bounds."""
        if isinstance(value, str):
            return not (self.min_length or self.pattern) or self._allows_text(value)
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.allow_inf_nan or isfinite(value))
        )

    def _allows_text(self, text: str) -> bool:
        try:
            text.encode()
        except UnicodeEncodeError:
            return False
        return len(text) >= self.min_length and re.search(self.pattern, text) is not None


def Field(**said: Any) -> Any:  # noqa: N802 -- read as in a pydantic model
    """What a field of a section takes beside its type; see `SettingField`."""
    return SettingField(**said)


_UNBOUNDED = SettingField()


class InvalidValue(NamedTuple):
    """What is wrong with a value. `error` says it where a validator did; such a value may be a secret."""

    kind: Literal["missing", "unknown", "not_allowed", "error"]
    path: tuple[str, ...]
    value: Any
    error: str = ""


class InvalidValues(ValueError):
    """Values that a section does not take."""

    def __init__(self, faults: list[InvalidValue]) -> None:
        super().__init__("; ".join(f"{'.'.join(each.path)}: {each.error or each.kind}" for each in faults))
        self.faults = faults


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class Section:
    """A frozen group of settings. Names that begin with an underscore are its own state, and no settings."""

    fields: ClassVar[Mapping[str, SettingField]] = {}
    kinds: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.kinds = {name: kind for name, kind in cls.__annotations__.items() if not name.startswith("_")}
        cls.fields = {name: _declared(vars(cls).get(name, MISSING)) for name in cls.kinds}
        for name in cls.fields.keys() & vars(cls).keys():
            delattr(cls, name)

    def __init__(self, **values: Any) -> None:
        """The section with these values, checked. Raises InvalidValues."""
        faults: list[InvalidValue] = []
        vars(self).update(_read_fields(type(self), values, (), faults))
        if faults:
            raise InvalidValues(faults)

    @classmethod
    def unchecked(cls, **values: Any) -> Self:
        """The section with these values, of which each was checked before."""
        section = cls.__new__(cls)
        for name, field in cls.fields.items():
            vars(section)[name] = values[given] if (given := field.alias or name) in values else field.usual()
        return section

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"settings are read-only: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"settings are read-only: {name}")

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Section) and type(self) is type(other) and [*self] == [*other]

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self.fields)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self)})"

    def tree(self) -> dict[str, Any]:
        """All values as JSON has them, by the names that files use."""
        return {self.fields[name].alias or name: _plain(value) for name, value in self}


def _declared(default: Any) -> SettingField:
    return default if isinstance(default, SettingField) else SettingField(default=default)


def _plain(value: Any) -> Any:
    match value:
        case Section():
            return value.tree()
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case tuple():
            return list(value)
    return value


class FieldKind(NamedTuple):
    """The type of a field, taken apart: what is in Annotated, and whether it may be None."""

    kind: Any
    optional: bool
    validators: tuple[Any, ...]

    @classmethod
    def of(cls, annotation: Any) -> "FieldKind":
        validators: tuple[Any, ...] = ()
        if get_origin(annotation) is Annotated:
            annotation, *metadata = get_args(annotation)
            validators = tuple(metadata)
        if get_origin(annotation) in {Union, UnionType}:
            kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
            return cls(kinds[0], True, validators)
        return cls(annotation, False, validators)


def _read_fields(
    section: type[Section], values: Mapping[str, Any], path: tuple[str, ...], faults: list[InvalidValue]
) -> dict[str, Any]:
    """The values of a section's fields. What is wrong with them is added to `faults`."""
    found: dict[str, Any] = {}
    for name, field in section.fields.items():
        given = field.alias or name
        if given in values:
            found[name] = _read(section.kinds[name], field, values[given], (*path, given), faults)
        elif field.is_required:
            faults.append(InvalidValue("missing", (*path, given), values))
        else:
            found[name] = field.usual()
    known = {field.alias or name for name, field in section.fields.items()}
    faults += [InvalidValue("unknown", (*path, name), value) for name, value in values.items() if name not in known]
    return found


def _read(annotation: Any, field: SettingField, value: Any, path: tuple[str, ...], faults: list[InvalidValue]) -> Any:
    kind, optional, validators = FieldKind.of(annotation)
    for each in validators:
        if isinstance(each, BeforeValidator):
            value = each.read(value)
    before = len(faults)
    if not (optional and value is None):
        value = _read_kind(kind, field, value, path, faults)
    if len(faults) > before:
        return value
    for each in validators:
        if isinstance(each, AfterValidator):
            value = _judged(each, value, path, faults)
        elif isinstance(each, SettingField) and value is not None and not each.allows(value):
            faults.append(InvalidValue("not_allowed", path, value))
    return value


def _read_kind(kind: Any, field: SettingField, value: Any, path: tuple[str, ...], faults: list[InvalidValue]) -> Any:
    if isinstance(kind, type) and issubclass(kind, Section) and isinstance(value, Mapping):
        return kind.unchecked(**_by_alias(kind, _read_fields(kind, value, path, faults)))
    if get_origin(kind) is dict and isinstance(value, Mapping):
        inner = get_args(kind)[1]
        return {name: _read(inner, _UNBOUNDED, item, (*path, name), faults) for name, item in value.items()}
    if get_origin(kind) is tuple and isinstance(value, (list, tuple, set, frozenset)):
        inner = get_args(kind)[0]
        return tuple(_read(inner, _UNBOUNDED, item, path, faults) for item in value)
    read = _scalar(kind, value)
    if read is MISSING or (isinstance(read, (str, int, float)) and not field.allows(read)):
        faults.append(InvalidValue("not_allowed", path, value))
    return read


def _by_alias(section: type[Section], values: Mapping[str, Any]) -> dict[str, Any]:
    return {section.fields[name].alias or name: value for name, value in values.items()}


def _scalar(kind: Any, value: Any) -> Any:
    """The value if it is of this type, a whole number as a number; MISSING for any other."""
    if get_origin(kind) is Literal:
        return value if isinstance(value, str) and value in get_args(kind) else MISSING
    if kind is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return MISSING
    exact = isinstance(value, bool) == (kind is bool)
    return value if isinstance(kind, type) and isinstance(value, kind) and exact else MISSING


def _judged(validator: AfterValidator, value: Any, path: tuple[str, ...], faults: list[InvalidValue]) -> Any:
    try:
        return validator.judge(value)
    except NotAllowed:
        faults.append(InvalidValue("not_allowed", path, value))
    except ValueError as wrong:
        faults.append(InvalidValue("error", path, value, str(wrong)))
    return value
