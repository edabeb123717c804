"""The suite of all executors, over a real broker and the real agent of a device.

What a device must not take from its caller, or tell it, has tests of its own here: folders, trials, and what tools read
and wrote, since paths there are of another machine. Of words of progress the newest is sent, at a steady pace.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.edge.brokers import AnyBroker
from tests.edge.devices import Device, Orchestrator
from tests.edge.test_link import Inbox, linked
from tests.execute import served_tools
from tests.execute.test_executors import (  # noqa: F401 -- collected here, over the bench of this module
    Bench,
    test_a_call_ends_with_its_time,
    test_a_cancellation_passes_through_and_stops_the_work,
    test_a_result_keeps_its_sandbox_and_where_it_was_read,
    test_a_secret_that_is_not_for_the_tool_is_refused,
    test_a_tool_that_did_a_part_of_its_work_says_so_and_the_model_reads_both,
    test_blocks_exit_code_and_standard_error_come_back,
    test_output_arrives_while_the_tool_still_runs_and_before_the_result,
    test_secrets_are_put_in_place_where_the_tool_lives_and_never_come_back,
    test_whatever_a_tool_does_is_a_result,
)
from toolwire import Agent, Grant, MemoryStore
from toolwire.deliver.secrets import NO_SECRETS, Secrets
from toolwire.edge.keys import PrivateKey
from toolwire.edge.link import MqttBroker, MqttLink
from toolwire.edge.orchestrator.client import DeviceClient
from toolwire.edge.orchestrator.connection import DeviceConnection
from toolwire.edge.orchestrator.executor import EdgeExecutor
from toolwire.edge.orchestrator.offered import offered_tools
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.context import Context, Trial
from toolwire.protocol.events import CallFinished, CallProgress, Event
from toolwire.protocol.outcomes import Code
from toolwire.testing import ScriptedModel, call
from toolwire.wire.mqtt.reports import AgentState
from toolwire.wire.mqtt.topics import Topics

_numbers = itertools.count(1)


SERVED = """
from tests.execute.served_tools import TOOLS, echo
from msgspec.structs import replace

TOOLS = [*(one for one in TOOLS if one is not echo), replace(echo, name="say_back")]
"""
"""An echo is among the tools that every device has."""


class DeviceBench(Bench):
    """A call has a record of its own: a device knows it again by that."""

    def agent(self, *script: Any, secrets: Secrets = NO_SECRETS) -> Agent:
        tools = [tool for name, tool in self.tools.items() if name == tool.name]
        return Agent(ScriptedModel(*script), tools, store=MemoryStore(), executor=self.executor, secrets=secrets)

    async def run(self, name: str, context: Context | None = None, **arguments: Any) -> ToolResult:
        context = context or Context("call_1", f"turn_{next(_numbers)}")
        return await self.executor.execute(self.allowed(name, **arguments), context)


@pytest.fixture
def device(mosquitto: AnyBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Device, PrivateKey]:
    """One that has a secret."""
    monkeypatch.setenv("KEY", "opensesame")
    key = PrivateKey.generate()
    device = Device(tmp_path / "device", mosquitto, [key])
    (device.folder / "edge_tools.py").write_text(SERVED)
    text = device.config.read_text().replace("[tools]", '[tools]\nsecrets = ["KEY for leak"]')
    device.config.write_text(text.replace("timeout_ms = 20000", "timeout_ms = 60000"))
    return device, key


@asynccontextmanager
async def benched(device: Device, key: PrivateKey, broker: AnyBroker) -> AsyncIterator[DeviceBench]:
    """An orchestrator of this device."""
    client = DeviceClient(Topics(), signer=key, is_allowed=lambda name: name == device.name)

    def open_link(receive: Any, filters: Any, on_connect: Any) -> Any:
        where = MqttBroker("127.0.0.1", f"suite-{device.name}", broker.mqtt_port, clean=True)
        return MqttLink(where, receive, filters=filters, on_connect=on_connect)

    async with DeviceConnection(client, open_link) as connection:
        assert await connection.know_devices(10)
        bench = DeviceBench(EdgeExecutor(client), offered_tools(client.registry.devices()))
        bench.tools["echo"] = bench.tools["say_back"]
        yield bench


@pytest.fixture
async def bench(device: tuple[Device, PrivateKey], mosquitto: AnyBroker) -> AsyncIterator[Bench]:
    one, key = device
    async with one.running(), benched(one, key, mosquitto) as bench:
        yield bench


VALUES = ["words", "", 7, 2.5, True, None, ["a", 1], {"a": {"b": [None]}}, "é" * 1000]


async def test_a_value_comes_back_as_it_was(bench: Bench) -> None:
    for name, value in itertools.product(["echo", "echo_in_thread"], VALUES):
        here = await Bench(InProcessExecutor(), served_tools.TOOLS).run(name, value=value)
        result = await bench.run(name, value=value)

        assert (result.status, result.content, result.structured) == (here.status, here.content, here.structured)
        assert (result.call_id, result.name) == ("call_1", name)


@pytest.mark.parametrize("value", ["half \ud800 pair", 2**70])
async def test_arguments_that_json_cannot_carry_are_refused_before_anything_is_sent(bench: Bench, value: Any) -> None:
    result = await bench.run("echo", value=value)

    assert result.error is not None
    assert result.error.code is Code.INVALID_PARAMS
    assert "was not started: its arguments cannot be sent as JSON" in result.text


async def test_the_newest_words_of_progress_arrive_in_order_and_the_last_before_the_result(bench: Bench) -> None:
    events: list[Event] = []
    await bench.agent(call("report"), "Done.").ask("Report", on_event=events.append)

    told = [event for event in events if isinstance(event, (CallProgress, CallFinished))]
    words = [(event.message, event.fraction) for event in told if isinstance(event, CallProgress)]
    assert isinstance(told[-1], CallFinished)
    assert words == sorted(words)
    assert words[-1] == ("part 2", 2 / 3)


async def test_a_tool_knows_about_its_call_but_works_in_folders_of_its_device(
    bench: Bench, device: tuple[Device, PrivateKey]
) -> None:
    context = Context(
        "call_1", "turn_1", "garden", "ann", Grant(roots=("/srv/x",)), attempt=2, thread="t",
        tainted_by=("tool:web",), approved=True,
    )  # fmt: skip
    result = await bench.run("describe", context)

    assert result.structured == {
        "key": "turn_1/call_1", "project": "garden", "agent": "ann", "attempt": 2, "roots": [str(device[0].folder)],
        "thread": "t", "tainted_by": ["tool:web"], "approved": True,
    }  # fmt: skip


async def test_a_trial_sends_nothing_to_a_device(bench: Bench) -> None:
    """There it would have effects."""
    result = await bench.run("try_it", Context("call_1", "turn_1", trial=(trial := Trial())))

    assert result.error is not None
    assert (result.error.code, trial.wanted) == (Code.UNAVAILABLE, "It runs on a device, where nothing is tried.")


async def test_what_a_tool_used_marks_its_result_and_nothing_of_this_machine(bench: Bench, tmp_path: Path) -> None:
    """A file of that path here is another one."""
    agent = bench.agent()
    used = await agent.call("use_files", {"folder": str(tmp_path)})
    await agent.call("start_job", {"name": "a", "folder": str(tmp_path)})
    finished = await agent.call("finish_job", {"name": "a"})

    assert (used.engine, used.profile, used.untrusted, used.origins) == (
        "bubblewrap", "strict", True, ("network:example.test:443",),
    )  # fmt: skip
    assert finished.ok
    assert list(await agent.store.untrusted("default")) == []


async def test_a_secret_of_the_device_is_revealed_there_and_never_travels(
    bench: Bench, device: tuple[Device, PrivateKey], mosquitto: AnyBroker
) -> None:
    agent, wire = bench.agent(), Inbox()
    async with linked(mosquitto, wire, f"evoclaw/agents/{device[0].name}/#"):
        result = await agent.call("leak", {"key": "{{secret:KEY}}"})
        sent = [await wire.next()]
        while "reports" not in sent[-1].topic:
            sent.append(await wire.next())

    assert result.text.startswith("10: ")
    assert "opensesame" not in f"{result} {await agent.store.calls()} {sent}"


async def test_an_agent_that_dies_over_a_call_says_so_when_it_is_started_again(
    device: tuple[Device, PrivateKey], mosquitto: AnyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    one, key = device
    process = one.start()
    try:
        async with Orchestrator(mosquitto, one.name, key) as orchestrator:
            await orchestrator.until_state(AgentState.ONLINE)
            async with benched(one, key, mosquitto) as bench:
                calling = asyncio.create_task(bench.run("die"))
                await asyncio.to_thread(process.wait, 20)
                process = one.start()
                result = await calling
    finally:
        process.terminate()
        process.wait()

    assert result.error is not None
    assert result.error.code is Code.OUTCOME_UNKNOWN
    assert "the device stopped before its result was known" in result.text


@pytest.mark.parametrize("megabytes", [2, 8])
async def test_what_is_too_large_for_a_report_comes_back_whole(bench: Bench, megabytes: int) -> None:
    result = await bench.run("produce", megabytes=megabytes)

    assert len(result.text) == megabytes << 20
    assert result.text.endswith("0123456789abcdef")
    assert (result.handle, result.truncated) == (None, False)
