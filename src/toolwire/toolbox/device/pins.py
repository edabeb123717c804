"""The GPIO pins that this process holds.

The kernel gives a pin to one process, which holds it until it ends, so there is one `Pins` in a process. A pin is
touched only as its wiring in the settings says: claiming one as an input that drives a relay would switch the relay.
"""

from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from toolwire.lazy import lazy_module
from toolwire.protocol.devices import WiredPin
from toolwire.toolbox.device.kinds import unavailable

if TYPE_CHECKING:
    from toolwire.toolbox.device import gpio_driver
else:
    # Loaded when a pin is first used: it needs an extra, which takes longer to load than most tools.
    gpio_driver = lazy_module("toolwire.toolbox.device.gpio_driver")

NOT_INSTALLED = "GPIO needs gpiozero, which is not installed; install it with: pip install 'toolwire[gpio]'"
NO_CHIP = (
    "this machine has no GPIO chip that can be used ({reason}); run this on a board with GPIO pins, as a user of its "
    "group gpio, or set GPIOZERO_PIN_FACTORY=mock to try it without hardware"
)


class PinState(NamedTuple):
    """One pin as it is now. `value` is None for an output that this process has not set."""

    pin: int
    mode: str
    pull: str
    value: int | None


class Pins:
    """The pins that this process holds."""

    def __init__(self) -> None:
        self._held: dict[int, Any] = {}
        self._lock = Lock()

    def driver(self) -> str:
        """What drives the pins. Raises ToolFailure where nothing does."""
        with self._lock:
            return _driver()

    def state(self, wired: WiredPin) -> PinState:
        """What is on a pin. An output that this process has not set is not touched. Raises ToolFailure."""
        with self._lock:
            _driver()
            if wired.mode == "output" and wired.number not in self._held:
                return PinState(*wired, None)
            return self._read(wired)

    def set(self, wired: WiredPin, value: int) -> PinState:
        """Drive an output high (1) or low (0) from now on. Raises ToolFailure."""
        with self._lock:
            _driver()
            if wired.number in self._held:
                self._held[wired.number].value = value
            else:
                self._held[wired.number] = gpio_driver.claim(wired, value)
            return self._read(wired)

    def close(self) -> None:
        """Let go of every pin; outputs become inputs again."""
        with self._lock:
            while self._held:
                self._held.popitem()[1].close()

    def _read(self, wired: WiredPin) -> PinState:
        if wired.number not in self._held:
            self._held[wired.number] = gpio_driver.claim(wired)
        # Not its `value`, which is 0 where a pull-up resistor holds the pin high: that is the inactive level.
        return PinState(*wired, int(self._held[wired.number].pin.state))


@cache
def process_pins() -> Pins:
    """The pins of this process."""
    return Pins()


def _driver() -> str:
    try:
        return gpio_driver.driver()
    except Exception as wrong:  # each driver has exceptions of its own
        if isinstance(wrong, ModuleNotFoundError) and wrong.name == "gpiozero":
            raise unavailable(NOT_INSTALLED) from None
        raise unavailable(NO_CHIP.format(reason=f"{type(wrong).__name__}: {wrong}")) from None
