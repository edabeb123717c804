"""Who is there: what devices say about themselves, heartbeats that are missed, and last wills that come late."""

import pytest

from toolwire.edge.orchestrator import presence
from toolwire.edge.orchestrator.presence import DeviceRegistry, DeviceState, Presence
from toolwire.protocol.tools import Tool

ONLINE = DeviceState(Presence.ONLINE, "boot-1", running=1, slots=4, heartbeat_s=10.0)
OFFLINE = DeviceState(Presence.OFFLINE, "boot-1")


def test_a_device_is_there_until_it_says_otherwise_or_misses_its_heartbeats() -> None:
    known = DeviceRegistry()
    assert known.note_state("pi", ONLINE, 100.0), "it has come"
    assert not known.note_state("pi", ONLINE, 110.0), "it was there"
    device = known.device("pi")

    assert device is not None
    assert (device.at(110.0), device.at(140.0), device.at(140.1)) == (
        Presence.ONLINE,
        Presence.ONLINE,
        Presence.OFFLINE,
    )
    assert known.note_state("pi", ONLINE, 200.0), "it has come back"
    known.note_state("pi", OFFLINE, 201.0)
    gone = known.device("pi")
    assert gone is not None
    assert gone.at(201.0) is Presence.OFFLINE


def test_whatever_a_device_sends_shows_that_it_is_there() -> None:
    known = DeviceRegistry()
    known.note_state("pi", ONLINE, 100.0)
    known.note_seen("pi", 135.0)
    device = known.device("pi")

    assert device is not None
    assert device.at(160.0) is Presence.ONLINE


def test_the_last_will_of_an_earlier_run_says_nothing_about_this_one() -> None:
    known = DeviceRegistry()
    known.note_state("pi", ONLINE, 100.0)
    assert known.note_state("pi", DeviceState(Presence.ONLINE, "boot-2", heartbeat_s=10.0), 101.0), "a new process"
    known.note_state("pi", OFFLINE, 102.0)
    device = known.device("pi")

    assert device is not None
    assert device.at(102.0) is Presence.ONLINE


@pytest.mark.feature("F179")
def test_what_devices_can_do_is_found_by_tool_and_changes_are_counted() -> None:
    known = DeviceRegistry()
    read, write = Tool("gpio_read", "Read a pin."), Tool("gpio_write", "Set a pin.")
    known.note_tools("pi-2", [read, write])
    known.note_tools("pi-1", [read])
    before = known.version
    known.note_tools("pi-1", [read])

    assert [one.id for one in known.with_tool("gpio_read")] == ["pi-1", "pi-2"]
    assert [one.id for one in known.with_tool("gpio_write")] == ["pi-2"]
    assert known.version == before, "nothing has changed"
    known.forget("pi-2")
    assert (known.with_tool("gpio_write"), known.version) == ([], before + 1)


def test_no_more_devices_are_known_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "MOST_DEVICES", 2)
    known = DeviceRegistry()
    for name in ("a", "b", "c"):
        known.note_state(name, ONLINE, 100.0)

    assert [one.id for one in known.devices()] == ["a", "b"]


@pytest.mark.feature("F178")
def test_the_load_of_a_device_is_what_it_tells_or_what_was_sent() -> None:
    known = DeviceRegistry()
    known.note_state("pi", ONLINE, 100.0)
    assert known.load("pi") == 1
    for _ in range(3):
        known.note_sent("pi", 1)
    assert known.load("pi") == 3
    for _ in range(5):
        known.note_sent("pi", -1)
    assert known.load("pi") == 1


def test_what_the_broker_had_kept_is_no_sign_of_life() -> None:
    known = DeviceRegistry()
    assert known.note_state("pi", ONLINE, 100.0, retained=True), "it is asked whether it is there"
    assert [one.id for one in known.unconfirmed(100.0)] == ["pi"]
    device = known.device("pi")

    assert device is not None
    assert [device.at(at) for at in (100.0, 100.0 + presence.CONFIRM_S, 103.1)] == ["unconfirmed"] * 2 + ["offline"]
    assert known.note_seen("pi", 104.0), "it has answered"
    answered = known.device("pi")
    assert answered is not None
    assert answered.at(104.0) is Presence.ONLINE
    assert not known.note_state("pi", ONLINE, 105.0, retained=True), "which is known to be there"
    assert answered == known.device("pi")
    assert known.note_state("pi", DeviceState(Presence.DRAINING, "boot-2", heartbeat_s=10.0), 106.0, retained=True)
    assert [one.id for one in known.unconfirmed(106.0)] == ["pi"], "another run of its process"


def test_an_agent_without_heartbeats_is_believed_by_what_the_broker_had_kept() -> None:
    known = DeviceRegistry()
    known.note_state("pi", DeviceState(Presence.ONLINE), 100.0, retained=True)
    device = known.device("pi")

    assert device is not None
    assert device.at(100.0) is Presence.ONLINE
