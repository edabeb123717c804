"""gpiozero, with whatever drives pins on this machine behind it. It is an extra: importing this may fail."""

import warnings
from typing import Any

from gpiozero import Device, DigitalInputDevice, DigitalOutputDevice, GPIOZeroError

from toolwire.protocol.devices import WiredPin
from toolwire.toolbox.device.kinds import unavailable


def driver() -> str:
    """What drives the pins, found once. Raises whatever the drivers raise where none works."""
    with warnings.catch_warnings():
        # It warns about each driver that it tries in vain; which one it found is said by gpio_list.
        warnings.simplefilter("ignore")
        Device.ensure_pin_factory()
    return type(Device.pin_factory).__name__


def claim(wired: WiredPin, value: int = 0) -> Any:
    """Take a pin as its wiring says; an output with this level from the start. Raises ToolFailure."""
    pull = {"up": True, "down": False}.get(wired.pull)
    try:
        if wired.mode == "output":
            return DigitalOutputDevice(wired.number, initial_value=bool(value))
        return DigitalInputDevice(wired.number, pull_up=pull, active_state=True if pull is None else None)
    except (GPIOZeroError, OSError) as wrong:
        raise unavailable(
            f"GPIO {wired.number} cannot be used: {wrong}; another program may hold it, or the board lacks it"
        ) from None
