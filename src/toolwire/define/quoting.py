"""How values and places are spelled in sentences for a model: short, unambiguous, bounded."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

LONGEST = 80


def quote_value(value: Any) -> str:
    """A value in a few characters: text in quotes, anything else as JSON, cut where it gets long."""
    if isinstance(value, str):
        return repr(value if len(value) <= LONGEST else value[: LONGEST - 1] + "…")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value.bit_length() < 256 else "a very large integer"
    return _cut(_json(value))


def describe_json(value: Any) -> str:
    """A value with the name of its JSON type, for 'got …'."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {quote_value(value)}"
        case int() | float():
            return f"the number {quote_value(value)}"
        case dict():
            return f"the object {quote_value(value)}"
        case list() | tuple():
            return f"the array {quote_value(value)}"
    return f"a {type(value).__name__}"


def list_values(values: Iterable[Any], most: int = 20) -> str:
    """Values one after the other, the first few of them."""
    known = list(values)
    more = f", … ({len(known) - most} more)" if len(known) > most else ""
    return ", ".join(quote_value(value) for value in known[:most]) + more


def path_text(path: Sequence[str | int]) -> str:
    """A place inside the arguments: `address.lines[2]`; the arguments themselves are `arguments`."""
    return _cut("".join(map(_step, path)).removeprefix(".")) or "arguments"


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step[:LONGEST]}" if step.isprintable() else f".{step[:LONGEST]!r}"


def _json(value: Any) -> str:
    small = _shallow(value)
    try:
        return orjson.dumps(small, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return repr(small)


def _shallow(value: Any, room: int = 8) -> Any:
    """As much of a value as could be shown; what lies deeper is an ellipsis, so a huge value costs nothing."""
    match value:
        case dict():
            items = list(zip(range(room), value.items(), strict=False))
            return {str(key)[:LONGEST]: _shallow(inner, room // 2) if room > 1 else "…" for _, (key, inner) in items}
        case list() | tuple():
            return [_shallow(inner, room // 2) if room > 1 else "…" for inner in value[: room * 4]]
        case str():
            return value[:LONGEST]
    return value


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
