"""What a user meets in a house with one device: keys that do not fit, a broker that is down, chats, turns over HTTP."""

import json
from pathlib import Path

import pytest

from tests.cli.stage import Stage, scripted
from tests.edge.house import House
from tests.gateway.test_turns import served
from toolwire.cli.entry.exits import Exit
from toolwire.edge.keys import PrivateKey


def test_a_call_under_a_key_that_the_device_does_not_accept_says_so_at_once(house: House, tmp_path: Path) -> None:
    """The device answers no forged command: it has published the ids of the keys that it accepts."""
    key = tmp_path / "another.pem"
    key.touch(0o600)
    key.write_bytes((another := PrivateKey.generate()).pem)
    before = house.run("edge", "logs", "pi", "--json").json["rows"]
    ran = house.stage.run("call", "read_temperature", "--json", TOOLWIRE_EDGE__SIGNING_KEY=str(key))

    assert (ran.code, ran.json["error"]["code"]) == (Exit.FAILED, "permission_denied")
    assert f"the device pi does not accept the key {another.key_id} of edge.signing_key" in ran.json["text"]
    assert house.run("edge", "logs", "pi", "--json").json["rows"] == before, "nothing was sent"


def test_a_call_without_a_key_says_that_the_device_obeys_signed_commands_only(house: House) -> None:
    settings = (house.stage.folder / "toolwire.toml").read_text()
    lines = [line for line in settings.splitlines() if not line.startswith("signing_key")]
    try:
        house.stage.settings("\n".join(lines))
        ran = house.run("call", "read_temperature", "--json")
    finally:
        house.stage.settings(settings)

    assert ran.json["error"]["code"] == "permission_denied"
    assert "the device pi obeys signed commands only" in ran.json["text"]


@pytest.mark.parametrize(("tool", "pair"), [("gpio_write", "pin=17"), ("git_log", "max_count=1"), ("blink", "n=1")])
def test_while_the_broker_is_down_no_command_is_suggested_that_runs_the_tool_here(
    tmp_path: Path, tool: str, pair: str
) -> None:
    stage = Stage(tmp_path)
    stage.settings('[edge]\nurl = "mqtt://127.0.0.1:9"\nwait_s = 0.1\n')
    try:
        for command in ("call", "preflight"):
            ran = stage.run(command, tool, pair)
            assert ran.code in (Exit.NOT_FOUND, Exit.FAILED)
            assert "No device is known: the broker at mqtt://127.0.0.1:9 has none, or cannot be reached." in ran.err
            assert "To call it, type" not in ran.err
            assert "--tools device" not in ran.err
    finally:
        stage.close()


def test_a_chat_reads_a_sensor_of_the_device_and_goes_on(house: House) -> None:
    with scripted([("read_temperature", {})], "It is 45.6 °C.", [("gpio_read", {"pin": 17})], "High.") as model:
        ran = house.stage.run("chat", *model.flags, stdin=b"How warm is it?\nAnd pin 17?\n/quit\n")

    assert ran.code == Exit.DONE, ran.err
    assert [line for line in ran.out.splitlines() if line in ("It is 45.6 °C.", "High.")] == ["It is 45.6 °C.", "High."]
    read = [json.loads(one["content"]) for one in model.requests[-1]["messages"] if one["role"] == "tool"]
    assert (read[0]["celsius"], read[1]["level"]) == (45.6, "HIGH")


PROFILE = """
profile = "small"
[profiles.small]
provider = "openai-compatible"
model = "scripted"
url = "{url}"
"""


def test_a_turn_that_is_begun_over_http_reads_a_sensor_of_the_device(house: House) -> None:
    settings = (house.stage.folder / "toolwire.toml").read_text()
    try:
        with scripted([("read_temperature", {})], "It is 45.6 °C.") as model, served(
            house.stage, model, settings=PROFILE, after=settings
        ) as server:  # fmt: skip
            told = server.events(turn := server.begin("How warm is it?"))
            shown = server.get(f"/v1/turns/{turn}")
            server.stop()
    finally:
        house.stage.settings(settings)

    [finished] = [event for event in told if event["event"] == "call_finished"]
    assert shown["answer"] == "It is 45.6 °C."
    assert finished["call"]["name"] == "read_temperature", finished
    newest = house.run("edge", "logs", "pi", "-n", "1", "--json").json["rows"][-1]
    assert (newest["tool"], newest["status"]) == ("read_temperature", "success")
