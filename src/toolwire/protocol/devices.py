"""What the settings let tools about a machine touch."""

from typing import NamedTuple

from msgspec import Struct

LOOKING_COMMANDS = (
    "date", "df", "free", "hostname", "id", "ls", "lsblk", "lscpu", "lsusb", "nproc", "ps", "uname", "uptime",
    "vcgencmd", "whoami",
)  # fmt: skip
"""What `safe_exec` runs unless the settings say otherwise: programs that only look."""


class DeviceAccess(Struct, frozen=True):
    """The folder that holds `proc` and `sys`, the pins by their wiring, and the programs that `safe_exec` may run.

    An input is "17", "17 up" or "17 down" with the resistor that pulls it; an output is "27".
    """

    root: str = "/"
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    commands: tuple[str, ...] = LOOKING_COMMANDS


class WiredPin(NamedTuple):
    """A pin by its wiring: an input with the resistor that pulls it (up, down or none), or an output."""

    number: int
    mode: str
    pull: str = ""

    @classmethod
    def read(cls, mode: str, text: str) -> "WiredPin":
        """A pin as the settings write it."""
        number, _, pull = text.partition(" ")
        return cls(int(number), mode, pull)
