"""What a host may look like. One canonical spelling for each, and no other."""

import ipaddress
import string
from typing import TYPE_CHECKING

from msgspec import Struct

from toolwire.lazy import lazy_module

if TYPE_CHECKING:
    import idna
else:
    idna = lazy_module("idna")  # few processes need it

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

LONGEST_HOST = 253
LONGEST_LABEL = 63
_LABEL = frozenset(string.ascii_lowercase + string.digits + "-")
_HEX = frozenset(string.hexdigits)


class BadHost(ValueError):
    """This is not a host that anyone should be sent to. The text says why, without quoting it in full."""


class Host(Struct, frozen=True):
    """A host in its canonical spelling: lower case, A-labels, no final dot. `address` is set for an IP literal."""

    name: str
    address: Address | None = None

    def __str__(self) -> str:
        """As it is written in a URL."""
        return f"[{self.name}]" if isinstance(self.address, ipaddress.IPv6Address) else self.name


def read_host(text: str) -> Host:
    """The host that this text names, `[…]` around IPv6. Raises BadHost.

    Short, octal, hexadecimal and decimal spellings of addresses are refused: resolvers disagree about them.
    """
    if not text or len(text) > 4 * LONGEST_HOST:
        raise BadHost("a host has 1 to 253 characters")
    if text.startswith("["):
        return _ipv6(text)
    name = _ascii(text.removesuffix("."))
    labels = name.split(".")
    if len(name) > LONGEST_HOST:
        raise BadHost("a host has 1 to 253 characters")
    if _is_numeric(labels[-1]):
        return _ipv4(name)
    for label in labels:
        _check_label(label)
    return Host(name)


def _ascii(text: str) -> str:
    """Lower case; every non-ASCII label by IDNA2008, without the mappings that browsers add."""
    if text.isascii():
        return text.lower()
    try:
        # Only "." separates labels when strict; otherwise full-width dots would too.
        lowered = "".join(char.lower() if char.isascii() else char for char in text)
        return idna.encode(lowered, strict=True, uts46=False, std3_rules=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise BadHost("the host is not a valid international name (IDNA2008)") from None


def _check_label(label: str) -> None:
    if not label or len(label) > LONGEST_LABEL:
        raise BadHost("each part of a host has 1 to 63 characters")
    if not _LABEL.issuperset(label) or label[0] == "-" or label[-1] == "-":
        raise BadHost("a host is made of letters, digits and inner hyphens")
    if label.startswith("xn--"):
        _check_a_label(label)


def _check_a_label(label: str) -> None:
    try:
        round_trip = idna.alabel(idna.ulabel(label)).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        round_trip = ""
    if round_trip != label:
        raise BadHost("the host has a part that is not a valid A-label")


def _is_numeric(label: str) -> bool:
    """Whether resolvers may read the whole name as an IPv4 address because of how it ends."""
    return label.isdigit() or (label.startswith("0x") and _HEX.issuperset(label[2:]))


def _ipv4(name: str) -> Host:
    try:
        address = ipaddress.IPv4Address(name)
    except ValueError:
        raise BadHost("an IPv4 address is written as four decimal numbers") from None
    return Host(str(address), address)


def _ipv6(text: str) -> Host:
    inner = text[1:-1] if text.endswith("]") else ""
    if "%" in inner:
        raise BadHost("an address cannot name a network interface")
    try:
        address = ipaddress.IPv6Address(inner)
    except ValueError:
        raise BadHost("an IPv6 address is written in brackets, such as [2001:db8::1]") from None
    return Host(str(address), address)
