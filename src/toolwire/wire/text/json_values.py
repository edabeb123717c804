"""A JSON value in the middle of a text: strict if it can be, repaired where its writer had finished, else in part."""

import json
import re
from functools import cache
from typing import Any

from msgspec import Struct

from toolwire.wire.lenient.arguments import read_json, repeated_key, twice
from toolwire.wire.lenient.strings import CutShort, Unreadable
from toolwire.wire.lenient.values import PartList, PartObject, ValueReader
from toolwire.wire.text.scan import Scan

_READ_PER_UNIT = 200
_COUNTED_PER_UNIT = 1_000  # the exception counts the lines before it
_TOO_DEEP = 200
_ENDS_TRIED = 3


def _refuse(name: str) -> Any:
    raise ValueError(name)


_decoder = json.JSONDecoder(strict=False, parse_constant=_refuse)


class Value(Struct):
    """A value, where it ended, what had to be repaired, and why it must not be used although it could be read.

    `supplied` says that it lacks closing brackets, which were supplied because of what follows.
    """

    value: Any
    end: int
    note: str = ""
    fault: str = ""
    supplied: bool = False


def read_value(scan: Scan, pos: int, closers: tuple[str, ...] = ()) -> Value | None:
    """The JSON value that begins at `pos`; what was cut off is marked as such. None when it is no JSON.

    A value with brackets missing must end before one of `closers`, which shows that the writer had finished.
    """
    if pos == scan.hopeless and not closers:
        return None
    strict = _strict(scan, pos)
    if strict is not None:
        return strict
    for stop in _stops(scan, pos, closers):
        repaired = _loose(scan, pos, stop, finished=True)
        if repaired is not None:
            return repaired
    rest = _loose(scan, pos, scan.end, finished=scan.finished)
    if rest is None:
        scan.hopeless = pos
    return rest


def _strict(scan: Scan, pos: int) -> Value | None:
    try:
        value, stop = _decoder.raw_decode(scan.text, pos)
    except json.JSONDecodeError as wrong:
        scan.work_left -= (wrong.pos - pos) // _READ_PER_UNIT + wrong.pos // _COUNTED_PER_UNIT
        return None
    except (ValueError, RecursionError):
        scan.work_left -= _TOO_DEEP
        return None
    if stop > scan.end or not isinstance(value, dict | list | str):
        return None
    return Value(value, stop, fault="" if isinstance(value, str) else repeated_key(scan.text[pos:stop]))


def _stops(scan: Scan, pos: int, closers: tuple[str, ...]) -> list[int]:
    found: list[int] = []
    if not closers:
        return found
    at = pos
    for _ in range(_ENDS_TRIED):
        match = _any_closer(closers).search(scan.text, at, scan.end)
        scan.work_left -= ((match.start() if match else scan.end) - at) // _READ_PER_UNIT
        if match is None:
            break
        found.append(match.start())
        at = match.end()
    return found


@cache
def _any_closer(closers: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, closers)))


def _loose(scan: Scan, pos: int, end: int, *, finished: bool) -> Value | None:
    """A second, lenient reading; where the text may have been cut off, its finished parts."""
    in_part = end == scan.end and not finished
    reader = ValueReader(scan.text, pos, end, close_at_end=finished, partial=in_part)
    try:
        value = reader.value()
    except CutShort:
        if not in_part:
            return None
        value = PartObject() if scan.text[pos] == "{" else PartList()
    except Unreadable:
        return None
    finally:
        scan.work_left -= 2 * reader.steps + (reader.pos - pos) // _READ_PER_UNIT
    if isinstance(value, PartObject | PartList):
        return Value(value, end)
    if not isinstance(value, dict | list):
        return None
    fault = twice(reader.repeated) if reader.repeated is not None else ""
    return Value(value, reader.pos, "read JSON that was not quite JSON", fault, reader.supplied)


def read_exact(text: str) -> Any:
    """A whole text as strict JSON, or None."""
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return None
