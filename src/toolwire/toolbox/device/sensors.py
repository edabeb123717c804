"""What the machine feels and has left: temperature, processor, memory, disk."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, TypedDict

from toolwire.define.fields import Field
from toolwire.errors import ToolFailure
from toolwire.lazy import lazy_pattern
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool
from toolwire.toolbox.device.host import HostTree
from toolwire.toolbox.device.kinds import sensing, unavailable

NO_SENSOR = (
    "no temperature sensor is known on this machine: neither sys/class/thermal nor sys/class/hwmon has one in {root}; "
    "virtual machines have none, and a container sees the host's where device.root names the folder that holds its sys"
)
_PROCESSOR_SENSORS = ("cpu", "soc", "x86_pkg", "coretemp", "k10temp")
_OCTAL = lazy_pattern(r"\\([0-7]{3})")  # the kernel writes a space in a name as \\040
_SHOWN_SYSTEMS = frozenset("ext2 ext3 ext4 btrfs xfs f2fs vfat exfat ntfs3 zfs overlay".split())


class TemperatureReading(TypedDict):
    sensor: Annotated[str, Field(description="What the kernel calls the sensor.")]
    celsius: Annotated[float, Field(description="Degrees Celsius.")]


class TemperatureOutput(TypedDict):
    celsius: Annotated[float, Field(description="Degrees Celsius of the processor, or else of the first sensor.")]
    sensor: Annotated[str, Field(description="The sensor that says so.")]
    sensors: Annotated[list[TemperatureReading], Field(description="All sensors.")]


class CpuOutput(TypedDict):
    percent: Annotated[float, Field(description="How busy all cores together were in the time measured, 0 to 100.")]
    per_core: Annotated[list[float], Field(description="The same for each core.")]
    cores: Annotated[int, Field(description="How many cores there are.")]
    load: Annotated[list[float], Field(description="Load average of the last 1, 5 and 15 minutes.")]
    seconds: Annotated[float, Field(description="How long was measured.")]


class MemoryOutput(TypedDict):
    total_bytes: Annotated[int, Field(description="All memory.")]
    available_bytes: Annotated[int, Field(description="What programs can still have.")]
    used_bytes: Annotated[int, Field(description="What is in use.")]
    percent: Annotated[float, Field(description="Share in use, 0 to 100.")]
    swap_total_bytes: Annotated[int, Field(description="All swap space.")]
    swap_used_bytes: Annotated[int, Field(description="Swap space in use.")]


class DiskUse(TypedDict):
    mount: Annotated[str, Field(description="The folder where it is mounted.")]
    device: Annotated[str, Field(description="The device.")]
    filesystem: Annotated[str, Field(description="Its kind.")]
    total_bytes: Annotated[int, Field(description="Its size.")]
    free_bytes: Annotated[int, Field(description="What ordinary users can still write.")]
    percent: Annotated[float, Field(description="Share in use, 0 to 100.")]


class DiskOutput(TypedDict):
    disks: Annotated[list[DiskUse], Field(description="The disks that are mounted, each once.")]


def read_temperature_tool(host: HostTree) -> Tool:
    """The tool that reads the machine's temperature sensors."""

    @sensing(name="read_temperature")
    def read_temperature() -> TemperatureOutput:
        """Read the temperature of this machine's processor and of its other sensors, in degrees Celsius."""
        found = [*_thermal_zones(host), *_hardware_monitors(host)]
        if not found:
            raise unavailable(NO_SENSOR.format(root=host.root))
        main = next((each for each in found if each["sensor"].lower().startswith(_PROCESSOR_SENSORS)), found[0])
        return {"celsius": main["celsius"], "sensor": main["sensor"], "sensors": found}

    return read_temperature


def _thermal_zones(host: HostTree) -> Iterator[TemperatureReading]:
    for name, path in host.folders("sys/class/thermal", "thermal_zone*"):
        if (thousandths := host.number(f"{path}/temp")) is not None:
            yield {"sensor": host.line(f"{path}/type", name), "celsius": thousandths / 1000}


def _hardware_monitors(host: HostTree) -> Iterator[TemperatureReading]:
    for name, path in host.folders("sys/class/hwmon", "hwmon*"):
        chip = host.line(f"{path}/name", name)
        for file, inner in host.folders(path, "temp*_input"):
            if (thousandths := host.number(inner)) is not None:
                label = host.line(inner.removesuffix("_input") + "_label", file.removesuffix("_input"))
                yield {"sensor": f"{chip} {label}", "celsius": thousandths / 1000}


def read_cpu_usage_tool(host: HostTree, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> Tool:
    """The tool that measures how busy the processor is, waiting with `sleep(seconds)` in between."""

    @sensing(name="read_cpu_usage", examples=({}, {"seconds": 2}))
    async def read_cpu_usage(seconds: Annotated[float, Field(ge=0.05, le=5)] = 0.2) -> CpuOutput:
        """Measure how busy this machine's processor is, and tell its load average.

        Args:
            seconds: How long to measure.
        """
        before = _ticks(host)
        await sleep(seconds)
        after = _ticks(host)
        busy = [_busy(before.get(core, (0, 0)), now) for core, now in after.items()]
        load = [float(word) for word in host.text("proc/loadavg").split()[:3]]
        return {"percent": busy[0], "per_core": busy[1:], "cores": len(busy) - 1, "load": load, "seconds": seconds}

    return read_cpu_usage


def _ticks(host: HostTree) -> dict[str, tuple[int, int]]:
    """Idle and all ticks of all cores together, then of each core."""
    found = {}
    for line in host.text("proc/stat").splitlines():
        name, *words = line.split()
        if name.startswith("cpu"):
            spent = [int(word) for word in words[:8]]
            found[name] = (spent[3] + spent[4], sum(spent))
    return found


def _busy(before: tuple[int, int], after: tuple[int, int]) -> float:
    idle, spent = after[0] - before[0], after[1] - before[1]
    return round(100 * (1 - idle / spent), 1) if spent > 0 else 0.0


def read_memory_tool(host: HostTree) -> Tool:
    """The tool that tells how much memory is in use."""

    @sensing(name="read_memory")
    def read_memory() -> MemoryOutput:
        """Tell how much memory and swap space this machine has and how much is in use."""
        sizes = {name: int(words[0]) * 1024 for name, value in host.fields("proc/meminfo").items()
                 if (words := value.split()) and words[0].isdecimal()}  # fmt: skip
        total, available = sizes.get("MemTotal", 0), sizes.get("MemAvailable", sizes.get("MemFree", 0))
        swap = sizes.get("SwapTotal", 0)
        return {
            "total_bytes": total,
            "available_bytes": available,
            "used_bytes": total - available,
            "percent": _share(total - available, total),
            "swap_total_bytes": swap,
            "swap_used_bytes": swap - sizes.get("SwapFree", swap),
        }

    return read_memory


def read_disk_tool(host: HostTree) -> Tool:
    """The tool that tells how full the disks are."""

    @sensing(name="read_disk", examples=({}, {"mount": "/"}))
    def read_disk(mount: Annotated[str, Field(max_length=4096)] = "") -> DiskOutput:
        """Tell how much space this machine's disks have and how much is free.

        Args:
            mount: Only the disk that is mounted at this folder, such as /; all disks unless given.
        """
        mounted = _mounted(host)
        if mount and mount not in mounted:
            shown = ", ".join(sorted(mounted)[:10]) or "none"
            raise ToolFailure(f"no disk is mounted at {mount!r}; mounted are: {shown}", code=Code.NOT_FOUND)
        chosen = [mount] if mount else list(mounted)
        return {"disks": [use for each in chosen if (use := _use(host, each, *mounted[each]))]}

    return read_disk


def _mounted(host: HostTree) -> dict[str, tuple[str, str]]:
    """Device and filesystem by the folder where they are mounted; a device that is mounted again counts once."""
    found: dict[str, tuple[str, str]] = {}
    seen: set[str] = set()
    for line in host.text("proc/self/mounts").splitlines():
        device, folder, kind, *_ = line.split(" ")
        if kind in _SHOWN_SYSTEMS and (kind == "overlay" or device not in seen):
            seen.add(device)
            found[_OCTAL.sub(lambda escaped: chr(int(escaped[1], 8)), folder)] = (device, kind)
    return found


def _use(host: HostTree, mount: str, device: str, kind: str) -> DiskUse | None:
    try:
        sizes = os.statvfs(host.root / mount.lstrip("/"))
    except OSError:  # it was unmounted meanwhile, or may not be looked at
        return None
    total, used = sizes.f_blocks, sizes.f_blocks - sizes.f_bfree
    return {
        "mount": mount,
        "device": device,
        "filesystem": kind,
        "total_bytes": total * sizes.f_frsize,
        "free_bytes": sizes.f_bavail * sizes.f_frsize,
        "percent": _share(used, used + sizes.f_bavail),
    }


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0
