"""Tools about the machine itself, through the command line: its sensors, its pins, and what it lacks, said plainly."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpiozero
import pytest
from gpiozero.pins.mock import MockFactory
from msgspec.structs import replace

from tests.cli.conftest import Inside, inside  # noqa: F401 - a fixture
from toolwire import Effect, Grant, Tier
from toolwire.cli.entry.exits import Exit
from toolwire.disclose.offer import visible_tools
from toolwire.toolbox.device.camera import PROGRAMS
from toolwire.toolbox.device.pins import process_pins
from toolwire.toolbox.registry import DEVICE_TOOLS, ToolDependencies, make_tools

SETTINGS = """\
[tools]
groups = ["device"]
[device]
root = "machine"
inputs = [17, "22 up"]
outputs = [27]
[grant]
tier = "run"
permissions = ["file_read", "device", "network", "shell"]
network = ["127.0.0.1", "!192.0.2.9"]
"""
STAT = "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 50 0 50 350 50 0 0 0 0 0\ncpu1 50 0 50 350 50 0 0 0 0 0\nintr 1\n"
FILES = {
    "sys/class/thermal/thermal_zone0/type": "gpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "51000\n",
    "sys/class/thermal/thermal_zone1/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone1/temp": "45600\n",
    "sys/class/thermal/thermal_zone2/type": "broken\n",
    "sys/class/thermal/thermal_zone2/temp": "none\n",
    "sys/class/hwmon/hwmon0/name": "nvme\n",
    "sys/class/hwmon/hwmon0/temp1_input": "38850\n",
    "sys/class/hwmon/hwmon0/temp1_label": "Composite\n",
    "sys/firmware/devicetree/base/model": "Raspberry Pi 5 Model B Rev 1.0\0",
    "proc/stat": STAT,
    "proc/loadavg": "0.10 0.20 0.30 1/100 1000\n",
    "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 250 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\nHugePages_Total: 0\n",
    "proc/uptime": "1000.00 1.00\n",
    "proc/sys/kernel/hostname": "raspberrypi\n",
    "proc/7/stat": "7 (a (b) c) S 1 " + " ".join(["0"] * 9) + " 300 100 0 0 20 0 1 0 90000 0 5 0\n",
    "proc/8/stat": "8 (small) R 1 " + " ".join(["0"] * 9) + " 0 0 0 0 20 0 1 0 90000 0 1 0\n",
}


@pytest.fixture
def pins(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockFactory]:
    """gpiozero's own simulated chip, in place of this machine's."""
    factory = MockFactory()
    monkeypatch.setattr(gpiozero.Device, "pin_factory", factory)
    yield factory
    process_pins().close()
    factory.reset()


@pytest.fixture
def device(inside: Inside, tmp_path: Path) -> Inside:  # noqa: F811
    """Commands on a machine with sensors, two inputs and an output."""
    for name, text in FILES.items():
        file = tmp_path / "machine" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (tmp_path / "toolwire.toml").write_text(SETTINGS, encoding="utf-8")
    return inside


def told(device: Inside, *words: str) -> Any:
    ran = device("call", *words, "--json")
    assert ran.code == Exit.DONE, ran.out + ran.err
    return ran.json["structured"]


@pytest.mark.feature("F260")
def test_the_processors_temperature_is_read_among_all_sensors(device: Inside) -> None:
    found = told(device, "read_temperature")
    assert (found["celsius"], found["sensor"]) == (45.6, "cpu-thermal")
    assert {each["sensor"]: each["celsius"] for each in found["sensors"]} == {
        "gpu-thermal": 51.0, "cpu-thermal": 45.6, "nvme Composite": 38.85,
    }  # fmt: skip


def test_processor_memory_system_and_processes_are_read_from_the_kernel(device: Inside) -> None:
    usage = told(device, "read_cpu_usage", "seconds=0.05")
    assert (usage["cores"], usage["load"], usage["percent"]) == (2, [0.1, 0.2, 0.3], 0.0)
    memory = told(device, "read_memory")
    assert (memory["used_bytes"], memory["percent"], memory["swap_used_bytes"]) == (750 * 1024, 75.0, 60 * 1024)
    info = told(device, "system_info")
    assert (info["hostname"], info["model"]) == ("raspberrypi", "Raspberry Pi 5 Model B Rev 1.0")
    by_cpu = told(device, "list_processes", "limit=1")
    assert by_cpu["total"] == 2
    assert [(row["pid"], row["name"], row["cpu_s"], row["cpu_percent"]) for row in by_cpu["processes"]] == [
        (7, "a (b) c", 4.0, 4.0)
    ]


def test_this_very_machine_can_be_looked_at(inside: Inside) -> None:  # noqa: F811
    for name in ("read_cpu_usage", "read_memory", "read_disk", "system_info", "network_info", "list_processes"):
        assert inside("call", name, "--tools", "device").code == Exit.DONE, name
    interfaces = inside("call", "network_info", "--tools", "device", "--json").json["structured"]["interfaces"]
    assert "127.0.0.1" in next(each for each in interfaces if each["name"] == "lo")["addresses"]
    wrong = inside("call", "read_disk", "mount=/nowhere", "--tools", "device")
    assert (wrong.code, "no disk is mounted at '/nowhere'; mounted are:" in wrong.err) == (Exit.FAILED, True)


@pytest.mark.feature("F260")
def test_a_pin_is_read_as_the_level_that_is_on_it(device: Inside, pins: MockFactory) -> None:
    assert told(device, "gpio_read", "pin=17")["level"] == "LOW"
    pins.pin(17).drive_high()
    assert told(device, "gpio_read", "pin=17") == {
        "pin": 17, "mode": "input", "pull": "", "value": 1, "level": "HIGH",
    }  # fmt: skip
    assert told(device, "gpio_read", "pin=22")["level"] == "HIGH"
    pins.pin(22).drive_low()
    assert told(device, "gpio_read", "pin=22")["level"] == "LOW"


@pytest.mark.feature("F260")
def test_setting_a_pin_asks_first_and_keeps_its_level(device: Inside, pins: MockFactory) -> None:
    assert device("call", "gpio_write", "pin=27", "value=1").code == Exit.WAITING
    assert pins.pin(27).function == "input"
    assert told(device, "gpio_write", "pin=27", "value=1", "--yes")["level"] == "HIGH"
    assert (pins.pin(27).function, pins.pin(27).state) == ("output", True)
    listed = told(device, "gpio_list")
    assert listed["driver"] == "MockFactory"
    assert [(each["pin"], each["mode"], each["value"]) for each in listed["pins"]] == [
        (17, "input", 0), (22, "input", 1), (27, "output", 1),
    ]  # fmt: skip


def test_a_pin_is_touched_only_as_it_is_wired(device: Inside, pins: MockFactory) -> None:
    unset = told(device, "gpio_read", "pin=27")
    assert (unset["level"], pins.pin(27).function) == ("unknown", "input")
    for words in (["gpio_read", "pin=5"], ["gpio_write", "pin=17", "value=1", "--yes"]):
        refused = device("call", *words)
        assert (refused.code, "do not list it in device." in refused.err) == (Exit.FAILED, True)
    assert pins.pin(17).function == "input"


def test_what_the_machine_lacks_is_said_with_what_to_do(
    device: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    text = SETTINGS.replace('"machine"', '"empty"')
    (tmp_path / "toolwire.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(gpiozero.Device, "pin_factory", None)
    monkeypatch.setenv("GPIOZERO_PIN_FACTORY", "native")
    expected = {
        "read_temperature": "no temperature sensor is known",
        "read_memory": "device.root names the folder",
        "gpio_list": "set GPIOZERO_PIN_FACTORY=mock to try it without hardware",
        "camera_capture": "no camera was found",
    }
    for name, words in expected.items():
        ran = device("call", name, "--yes", "--json")
        assert (ran.code, ran.json["error"]["code"]) == (Exit.FAILED, "unavailable")
        assert words in ran.json["error"]["message"]


def test_a_camera_without_a_program_names_the_programs(
    device: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine" / "dev").mkdir()
    (tmp_path / "machine" / "dev" / "video0").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = device("call", "camera_capture", "--yes")
    assert (ran.code, all(name in ran.err for name in PROGRAMS)) == (Exit.FAILED, True)


STAND_IN = """#!/bin/sh
printf '%s ' "$@" > "$0.words"
[ -e "$0.broken" ] && { echo 'no frame came' >&2; exit 3; }
for file; do :; done
printf 'a picture' > "$file"
"""


@pytest.mark.parametrize(
    ("name", "words"), [("rpicam-still", "--width 64 --height 48"), ("ffmpeg", "-video_size 64x48")]
)
def test_a_picture_is_what_the_program_of_the_camera_wrote_and_a_failure_is_in_its_words(
    device: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    """A stand-in for the program: no machine of the tests has a camera."""
    (tmp_path / "machine" / "dev").mkdir()
    (tmp_path / "machine" / "dev" / "video0").touch()
    program = tmp_path / "bin" / name
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    taken = device("call", "camera_capture", "width=64", "height=48", "--yes", "--json")
    used = program.with_name(f"{name}.words").read_text()
    program.with_name(f"{name}.broken").touch()
    broken = device("call", "camera_capture", "--yes", "--json")

    assert taken.json["structured"] == {"width": 64, "height": 48, "bytes": len("a picture"), "program": name}
    assert words in used
    assert (broken.code, "the camera gave no picture: no frame came" in broken.json["text"]) == (Exit.FAILED, True)


def test_ping_reaches_the_hosts_of_the_grant_and_no_other(device: Inside) -> None:
    answered = told(device, "ping", "host=127.0.0.1", "count=1")
    assert (answered["received"], answered["loss_percent"]) == (1, 0.0)
    for host in ("192.0.2.1", "192.0.2.9", "localhost"):
        refused = device("call", "ping", f"host={host}")
        assert (refused.code, "not among the hosts that the grant lists" in refused.err) == (Exit.FAILED, True)


def test_safe_exec_runs_what_is_listed_and_nothing_else(device: Inside, tmp_path: Path) -> None:
    ran = told(device, "safe_exec", "--args", '{"command": "uname", "args": ["-s"]}', "--yes")
    assert (ran["stdout"], ran["exit_code"]) == ("Linux\n", 0)
    shell = told(device, "safe_exec", "--args", '{"command": "ls", "args": ["-d", "/; touch x"]}', "--yes")
    assert shell["exit_code"] != 0
    assert not (tmp_path / "x").exists()
    for command in ("bash", "/bin/ls", "../bin/ls"):
        refused = device("call", "safe_exec", f"command={command}", "--yes")
        assert (refused.code, "device.commands lists" in refused.err) == (Exit.FAILED, True)


def test_looking_is_pure_and_changing_asks() -> None:
    tools = {tool.name: tool for tool in make_tools(DEVICE_TOOLS, ToolDependencies())}
    assert set(tools) == set(DEVICE_TOOLS)
    changing = {"gpio_write", "camera_capture", "safe_exec", "ping"}
    for name in tools.keys() - changing:
        assert (tools[name].effect, tools[name].tier) == (Effect.PURE, Tier.CRAWL), name
    assert (tools["gpio_write"].effect, tools["gpio_write"].requires_confirmation) == (Effect.UNSAFE, True)
    assert all(tools[name].platforms == {"linux"} for name in tools.keys() - {"read_file"})


def test_a_device_tool_is_offered_only_on_its_platform(device: Inside) -> None:
    listed = {each["name"]: each for each in device("tools", "list", "--json").json}
    assert all(listed[name]["offered"] for name in DEVICE_TOOLS)
    tools = make_tools(DEVICE_TOOLS, ToolDependencies())
    grant = Grant(tier=Tier.RUN, permissions=frozenset({"file_read", "device", "network", "shell"}))
    elsewhere = visible_tools(tools, replace(grant, platform="darwin"))
    assert [tool.name for tool in elsewhere] == ["read_file"]
    assert len(visible_tools(tools, replace(grant, platform="linux"))) == len(DEVICE_TOOLS)
