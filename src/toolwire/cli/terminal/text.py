"""Foreign text made fit for a terminal: nothing in it can move the cursor, change colours or hide other text."""

import json
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any

from toolwire.deliver.lookalikes import mark_lookalikes

_LONGEST_INTEGER = 400  # bits
_KEPT = {0x09, 0x0A}
_TURNS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
# What shows nothing, less the joiners that scripts and pictures need.
_UNSEEN = chain((0x200B, 0x2028, 0x2029, 0xFEFF), range(0x2060, 0x2065), range(0x206A, 0x2070), range(0xE0000, 0xE0080))
_NEUTRAL: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code not in _KEPT},
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    **dict.fromkeys(_TURNS, "\ufffd"),
    **dict.fromkeys(_UNSEEN, "\ufffd"),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}
_FLAT = _NEUTRAL | {code: chr(0x2400 + code) for code in _KEPT}


def clean(text: str) -> str:
    """The text with control characters shown as symbols; tabs and line ends stay."""
    return text.translate(_NEUTRAL)


def clean_json(text: str) -> str:
    """The same JSON, with what a terminal would obey, and what it does not show, as escapes."""
    return text if text.isascii() and "\x7f" not in text else text.translate(_escapes())


@cache
def _escapes() -> dict[int, str]:
    """What lies below the space, JSON escapes itself."""
    return {code: json.dumps(chr(code))[1:-1] for code in _NEUTRAL if code > 0x7F} | {0x7F: "\\u007f"}


def distinct(text: str) -> str:
    """Clean text in which letters that pass for others are marked, for what a person is asked to agree to."""
    return clean(mark_lookalikes(text))


def distinct_line(text: str) -> str:
    """The same on one line: a name in it, such as that of a file, cannot add lines of its own."""
    return on_one_line(mark_lookalikes(text))


def on_one_line(text: str) -> str:
    """The whole text as part of a line: line ends and tabs, too, are shown as symbols."""
    return text.translate(_FLAT)


def one_line(text: str, most: int) -> str:
    """The beginning of a text on one line, at most so many characters, with an ellipsis where something was cut."""
    flat = clean(" ".join(text[: most * 4 + 64].split()))
    return flat if len(flat) <= most and len(text) <= most * 4 + 64 else f"{flat[: most - 1]}…"


def arguments_line(arguments: Mapping[str, Any], most: int) -> str:
    """Arguments as a person would write them: `expression="2+2", count=3`."""
    parts: list[str] = []
    length = 0
    for name, value in arguments.items():
        parts.append(f"{name}={_value(value, most)}")
        length += len(parts[-1])
        if length > most:
            break
    return one_line(", ".join(parts), most)


def _value(value: Any, most: int) -> str:
    match value:
        case str():
            return f'"{value[:most]}"' if len(value) <= most else f'"{value[:most]}…"'
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case int() if value.bit_length() > _LONGEST_INTEGER:
            return "(a very long number)"
        case Mapping():
            return "{…}" if value else "{}"
        case list() | tuple():
            return f"[{', '.join(_value(item, 20) for item in value[:4])}{', …' if len(value) > 4 else ''}]"
        case _:
            return str(value)[:most]


def quantity(number: int, noun: str, many: str = "") -> str:
    """How many there are: `1 call`, `2,000 calls`."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def duration(ms: float) -> str:
    """Milliseconds as a person would say them."""
    if ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    return f"{int(ms // 60_000)} min {int(ms % 60_000 // 1000)} s"
