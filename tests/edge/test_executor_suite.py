"""The suite of all executors, over a real broker and the real agent of a device.

Left out is what a device must not take from its caller (folders, trials, what untrusted turns wrote), and that each
word of progress arrives: a device sends the newest one, at a steady pace.
"""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.edge.brokers import AnyBroker
from tests.edge.devices import Device
from tests.execute.test_executors import (  # noqa: F401 -- collected here, over the bench of this module
    Bench,
    test_a_call_ends_with_its_time,
    test_a_cancellation_passes_through_and_stops_the_work,
    test_a_result_keeps_its_sandbox_and_where_it_was_read,
    test_a_tool_that_did_a_part_of_its_work_says_so_and_the_model_reads_both,
    test_blocks_exit_code_and_standard_error_come_back,
    test_output_arrives_while_the_tool_still_runs_and_before_the_result,
    test_whatever_a_tool_does_is_a_result,
)
from toolwire import Agent, MemoryStore
from toolwire.deliver.secrets import NO_SECRETS, Secrets
from toolwire.edge.keys import PrivateKey
from toolwire.edge.link import MqttBroker, MqttLink
from toolwire.edge.orchestrator.client import DeviceClient
from toolwire.edge.orchestrator.connection import DeviceConnection
from toolwire.edge.orchestrator.executor import EdgeExecutor
from toolwire.edge.orchestrator.offered import offered_tools
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.context import Context
from toolwire.testing import ScriptedModel
from toolwire.wire.mqtt.topics import Topics

_numbers = itertools.count(1)


SERVED = """
from tests.execute.served_tools import TOOLS, echo
from toolwire.protocol.values import replace

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
async def bench(mosquitto: AnyBroker, tmp_path: Path) -> AsyncIterator[Bench]:
    key = PrivateKey.generate()
    device = Device(tmp_path / "device", mosquitto, [key])
    (device.folder / "edge_tools.py").write_text(SERVED)
    client = DeviceClient(Topics(), signer=key, is_allowed=lambda name: name == device.name)

    def open_link(receive: Any, filters: Any, on_connect: Any) -> Any:
        where = MqttBroker("127.0.0.1", f"suite-{device.name}", mosquitto.mqtt_port, clean=True)
        return MqttLink(where, receive, filters=filters, on_connect=on_connect)

    async with device.running(), DeviceConnection(client, open_link) as connection:
        assert await connection.know_devices(10)
        bench = DeviceBench(EdgeExecutor(client), offered_tools(client.registry.devices()))
        bench.tools["echo"] = bench.tools["say_back"]
        yield bench


@pytest.mark.parametrize("value", ["words", 7, ["a", 1], {"a": {"b": [None]}}, "é" * 1000])
async def test_a_value_comes_back_as_it_was(bench: Bench, value: Any) -> None:
    result = await bench.run("echo", value=value)

    assert result.ok, result.text
    assert (result.structured or result.text) == value


async def test_what_is_too_large_for_a_report_comes_back_whole(bench: Bench) -> None:
    result = await bench.run("produce", megabytes=2)

    assert len(result.text) == 2 << 20
    assert result.text.endswith("0123456789abcdef")
    assert (result.handle, result.truncated) == (None, False)
