"""Which devices there are, what each can do, and whether it is there: the registry of a process that sends commands.

It holds what devices have published. A broker keeps the newest status and capabilities of each, and its last will, so a
process that has just connected knows all of them. What a device says about itself is bounded and checked; nothing that
it says changes what is known of another one.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from toolwire.protocol.tools import Tool
from toolwire.protocol.values import dataclass, fast_frozen, replace

MOST_DEVICES = 10_000
MISSED_HEARTBEATS = 3.0
"""A device whose heartbeat did not come so often in a row counts as offline, though its last will is not there."""


class Presence(StrEnum):
    """Whether a device takes calls. One that is draining ends those that it has, and takes no more."""

    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"
    UNKNOWN = "unknown"


@fast_frozen
@dataclass(frozen=True, slots=True)
class Device:
    """What is known of a device. `boot` tells the runs of its process apart, `session` its connections.

    `seen_at` is when it last sent something, in seconds since 1970 by the clock of this process.

    `running` calls are at work there, of at most `slots`; `faults` say what of its capabilities is not offered.
    """

    id: str
    presence: Presence = Presence.UNKNOWN
    boot: str = ""
    session: str = ""
    running: int = 0
    slots: int = 1
    heartbeat_s: float = math.inf
    seen_at: float = 0.0
    platform: str = ""
    tools: tuple[Tool, ...] = ()
    faults: tuple[str, ...] = ()

    def at(self, now: float) -> Presence:
        """Whether it is there at this time: one that has missed its heartbeats is not."""
        if self.presence is Presence.OFFLINE or now - self.seen_at <= self.heartbeat_s * MISSED_HEARTBEATS:
            return self.presence
        return Presence.OFFLINE

    def has(self, tool: str) -> bool:
        return any(one.name == tool for one in self.tools)


@dataclass(frozen=True, slots=True)
class DeviceState:
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

    def note_state(self, device_id: str, state: DeviceState, now: float) -> bool:
        """Keep what a device says about itself; whether its process is a new one, or it has come back.

        The last will of an earlier run of its process, which a broker may send late, says nothing about this run.
        """
        before = self._known(device_id)
        if before is None:
            return False
        if state.presence is Presence.OFFLINE and state.boot and before.boot and state.boot != before.boot:
            return False
        # A last will is no sign of life.
        seen_at = before.seen_at if state.presence is Presence.OFFLINE else now
        self._devices[device_id] = replace(
            before, presence=state.presence, boot=state.boot or before.boot, session=state.session,
            running=state.running, slots=max(state.slots, 1), heartbeat_s=state.heartbeat_s, seen_at=seen_at,
        )  # fmt: skip
        came_back = before.at(now) is not Presence.ONLINE or (state.boot, state.session) != (
            before.boot,
            before.session,
        )
        return state.presence is Presence.ONLINE and came_back

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

    def note_seen(self, device_id: str, now: float) -> None:
        """Whatever a device sends shows that it is there."""
        if (before := self._devices.get(device_id)) is not None:
            self._devices[device_id] = replace(before, seen_at=now)

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
