"""Devices in the commands of a project: asked, called, listed, delegated to, and approved by people."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import Stage, scripted
from tests.edge.brokers import AnyBroker
from tests.edge.simulated import SimulatedDevice, device_beside
from toolwire import Tier, tool
from toolwire.cli.entry.exits import Exit
from toolwire.protocol.tools import Effect
from toolwire.wire.mqtt.topics import Topics

SETTINGS = """
[edge]
url = "{url}"
prefix = "{prefix}"
[grant]
tier = "run"
permissions = ["session"]
confirmed = ["gpio_write", "task", "device_echo"]
[tools]
groups = ["nodes", "teamwork"]
"""


@tool(effect=Effect.PURE, tier=Tier.CRAWL)
async def read_temperature() -> str:
    """Read the temperature of the processor."""
    return "45.6 °C"


@tool(effect=Effect.UNSAFE, tier=Tier.RUN)
async def gpio_write(pin: int, value: int) -> str:
    """Set a pin."""
    return f"{pin}={value}"


@tool(effect=Effect.UNSAFE)
async def echo(text: str) -> str:
    """Say it on the device."""
    return f"device: {text}"


TOOLS = (read_temperature, gpio_write, echo)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def pi(stage: Stage, mosquitto: AnyBroker, request: pytest.FixtureRequest) -> Iterator[SimulatedDevice]:
    """A device that the settings of the stage know."""
    topics = Topics(f"c{abs(hash(request.node.name)) % 10_000_000}")
    stage.settings(SETTINGS.format(url=f"mqtt://127.0.0.1:{mosquitto.mqtt_port}", prefix=topics.prefix))
    with device_beside("kitchen-pi", mosquitto.mqtt_port, TOOLS, topics=topics) as device:
        yield device


@pytest.mark.feature("F179")
def test_a_person_asks_the_model_picks_a_tool_and_a_device_runs_it(stage: Stage, pi: SimulatedDevice) -> None:
    with scripted([("read_temperature", {})], [("gpio_write", {"pin": 17, "value": 1})], "Warm, and on.") as model:
        ran = stage.run("ask", "Check the temperature, and switch pin 17 on", *model.flags)

    assert (ran.code, ran.out.strip()) == (Exit.DONE, "Warm, and on."), ran.err
    said = [message["content"] for message in model.requests[-1]["messages"] if message["role"] == "tool"]
    assert said == ["45.6 °C", "17=1"]
    assert set(pi.runs.values()) == {1}


def test_one_call_runs_on_a_device_and_a_name_of_ours_is_never_a_devices(stage: Stage, pi: SimulatedDevice) -> None:
    near = stage.run("call", "echo", "message=hello", "--json")
    far = stage.run("call", "device_echo", "text=hello", "--json")

    assert (near.json["status"], far.json["status"]) == ("success", "success"), far.err
    assert "device: hello" in far.out
    assert "device" not in near.out
    assert sum(pi.runs.values()) == 1


@pytest.mark.feature("F179")
def test_nodes_and_agents_list_show_the_devices(stage: Stage, pi: SimulatedDevice) -> None:
    [node] = stage.run("call", "nodes", "--json").json["structured"]["nodes"]
    [device] = stage.run("call", "agents_list", "--json").json["structured"]["devices"]

    assert (node["name"], node["state"], node["load"]) == (pi.name, "online", "0 of 4")
    assert set(node["tools"]) == {"read_temperature", "gpio_write", "echo"}
    assert node["seen_s"] < 60
    assert (device["name"], device["state"], set(device["tools"])) == (pi.name, "online", set(node["tools"]))


@pytest.mark.feature("F176", "F177")
def test_an_agent_hands_work_to_the_agent_of_the_device_that_has_the_tool(stage: Stage, pi: SimulatedDevice) -> None:
    """Agents see no tools of devices here: the one that asks finds out who has one, and its turn has the audit."""
    stage.settings((stage.folder / "toolwire.toml").read_text().replace("[edge]", '[edge]\noffer = "agents"'))
    with scripted(
        [("task", {"prompt": "Set pin 4", "tool": "gpio_write"})], [("gpio_write", {"pin": 4, "value": 1})],
        "It is set.", "Done.",
    ) as model:  # fmt: skip
        ran = stage.run("ask", "Switch it on", *model.flags)

    assert (ran.code, ran.out.strip()) == (Exit.DONE, "Done."), ran.err
    offered = [{one["function"]["name"] for one in request.get("tools", ())} for request in model.requests]
    assert "gpio_write" not in offered[0], "only the device's agent has it"
    assert offered[1] == {"read_temperature", "gpio_write", "device_echo"}, "and that has nothing else"
    assert sum(pi.runs.values()) == 1
    rows = stage.run("logs", "--json").json
    ran_by = {row["agent"]: row["turn_id"] for row in rows if row["event"] == "finished"}
    assert set(ran_by) == {"cli", pi.name}, "what the device did is on record under its own turn"


@pytest.mark.feature("F177")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tool": "gpio_wirte"}, "no other agent has the tool 'gpio_wirte'; did you mean 'gpio_write'?"),
        ({"tool": "gpio_write", "agent": "attic-pi"}, "'attic-pi' has no tool 'gpio_write'"),
        ({"agent": "kitchen-p"}, "there is no agent 'kitchen-p'; did you mean 'kitchen-pi'?"),
    ],
)
def test_who_cannot_be_asked_is_said_with_who_can(
    stage: Stage, pi: SimulatedDevice, arguments: dict[str, Any], words: str
) -> None:
    given = json.dumps({"prompt": "Set pin 4", **arguments})
    ran = stage.run("call", "task", "--args", given, "--json")

    assert words in ran.json["error"]["message"], ran.out
    assert not pi.runs


def test_the_turn_of_an_absent_device_waits_while_its_process_ends_and_a_runner_takes_it_up(
    stage: Stage, mosquitto: AnyBroker
) -> None:
    topics = Topics("absent")
    settings = SETTINGS.format(url=f"mqtt://127.0.0.1:{mosquitto.mqtt_port}", prefix=topics.prefix)
    queued = settings.replace(
        "[grant]", 'offline = "queue"\nqueue_s = 60\n[devices.kitchen-pi]\nconfirm = true\n[grant]'
    )
    stage.settings(queued.replace("[devices.kitchen-pi]", '[devices.kitchen-pi]\ntier = "run"'))
    with device_beside("kitchen-pi", mosquitto.mqtt_port, TOOLS, topics=topics):
        assert stage.run("call", "read_temperature").code == Exit.WAITING
    [asked] = stage.run("approvals", "--json").json
    assert stage.run("approve", asked["id"]).code == Exit.DONE
    left = stage.run("run", "--once", "--json")
    waits = stage.run("status", "--json")
    with device_beside("kitchen-pi", mosquitto.mqtt_port, TOOLS, topics=topics) as pi:
        runner = stage.start("run", "--json")
        assert runner.stdout is not None
        ended = json.loads(runner.stdout.readline())

    assert left.code in (Exit.DONE, Exit.WAITING), left.err
    assert "a device with read_temperature" in left.out + left.err + waits.out
    assert ended["answer"] == "45.6 °C"
    assert sum(pi.runs.values()) == 1


def test_a_command_at_the_terminal_waits_itself_as_long_as_the_settings_say(stage: Stage, mosquitto: AnyBroker) -> None:
    topics = Topics("waited-for")
    settings = SETTINGS.format(url=f"mqtt://127.0.0.1:{mosquitto.mqtt_port}", prefix=topics.prefix)
    stage.settings(settings.replace("[grant]", 'offline = "queue"\nqueue_s = 0.5\nmargin_s = 0.01\n[grant]'))
    with device_beside("kitchen-pi", mosquitto.mqtt_port, TOOLS, topics=topics):
        pass
    waited = stage.run("call", "read_temperature")
    assert waited.code == Exit.FAILED, waited.err
    assert "was not started: the device kitchen-pi is offline" in waited.out + waited.err


def test_what_only_the_grant_allows_is_asked_before_the_device_hears_of_it(stage: Stage, pi: SimulatedDevice) -> None:
    text = (stage.folder / "toolwire.toml").read_text()
    stage.settings(text + '[devices.kitchen-pi]\ntier = "run"\nconfirm = true\n')
    waiting = stage.run("call", "read_temperature", "--json")
    assert waiting.code == Exit.WAITING, waiting.out
    assert not pi.commands
    [asked] = stage.run("approvals", "--json").json
    assert stage.run("approve", asked["id"]).code == Exit.DONE
    ran = stage.run("run", "--once", "--json")

    assert (ran.code, ran.json["answer"]) == (Exit.DONE, "45.6 °C"), ran.err
    assert sum(pi.runs.values()) == 1


def test_an_mqtt_broker_needs_the_extra_for_devices_and_no_other(stage: Stage, pi: SimulatedDevice) -> None:
    hidden = stage.folder / "hidden" / "nats"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'nats'\", name='nats')")

    listed = stage.run("edge", "list", PYTHONPATH=str(hidden.parent))
    stage.settings('[edge]\nurl = "nats://127.0.0.1:9"\n')
    over_nats = stage.run("edge", "list", PYTHONPATH=str(hidden.parent))

    assert (listed.code, "read_temperature" in listed.out) == (0, True), listed.err
    assert (over_nats.code, "pip install 'toolwire[edge,nats]'" in over_nats.err) == (Exit.USAGE, True), over_nats.err
