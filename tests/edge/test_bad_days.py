"""What goes wrong on a bad day: devices that come back late, names without end, clocks that stand still, full disks."""

import asyncio
import json
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from msgspec.structs import replace

from tests.cli.stage import Stage
from tests.edge.brokers import AnyBroker, running
from tests.edge.devices import Device, Orchestrator, pair
from tests.edge.simulated import SimulatedDevice
from tests.edge.test_devices_in_commands import pi, stage
from tests.edge.test_executor import BOUND_S, Place, code_of, eventually
from toolwire import Context, MemoryStore, tool
from toolwire.assemble.edge_device import broker_of
from toolwire.cli.entry.exits import Exit
from toolwire.edge.device.calls import CallPool
from toolwire.edge.device.clock import SenderClocks, machine_boot, steady_s
from toolwire.edge.device.config import AgentLimits, BrokerConfig
from toolwire.edge.device.counts import MOST_COUNTED, OTHERS, CallCounts
from toolwire.edge.device.journal import CallJournal, CallState, JournalRow
from toolwire.edge.device.reporting import stored_command
from toolwire.edge.device.toolset import info_of
from toolwire.edge.keys import PrivateKey
from toolwire.edge.link import MqttBroker, MqttLink
from toolwire.edge.link_contract import Incoming
from toolwire.edge.orchestrator.artifacts import MOST_BYTES, fetch_artifact
from toolwire.edge.orchestrator.client import DeviceClient, command_for
from toolwire.edge.orchestrator.offered import offered_tools, read_device_tools
from toolwire.edge.orchestrator.presence import Device as Known
from toolwire.edge.orchestrator.unexpected import MOST_A_MINUTE, UnexpectedReports
from toolwire.errors import StoreUnavailable
from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.context import CallInfo
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Edge, Effect
from toolwire.testing import call
from toolwire.wire.mqtt.chunks import Chunk, ChunkJoiner, read_chunk, split_message
from toolwire.wire.mqtt.commands import CommandKind, EdgeCommand
from toolwire.wire.mqtt.reports import AgentState, EdgeReport, report_to
from toolwire.wire.mqtt.topics import Topics

__all__ = ["pi", "stage"]
STATUS = "evoclaw/agents/pi/status"


@tool(effect=Effect.PURE)
async def look(context: Context, at: str) -> str:
    """Look at something."""
    return f"saw {len(at)} for {context.turn_id}"


class Wire:
    """A link that notes what is published."""

    session = "s"

    def __init__(self) -> None:
        self.published: list[dict[str, Any]] = []
        self.came = asyncio.Event()

    async def publish(self, _topic: str, data: bytes, **_: Any) -> None:
        message = json.loads(data)
        if message["command"] != "ping":
            self.published.append(message)
            self.came.set()


async def test_a_device_that_comes_back_gets_its_calls_at_once() -> None:
    """The next pause may be longer than what is left of the call's time."""
    client, wire = DeviceClient(Topics(), clock=lambda: 1_000.0), Wire()
    client.link = wire  # type: ignore[assignment]
    tools = [{"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}]
    client.receive("evoclaw/agents/pi/capabilities", json.dumps({"tools": tools}).encode())
    client.receive(STATUS, b'{"status": "online", "boot": "b", "session": "1", "heartbeat_s": 15}')
    assert client.registry.with_tool("look")
    running = asyncio.create_task(client.run())
    await client.send(client.open(command_for("pi", CommandKind.TOOL, "r", {}), lambda _: None))
    wire.came.clear()
    client.receive(STATUS, b'{"status": "offline", "boot": "b", "session": "1"}')
    client.receive(STATUS, b'{"status": "online", "boot": "b", "session": "2", "heartbeat_s": 15}')
    async with asyncio.timeout(BOUND_S):
        await wire.came.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert [(one["request_id"], one["session"]) for one in wire.published] == [("r", "1"), ("r", "2")]


async def test_no_name_and_no_number_of_sources_makes_a_device_refuse_a_call(mosquitto: AnyBroker) -> None:
    place = Place(mosquitto)
    async with place.device("pi", (look,)) as pi, place.hub() as one:
        answer = await one.agent(call("look", at="x"), "Seen.").ask("Look", thread="t" * 500)

    [command] = pi.commands
    assert answer.text == "Seen."
    assert isinstance(info_of(command), CallInfo)


async def test_arguments_are_measured_as_they_travel(mosquitto: AnyBroker) -> None:
    place = Place(mosquitto)
    async with place.device("pi", (look,)) as pi, place.hub() as one:
        large = await one.call("look", at="\N{GRINNING FACE}" * 70_000)
        small = await one.call("look", at="\N{GRINNING FACE}" * 30_000)

    assert code_of(large) is Code.INVALID_PARAMS
    assert "larger than" in large.text
    assert small.text.startswith("saw 30000")
    assert len(pi.commands) == 1


async def test_a_command_of_unknown_age_does_not_run_by_a_clock_that_is_proven_wrong(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    """Its sender has not greeted this connection; it may have waited in the broker for hours."""
    known, other = PrivateKey.generate(), PrivateKey.generate()
    device = Device(tmp_path, mosquitto, [known, other])
    async with Orchestrator(mosquitto, device.name, known) as orchestrator, device.running():
        await orchestrator.until_state(AgentState.ONLINE)
        await orchestrator.settled()
        later = time.time() + 3_600
        command = orchestrator.tool("press", {"button": "a"}, sent_at=later, deadline=later + 30, session="")
        report = await orchestrator.report_on(await orchestrator.send(command, key=other))
        assert report.body["refused"] == "stale"
        assert "3600 s behind" in report.body["error"]
        greeting = orchestrator.command(CommandKind.PING, sent_at=later, deadline=later + 30)
        await orchestrator.report_on(await orchestrator.send(greeting, key=other))
        again = orchestrator.tool("press", {"button": "b"}, sent_at=later, deadline=later + 30)
        assert (await orchestrator.report_on(await orchestrator.send(again, key=other))).body["status"] == "success"

    assert device.effects == ["b"]


def test_time_passes_for_a_device_while_it_is_suspended() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= steady_s() <= time.clock_gettime(time.CLOCK_BOOTTIME)


async def kept_for(folder: Path, lasts_s: float) -> float:
    """How long a device that usually keeps calls for a minute remembers one that may begin for so long."""
    clocks = SenderClocks(time.monotonic, time.time, max_age_s=300)
    async with CallJournal(folder / "journal.db") as journal:
        pool = CallPool(
            cast("Any", None), journal, cast("Any", None), clocks, AgentLimits(), age=lambda: 1_000.0, keep_s=60.0,
            on_load=lambda: None,
        )  # fmt: skip
        now = time.time()
        command = EdgeCommand(CommandKind.TOOL, "r", "pi", sent_at=now, deadline=now + lasts_s, key_id="k")
        return pool.kept_until(command) - 1_000.0


async def test_T215_a_command_is_remembered_for_as_long_as_it_could_be_played_again(tmp_path: Path) -> None:
    assert await kept_for(tmp_path, 5_000) == pytest.approx(5_000, abs=10)


async def test_T215_control_a_short_one_is_kept_for_the_usual_time(tmp_path: Path) -> None:
    assert await kept_for(tmp_path, 5) == 60


async def test_the_journal_goes_on_after_what_it_cannot_write(tmp_path: Path) -> None:
    async with CallJournal(tmp_path / "journal.db") as journal:
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            await journal.note_event(1.0, "x", {"a": object()})
        await journal.note_event(2.0, "y", {})
        assert [event.kind for event in await journal.events()] == ["y"]


async def test_a_call_that_could_not_be_written_down_never_runs_and_one_that_ran_is_never_called_refused(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    async with pair(tmp_path, mosquitto) as (device, orchestrator):
        ask, tool = orchestrator.ask, orchestrator.tool
        before = await ask(tool("press", {"button": "before"}))
        with closing(sqlite3.connect(tmp_path / "journal.db")) as journal:
            for number, change in enumerate(("INSERT", "UPDATE")):
                fails = f"BEFORE {change} ON calls BEGIN SELECT RAISE(FAIL, 'the disk is full'); END"
                journal.execute(f"CREATE TRIGGER full_{number} {fails}")
            journal.commit()
            refused = await ask(tool("press", {"button": "refused"}))
            known = await ask(tool("press", {"button": "before"}, record_id=before.record_id))
            for number in range(2):
                journal.execute(f"DROP TRIGGER full_{number}")
            journal.commit()
            again = [await ask(tool("press", {"button": "refused"}, record_id=refused.record_id)) for _ in range(2)]
            kept = journal.execute("SELECT count(*) FROM calls WHERE state = 'finished'").fetchone()
        assert (await ask(tool("press", {"button": "after"}))).status == "success"

    assert refused.body["refused"] == "busy"
    assert "the disk is full" in str(refused.body["error"])
    assert known.status == "success"
    assert [one.body["error"] for one in again] == [refused.body["error"]] * 2
    assert kept == (2,)
    assert device.effects == ["before", "after"]


async def test_a_cancel_after_the_end_hides_no_report_and_a_lost_call_is_said(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    """A process that could not write a result down says so when it is asked again, and does not stay silent."""
    async with pair(tmp_path, mosquitto) as (device, orchestrator):
        command = orchestrator.tool("press", {"button": "a"})
        await orchestrator.ask(command)
        journal = sqlite3.connect(tmp_path / "journal.db")
        while journal.execute("SELECT delivered FROM calls").fetchall() != [(1,)]:
            await orchestrator.settled()
        with journal:
            journal.execute("UPDATE calls SET delivered = 0")
        cancel = orchestrator.command(CommandKind.CANCEL, {"record_id": command.record_id})
        await orchestrator.ask(cancel)
        assert journal.execute("SELECT delivered FROM calls").fetchall() == [(0,)]
        with journal:
            journal.execute("UPDATE calls SET body = NULL, state = 'started'")
        journal.close()
        again = await orchestrator.ask(replace(command, request_id="again"))
        assert again.body["outcome"]["error"]["code"] == "outcome_unknown"

    assert device.effects == ["a"]


async def test_a_receiver_that_fails_over_one_message_hears_the_next(mosquitto: AnyBroker) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    def receive(incoming: Incoming) -> None:
        incoming.acknowledge()
        if incoming.data == b"bad":
            raise ValueError("bad")
        heard.put_nowait(incoming.data)

    topic = f"bad-days/{uuid4().hex}"
    settings = MqttBroker("127.0.0.1", f"r-{uuid4().hex}", port=mosquitto.mqtt_port)
    async with MqttLink(settings, receive, filters=[topic]) as link, asyncio.timeout(BOUND_S):
        await link.connected.wait()
        session = link.session
        for data in (b"bad", b"good", b"bad", b"better"):
            await link.publish(topic, data)
        assert [await heard.get(), await heard.get()] == [b"good", b"better"]
        assert link.session == session


def test_T216_a_device_that_floods_with_chunks_hinders_no_other_and_fills_no_memory() -> None:
    joiner = ChunkJoiner(most_bytes=50_000, most_messages=8)
    honest = b"h" * 20_000
    *first, last = [chunk for one in split_message(honest, 4_000) if isinstance(chunk := read_chunk(one), Chunk)]
    for chunk in first:
        assert joiner.add("honest", chunk) is None
    for number in range(2_000):
        joiner.add("flood", Chunk(f"{number % 20:064d}", number // 20, 10_000, 10_000, b"x"))
        assert joiner.held_bytes <= 50_000

    assert joiner.add("honest", last) == honest


def test_T216_control_a_device_alone_gets_all_the_room() -> None:
    joiner, whole = ChunkJoiner(most_bytes=50_000), b"h" * 49_999
    chunks = [chunk for one in split_message(whole, 2_048) if isinstance(chunk := read_chunk(one), Chunk)]
    assert [joiner.add("t", chunk) for chunk in chunks][-1] == whole


async def test_an_artifact_that_comes_in_crumbs_is_not_waited_for() -> None:
    """A device that answers with a byte at a time could hold a call for years."""
    asked = []

    class Crumbs:
        async def ask(self, command: EdgeCommand, _within_s: float) -> EdgeReport:
            asked.append(command)
            return report_to(command, {"status": "success", "data": "QQ=="}, 0.0)

    about = {"id": "a", "size": 200 * 1024 * 1024, "sha256": "0" * 64}
    assert await fetch_artifact(cast("Any", Crumbs()), "pi", about) is None
    assert len(asked) == 1


async def test_an_artifact_that_is_larger_than_memory_should_hold_is_not_fetched() -> None:
    about = {"id": "a", "size": MOST_BYTES + 1, "sha256": "0" * 64}
    assert await fetch_artifact(cast("Any", None), "pi", about) is None


def test_a_tool_with_an_argument_agent_of_its_own_keeps_it_on_two_devices() -> None:
    schema = {"type": "object", "properties": {"agent": {"type": "string"}}}
    listed = [{"name": "greet", "description": "Greet an agent.", "input_schema": schema}]
    devices = [Known(name, tools=read_device_tools(name, listed)[0]) for name in ("a", "b")]

    assert {one.name: one.target for one in offered_tools(devices)} == {
        "greet": Edge("a", "greet"),
        "greet_b": Edge("b", "greet"),
    }


GARBAGE: dict[CommandKind, Any] = {
    CommandKind.GET_METRICS: {
        "tools": {"a": 1, "b": {"total_calls": "x", "avg_latency_ms": 1e300, "last_error": ["\x1b[31m"]}},
        "errors_by_type": [1], "load": "full", "uptime_s": {},
    },
    CommandKind.LOGS: [{"at": 1e300, "elapsed_ms": "x"}, {"at": "x", "tool": 3, "error": {}}, 7],
}  # fmt: skip


def test_what_a_compromised_device_says_of_itself_breaks_no_command(stage: Stage, pi: SimulatedDevice) -> None:
    async def lie(command: EdgeCommand) -> None:
        await pi.say(report_to(command, {"status": "success", "result": GARBAGE.get(command.kind)}, 0.0))

    pi._handle = lie  # type: ignore[method-assign]
    for word in ("metrics", "logs"):
        ran = stage.run("edge", word, "kitchen-pi")
        assert ran.code == Exit.DONE, ran.err
        assert "\x1b" not in ran.out


def test_a_signing_key_that_others_can_read_is_warned_about_with_what_to_do(
    stage: Stage, mosquitto: AnyBroker, tmp_path: Path
) -> None:
    key = tmp_path / "signing.pem"
    key.write_bytes(PrivateKey.generate().pem)
    key.chmod(0o640)
    stage.settings(f'[edge]\nurl = "mqtt://127.0.0.1:{mosquitto.mqtt_port}"\nsigning_key = "{key}"\n')
    assert f"chmod 600 {key}" in stage.run("edge", "list").err
    key.chmod(0o600)
    assert "chmod" not in stage.run("edge", "list").err


async def test_a_broker_that_takes_less_than_the_device_believes_gets_smaller_chunks(tmp_path: Path) -> None:
    """It ends the connection over a message that is too large; the reports behind it must not wait for ever."""
    with running("mosquitto", tmp_path, more="allow_anonymous true\nmax_packet_size 60000\n") as broker:
        async with pair(tmp_path / "device", broker) as (_, orchestrator):
            report = await orchestrator.ask(orchestrator.tool("large", {"size": 150_000}))
            assert len(report.body["result"]) == 150_000
            assert (await orchestrator.ask(orchestrator.tool("look", {"at": "a"}))).body["result"] == "saw a"


@pytest.mark.parametrize("was_off", [True, False])
async def test_what_waited_when_the_machine_went_off_does_not_run_late(
    mosquitto: AnyBroker, tmp_path: Path, was_off: bool
) -> None:
    """Many devices have no clock of their own: after an hour without power it is still the same minute there."""
    key = PrivateKey.generate()
    device = Device(tmp_path, mosquitto, [key])
    async with Orchestrator(mosquitto, device.name, key) as orchestrator:
        waiting, begun = orchestrator.tool("press", {"button": "a"}), orchestrator.tool("look", {"at": "b"})
        async with CallJournal(tmp_path / "journal.db") as journal:
            for command, state in ((waiting, CallState.ACCEPTED), (begun, CallState.STARTED)):
                kept, harmless = stored_command(replace(command, key_id=key.key_id)), command is begun
                await journal.accept(JournalRow(command.record_id, "d", 0, state, harmless, kept), 1e6)
            await journal.set_fact("machine_boot", "another" if was_off else machine_boot())
        async with device.running():
            reports = [await orchestrator.report_on(command) for command in (waiting, begun)]

    ended = [one.body["outcome"].get("error", {}).get("code") for one in reports]
    if was_off:
        assert (ended, device.effects) == (["unavailable", "outcome_unknown"], [])
    else:
        assert (ended, sorted(device.effects)) == ([None, None], ["a", "b"])


def test_calls_of_tools_that_there_are_not_fill_no_memory() -> None:
    counts = CallCounts()
    for number in range(MOST_COUNTED + 100):
        counts.add(ToolResult.failed(ToolCall(f"t{number}", {}), Code.NOT_FOUND, "There is no such tool."), 1.0)

    tools = counts.report()["tools"]
    assert (len(tools), tools[OTHERS]["error_count"]) == (MOST_COUNTED + 1, 100)


async def test_T217_a_flood_of_unknown_reports_and_offers_is_bounded() -> None:
    store = MemoryStore()
    unexpected = UnexpectedReports(store, "default", grace_s=0.0, clock=lambda: 1_000.0)
    client, wire = DeviceClient(Topics(), unexpected=unexpected, clock=lambda: 1_000.0), Wire()
    client.link = wire  # type: ignore[assignment]
    writing = asyncio.create_task(unexpected.run())
    for number in range(300):
        report = {"status": "success", "request_id": f"r{number}", "record_id": f"default/t{number}/c"}
        client.receive("evoclaw/agents/flood/reports", json.dumps(report).encode())
        client.receive("evoclaw/agents/flood/capabilities", b'{"tools": [], "partial": true}')
    client.receive("evoclaw/agents/pi/reports", b'{"status": "success", "request_id": "r", "record_id": "default/t/c"}')

    async def told() -> list[str]:
        return [str(row.detail["device"]) for row in await store.audit_log(limit=1_000)]

    async def is_over() -> bool:
        return "pi" in await told()

    await eventually(is_over)
    for task in (writing, *client._sending):
        task.cancel()
    assert Counter(await told()) == {"flood": MOST_A_MINUTE, "pi": 1}
    assert [one["command"] for one in wire.published] == ["tools_list"]


async def test_T217_control_a_few_unknown_reports_are_all_on_record() -> None:
    store = MemoryStore()
    unexpected = UnexpectedReports(store, "default", grace_s=0.0)
    client = DeviceClient(Topics(), unexpected=unexpected)
    writing = asyncio.create_task(unexpected.run())
    for number in range(3):
        report = {"status": "success", "request_id": f"r{number}", "record_id": f"default/t{number}/c"}
        client.receive("evoclaw/agents/pi/reports", json.dumps(report).encode())

    async def are_told() -> bool:
        return [row.code for row in await store.audit_log()] == ["unknown_call"] * 3

    await eventually(are_told)
    writing.cancel()


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o600, False)])
def test_a_password_for_the_broker_that_others_can_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    file.chmod(mode)
    found = broker_of(BrokerConfig("h", 1883, tls=False, client_id="pi", user="pi", password_file=file))
    assert (found.password, f"chmod 600 {file}" in caplog.text) == ("secret", warned)
