"""Versions of tools: which is newer, and which one a pin such as `resize@1.2` means."""

import re
from collections.abc import Iterable

from toolwire.errors import DefinitionError
from toolwire.lazy import lazy_pattern

_VERSION = lazy_pattern(r"[0-9]{1,9}(\.[0-9]{1,9}){0,3}(-[0-9A-Za-z.]{1,32})?")
_PIN = lazy_pattern(r"([A-Za-z_][A-Za-z0-9_.-]{0,127})@(.{1,80})", re.DOTALL)


def is_version(text: str) -> bool:
    """Whether this is a version: one to four numbers with dots, and perhaps `-` and what it is a draft of."""
    return _VERSION.fullmatch(text) is not None


def version_key(version: str) -> tuple[tuple[int, ...], bool, str]:
    """What versions are sorted by: 1.10 after 1.9, and 2.0-rc1 before 2.0."""
    numbers, _, draft = version.partition("-")
    parts = [int(part) for part in numbers.split(".")]
    return tuple(parts + [0] * (4 - len(parts))), not draft, draft


def read_pin(text: str) -> tuple[str, str]:
    """The name and the version of `name@version`. Raises `DefinitionError`."""
    match = _PIN.fullmatch(text)
    if match is None or not is_version(match[2]):
        raise DefinitionError(f"{text[:80]!r} pins no version; write the tool and its version, such as resize@1.2")
    return match[1], match[2]


def pinned_version(pin: str, versions: Iterable[str]) -> str | None:
    """The version that a pin means: the very one, or else the newest that begins with it, so 1.2 means 1.2.9."""
    known = sorted(versions, key=version_key)
    if pin in known:
        return pin
    return next((each for each in reversed(known) if each.startswith(f"{pin}.") and "-" not in each), None)
