"""The examples of the published design, end to end, as a user has them from `toolwire edge init` on.

A real broker with TLS and its list of who may do what, a real `toolwire edge run` process, the real orchestrator behind
`toolwire ask`, and a model that follows a script. The pins are gpiozero's own simulation; the temperature is read from
files as the kernel writes them.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.edge.house import House
from tests.edge.test_skill_bundles import skill
from tests.toolbox.git_places import git
from toolwire.cli.entry.exits import Exit
from toolwire.edge.keys import PrivateKey


@pytest.mark.feature("F260")
def test_the_temperature_of_the_processor(house: House) -> None:
    answer, [read] = house.ask(
        "Check the CPU temperature", [("read_temperature", {})], "The CPU temperature is 45.6°C."
    )
    assert (json.loads(read)["celsius"], answer) == (45.6, "The CPU temperature is 45.6°C.")


@pytest.mark.feature("F260")
def test_whether_gpio_17_is_high(house: House) -> None:
    answer, [read] = house.ask(
        "Check if GPIO pin 17 is high", [("gpio_read", {"pin": 17})], "GPIO pin 17 is currently HIGH."
    )
    assert (json.loads(read)["level"], json.loads(read)["mode"]) == ("HIGH", "input")
    assert answer == "GPIO pin 17 is currently HIGH."


def test_the_embedded_model_reads_a_pin_of_the_device(house: House) -> None:
    """Without any script: the model picks the tool, the device runs it, and the answer tells what came back."""
    words = ("ask", "Is GPIO pin 17 high? Use gpio_read with pin 17.", "--json")
    ran = house.stage.run(*words, TOOLWIRE_TOOLS__INCLUDE="gpio_read")
    assert ran.code == Exit.DONE, ran.err
    [call] = house.run("edge", "logs", "pi", "-n", "1", "--json").json["rows"]
    assert (call["tool"], call["status"]) == ("gpio_read", "success")
    assert re.search(r"\bhigh\b|\bvalue\W+1\b", ran.json["answer"], re.IGNORECASE), ran.json["answer"]


def test_the_hostname_of_the_device(house: House) -> None:
    hostname = Path("/etc/hostname").read_text().strip()
    answer, [read] = house.ask(
        "What's in /etc/hostname?", [("read_file", {"path": "/etc/hostname"})], f"The hostname is '{hostname}'."
    )
    assert hostname in read
    assert answer == f"The hostname is '{hostname}'."


def test_three_commits_and_the_diff_of_the_newest(house: House) -> None:
    newest = git(house.device / "workspace", "rev-parse", "HEAD").strip()
    answer, [log, diff] = house.ask(
        "List the last 3 commits and show the diff for the most recent one",
        [("git_log", {"max_count": 3})], [("git_diff", {"commit": newest})], "Fix bug added a fix() function.",
    )  # fmt: skip
    assert all(subject in log for subject in ("Fix bug", "Add feature", "Initial commit"))
    assert "+func fix() {}" in diff
    assert answer == "Fix bug added a fix() function."


def test_setting_a_pin_needs_the_word_of_the_devices_operator(house: House) -> None:
    """Whatever the orchestrator has approved: the device's own file does not confirm it."""
    words = ("gpio_write", "pin=27", "value=1", "--tier", "run", "--yes", "--json")
    refused = house.run("call", *words)
    assert (refused.code, refused.json["error"]["code"]) == (Exit.FAILED, "permission_denied")
    assert "grant.confirmed" in refused.json["error"]["message"]
    *_, newest = house.run("edge", "logs", "pi", "--json").json["rows"]
    assert (newest["tool"], newest["state"], newest["status"]) == ("gpio_write", "finished", "error")
    assert "grant.confirmed" in house.run("edge", "logs", "pi", "-n", "1").out


def test_a_further_device_has_the_broker_of_the_first(house: House) -> None:
    before = (house.folder.broker / "mosquitto.conf").read_text()
    for words in (("--broker", "mqtts://127.0.0.1:9"), ("--prefix", "other"), ("--nats",)):
        refused = house.run("edge", "init", "hall", *words)
        assert (refused.code, "leave" in refused.err) == (Exit.USAGE, True)
    added = house.run("edge", "init", "hall")
    assert (added.code, "[devices.hall]" in added.out, "[edge]" in added.out) == (Exit.DONE, True, False)
    assert (house.folder.broker / "mosquitto.conf").read_text() == before


def test_devices_are_listed_asked_and_drained(house: House) -> None:
    [pi] = house.run("edge", "list", "--json").json["devices"]
    assert (pi["name"], pi["state"]) == ("pi", "online")
    assert {"read_temperature", "gpio_write", "git_log"} <= set(pi["tools"])
    assert house.run("edge", "ping", "pi", "--json").json["elapsed_ms"] > 0
    missing = house.run("edge", "ping", "po")
    assert (missing.code, "no device 'po' is known at the broker; there are pi" in missing.err) == (Exit.USAGE, True)
    key = house.stage.folder / "another.pem"
    key.write_bytes(PrivateKey.generate().pem)
    ignored = house.stage.run("edge", "ping", "pi", "--timeout", "0.3", TOOLWIRE_EDGE__SIGNING_KEY=str(key))
    assert (ignored.code, "it is online, so look whether keys.orchestrators" in ignored.err) == (Exit.FAILED, True)
    assert house.run("edge", "drain", "pi").out == "pi is draining.\n"
    turned_away = house.run("call", "read_temperature", "--json").json
    assert (turned_away["error"]["code"], "draining" in turned_away["text"]) == ("unavailable", True)
    assert house.run("edge", "drain", "pi", "--resume").out == "pi is online.\n"
    assert house.run("call", "read_temperature", "--json").json["status"] == "success"


def test_a_skill_is_pushed_called_replaced_and_never_downgraded_by_mistake(house: House) -> None:
    lamp = house.stage.folder / "lamp"
    refused = house.run("edge", "push", str(_renamed(skill(lamp))), "--to", "pi")
    assert (refused.code, "skills.accept" in refused.err) == (Exit.FAILED, True)
    for version, says in (("1.0", "on"), ("1.1", "off")):
        pushed = house.run("edge", "push", str(skill(lamp, version, says)), "--to", "pi", "--json")
        assert pushed.code == Exit.DONE, pushed.err
        assert [(one["skill"], one["version"]) for one in pushed.json["installed"]] == [("lamp", version)]
        called = house.run("call", "blink", "--tier", "run", "--yes", "--json")
        assert (called.code, says in called.json["text"]) == (Exit.DONE, True), called.out
    older = house.run("edge", "push", str(skill(lamp, "1.0")), "--to", "pi")
    assert (older.code, "--allow-older" in older.err) == (Exit.FAILED, True)
    assert house.run("edge", "push", str(lamp), "--to", "pi", "--allow-older").code == Exit.DONE


def _renamed(folder: Path) -> Path:
    """The same skill by a name that the device does not accept."""
    file = folder / "skill.toml"
    file.write_text(file.read_text().replace('name = "lamp"', 'name = "door"'))
    return folder


@pytest.mark.feature("F226")
def test_the_metrics_of_tools_reach_the_evolution_engine_of_a_device(house: House) -> None:
    house.run("call", "read_temperature")
    house.run("call", "gpio_read", "pin=5")
    measured = house.run("edge", "metrics", "pi", "--json").json
    assert measured["tools"]["gpio_read"]["error_count"] >= 1
    assert measured["errors_by_type"]["permission_denied"] >= 1
    assert measured["tools"]["read_temperature"]["avg_latency_ms"] > 0
    fed = house.run("edge", "evolve", "pi")
    assert (fed.code, "tuned by" in fed.out) == (Exit.DONE, True), fed.err
    seen = json.loads((house.device / "seen.json").read_text())
    assert seen["device"]["tools"]["gpio_read"]["error_count"] >= 1
    [own] = [one for one in seen["orchestrator"]["tools"] if one["tool"] == "gpio_read"]
    assert own["errors_by_type"] == {"permission_denied": own["errors"]}
    assert seen["orchestrator"]["loop"]["turns"] >= 2
    assert house.run("edge", "evolve", "pi", "--strategy").code == Exit.DONE
    kept = house.run("edge", "metrics", "pi", "--json").json["strategy"]
    assert kept["metrics"]["orchestrator"]["loop"]["turns"] >= 2


def test_the_example_runs_from_nothing() -> None:
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, root / "examples" / "edge" / "try_it.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert '"level":"HIGH"' in ran.stdout
    assert "gpio_read    success" in ran.stdout
