"""Which devices there are, what each can do, and whether it is there: the registry of a process that sends commands.

It holds what devices have published. A broker keeps the newest status and capabilities of each, and its last will, so a
process that has just connected knows all of them. What a device says about itself is bounded and checked; nothing that
it says changes what is known of another one.

What a broker kept is no sign of life: it may have lost the last will of a device, by a crash of its own. A device that
is online by such a message alone is unconfirmed, until it answers or sends anything else.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from toolwire.protocol.tools import Tool
from toolwire.wire.mqtt.reports import UNSIGNED

MOST_DEVICES = 10_000
MISSED_HEARTBEATS = 3.0
"""A device whose heartbeat did not come so often in a row counts as offline, though its last will is not there."""

CONFIRM_S = 3.0
"""How long a device that the broker had kept as online may take to answer before it counts as offline."""


class Presence(StrEnum):
    """Whether a device takes calls. One that is draining ends those that it has, and takes no more.

    One that is unconfirmed was online once; it is asked whether it still is.
    """

    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"
    UNCONFIRMED = "unconfirmed"
    UNKNOWN = "unknown"


class Device(Struct, frozen=True):
    """What is known of a device. `boot` tells the runs of its process apart, `session` its connections.

    `seen_at` is when it last sent something, in seconds since 1970 by the clock of this process.

    `claimed_at` is when the broker told that it had been online, while it has not sent anything itself.

    `running` calls are at work there, of at most `slots`; `faults` say what of its capabilities is not offered.
    `accepts` are the ids of the keys whose commands it obeys; empty where it does not tell.
    """

    id: str
    presence: Presence = Presence.UNKNOWN
    boot: str = ""
    session: str = ""
    running: int = 0
    slots: int = 1
    heartbeat_s: float = math.inf
    seen_at: float = 0.0
    claimed_at: float | None = None
    platform: str = ""
    tools: tuple[Tool, ...] = ()
    faults: tuple[str, ...] = ()
    accepts: tuple[str, ...] = ()

    def at(self, now: float) -> Presence:
        """Whether it is there at this time: one that has missed its heartbeats is not."""
        if self.presence in (Presence.OFFLINE, Presence.UNKNOWN):
            return self.presence
        if self.claimed_at is not None:
            return Presence.UNCONFIRMED if now - self.claimed_at <= CONFIRM_S else Presence.OFFLINE
        is_there = now - self.seen_at <= self.heartbeat_s * MISSED_HEARTBEATS
        return self.presence if is_there else Presence.OFFLINE

    def key_refusal(self, key_id: str) -> str:
        """Why it does not obey commands that this key signs, or unsigned ones (""); empty if it does, or may."""
        if not self.accepts or (key_id or UNSIGNED) in self.accepts:
            return ""
        if not key_id:
            return f"the device {self.id} obeys signed commands only; name a key that it accepts in edge.signing_key"
        return (
            f"the device {self.id} does not accept the key {key_id} of edge.signing_key; its operator can add the "
            "public key to keys.orchestrators of the device's file"
        )

    def has(self, tool: str) -> bool:
        return any(one.name == tool for one in self.tools)


class DeviceState(Struct, frozen=True):
    """What a status message says."""

    presence: Presence
    boot: str = ""
    session: str = ""
    running: int = 0
    slots: int = 1
    heartbeat_s: float = math.inf


class DeviceRegistry:
    """The devices that a process knows. `version` changes with every change of what they can do."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._sent: dict[str, int] = {}
        self.version = 0

    def device(self, device_id: str) -> Device | None:
        return self._devices.get(device_id)

    def devices(self) -> Sequence[Device]:
        """All of them, by name."""
        return [self._devices[name] for name in sorted(self._devices)]

    def with_tool(self, tool: str) -> list[Device]:
        """Those that offer a tool, by name."""
        return [one for one in self.devices() if one.has(tool)]

    def note_state(self, device_id: str, state: DeviceState, now: float, *, retained: bool = False) -> bool:
        """Keep what a device says about itself; whether its process is a new one, or it has come back.

        The last will of an earlier run of its process, which a broker may send late, says nothing about this run. A
        message that was `retained` may be of any age. Agents without heartbeats give no better sign, and are believed.
        """
        before = self._known(device_id)
        if before is None:
            return False
        if state.presence is Presence.OFFLINE and state.boot and before.boot and state.boot != before.boot:
            return False
        is_offline, is_same = state.presence is Presence.OFFLINE, (state.boot, state.session) == (
            before.boot, before.session,
        )  # fmt: skip
        came_back = before.at(now) is not Presence.ONLINE or not is_same
        is_claim = retained and came_back and not is_offline and math.isfinite(state.heartbeat_s)
        # Neither a last will nor what the broker had kept is a sign of life.
        seen_at = before.seen_at if is_offline or (retained and math.isfinite(state.heartbeat_s)) else now
        self._devices[device_id] = replace(
            before, presence=state.presence, boot=state.boot or before.boot, session=state.session,
            running=state.running, slots=max(state.slots, 1), heartbeat_s=state.heartbeat_s, seen_at=seen_at,
            claimed_at=now if is_claim else None,
        )  # fmt: skip
        return is_claim or (state.presence is Presence.ONLINE and came_back)

    def note_accepts(self, device_id: str, accepts: Iterable[str]) -> None:
        """Keep whose commands a device obeys."""
        if (before := self._known(device_id)) is not None:
            self._devices[device_id] = replace(before, accepts=tuple(accepts))

    def note_tools(self, device_id: str, tools: Iterable[Tool], faults: Iterable[str] = (), platform: str = "") -> None:
        """Keep what a device offers, in the place of what it offered before."""
        before = self._known(device_id)
        if before is None:
            return
        now = replace(before, tools=tuple(tools), faults=tuple(faults), platform=platform)
        if now != before:
            self._devices[device_id] = now
            self.version += 1

    def forget(self, device_id: str) -> None:
        """A device was removed: what the broker kept of it is gone."""
        if self._devices.pop(device_id, None) is not None:
            self.version += 1

    def note_seen(self, device_id: str, now: float) -> bool:
        """Whatever a device sends shows that it is there; whether that was not known."""
        before = self._devices.get(device_id)
        if before is None:
            return False
        self._devices[device_id] = replace(before, seen_at=now, claimed_at=None)
        return before.claimed_at is not None

    def unconfirmed(self, now: float) -> list[Device]:
        """The devices that are asked whether they are there."""
        return [one for one in self._devices.values() if one.at(now) is Presence.UNCONFIRMED]

    def load(self, device_id: str) -> int:
        """Calls that a device has: those that it tells of, or those that this process has sent and that are open."""
        device = self._devices.get(device_id)
        return max(device.running if device else 0, self._sent.get(device_id, 0))

    def note_sent(self, device_id: str, difference: int) -> None:
        """A call was sent to a device (1), or has ended (-1)."""
        left = self._sent.get(device_id, 0) + difference
        if left > 0:
            self._sent[device_id] = left
        else:
            self._sent.pop(device_id, None)

    def _known(self, device_id: str) -> Device | None:
        """What is known so far; None where there are too many devices for one more."""
        found = self._devices.get(device_id)
        if found is None and len(self._devices) < MOST_DEVICES:
            found = self._devices[device_id] = Device(device_id)
        return found


def offering(devices: Sequence[Device]) -> Mapping[str, list[Device]]:
    """The devices by the names of the tools that they offer."""
    found: dict[str, list[Device]] = {}
    for device in devices:
        for tool in device.tools:
            found.setdefault(tool.name, []).append(device)
    return found
