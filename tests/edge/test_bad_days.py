"""What goes wrong on a bad day: devices that come back late, names without end, clocks that stand still, full disks."""

import asyncio
import json
from typing import Any

from tests.edge.brokers import AnyBroker
from tests.edge.test_executor import BOUND_S, Place, code_of
from toolwire import Context, tool
from toolwire.edge.device.toolset import info_of
from toolwire.edge.orchestrator.client import DeviceClient, command_for
from toolwire.protocol.context import CallInfo
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect
from toolwire.testing import call
from toolwire.wire.mqtt.commands import CommandKind
from toolwire.wire.mqtt.topics import Topics

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
