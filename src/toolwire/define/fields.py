"""What an annotation says beside its type: a description and bounds, without pydantic, which takes long to load."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct

from toolwire.lazy import lazy_module

if TYPE_CHECKING:
    from pydantic import fields as pydantic_fields
else:
    # Loaded where pydantic itself reads a `Field`.
    pydantic_fields = lazy_module("pydantic.fields")


class Field(Struct, frozen=True):
    """Stands in `Annotated` as pydantic's `Field` does, with the keywords that most arguments need.

    Inside a type that only pydantic can describe, pydantic reads it as a group of the metadata that it knows.
    """

    description: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    __is_annotated_types_grouped_metadata__: ClassVar[bool] = True

    @property
    def bounds(self) -> dict[str, Any]:
        """What it says about values, by keyword."""
        return {name: said for name in BOUNDS if (said := getattr(self, name)) is not None}

    def __iter__(self) -> Iterator[Any]:
        group = pydantic_fields.Field(**self.bounds, description=self.description or None)
        yield from group.metadata
        if self.description:
            yield _Description(self.description)


BOUNDS = ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern")


class _Description(Struct, frozen=True):
    text: str

    def __get_pydantic_json_schema__(self, core: Any, describe: Any) -> dict[str, Any]:
        return {**describe(core), "description": self.text}


def is_pydantic_field(item: Any) -> bool:
    """Whether this is what pydantic's `Field` gives."""
    return _is_from(item, "pydantic.fields", _FIELD_INFO)


def is_serializer(item: Any) -> bool:
    """Whether this has pydantic write a value in a way of its own."""
    return _is_from(item, "pydantic.functional_serializers", _SERIALIZERS)


def only_constrains(item: Any) -> bool:
    """Whether metadata says no more than the schema says, so that checked arguments need no second look."""
    if is_pydantic_field(item):
        return item.is_required() and item.validation_alias is None and all(map(only_constrains, item.metadata))
    return isinstance(item, (str, Field)) or _is_from(item, "annotated_types", _CONSTRAINTS)


_FIELD_INFO = frozenset({"FieldInfo"})
_SERIALIZERS = frozenset({"PlainSerializer", "WrapSerializer"})
_CONSTRAINTS = frozenset({"Ge", "Gt", "Le", "Lt", "Interval", "MultipleOf", "MinLen", "MaxLen", "Len"})


def _is_from(item: Any, module: str, names: frozenset[str]) -> bool:
    """Whether an object is of one of these classes, found without loading their module where nothing else has."""
    return any(kind.__module__ == module and kind.__name__ in names for kind in type(item).__mro__)
