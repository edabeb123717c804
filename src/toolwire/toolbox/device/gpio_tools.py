"""The tools that read and set GPIO pins."""

from collections.abc import Iterable
from typing import Annotated, Literal, TypedDict

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.errors import ToolFailure
from toolwire.protocol.devices import DeviceAccess, WiredPin
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.device.kinds import sensing
from toolwire.toolbox.device.pins import Pins, PinState

HIGHEST_PIN = 511
HELD = "The pin keeps this level while this process runs; when the process ends, the pin is an input again."

PinArgument = Annotated[int, Field(ge=0, le=HIGHEST_PIN)]


class PinOutput(TypedDict):
    pin: Annotated[int, Field(description="The number of the pin (BCM numbering on a Raspberry Pi).")]
    mode: Annotated[str, Field(description="input or output.")]
    pull: Annotated[str, Field(description="The resistor of an input: up, down, or empty for none.")]
    value: Annotated[int | None, Field(description="1 is high, 0 is low; null for an output not yet set.")]
    level: Annotated[str, Field(description="HIGH, LOW, or unknown for an output that was not set yet.")]


class PinWritten(PinOutput):
    note: Annotated[str, Field(description="How long the pin keeps its level.")]


class PinsOutput(TypedDict):
    driver: Annotated[str, Field(description="What drives the pins; MockFactory is a simulation.")]
    pins: Annotated[list[PinOutput], Field(description="The pins that may be used.")]


def gpio_list_tool(access: DeviceAccess, pins: Pins) -> Tool:
    """The tool that lists the pins of the settings."""

    @sensing(name="gpio_list")
    def gpio_list() -> PinsOutput:
        """List the GPIO pins that may be read or set on this machine, with their levels."""
        wired = _wired(access)
        driver = pins.driver()
        return {"driver": driver, "pins": [_output(pins.state(wired[number])) for number in sorted(wired)]}

    return gpio_list


def gpio_read_tool(access: DeviceAccess, pins: Pins) -> Tool:
    """The tool that reads a pin of the settings."""

    @sensing(name="gpio_read", examples=({"pin": 17},))
    def gpio_read(pin: PinArgument) -> PinOutput:
        """Read whether a GPIO pin is high or low.

        Args:
            pin: The number of the pin (BCM numbering on a Raspberry Pi), such as 17.
        """
        return _output(pins.state(_find(access, pin, "read")))

    return gpio_read


def gpio_write_tool(access: DeviceAccess, pins: Pins) -> Tool:
    """The tool that sets an output of the settings. It moves things in the world, so each call is asked about."""

    @tool(
        name="gpio_write",
        tier=Tier.RUN,
        effect=Effect.UNSAFE,
        category="device",
        needs={"device"},
        writes=("gpio:{pin}",),
        requires_confirmation=True,
        platforms={"linux"},
        examples=({"pin": 27, "value": 1},),
    )
    def gpio_write(pin: PinArgument, value: Annotated[int, Field(ge=0, le=1)]) -> PinWritten:
        """Set a GPIO pin high or low.

        Args:
            pin: The number of the pin (BCM numbering on a Raspberry Pi), such as 27.
            value: 1 for high, 0 for low.
        """
        return {**_output(pins.set(_find(access, pin, "set"), value)), "note": HELD}

    return gpio_write


def _wired(access: DeviceAccess) -> dict[int, WiredPin]:
    wired: Iterable[WiredPin] = (
        *(WiredPin.read("input", text) for text in access.inputs),
        *(WiredPin.read("output", text) for text in access.outputs),
    )
    return {pin.number: pin for pin in wired}


def _find(access: DeviceAccess, number: int, verb: Literal["read", "set"]) -> WiredPin:
    """A pin that may be read or set. Raises ToolFailure for any other."""
    wired = _wired(access)
    allowed = [pin for pin in wired.values() if verb == "read" or pin.mode == "output"]
    if (pin := wired.get(number)) in allowed and pin is not None:
        return pin
    keys = "device.outputs" if verb == "set" else "device.inputs or device.outputs"
    listed = ", ".join(str(pin.number) for pin in sorted(allowed)) or "none"
    raise ToolFailure(
        f"GPIO {number} may not be {verb}: the settings of this machine do not list it in {keys} (listed: {listed})",
        code=Code.PERMISSION_DENIED,
    )


def _output(state: PinState) -> PinOutput:
    level = "unknown" if state.value is None else ("LOW", "HIGH")[state.value]
    return {"pin": state.pin, "mode": state.mode, "pull": state.pull, "value": state.value, "level": level}
