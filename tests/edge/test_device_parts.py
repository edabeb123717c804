"""The parts of a device that no broker is needed for: its file, its clocks, its journal."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from toolwire.assemble.edge_device import device_project
from toolwire.assemble.tools import toolbox_of
from toolwire.edge.device.clock import SenderClocks
from toolwire.edge.device.config import parse_config, read_config
from toolwire.edge.device.journal import CallJournal, CallState, JournalInUse, JournalRow
from toolwire.errors import SettingsError
from toolwire.wire.mqtt.commands import CommandKind, EdgeCommand
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage

SKILL = """
[skill]
name = "desktop-tools"
version = "1.0.0"
description = "Tools of a desktop."

[[tools]]
name = "dt_hello"
binary = "bin/dt-hello"
description = "Say hello."
"""


@pytest.mark.feature("F234")
def test_a_file_in_the_published_format_rules_capabilities_sandbox_time_and_programs(tmp_path: Path) -> None:
    skill = tmp_path / "skills" / "desktop-tools"
    (skill / "bin").mkdir(parents=True)
    (skill / "skill.toml").write_text(SKILL)
    program = skill / "bin" / "dt-hello"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    file = tmp_path / "edge.toml"
    file.write_text(
        '[agent]\nname = "pi"\ncapabilities = ["file_read", "file_write", "shell"]\n'
        '[broker]\nurl = "mqtts://broker.example"\n[keys]\nprivate = "key.pem"\nallow_plain = true\n'
        '[tools]\nsandboxing = "firejail"\ntimeout_ms = 7000\ngroups = ["read_only"]\n'
        f'[tools.paths]\nbin = "{skill}/bin"\n'
    )
    config = read_config(file)
    project = device_project(config, {})
    grant = project.settings.grant(project.cwd)
    assert grant.permissions == {"file_read", "file_write", "shell"}
    assert project.settings.tools.engine == "firejail"
    toolbox = toolbox_of(project)
    hello = toolbox.get("dt_hello")
    assert hello is not None
    assert hello.skill == "desktop-tools"
    assert "grep" in toolbox.names
    assert project.settings.tools.timeout_s == 7.0
    assert (config.broker.port, config.broker.tls, config.broker.client_id) == (8883, True, "pi")


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        ("agent", "name", "a/b", "agent.name must be 1 to 64 characters"),
        ("agent", "nmae", "pi", r"no key agent.nmae; did you mean name\?"),
        ("agent", "prefix", "#", "agent.prefix the prefix"),
        ("agent", "capabilities", "all", "agent.capabilities must be a list"),
        ("broker", "url", "http://x", "broker.url must be an address such as mqtts"),
        ("broker", "url", "mqtt://u:p@x", "broker.url must be an address"),
        ("broker", "version", 3, "broker.version must be 4"),
        ("broker", "ca", "ca.pem", "must begin with mqtts"),
        ("keys", "orchestrators", [], "keys.orchestrators must list"),
        ("keys", "private", "", "keys.private is missing"),
        ("limits", "slots", 0, "limits.slots must be a whole number above 0"),
        ("approvals", "from", "all", "approvals.from must be device or orchestrator"),
        ("tools", "paths", {"lib": "x"}, "tools.paths.lib is not known"),
        ("agnet", "name", "pi", r"no section \[agnet\]; did you mean agent\?"),
    ],
)
def test_a_wrong_entry_is_named(section: str, key: str, value: Any, said: str) -> None:
    sections: dict[str, dict[str, Any]] = {
        "agent": {"name": "pi"},
        "broker": {"url": "mqtt://127.0.0.1"},
        "keys": {"private": "k", "orchestrators": ["ed25519 x"]},
    }
    sections.setdefault(section, {})[key] = value
    with pytest.raises(SettingsError, match=said):
        parse_config(sections, Path("/x"), "edge.toml")


class Times:
    """Two clocks of a device, and the one of its orchestrator, set by the test."""

    def __init__(self, *, own_is_off_by: float) -> None:
        self.true = 1_000_000.0
        self.off = own_is_off_by
        self.clocks = SenderClocks(lambda: self.true - 999_000.0, lambda: self.true + self.off, max_age_s=300)

    def command(self, *, age: float, lasts: float | None = 30.0, session: str = "") -> EdgeCommand:
        """One that was sent some time ago and has come now."""
        sent_at = self.true - age
        deadline = None if lasts is None else sent_at + lasts
        return EdgeCommand(
            CommandKind.TOOL, "r", "pi", sent_at=sent_at, deadline=deadline, session=session, key_id="k"
        )  # fmt: skip

    def judge(self, command: EdgeCommand) -> RefusalCode | float:
        self.clocks.hear(command)
        left = self.clocks.seconds_left(command)
        return left.code if isinstance(left, RefusedMessage) else left


@pytest.mark.parametrize("off_by", [-1e6, -3_600.0, 0.0, 3_600.0, 1e6])
def test_a_wrong_clock_on_the_device_neither_runs_what_is_late_nor_refuses_what_is_not(off_by: float) -> None:
    """Once a command of this connection has come, the device's own clock is not asked any more."""
    times = Times(own_is_off_by=off_by)
    times.clocks.begin_session("s1")
    times.true += 1
    assert times.judge(times.command(age=0.5, session="s1")) == pytest.approx(29.5, abs=1.1)
    times.true += 100
    assert times.judge(times.command(age=50)) is RefusalCode.EXPIRED
    assert times.judge(times.command(age=400, lasts=None)) is RefusalCode.STALE
    assert times.judge(times.command(age=1)) == pytest.approx(29, abs=1.1)


def test_an_orchestrator_whose_clock_was_set_back_is_obeyed_again() -> None:
    times = Times(own_is_off_by=0.0)
    times.clocks.begin_session("s1")
    assert isinstance(times.judge(times.command(age=0, session="s1")), float)
    times.true += 10
    times.clocks.begin_session("s2")
    assert isinstance(times.judge(times.command(age=3_600, session="s2")), float)


def test_an_orchestrator_whose_clock_is_set_back_while_it_is_connected_is_obeyed_again() -> None:
    """What it sends seems to be as late as the connection is old, until the device has begun another session."""
    times = Times(own_is_off_by=0.0)
    times.clocks.begin_session("s1")
    assert isinstance(times.judge(times.command(age=0, session="s1")), float)
    times.true += 600
    late = times.command(age=3_600, session="s1")
    assert times.judge(late) is RefusalCode.EXPIRED
    assert times.clocks.is_of_session(late)
    times.clocks.begin_session("s1b")
    assert times.judge(times.command(age=3_600, session="s1b")) == pytest.approx(30, abs=0.1)


def test_a_command_of_unknown_age_does_not_run_by_a_clock_that_was_set_back_or_of_a_machine_that_was_off() -> None:
    times = Times(own_is_off_by=0.0)
    times.off = -120.0
    assert times.judge(times.command(age=130)) is RefusalCode.STALE
    off = Times(own_is_off_by=-3_600.0)
    off.clocks.machine_was_off = True
    waited = off.command(age=3_600)
    assert off.judge(waited) is RefusalCode.STALE
    off.clocks.begin_session("s1")
    assert isinstance(off.judge(off.command(age=0, session="s1")), float)
    assert off.judge(waited) is RefusalCode.EXPIRED
    assert not off.clocks.confirms_own(), "the machine still counts on from where it was"
    off.off = 0.0
    assert off.clocks.confirms_own()


def test_before_an_orchestrator_has_greeted_the_devices_own_clock_decides_and_doubt_refuses() -> None:
    assert Times(own_is_off_by=0.0).judge(Times(own_is_off_by=0.0).command(age=60)) is RefusalCode.EXPIRED
    assert isinstance(Times(own_is_off_by=0.0).judge(Times(own_is_off_by=0.0).command(age=5)), float)
    behind = Times(own_is_off_by=-3_600.0)
    behind.clocks.begin_session("s1")
    assert behind.judge(behind.command(age=5)) is RefusalCode.STALE  # it may have waited for any time before it came
    ahead = Times(own_is_off_by=3_600.0)
    assert ahead.judge(ahead.command(age=5)) is RefusalCode.EXPIRED


def row(key: str, **more: Any) -> JournalRow:
    given: dict[str, Any] = {"digest": "d", "epoch": 1, "state": CallState.STARTED, "harmless": False, "command": b"{}"}
    return JournalRow(key, **(given | more))


async def test_the_journal_keeps_the_first_result_and_forgets_only_what_is_delivered(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with CallJournal(path) as journal:
        assert (await journal.accept(row("a"), 100)).before is None
        before = (await journal.accept(row("a", epoch=2, command=b'{"n":2}'), 100)).before
        assert before is not None
        await journal.finish("a", b"1")
        await journal.finish("a", b"2")
        await journal.accept(row("b"), 100)
        await journal.prune(1_000)
        with pytest.raises(JournalInUse, match="one agent at a time"):
            await CallJournal(path).__aenter__()
    async with CallJournal(path) as journal:
        kept = await journal.find("a")
        assert kept is not None
        assert (kept.body, kept.epoch, kept.command) == (b"1", 2, b'{"n":2}')
        assert [one.key for one in await journal.undelivered()] == ["a"]
        assert [one.key for one in await journal.unfinished()] == ["b"]
        await journal.set_delivered("a")
        await journal.prune(50)
        assert await journal.find("a") is not None
        await journal.prune(1_000)
        assert await journal.find("a") is None
        assert await journal.find("b") is not None


async def test_many_at_once_are_written_together_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    async with CallJournal(tmp_path / "journal.db") as journal:
        openings = await asyncio.gather(*(journal.accept(row(f"k{number % 50}"), 1) for number in range(250)))
        assert sum(opening.before is None for opening in openings) == 50
        await asyncio.gather(*(journal.note_event(1.0, "x", {"n": number}) for number in range(20)))
        assert [event.detail["n"] for event in await journal.events(3)] == [17, 18, 19]


def test_a_file_that_names_only_what_is_needed_has_the_usual_limits(tmp_path: Path) -> None:
    sections = {"agent": {"name": "pi"}, "broker": {"url": "mqtt://h"}, "keys": {"private": "k", "allow_plain": True}}
    config = parse_config(sections, tmp_path, "edge.toml")
    assert (config.limits.slots, config.journal, config.private_key) == (8, tmp_path / "journal.db", tmp_path / "k")
    assert (config.broker.port, config.broker.tls, config.trusts_approvals) == (1883, False, False)


OUTER = """
[grant]
network = ["192.0.2.7"]
autonomy = "full"
rules = ["allow bash"]
[tools]
groups = ["shell"]
[edge]
url = "mqtt://127.0.0.1:1"
"""
INNER = '[agent]\nname = "pi"\n[broker]\nurl = "mqtt://127.0.0.1"\n[keys]\nprivate = "k"\nallow_plain = true\n'


def test_T211_settings_of_a_project_around_it_do_not_widen_what_a_device_may(tmp_path: Path) -> None:
    """Whether they are trusted or not: the folder of a device often lies in that of its orchestrator."""
    device = tmp_path / "edge" / "devices" / "pi"
    device.mkdir(parents=True)
    for folder in (tmp_path, device):
        (folder / "toolwire.toml").write_text(OUTER)
    (device / "edge.toml").write_text(INNER)
    for environ in ({}, {"TOOLWIRE_TRUST": str(tmp_path)}):
        settings = device_project(read_config(device / "edge.toml"), environ).settings
        assert (settings.grants.network, settings.grants.autonomy, settings.grants.rules) == ((), "supervised", ())
        assert (settings.tools.groups, settings.edge.url) == ((), None)


def test_T211_control_the_devices_own_file_says_what_it_may(tmp_path: Path) -> None:
    (tmp_path / "edge.toml").write_text(f'{INNER}[grant]\nnetwork = ["192.0.2.7"]\n')
    assert device_project(read_config(tmp_path / "edge.toml"), {}).settings.grants.network == ("192.0.2.7",)
