"""Which addresses are the public internet. Our own table: the standard library's flags miss several forms.

`ipaddress` calls NAT64 and 6to4 forms of loopback "global", and knows nothing of metadata services that live on public
addresses. IPv6 is therefore an allow-list (2000::/3) with holes, IPv4 everything but the holes.
"""

import ipaddress

from toolwire.execute.egress.hosts import Address

_HOLES: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "this network"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "carrier-grade NAT"),
    ("127.0.0.0/8", "loopback"),
    ("168.63.129.16/32", "metadata"),
    ("169.254.0.0/16", "link-local and metadata"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "protocol assignments and metadata"),
    ("192.0.2.0/24", "documentation"),
    ("192.31.196.0/24", "AS112"),
    ("192.52.193.0/24", "multicast tunnelling"),
    ("192.88.99.0/24", "6to4 relays"),
    ("192.168.0.0/16", "private"),
    ("192.175.48.0/24", "AS112"),
    ("198.18.0.0/15", "benchmarking"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved and broadcast"),
    # Inside 2000::/3.
    ("2001::/23", "protocol assignments, Teredo and benchmarking"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "6to4"),
    ("2620:4f:8000::/48", "AS112"),
    ("3fff::/20", "documentation"),
    # Outside of it, named for the sake of the reason that people read.
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::ffff:0:0/96", "IPv4-mapped"),
    ("::/96", "IPv4-compatible"),
    ("64:ff9b::/96", "NAT64"),
    ("64:ff9b:1::/48", "NAT64"),
    ("100::/64", "discard"),
    ("fc00::/7", "unique local"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
_TABLE = tuple((ipaddress.ip_network(network), what) for network, what in _HOLES)
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
# ISATAP hides an IPv4 address behind one of these in the second half of an otherwise public address.
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
_METADATA = tuple(
    ipaddress.ip_network(network)
    for network in ("168.63.129.16/32", "169.254.0.0/16", "192.0.0.0/24", "100.100.100.200/32", "fd00:ec2::/32")
)

_LOCAL = tuple(
    ipaddress.ip_network(network)
    for network in ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1", "fc00::/7")
)


def why_not_public(address: Address) -> str:
    """What kind of non-public address this is; empty for a public one."""
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return "bound to a network interface"
    for network, what in _TABLE:
        if address in network:
            return what
    if isinstance(address, ipaddress.IPv4Address):
        return ""
    if address not in _PUBLIC_V6:
        return "not assigned"
    return "ISATAP" if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP else ""


def why_not_for_operators(address: Address) -> str:
    """The same for an address that an operator wrote in the settings: this machine and the local network are fine."""
    if any(address in network for network in _METADATA):
        return "metadata"
    if any(address in network for network in _LOCAL):
        return ""
    return why_not_public(address)
