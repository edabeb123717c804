"""Whatever a provider's library hands over, as plain dicts and lists."""

from collections.abc import Mapping
from typing import Any

import orjson

_DEPTH = 24
_ITEMS = 20_000
_DUMPERS = ("model_dump", "to_dict", "dict")
# The JSON that the provider sent: its names, no nulls for what it left out, no complaint about a value the SDK
# does not know yet.
_AS_SENT = {"mode": "json", "by_alias": True, "exclude_none": True, "warnings": False}
_FOREIGN = (TypeError, ValueError, AttributeError, KeyError, RecursionError, NotImplementedError)


def plain(value: Any) -> Any:
    """Dicts stay as they are; an SDK's object becomes the dict it stands for. Bounded in depth and number."""
    if isinstance(value, dict | list | str) or value is None:
        return value
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return dict(value)
    dumped = _dumped(value)
    return dumped if dumped is not None else _attributes(value, _DEPTH, [_ITEMS])


def json_or_text(text: str) -> Any:
    """The JSON in a text, or the text itself."""
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def _dumped(value: Any) -> Any:
    for name in _DUMPERS:
        dump = getattr(value, name, None)
        for options in (_AS_SENT, {}) if name == "model_dump" else ({},):
            try:
                found = dump(**options) if callable(dump) else None
            except _FOREIGN:
                continue
            if isinstance(found, Mapping):
                return dict(found)
    return None


def _attributes(value: Any, depth: int, left: list[int]) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    left[0] -= 1
    if depth <= 0 or left[0] <= 0:
        return None
    if isinstance(value, Mapping):
        return {str(key): _attributes(item, depth - 1, left) for key, item in list(value.items())[:_ITEMS]}
    if isinstance(value, list | tuple):
        return [_attributes(item, depth - 1, left) for item in value[:_ITEMS]]
    found = _dumped(value)
    if found is not None:
        return found
    named = getattr(value, "__dict__", None)
    if not isinstance(named, dict):
        return None
    return {key: _attributes(item, depth - 1, left) for key, item in named.items() if not key.startswith("_")}
