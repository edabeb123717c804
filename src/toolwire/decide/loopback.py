"""Whether a network command plainly talks to its own box only. Pure.

A box without a grant has nothing but its loopback, so this decides what the model is told, and the box what is reached.
What is not known here (an option that names another host, an address made at run time) counts as the network.
"""

import re
from collections.abc import Sequence

from toolwire.decide.shell_words import UNKNOWN, base_name
from toolwire.lazy import lazy_pattern

# A bracket that is not quoted begins a pattern of names to the shell, and is therefore not known.
_HOST = rf"(?:(?:[a-z0-9-]+\.)*localhost|127(?:\.\d{{1,3}}){{3}}|0\.0\.0\.0|[\[{UNKNOWN}]::1\])\.?"
_URL = lazy_pattern(rf"(?:https?://)?{_HOST}(?::\d{{1,5}})?(?:[/?#].*)?", re.IGNORECASE | re.DOTALL)
_NAME = lazy_pattern(rf"{_HOST}|::1", re.IGNORECASE)

# Options that take no value, options whose value is no address, and the same in long form.
_CLIENTS = {
    "curl": (
        "sSfLiIkvgGNOJ46alqjp#0",
        "oXHdmwAubceFCryYzDt",
        "silent show-error fail fail-with-body location include head insecure verbose globoff get no-buffer "
        "remote-name remote-header-name ipv4 ipv6 compressed http1.0 http1.1 http2 no-progress-meter progress-bar "
        "no-keepalive retry-connrefused retry-all-errors path-as-is tcp-nodelay raw create-dirs",
        "output request header data data-raw data-binary data-urlencode data-ascii json form max-time connect-timeout "
        "write-out user-agent user cookie cookie-jar referer range retry retry-delay retry-max-time url-query "
        "dump-header max-redirs output-dir upload-file expect100-timeout",
    ),
    "wget": (
        "qSvcNxbd46",
        "OoPtTU",
        "quiet no-verbose server-response spider content-on-error no-check-certificate no-cache show-progress "
        "save-headers continue",
        "output-document output-file directory-prefix tries timeout user-agent header post-data method body-data "
        "waitretry wait connect-timeout read-timeout",
    ),
    "nc": ("zvnhukNUtl46", "wiqp", "", ""),
    "ncat": ("zvnhukl46", "wiqp", "", ""),
    "netcat": ("zvnhukl46", "wiqp", "", ""),
    "telnet": ("", "", "", ""),
    "ping": ("nqv46", "ciWw", "", ""),
}
_LISTENERS = frozenset(["nc", "ncat", "netcat"])
_LISTENS = lazy_pattern(r"-[a-zA-Z46]*l[a-zA-Z46]*\Z")
_TAKES_URLS = frozenset(["curl", "wget"])


def stays_in_box(words: Sequence[str]) -> bool:
    """Whether every address that a command names is a loopback address, and it names one."""
    name = base_name(words[0])
    addresses = _addresses(words[1:], *_CLIENTS[name]) if name in _CLIENTS else None
    if addresses is not None and name in _LISTENERS and any(_LISTENS.match(word) for word in words[1:]):
        return True  # only processes in the box reach its own ports
    if not addresses:
        return False
    if name in _TAKES_URLS:
        return all(map(_is_own_url, addresses))
    return _NAME.fullmatch(addresses[0]) is not None and all(each.isdecimal() for each in addresses[1:])


def _is_own_url(address: str) -> bool:
    """A part behind the host may be made at run time: it cannot make another host of it."""
    return _URL.fullmatch(address) is not None


def _addresses(words: Sequence[str], flags: str, valued: str, long: str, long_valued: str) -> list[str] | None:
    """The words that are no options; None where an option is not known or could be any."""
    found: list[str] = []
    rest, names, names_with_value = list(words), long.split(), long_valued.split()
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            found.append(word)
            continue
        if UNKNOWN in word.partition("=")[0]:
            return None
        if word.startswith("--"):
            name, equals, _ = word[2:].partition("=")
            if name == "url" and not equals and rest:
                found.append(rest.pop(0))
            elif name in names_with_value:
                rest = rest if equals else rest[1:]
            elif name not in names:
                return None
            continue
        letters = word[1:].lstrip(flags)
        if letters and letters[0] not in valued:
            return None
        rest = rest[1:] if len(letters) == 1 else rest
    return found
