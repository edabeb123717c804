"""Which places a grant allows: reading its network rules, and judging a place by them.

A rule is `host`, `host:port`, `*.host` (everything below it, not itself), an IP literal, any of these after `!` (never)
or after a list of methods (`GET,HEAD host`). Without a port it stands for the usual one, 443 for https and 80 for http;
a `!` rule without a port stands for all. `http://` or `https://` in front chooses the usual port. There is no rule for
everything: neither `*` nor `*.com` can be written. Deny wins, and no rule means no.

`&host,host` is no permission but a limit: a place must be one of these as well, whatever else is allowed. A call that
carries a secret is held to the hosts of that secret in this way; `&` alone leaves none.
"""

from collections.abc import Iterable

from msgspec import Struct

from toolwire.execute.egress.addresses import why_not_public
from toolwire.execute.egress.hosts import BadHost, Host, read_host
from toolwire.protocol.tools import LIMIT, limits_of

USUAL_PORTS = {"https": 443, "http": 80}
MOST_RULES = 1000
_METHODS = frozenset("GET HEAD OPTIONS POST PUT PATCH DELETE TRACE".split())


class BadRule(ValueError):
    """A network rule cannot be read. A reader that meets one must refuse everything."""


class RequestedAddress(Struct, frozen=True):
    """A place that something wants to talk to. `method` is empty where it cannot be seen, as inside a tunnel."""

    host: Host
    port: int
    scheme: str = "https"
    method: str = ""


class NetworkRule(Struct, frozen=True):
    """One entry of a grant's `network`. No `port` is the scheme's usual one, no `methods` are all."""

    text: str
    host: Host
    below: bool = False
    port: int | None = None
    methods: frozenset[str] = frozenset()
    deny: bool = False

    def covers(self, asked: RequestedAddress) -> bool:
        return self._names(asked.host) and self._opens(asked) and self._takes(asked.method)

    def _names(self, host: Host) -> bool:
        if self.below:
            return host.address is None and host.name.endswith(f".{self.host.name}")
        return host == self.host

    def _opens(self, asked: RequestedAddress) -> bool:
        if self.port is None:
            return self.deny or asked.port == USUAL_PORTS[asked.scheme]
        return asked.port == self.port

    def _takes(self, method: str) -> bool:
        if not self.methods:
            return True
        # A method that cannot be seen may be any: a denial covers it, a permission does not.
        return method in self.methods if method else self.deny


class AddressVerdict(Struct, frozen=True):
    """Whether a place may be talked to, by which rule, and in words."""

    allowed: bool
    rule: str
    reason: str


class Rules(Struct, frozen=True):
    """All network rules of one grant."""

    rules: tuple[NetworkRule, ...] = ()
    limits: tuple[tuple[NetworkRule, ...], ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> "Rules":
        """Read a grant's `network`. Raises BadRule for the first entry that cannot be read."""
        texts = tuple(entries)
        if len(texts) > MOST_RULES:
            raise BadRule(f"there are {len(texts)} network rules; at most {MOST_RULES} can be read")
        limits = tuple(read_limit(text) for text in texts if text.startswith(LIMIT))
        return cls(tuple(read_rule(text) for text in texts if not text.startswith(LIMIT)), limits)

    def judge(self, asked: RequestedAddress) -> AddressVerdict:
        """Deny rules first, then the first rule that allows it."""
        covering = [rule for rule in self.rules if rule.covers(asked)]
        place = f"{asked.host}:{asked.port}"
        for rule in covering:
            if rule.deny:
                return AddressVerdict(False, rule.text, f"{place} is refused by the rule {rule.text!r}")
        for limit in self.limits:
            if not any(rule.covers(asked) for rule in limit):
                hosts = ", ".join(rule.text for rule in limit) or "no host"
                return AddressVerdict(False, "", f"{place} is refused: a secret of this call may go to {hosts} only")
        if covering:
            return AddressVerdict(True, covering[0].text, f"{place} is allowed by the rule {covering[0].text!r}")
        missing = str(asked.host) if asked.port == USUAL_PORTS[asked.scheme] else place
        reason = f"{place} is not among the hosts that the grant lists{self._hint(asked)}"
        if asked.host.address is not None and (kind := why_not_public(asked.host.address)):
            return AddressVerdict(
                False, "", f"{reason}, and no rule opens it: it is not on the public internet ({kind})"
            )
        return AddressVerdict(False, "", f"{reason}; the network rule {missing!r} would allow it")

    def _hint(self, asked: RequestedAddress) -> str:
        """What would be right, where a rule nearly fits."""
        near = [rule for rule in self.rules if not rule.deny and rule._names(asked.host)]
        if not near:
            return ""
        if not any(rule._opens(asked) for rule in near):
            return f" ({near[0].text!r} allows another port)"
        return f" ({near[0].text!r} allows other methods)" if asked.method else " (a rule with methods opens no tunnel)"


def read_limit(text: str) -> tuple[NetworkRule, ...]:
    """The places of a limit. Raises BadRule."""
    rules = tuple(read_rule(host.strip()) for host in text.removeprefix(LIMIT).split(",") if host.strip())
    if wrong := next((rule.text for rule in rules if rule.deny or rule.methods), ""):
        raise BadRule(f"{wrong[:80]!r} must be a host, without ! and without methods")
    return rules


def beyond_limits(network: Iterable[str], places: Iterable[str]) -> str:
    """The first of these places (`host:port`) that a limit among the rules leaves out; empty if there is none."""
    limits = Rules.of(limits_of(network)).limits
    for place in places:
        host, _, port = place.rpartition(":")
        asked = RequestedAddress(read_host(host), int(port), "https" if port == "443" else "http")
        if any(not any(rule.covers(asked) for rule in limit) for limit in limits):
            return place
    return ""


def read_rule(text: str) -> NetworkRule:
    """One rule. Raises BadRule, which says what to write instead."""
    if len(text) > 1024:
        raise BadRule("a network rule is longer than any host")
    deny = text.startswith("!")
    methods, place = _methods(text.removeprefix("!").strip(), text)
    port, place = _usual_port(place)
    host_text, port = _port(place, port, text)
    below = host_text.startswith("*.")
    try:
        host = read_host(host_text.removeprefix("*."))
    except BadHost as wrong:
        raise BadRule(f"network rule {text[:80]!r}: {wrong}") from None
    if below and (host.address is not None or "." not in host.name):
        raise BadRule(f"network rule {text[:80]!r} covers too much; write *.name.tld or a host")
    return NetworkRule(text, host, below, port, methods, deny)


def _methods(place: str, text: str) -> tuple[frozenset[str], str]:
    words, space, rest = place.partition(" ")
    if not space:
        return frozenset(), place
    methods = frozenset(words.split(","))
    if not methods <= _METHODS:
        raise BadRule(f"network rule {text[:80]!r}: before the host come methods such as GET,HEAD")
    return methods, rest.strip()


def _usual_port(place: str) -> tuple[int | None, str]:
    for scheme, port in USUAL_PORTS.items():
        if place.startswith(f"{scheme}://"):
            return port, place.removeprefix(f"{scheme}://").removesuffix("/")
    return None, place


def _port(place: str, usual: int | None, text: str) -> tuple[str, int | None]:
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        return place, usual
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise BadRule(f"network rule {text[:80]!r}: a port is a number from 1 to 65535")
    return host, int(port)
