"""What is to be set up: a device, and the broker over which it is reached."""

import ipaddress
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from toolwire.errors import SettingsError
from toolwire.wire.mqtt.topics import AGENT_ID, DEFAULT_PREFIX, Topics

DEFAULT_BROKER = "mqtts://127.0.0.1:8883"
ORCHESTRATOR = "orchestrator"
"""The name by which orchestrators log in; no device may have it."""

_PIN = re.compile(r"\d{1,3}( (up|down))?")
_PORTS = {"mqtts": 8883, "mqtt": 1883}
_HIGHEST_PORT = 65_534


class BrokerPlace(Struct, frozen=True):
    """Where the broker listens: for devices at `port`, for orchestrators, which have another authority, one above.

    With nats-server orchestrators speak NATS there.
    """

    host: str
    port: int
    tls: bool
    is_nats: bool = False

    @property
    def shown_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def device_url(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.shown_host}:{self.port}"

    @property
    def orchestrator_url(self) -> str:
        if self.is_nats:
            return f"{'tls' if self.tls else 'nats'}://{self.shown_host}:{self.port + 1}"
        return f"mqtts://{self.shown_host}:{self.port + 1}" if self.tls else self.device_url


class EdgePlan(Struct, frozen=True):
    """One device. `program` is where it has toolwire."""

    name: str
    broker: BrokerPlace
    program: str
    prefix: str = DEFAULT_PREFIX
    capabilities: tuple[str, ...] = ("file_read",)
    groups: tuple[str, ...] = ("device",)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()


def check_name(name: str) -> str:
    """The name of a device. Raises SettingsError for what cannot be part of a topic, or would be an orchestrator."""
    if name.startswith(ORCHESTRATOR) or not AGENT_ID.fullmatch(name):
        raise SettingsError(
            f"{name[:80]!r} cannot be the name of a device: it is 1 to 64 characters of A-Z a-z 0-9 _ -, "
            f"and does not begin with {ORCHESTRATOR}"
        )
    return name


def check_prefix(prefix: str) -> str:
    """How topics begin. Raises SettingsError."""
    try:
        return Topics(prefix).prefix
    except ValueError as wrong:
        raise SettingsError(f"--prefix: {wrong}") from None


def check_pins(flag: str, pins: Iterable[str]) -> tuple[str, ...]:
    """Pins as the settings write them. Raises SettingsError."""
    for pin in pins:
        if not _PIN.fullmatch(pin) or (flag.endswith("out") and " " in pin):
            raise SettingsError(f'{flag} {pin[:40]!r} must be the number of a pin, an input perhaps as "22 up"')
    return tuple(pins)


def read_broker(url: str, *, is_nats: bool = False) -> BrokerPlace:
    """Where a URL says that the broker is. Raises SettingsError; one without TLS must be on this machine."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if parts.scheme not in _PORTS or not host or parts.username or parts.path.strip("/") or parts.query:
        raise SettingsError(f"--broker {url[:80]!r} must be mqtts://HOST:PORT, or mqtt://HOST:PORT on this machine")
    place = BrokerPlace(host, _PORTS[parts.scheme] if port is None else port, parts.scheme == "mqtts", is_nats)
    if not 1 <= place.port <= _HIGHEST_PORT:
        raise SettingsError(f"--broker {url[:80]!r} must have a port from 1 to {_HIGHEST_PORT}")
    if not place.tls and not _is_local(host):
        raise SettingsError("mqtt:// has no TLS and is only for a broker on this machine; write mqtts://")
    return place


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class EdgeFolder(Struct, frozen=True):
    """Where the files lie."""

    path: Path

    @property
    def broker(self) -> Path:
        return self.path / "broker"

    @property
    def orchestrator(self) -> Path:
        return self.path / ORCHESTRATOR

    @property
    def devices(self) -> Path:
        return self.path / "devices"

    def device(self, name: str) -> Path:
        return self.devices / name

    @property
    def setup(self) -> Path:
        """What the first device was set up with, and all others are."""
        return self.broker / "setup.json"

    def device_names(self) -> list[str]:
        """The devices that are there, in order."""
        found = self.devices.iterdir() if self.devices.is_dir() else ()
        return sorted(each.name for each in found if AGENT_ID.fullmatch(each.name))
