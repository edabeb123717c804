"""How much one call may do on the network, and the meter that counts it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

MIB = 1024 * 1024


class Caps(Struct, frozen=True):
    """The most that one call may use.

    `at_once` and `opened` count connections, `down_bytes` and `up_bytes` what goes over the wire, `decoded_bytes` a
    body after decompression. A head (or the first words of TLS) must be complete within `head_s`, all of a connection
    or request within `whole_s`.
    """

    at_once: int = 64
    opened: int = 1024
    down_bytes: int = 256 * MIB
    up_bytes: int = 16 * MIB
    decoded_bytes: int = 10 * MIB
    headers: int = 128
    header_bytes: int = 64 * 1024
    redirects: int = 5
    connect_s: float = 10.0
    head_s: float = 10.0
    whole_s: float = 300.0


class OverCap(Exception):
    """A call used more than its caps allow. The text says which."""


class TrafficEvent(Struct, frozen=True):
    """One thing the door did, for the audit: never a path, a query, a header or a body.

    `event` is allowed, refused or closed; `place` is host:port, in canonical spelling if it has one.
    """

    event: str
    place: str
    method: str = ""
    rule: str = ""
    reason: str = ""
    address: str = ""
    up: int = 0
    down: int = 0


Audit = Callable[[TrafficEvent], None]


def no_audit(noted: TrafficEvent) -> None:
    """It is not kept."""


class Meter:
    """Counts what one call uses, or one connection as a part of the `whole`. Raises OverCap when a cap is passed."""

    def __init__(self, caps: Caps, whole: "Meter | None" = None) -> None:
        self.caps = caps
        self._whole = whole
        self.opened = self.at_once = self.up = self.down = 0

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Hold one connection."""
        if self.at_once >= self.caps.at_once:
            raise OverCap(f"this call has {self.at_once} connections open already")
        if self.opened >= self.caps.opened:
            raise OverCap(f"this call has opened {self.opened} connections")
        self.opened += 1
        self.at_once += 1
        try:
            yield
        finally:
            self.at_once -= 1

    def got(self, count: int) -> None:
        self.down += count
        if self._whole is not None:
            self._whole.got(count)
        if self.down > self.caps.down_bytes:
            raise OverCap(f"more than {self.caps.down_bytes} bytes came in")

    def sent(self, count: int) -> None:
        self.up += count
        if self._whole is not None:
            self._whole.sent(count)
        if self.up > self.caps.up_bytes:
            raise OverCap(f"more than {self.caps.up_bytes} bytes would go out")
