"""An address in its one spelling, so that a rule about it cannot be passed by another. Pure.

More is taken for the same here than by any one server or browser: this is for rules that deny or ask.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import unquote

from toolwire.decide.globs import fits
from toolwire.decide.paths import fold
from toolwire.lazy import lazy_pattern

_USUAL_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443"}
_NOT_SEEN = lazy_pattern(r"[\x00-\x20\x7f\u00ad\u200b-\u200f\u2060-\u206f\ufeff]")
_DOT = "\u3002"  # browsers read it as the dot between the labels of a host
_ADDRESS = lazy_pattern(r"(?P<scheme>https?(?=:)|wss?(?=:)|[a-z*][a-z0-9+.*-]*(?=://)):/*(?P<rest>.*)", re.DOTALL)
_PORT = lazy_pattern(r":0*([0-9]*)$")
_TIMES_DECODED = 3


def address_fits(text: str, pattern: str) -> bool:
    """Whether a pattern means this address. Credentials, fragment, case, detours and codes make no difference."""
    wanted = _pattern_forms(pattern)
    return any(fits(one, form) for one in dict.fromkeys((fold(text), *_forms(text))) for form in wanted)


@lru_cache(maxsize=1024)
def _pattern_forms(pattern: str) -> tuple[str, ...]:
    whole = pattern if "://" in pattern else f"*://{pattern}"
    return tuple(dict.fromkeys((fold(pattern), canonical(whole))))


def _forms(text: str) -> Iterator[str]:
    for whole in dict.fromkeys((canonical(text), canonical(text, says_port=True))):
        yield whole
        path = whole.partition("?")[0]
        if "://" in path:
            yield path
            yield path.rstrip("/")
            yield f"{path.rstrip('/')}/"
            yield re.sub(r";[^/]*", "", path)


def canonical(text: str, *, says_port: bool = False) -> str:
    """An address (or a pattern of some) with everything decoded, in small letters, without detours."""
    shown = fold(_NOT_SEEN.sub("", text)).replace("\\", "/")
    found = _ADDRESS.fullmatch(shown)
    if found is None:
        return shown
    scheme, rest = found["scheme"], found["rest"].partition("#")[0]
    end = next((at for at, char in enumerate(rest) if char in "/?"), len(rest))
    path, question, query = rest[end:].partition("?")
    return f"{scheme}://{_authority(rest[:end], scheme, says_port)}{_path(path)}{question}{_decoded(query)}"


def _authority(text: str, scheme: str, says_port: bool) -> str:
    name = _decoded(text).rpartition("@")[2].replace(_DOT, ".")
    found = _PORT.search(name) if not name.endswith("]") else None
    usual = _USUAL_PORTS.get(scheme, "")
    port = (found[1] if found else "") or usual
    host = _host((name[: found.start()] if found else name).rstrip("."))
    return f"{host}:{port}" if port and (says_port or port != usual) else host


def _host(name: str) -> str:
    if name.startswith("[") and name.endswith("]"):
        try:
            wide = IPv6Address(name[1:-1])
            return str(wide.ipv4_mapped or f"[{wide.compressed}]")
        except ValueError:
            return name
    if (address := _ipv4(name)) is not None:
        return address
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name


def _ipv4(name: str) -> str | None:
    """An IPv4 address in any of the spellings of `inet_aton`: 2130706433, 0x7f.1, 0177.0.0.1."""
    try:
        *parts, last = [_number(part) for part in name.split(".")]
        if len(parts) > 3 or any(part > 255 for part in parts) or last >= 256 ** (4 - len(parts)):
            return None
        head = sum(part << (8 * (3 - place)) for place, part in enumerate(parts))
        return str(IPv4Address(head + last))
    except ValueError:
        return None


def _number(text: str) -> int:
    if not text.isascii() or not text.isalnum():
        raise ValueError(text)
    if text.startswith("0x"):
        return int(text, 16)
    return int(text, 8) if len(text) > 1 and text.startswith("0") else int(text)


def _path(text: str) -> str:
    """A path without empty, `.` and `..` parts; a final slash stays."""
    kept: list[str] = []
    decoded = _decoded(text).replace("\\", "/")
    parts = decoded.split("/")
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    ends = "/" if kept and parts[-1] in ("", ".", "..") else ""
    return f"/{'/'.join(kept)}{ends}" if kept else "/" if text else ""


def _decoded(text: str) -> str:
    """A text without its percent codes, also where these are encoded themselves."""
    for _ in range(_TIMES_DECODED):
        if "%" not in text:
            break
        text = fold(unquote(text))
    return text
