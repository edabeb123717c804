"""Fields of a client's JSON, taken with their types checked once."""

from collections.abc import Mapping
from typing import Any


class BadField(ValueError):
    """A field is not what the API says it must be. Never leaves `decode_request`, which turns it into a value."""

    def __init__(self, field: str, wanted: str) -> None:
        super().__init__(f"{field} {wanted}")
        self.field = field


def objects(value: Any, field: str) -> list[Mapping[str, Any]]:
    """A list of objects; missing or null is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise BadField(field, "must be a list of objects")
    return value


def text(value: Any, field: str) -> str:
    """A text; missing or null is an empty one."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadField(field, "must be a string")
    return value


def required_text(value: Any, field: str) -> str:
    """A text that has to be there."""
    if not isinstance(value, str) or not value:
        raise BadField(field, "must be a non-empty string")
    return value


def flag(value: Any, field: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise BadField(field, "must be true or false")
    return bool(value)


def positive(value: Any, field: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadField(field, "must be a whole number above zero")
    return value


def number(value: Any, field: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not -1e9 < value < 1e9:
        raise BadField(field, "must be a number")
    return float(value)
