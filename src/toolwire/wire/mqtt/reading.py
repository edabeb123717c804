"""Reads the fields of one message. The first one that is wrong is remembered, and the caller looks once at the end."""

import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from toolwire.protocol.checked import describe_value
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage
from toolwire.wire.utp.reading import read_object
from toolwire.wire.utp.violations import Violation, ViolationCode

LONGEST_ID = 200
LARGEST_COUNT = 2**53 - 1
_ID = re.compile(rf"[!-~]{{1,{LONGEST_ID}}}")
_NOTHING: Mapping[str, Any] = {}
_Default = TypeVar("_Default")


def parse_message(data: bytes, most: int) -> dict[str, Any] | RefusedMessage:
    """The JSON object that a payload is: strict, each key once, no larger than `most` bytes."""
    read = read_object(data, most, "the message")
    if isinstance(read, Violation):
        too_large = read.code is ViolationCode.TOO_LARGE
        return RefusedMessage(RefusalCode.TOO_LARGE if too_large else RefusalCode.NOT_JSON, read.message)
    return read


class FieldReader:
    """Gives each field as it is meant, or a harmless value where it is missing or wrong; `fault` is the first wrong."""

    __slots__ = ("_data", "fault")

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self.fault: RefusedMessage | None = None

    def identifier(self, name: str, *, required: bool = False) -> str:
        """1 to 200 printable ASCII characters without blanks. One that is not required may be empty, too."""
        value = self._get(name, required=required)
        if value is None or (value == "" and not required):
            return ""
        if isinstance(value, str) and _ID.fullmatch(value):
            return value
        return self._wrong(name, f"must be 1 to {LONGEST_ID} printable characters without blanks", value, "")

    def text(self, name: str, most: int, *, required: bool = False) -> str:
        value = self._get(name, required=required)
        if value is None:
            return ""
        if isinstance(value, str) and len(value) <= most:
            return value
        return self._wrong(name, f"must be text of at most {most} characters", value, "")

    def count(self, name: str, default: int = 0, *, required: bool = False) -> int:
        """A whole number; `3.0` is the 3 that some JSON libraries write."""
        value = self._get(name, required=required)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is int and 0 <= value <= LARGEST_COUNT:
            return value
        return self._wrong(name, f"must be a whole number from 0 to {LARGEST_COUNT}", value, default)

    def number(self, name: str, *, required: bool = False) -> float | None:
        """Zero or more, such as seconds."""
        value = self._get(name, required=required)
        if value is None:
            return None
        if type(value) in (int, float) and 0 <= value <= LARGEST_COUNT and math.isfinite(value):
            return float(value)
        return self._wrong(name, "must be a number, zero or more", value, None)

    def object(self, name: str, *, required: bool = False) -> Mapping[str, Any]:
        value = self._get(name, required=required)
        if value is None:
            return _NOTHING
        return value if isinstance(value, dict) else self._wrong(name, "must be a JSON object", value, _NOTHING)

    def objects(self, name: str, most: int) -> tuple[Mapping[str, Any], ...]:
        value = self._get(name, required=False)
        if value is None:
            return ()
        if isinstance(value, list) and len(value) <= most and all(isinstance(one, dict) for one in value):
            return tuple(value)
        return self._wrong(name, f"must be a list of at most {most} JSON objects", value, ())

    def texts(self, name: str, most: int, longest: int = LONGEST_ID) -> tuple[str, ...]:
        value = self._get(name, required=False)
        if value is None:
            return ()
        if (
            isinstance(value, list)
            and len(value) <= most
            and all(isinstance(i, str) and len(i) <= longest for i in value)
        ):
            return tuple(value)
        return self._wrong(name, f"must be a list of at most {most} short texts", value, ())

    def flag(self, name: str) -> bool:
        value = self._get(name, required=False)
        if value is None or isinstance(value, bool):
            return bool(value)
        return self._wrong(name, "must be true or false", value, default=False)

    def choice(self, name: str, among: type[Any], default: Any = None) -> Any:
        """A member of an enumeration of texts."""
        value = self._get(name, required=default is None)
        if value is None:
            return default
        names = [member.value for member in among]
        if isinstance(value, str) and value in names:
            return among(value)
        return self._wrong(name, f"must be one of {', '.join(names)}", value, default)

    def any(self, name: str) -> Any:
        return self._data.get(name)

    def refuse(self, fault: RefusedMessage) -> None:
        self.fault = self.fault or fault

    def _get(self, name: str, *, required: bool) -> Any:
        value = self._data.get(name)
        if value is None and required:
            self.refuse(RefusedMessage(RefusalCode.MISSING_FIELD, f"{name} is missing", name))
        return value

    def _wrong(self, name: str, why: str, value: Any, default: _Default) -> _Default:
        self.refuse(RefusedMessage(RefusalCode.INVALID_FIELD, f"{name} {why}, not {describe_value(value)}", name))
        return default


def readable_id(data: Mapping[str, Any], name: str) -> str:
    """An id of a message that may be refused, for the report about it."""
    value = data.get(name)
    return value if isinstance(value, str) and _ID.fullmatch(value) else ""
