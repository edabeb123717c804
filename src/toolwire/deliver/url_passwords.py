"""Passwords that a call writes into an address are not kept with it: a placeholder stands in their place. Pure.

The value stays in this process alone, as a secret that only this tool may have for this host. Another process that
takes the call up later cannot run it as it was, and says so.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from toolwire.lazy import lazy_pattern

NAME = "URL_PASSWORD_"
_SHORTEST_TOKEN = 20
_DEEPEST = 64
# `scheme://user:password@host`, and `scheme://token@host` where the token is too long to be a user's name.
_WITH_PASSWORD = lazy_pattern(
    r"([A-Za-z][A-Za-z0-9+.\-]{0,31}://)(?:([^\s/?#@:'\"<>]{0,256}):)?([^\s/?#'\"<>]{1,4096})@([^\s/?#@:'\"<>]{1,255})"
)


class UrlPassword(NamedTuple):
    """A password, the host it is for, and the name of the placeholder that stands for it."""

    name: str
    value: str
    host: str


def has_url_password(arguments: Mapping[str, Any]) -> bool:
    """Whether any text of the arguments may hold an address with a password; quick where none does."""
    # Every call passes here. Most have no such sign anywhere, which their JSON shows without a walk through them.
    try:
        if orjson.dumps(arguments).find(b"@") < 0:
            return False
    except TypeError:  # half a surrogate pair, a large integer, nested too deeply for orjson, or not JSON
        pass
    return any(map(_WITH_PASSWORD.search, _texts(arguments, 0)))


def withhold(arguments: Mapping[str, Any], tool: str, seal: bytes) -> tuple[dict[str, Any], list[UrlPassword]]:
    """The arguments with placeholders, and what they stand for. The same password gets the same name under one seal."""
    found: list[UrlPassword] = []

    def replaced(match: re.Match[str]) -> str:
        scheme, user, password, host = match.groups()
        if password.startswith("{{secret:") or (user is None and len(password) < _SHORTEST_TOKEN):
            return match[0]
        data = "\0".join((tool, host.lower(), password)).encode("utf-8", "surrogatepass")
        one = UrlPassword(f"{NAME}{blake2b(data, digest_size=6, key=seal).hexdigest()}", password, host)
        found.append(one)
        return f"{scheme}{'' if user is None else user + ':'}{{{{secret:{one.name}}}}}@{host}"

    return {key: _rewritten(value, replaced, 0) for key, value in arguments.items()}, found


def _rewritten(value: Any, replaced: Any, depth: int) -> Any:
    match value:
        case str():
            return _WITH_PASSWORD.sub(replaced, value)
        case Mapping() if depth < _DEEPEST:
            return {key: _rewritten(inner, replaced, depth + 1) for key, inner in value.items()}
        case list() | tuple() if depth < _DEEPEST:
            return [_rewritten(inner, replaced, depth + 1) for inner in value]
    return value


def _texts(value: Mapping[str, Any] | Sequence[Any], depth: int) -> Iterator[str]:
    for inner in value.values() if isinstance(value, Mapping) else value:
        if isinstance(inner, str):
            yield inner
        elif isinstance(inner, Mapping | list | tuple) and depth < _DEEPEST:
            yield from _texts(inner, depth + 1)
