"""The agent on a device, driven over real brokers."""

import asyncio
import base64
import hashlib
import json
import random
import signal
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.edge.brokers import AnyBroker, running
from tests.edge.devices import WAIT_S, Device, Orchestrator, pair
from toolwire.define.canonical import canonical, digest
from toolwire.edge.device.clock import SenderClocks
from toolwire.edge.device.journal import CallJournal
from toolwire.edge.keys import PrivateKey
from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.outcomes import Code
from toolwire.wire.mqtt.commands import CommandKind, encode_command
from toolwire.wire.mqtt.reports import AgentState, EdgeReport
from toolwire.wire.mqtt.results import read_tool_result


def result_of(report: EdgeReport) -> ToolResult:
    result = read_tool_result(report.body, ToolCall(str(report.body.get("tool", "")), {}, id="c"))
    assert isinstance(result, ToolResult), result
    return result


def code_of(report: EdgeReport) -> Code | None:
    result = result_of(report)
    return result.error.code if result.error else None


@pytest.mark.feature("F201")
async def test_a_command_runs_its_tool_and_the_report_answers_it(broker: AnyBroker, tmp_path: Path) -> None:
    async with pair(tmp_path, broker) as (device, orchestrator):
        command = orchestrator.tool("press", {"button": "red"}, epoch=3, attempt=2, project="home")
        report = await orchestrator.ask(command)
        assert (report.status, report.body["result"], report.body["tool"]) == ("success", "pressed red", "press")
        assert (report.record_id, report.epoch, report.attempt) == (command.record_id, 3, 2)
        assert (report.project, report.deadline, report.agent_id) == ("home", command.deadline, device.name)
        assert report.body["elapsed_ms"] >= 0
        assert device.effects == ["red"]
        await orchestrator.until(lambda: orchestrator.capabilities is not None)
        assert orchestrator.capabilities is not None
        assert {"press", "look"} <= {tool["name"] for tool in orchestrator.capabilities.tools}


async def test_what_comes_from_a_device_is_signed_with_its_key(mosquitto: AnyBroker, tmp_path: Path) -> None:
    async with pair(tmp_path, mosquitto) as (device, orchestrator):
        await orchestrator.ask(orchestrator.tool("look", {"at": "x"}))
        assert {json.loads(data)["signature"]["key"] for _, data in orchestrator.raw} == {device.key.key_id}


@pytest.mark.feature("F202")
async def test_every_kind_of_command_is_answered(mosquitto: AnyBroker, tmp_path: Path) -> None:
    hooks = '[hooks]\nevolution = "look"\n'
    async with pair(tmp_path, mosquitto, hooks) as (device, orchestrator):
        ask, command = orchestrator.ask, orchestrator.command
        assert (await ask(command(CommandKind.PING))).body["result"] == "pong"
        listed = (await ask(command(CommandKind.TOOLS_LIST))).body["result"]
        assert "press" in {tool["name"] for tool in listed}
        executed = await ask(command(CommandKind.EXECUTE, {"action": "press", "params": {"button": "b"}}))
        assert executed.body["result"] == "pressed b"
        kept = await ask(command(CommandKind.UPDATE_STRATEGY, {"mode": "calm"}))
        assert kept.body["result"] == "kept"
        assert (await ask(command(CommandKind.EVOLUTION, {"at": "genome"}))).body["result"] == "saw genome"
        wrong = await ask(orchestrator.tool("look", {}))
        assert wrong.body["error_type"] == "invalid_params"
        metrics = (await ask(command(CommandKind.GET_METRICS))).body["result"]
        assert metrics["strategy"] == {"mode": "calm"}
        assert metrics["tools"]["press"]["total_calls"] == metrics["tools"]["press"]["success_count"] == 1
        assert metrics["errors_by_type"] == {"invalid_params": 1}
        assert (await ask(command(CommandKind.INSTALL_SKILL))).body["refused"] == "not_allowed"
        assert (await ask(command(CommandKind.DRAIN))).body["result"] == "draining"
        assert (await ask(orchestrator.tool("look", {"at": "y"}))).body["refused"] == "busy"
        assert (await ask(command(CommandKind.DRAIN, {"resume": True}))).body["result"] == "online"
        assert (await ask(orchestrator.tool("look", {"at": "z"}))).status == "success"
        assert (await ask(command(CommandKind.SHUTDOWN))).body["result"] == "stopping"
        await orchestrator.until_state(AgentState.OFFLINE)
        assert device.effects == ["b", "genome", "z"]


async def test_every_message_five_times_and_shuffled_has_each_effect_once(broker: AnyBroker, tmp_path: Path) -> None:
    """QoS 1 delivers at least once, so the journal makes it once. The reports answer the newest command."""
    async with pair(tmp_path, broker) as (device, orchestrator):
        commands = [orchestrator.tool("press", {"button": f"b{number}"}) for number in range(20)] * 5
        random.Random(5).shuffle(commands)
        await asyncio.gather(*map(orchestrator.send, commands))
        for command in commands:
            assert (await orchestrator.report_on(command)).body["result"].startswith("pressed b")
        await orchestrator.settled()
        assert sorted(device.effects) == sorted(f"b{number}" for number in range(20))


async def test_a_call_that_was_refused_does_not_run_when_its_command_comes_again(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    """Whoever sent it was told that it was not started, and may have sent another in its place."""
    async with pair(tmp_path, mosquitto, "[limits]\nslots = 1\nqueue = 1\n") as (device, orchestrator):
        ask, tool = orchestrator.ask, orchestrator.tool
        await ask(orchestrator.command(CommandKind.DRAIN))
        drained = await ask(tool("press", {"button": "drained"}))
        await ask(orchestrator.command(CommandKind.DRAIN, {"resume": True}))
        hanging = [await orchestrator.send(tool("hang", {"name": "h"})) for _ in range(2)]
        await orchestrator.settled()
        full = await ask(tool("press", {"button": "full"}))
        for one in hanging:
            await ask(orchestrator.command(CommandKind.CANCEL, {"record_id": one.record_id}))
            await orchestrator.report_on(one)
        for report, button in ((drained, "drained"), (full, "full")):
            again = await ask(tool("press", {"button": button}, record_id=report.record_id))
            assert (report.body["refused"], again.body["refused"]) == ("busy", "busy")
            assert again.body["error"] == report.body["error"]
        assert (await ask(tool("press", {"button": "another"}))).status == "success"
        assert set(device.effects) == {"h", "another"}


async def test_a_repeated_call_answers_the_newest_command_and_another_call_by_its_id_is_refused(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    async with pair(tmp_path, mosquitto) as (device, orchestrator):
        first = orchestrator.tool("press", {"button": "a"}, record_id="call-1", epoch=4)
        await orchestrator.ask(first)
        again = orchestrator.tool("press", {"button": "a"}, record_id="call-1", epoch=5)
        report = await orchestrator.ask(again)
        assert (report.body["result"], report.epoch) == ("pressed a", 5)
        stale = await orchestrator.ask(orchestrator.tool("press", {"button": "a"}, record_id="call-1", epoch=4))
        assert stale.body["refused"] == "stale_epoch"
        other = await orchestrator.ask(orchestrator.tool("press", {"button": "b"}, record_id="call-1", epoch=5))
        assert other.body["refused"] == "digest_mismatch"
        wrong = orchestrator.tool("press", {"button": "c"}, digest=digest({"button": "d"}))
        assert (await orchestrator.ask(wrong)).body["refused"] == "digest_mismatch"
        assert device.effects == ["a"]


async def test_what_is_stale_expired_unsigned_or_for_another_does_not_run(mosquitto: AnyBroker, tmp_path: Path) -> None:
    """Each leaves a record; only what a known key has signed is answered."""
    async with pair(tmp_path, mosquitto) as (device, orchestrator):
        now, tool = time.time(), orchestrator.tool
        await orchestrator.settled()
        late = await orchestrator.ask(tool("press", {"button": "1"}, sent_at=now - 60, deadline=now - 30, session=""))
        assert (late.body["refused"], code_of(late)) == ("expired", Code.TIMEOUT)
        old = await orchestrator.ask(tool("press", {"button": "2"}, sent_at=now - 400, deadline=None, session=""))
        assert old.body["refused"] == "stale"
        await orchestrator.send(tool("press", {"button": "3"}), key=PrivateKey.generate())
        await orchestrator.send_raw(b'{"command": "tool", "payload": {"tool": "press"}, "request_id": "plain"}')
        await orchestrator.send_raw(b"not json")
        await orchestrator.send_raw(b"{" * 3_000)
        kept = await orchestrator.send(tool("press", {"button": "4"}), retain=True)  # heard live, so it runs
        await orchestrator.report_on(kept)
        await orchestrator.settled()
        assert device.effects == ["4"]
        assert "plain" not in {one.request_id for one in orchestrator.reports}
        key = orchestrator.key
    async with Orchestrator(mosquitto, device.name, key) as orchestrator, device.running():
        await orchestrator.until_state(AgentState.ONLINE)
        await orchestrator.settled()  # the retained command came with the subscription
    async with CallJournal(device.folder / "journal.db") as journal:
        kinds = [event.kind for event in await journal.events()]
    assert sorted(kinds) == ["expired", "not_json", "not_json", "retained", "stale", "unknown_key", "unsigned"]
    assert device.effects == ["4"]


async def test_control_a_device_that_does_not_ask_how_late_it_is_runs_what_has_expired(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    async with pair(tmp_path, mosquitto) as (device, orchestrator):
        now = time.time()
        await orchestrator.settled()
        late = orchestrator.tool("press", {"button": "1"}, sent_at=now - 60, deadline=now - 30, session="")
        with patch.object(SenderClocks, "seconds_left", lambda *_: 30.0):
            report = await orchestrator.ask(late)

    assert (report.status, device.effects) == ("success", ["1"])


async def test_a_plain_message_of_the_published_format_is_obeyed_where_the_operator_allows_it(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    keys = '[keys]\nprivate = "device.pem"\nallow_plain = true\n'
    async with pair(tmp_path, mosquitto, keys) as (device, orchestrator):
        plain = {"command": "tool", "payload": {"tool": "press", "parameters": {"button": "x"}, "timeout_ms": 30000}}
        await orchestrator.send_raw(json.dumps({**plain, "request_id": "tool-1739635200000"}).encode())
        await orchestrator.send_raw(json.dumps({**plain, "request_id": "tool-1739635200000"}).encode())
        await orchestrator.until(lambda: orchestrator.reports)
        assert {one.body["result"] for one in orchestrator.reports} == {"pressed x"}
        assert device.effects == ["x"]


async def test_the_device_grants_no_more_than_its_own_file_does(mosquitto: AnyBroker, tmp_path: Path) -> None:
    """A compromised orchestrator can sign whatever it likes: its grant and its approvals do not count here."""
    async with pair(tmp_path, mosquitto) as (device, orchestrator):
        info = {"approved": True, "grant": {"tier": "RUN", "permissions": ["danger"], "confirmed": ["*"]}}
        said = {
            "forbidden": "does not allow danger (agent.capabilities = [file_read])",
            "confirm_me": "grant.confirmed",
        }
        for name, words in said.items():
            report = await orchestrator.ask(orchestrator.tool(name, info=info))
            assert code_of(report) is Code.PERMISSION_DENIED
            assert report.body["error"].startswith(f"{device.name} refuses")
            assert words in report.body["error"]
        assert code_of(await orchestrator.ask(orchestrator.tool("no_such_tool"))) is Code.NOT_FOUND
        assert device.effects == []
    trusting = '[approvals]\nfrom = "orchestrator"\n'
    async with pair(tmp_path / "trusting", mosquitto, trusting) as (device, orchestrator):
        assert (await orchestrator.ask(orchestrator.tool("confirm_me", info={"approved": True}))).status == "success"
        denied = await orchestrator.ask(orchestrator.tool("confirm_me"))
        assert code_of(denied) is Code.PERMISSION_DENIED


async def test_an_unsigned_command_is_no_approval_even_where_the_device_trusts_those_of_orchestrators(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    key = PrivateKey.generate()
    keys = f'[keys]\nprivate = "device.pem"\norchestrators = ["{key.public}"]\nallow_plain = true\n'
    device = Device(tmp_path, mosquitto, [key], f'{keys}[approvals]\nfrom = "orchestrator"\n')
    async with Orchestrator(mosquitto, device.name, key) as orchestrator, device.running():
        await orchestrator.until_state(AgentState.ONLINE)
        command = orchestrator.tool("confirm_me", info={"approved": True})
        plain = encode_command(command, orchestrator.topics, None, canonical)
        await orchestrator.send_raw(plain)
        denied = await orchestrator.report_on(command)
        assert code_of(denied) is Code.PERMISSION_DENIED
        assert device.effects == []
        signed = orchestrator.tool("confirm_me", info={"approved": True})
        assert (await orchestrator.ask(signed)).status == "success"


async def test_a_device_is_greeted_anew_after_a_command_of_its_session_that_seems_late(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    """Its sender may have set its clock back since the connection was made."""
    async with pair(tmp_path, mosquitto) as (_, orchestrator):
        await orchestrator.settled()
        assert orchestrator.status is not None
        before, now = orchestrator.status.session, time.time()
        late = await orchestrator.ask(
            orchestrator.tool("press", {"button": "1"}, sent_at=now, deadline=now - 30, session=before)
        )
        assert late.body["refused"] == "expired"
        await orchestrator.until(lambda: getattr(orchestrator.status, "session", before) != before)


async def test_a_hung_tool_holds_up_no_other_call_and_is_canceled(mosquitto: AnyBroker, tmp_path: Path) -> None:
    async with pair(tmp_path, mosquitto) as (device, orchestrator):
        hung = await orchestrator.send(orchestrator.tool("hang", {"name": "h"}))
        assert (await orchestrator.ask(orchestrator.tool("look", {"at": "x"}))).status == "success"
        await wait_for(lambda: "h" in device.effects)
        canceled = orchestrator.command(CommandKind.CANCEL, {"request_id": hung.request_id})
        assert (await orchestrator.ask(canceled)).body["result"] == "canceled"
        report = await orchestrator.report_on(hung)
        assert code_of(report) is Code.CANCELED
        early = orchestrator.tool("press", {"button": "never"})
        await orchestrator.ask(orchestrator.command(CommandKind.CANCEL, {"record_id": early.record_id}))
        assert code_of(await orchestrator.ask(early)) is Code.CANCELED
        slow = await orchestrator.ask(orchestrator.tool("hang", {"name": "t"}, timeout_ms=50))
        assert code_of(slow) is Code.TIMEOUT
        assert sorted(device.effects) == ["h", "t", "x"]


async def test_a_large_result_comes_in_chunks_and_a_larger_one_by_handle(broker: AnyBroker, tmp_path: Path) -> None:
    limits = "[limits]\ninline_bytes = 40000\n"
    async with pair(tmp_path, broker, limits) as (device, orchestrator):
        device.config.write_text(device.config.read_text().replace("[tools]", "max_message_bytes = 8192\n[tools]", 1))
    async with device.running(), Orchestrator(broker, device.name, orchestrator.key) as small:
        await small.until_state(AgentState.ONLINE)
        await small.until(lambda: small.capabilities is not None)
        assert small.capabilities is not None
        assert (small.capabilities.partial, small.capabilities.tools) == (True, ())
        listed = (await small.ask(small.command(CommandKind.TOOLS_LIST))).body["result"]
        assert "large" in {tool["name"] for tool in listed}
        whole = "".join(f"{number:09d}\n" for number in range(3_000))
        assert (await small.ask(small.tool("large", {"size": 30_000}))).body["result"] == whole
        assert max(len(data) for topic, data in small.raw if topic.endswith("/reports")) <= 8_192
        report = await small.ask(small.tool("large", {"size": 90_000}))
        artifact = report.body["artifact"]
        assert result_of(report).truncated
        pieces = []
        for offset in range(0, artifact["size"], 50_000):
            wanted = {"artifact": artifact["id"], "offset": offset, "length": 50_000}
            pieces.append((await small.ask(small.command(CommandKind.FETCH, wanted))).body["data"])
        data = b"".join(map(base64.b64decode, pieces))
        assert hashlib.sha256(data).hexdigest() == artifact["sha256"]
        missing = await small.ask(small.command(CommandKind.FETCH, {"artifact": "none"}))
        assert missing.body["error_type"] == "not_found"


async def test_the_status_says_how_many_calls_run_without_waiting_for_a_heartbeat(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    async with pair(tmp_path, mosquitto) as (_, orchestrator):
        hung = await orchestrator.send(orchestrator.tool("hang", {"name": "h"}))
        await orchestrator.until(lambda: orchestrator.status is not None and orchestrator.status.running == 1)
        await orchestrator.send(orchestrator.command(CommandKind.CANCEL, {"record_id": hung.record_id}))
        await orchestrator.until(lambda: orchestrator.status is not None and orchestrator.status.running == 0)


@pytest.mark.parametrize("ends", ["timeout", "cancel"])
async def test_the_end_of_a_call_ends_every_process_that_it_started(
    mosquitto: AnyBroker, tmp_path: Path, ends: str
) -> None:
    """Also those in the background, which have left the shell behind."""
    more = '[grant]\ntier = "run"\nconfirmed = ["bash"]\nroots = ["work"]\n'
    (tmp_path / "work").mkdir()
    mark = f"{random.randrange(10**8, 10**9)}"
    async with pair(tmp_path, mosquitto, more) as (device, orchestrator):
        text = device.config.read_text().replace('"file_read"', '"file_read", "shell"')
        device.config.write_text(text.replace('modules = ["edge_tools:TOOLS"]', 'groups = ["shell"]'))
    async with Orchestrator(mosquitto, device.name, orchestrator.key) as sender, device.running():
        await sender.until_state(AgentState.ONLINE)
        timeout_ms = 1_000 if ends == "timeout" else 20_000
        parameters = {"command": f"setsid sleep {mark} & sleep {mark}", "timeout_ms": timeout_ms}
        command = await sender.send(sender.tool("bash", parameters, timeout_ms=timeout_ms))
        await wait_for(lambda: len(sleepers(mark)) >= 2)
        if ends == "cancel":
            await sender.send(sender.command(CommandKind.CANCEL, {"record_id": command.record_id}))
        report = await sender.report_on(command)
        assert code_of(report) is (Code.TIMEOUT if ends == "timeout" else Code.CANCELED)
        await wait_for(lambda: not sleepers(mark))


def sleepers(mark: str) -> list[str]:
    """The processes that sleep for this long."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if file.read_bytes() == f"sleep\0{mark}\0".encode():
                found.append(file.parent.name)
    return found


async def test_progress_of_a_call_is_told(mosquitto: AnyBroker, tmp_path: Path) -> None:
    async with pair(tmp_path, mosquitto) as (_, orchestrator):
        command = await orchestrator.send(orchestrator.tool("steps"))
        await orchestrator.until(lambda: orchestrator.progress)
        told = orchestrator.progress[0]
        assert (told.request_id, told.seq, told.text, told.fraction) == (command.request_id, 1, "half", 0.5)
        await orchestrator.report_on(command)


@pytest.mark.parametrize("kind", ["mosquitto", "nats"])
async def test_a_result_is_delivered_when_the_broker_comes_back(kind: str, tmp_path: Path) -> None:
    """The broker dies under a running call; the call goes on, and its report comes with the link."""
    (tmp_path / "broker").mkdir()
    with running(kind, tmp_path / "broker") as broker:
        async with pair(tmp_path / "device", broker) as (device, orchestrator):
            command = await orchestrator.send(orchestrator.tool("linger", {"name": "far"}, timeout_ms=300))
            await orchestrator.settled()
            broker.kill()
            await wait_for(lambda: has_ended(device, command.record_id))
            broker.start()
            assert code_of(await orchestrator.report_on(command)) is Code.TIMEOUT
            assert device.effects == ["far"]


async def test_the_process_of_a_device_with_pins_takes_little_memory_of_its_own(
    mosquitto: AnyBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after many calls at once: what those took is given back with the next heartbeat.

    Beside it, 24 to 29 MiB of files are in memory, which the system may drop: libraries, as far as they were read.
    """
    monkeypatch.setenv("GPIOZERO_PIN_FACTORY", "mock")
    key = PrivateKey.generate()
    device = Device(tmp_path / "device", mosquitto, [key], '[device]\ninputs = ["17"]\n')
    text = device.config.read_text().replace('modules = ["edge_tools:TOOLS"]', 'groups = ["device"]')
    text = text.replace('["file_read"]', '["file_read", "device"]\nheartbeat_s = 1')
    device.config.write_text(text)
    process = device.start()
    try:
        async with Orchestrator(mosquitto, device.name, key) as orchestrator:
            await orchestrator.until_state(AgentState.ONLINE)
            pin = await orchestrator.ask(orchestrator.tool("gpio_read", {"pin": 17}))
            assert pin.body["status"] == "success", pin.body
            await asyncio.gather(*(orchestrator.ask(orchestrator.tool("echo", {"message": "x"})) for _ in range(200)))
            await wait_for(lambda: own_memory_kib(process.pid) <= 37 * 1024)
    finally:
        process.terminate()
        process.wait()


def own_memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


@pytest.mark.feature("F234")
async def test_a_killed_process_runs_nothing_twice_and_says_what_it_does_not_know(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    """`kill -9` in the middle: what was unsafe is unknown, what was harmless runs again, what ended is kept."""
    key = PrivateKey.generate()
    device = Device(tmp_path / "device", mosquitto, [key])
    async with Orchestrator(mosquitto, device.name, key) as orchestrator:
        process = device.start()
        try:
            await orchestrator.until_state(AgentState.ONLINE)
            done = await orchestrator.ask(orchestrator.tool("press", {"button": "done"}, record_id="done"))
            hung = await orchestrator.send(orchestrator.tool("hang", {"name": "unsafe"}))
            pure = await orchestrator.send(orchestrator.tool("linger", {"name": "pure"}))
            await wait_for(lambda: {"unsafe", "pure"} <= set(device.effects))
            process.kill()
            process.wait()
            await orchestrator.until_state(AgentState.OFFLINE)  # by its last will
            process = device.start()
            assert code_of(await orchestrator.report_on(hung)) is Code.OUTCOME_UNKNOWN
            assert (await orchestrator.report_on(pure)).body["result"] == "saw pure"
            again = orchestrator.tool("press", {"button": "done"}, record_id="done")
            assert (await orchestrator.ask(again)).body["result"] == done.body["result"]
            assert sorted(device.effects) == ["done", "pure", "pure", "unsafe"]
            process.send_signal(signal.SIGTERM)
            await orchestrator.until_state(AgentState.OFFLINE)
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()
            process.wait()


def has_ended(device: Device, record_id: str) -> bool:
    """Whether the journal of a device has the result of a call."""
    with closing(sqlite3.connect(device.folder / "journal.db")) as journal:
        found = journal.execute("SELECT state FROM calls WHERE key = ?", (record_id,)).fetchone()
    return bool(found == ("finished",))


async def wait_for(condition: Any) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.to_thread(time.sleep, 0.01)


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_settings_file_in_the_folder_of_a_device_or_above_it_changes_nothing(
    mosquitto: AnyBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    """Its own file alone says what it may do, wherever it lies and whatever the shell around it has set."""
    wide = '[grant]\npermissions = ["danger", "shell"]\nconfirmed = ["*"]\n[tools]\ngroups = ["shell"]\n'
    for folder in (tmp_path, tmp_path / "device"):
        folder.mkdir(exist_ok=True)
        (folder / "toolwire.toml").write_text(wide)
    monkeypatch.setenv("TOOLWIRE_GRANT_PERMISSIONS", "danger")
    monkeypatch.setenv("TOOLWIRE_TRUST", str(tmp_path) if trusted else "")
    async with pair(tmp_path / "device", mosquitto) as (device, orchestrator):
        assert code_of(await orchestrator.ask(orchestrator.tool("forbidden"))) is Code.PERMISSION_DENIED
        assert code_of(await orchestrator.ask(orchestrator.tool("bash", {"command": "true"}))) is Code.NOT_FOUND
        assert (await orchestrator.ask(orchestrator.tool("press", {"button": "a"}))).status == "success"
        assert device.effects == ["a"]


def test_the_private_files_of_a_device_are_its_own(mosquitto: AnyBroker, tmp_path: Path) -> None:
    device = Device(tmp_path / "device", mosquitto, [PrivateKey.generate()])
    (device.folder / "device.pem").chmod(0o644)
    process = device.start()
    assert process.wait(WAIT_S) != 0
    assert "others can read this private key" in (device.folder / "log").read_text()
