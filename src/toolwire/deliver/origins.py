"""Where a result was read from, in a form that can be shown to anyone: short, printable, and without secrets."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

MOST = 20
LONGEST = 200
_ADDRESSES = ("url", "uri")
_KEPT = "/:%@!$&'()*+,;=~[]"


def origins(told: Iterable[str], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The places that a tool says it has read, or else the address that it was given."""
    places = list(told) or [value for name in _ADDRESSES if isinstance(value := arguments.get(name), str) and value]
    return tuple(filter(None, dict.fromkeys(map(place, places[:MOST]))))


def place(uri: str) -> str:
    """An address without what could be a secret in it: no user, no query, no fragment."""
    bare = uri[: LONGEST * 4].partition("#")[0].partition("?")[0]
    scheme, slashes, rest = bare.partition("://")
    if slashes:
        host, slash, path = rest.partition("/")
        bare = f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
    return quote(bare, safe=_KEPT, errors="replace")[:LONGEST]
