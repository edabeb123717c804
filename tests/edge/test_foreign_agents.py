"""What others on the same broker can do to a device and its orchestrator: forge, take over, play again.

The orchestrator is our own and the device is the real agent. Unless a test says otherwise the broker has no rules at
all, so that signatures and the journal are shown to hold by themselves.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.edge.brokers import KINDS, AnyBroker
from tests.edge.devices import WAIT_S, Device, pair
from tests.edge.test_link import SOON, Inbox
from tests.edge.test_setup import broker_of, joined, orchestrator, plan, two_ports
from toolwire import MemoryStore
from toolwire.define.canonical import canonical
from toolwire.edge.keys import PrivateKey, PublicKeys
from toolwire.edge.link import MqttBroker, MqttLink
from toolwire.edge.orchestrator.client import DeviceClient, command_for
from toolwire.edge.orchestrator.connection import DeviceConnection
from toolwire.edge.orchestrator.unexpected import UnexpectedReports
from toolwire.edge.setup.files import write_edge_files
from toolwire.errors import BusError
from toolwire.wire.mqtt.commands import CommandKind
from toolwire.wire.mqtt.reports import EdgeReport, encode_agent_message, report_to
from toolwire.wire.mqtt.topics import AgentChannel, Topics

FORGED = {"status": "success", "result": "forged"}


@asynccontextmanager
async def hub(broker: AnyBroker, key: PrivateKey, verify: Any, store: MemoryStore) -> AsyncIterator[DeviceClient]:
    unexpected = UnexpectedReports(store, "default", grace_s=0.0)
    client = DeviceClient(Topics(), signer=key, verify=verify, unexpected=unexpected)

    def open_link(receive: Any, filters: Any, on_connect: Any) -> MqttLink:
        where = MqttBroker("127.0.0.1", f"hub-{uuid4().hex}", broker.mqtt_port)
        return MqttLink(where, receive, filters=filters, on_connect=on_connect, pauses=SOON)

    async with DeviceConnection(client, open_link, unexpected) as connection:
        assert await connection.know_devices(WAIT_S)
        yield client


async def answer_to_a_forged_report(broker: AnyBroker, folder: Path, *, checks_keys: bool, signed: bool) -> Any:
    """Ask a device something, and have another client answer first, on the device's own topic."""
    key, thief, store = PrivateKey.generate(), PrivateKey.generate(), MemoryStore()
    device = Device(folder, broker, [key])
    keys = {device.name: PublicKeys([device.key.public])} if checks_keys else {}
    async with hub(broker, key, keys.get, store) as client:
        command = command_for(device.name, CommandKind.PING, f"r-{uuid4().hex}", {})
        asking = asyncio.create_task(client.ask(command, WAIT_S))
        await asyncio.sleep(0)
        report = report_to(command, FORGED, 1.0)
        data = encode_agent_message(report, Topics(), thief if signed else None, canonical)
        settings = MqttBroker("127.0.0.1", f"thief-{uuid4().hex}", broker.mqtt_port)
        async with MqttLink(settings, Inbox(), pauses=SOON) as link:
            await link.connected.wait()
            await link.publish(Topics().of(device.name, AgentChannel.REPORTS), data)
            async with device.running():
                if not asking.done():
                    await client.publish(command)
                answer = await asking
    assert isinstance(answer, EdgeReport)
    return answer.body["result"], [row.code for row in await store.audit_log() if row.event == "report_refused"]


@pytest.mark.parametrize("signed", [True, False])
async def test_T48_a_report_of_another_agent_counts_for_nothing_even_where_the_broker_has_no_rules(
    mosquitto: AnyBroker, tmp_path: Path, signed: bool
) -> None:
    result, codes = await answer_to_a_forged_report(mosquitto, tmp_path, checks_keys=True, signed=signed)
    assert (result, codes) == ("pong", ["unknown_key" if signed else "unsigned"])


async def test_T48_control_without_the_keys_of_devices_the_forged_report_is_believed(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    result, _ = await answer_to_a_forged_report(mosquitto, tmp_path, checks_keys=False, signed=True)
    assert result == "forged"


@pytest.mark.parametrize("kind", KINDS)
async def test_T49_who_logs_in_with_the_client_id_of_a_device_hears_nothing_that_is_meant_for_it(
    tmp_path: Path, kind: str
) -> None:
    """The broker as `edge init` sets it up: the name in the certificate counts, whatever client id a thief gives."""
    port = two_ports()
    pi = write_edge_files(tmp_path / "edge", plan("pi", port))
    hall = write_edge_files(tmp_path / "edge", plan("hall", port))
    commands = "evoclaw/agents/pi/commands"
    told, stolen = Inbox(), Inbox()
    with broker_of(pi.folder, kind, port):
        async with joined(pi.device, "pi", port, told, commands):
            pass  # the session stays in the broker
        async with orchestrator(pi.folder, kind, port, Inbox()) as other:
            await other.publish(commands, b"while away")
            async with joined(hall.device, "pi", port, stolen) as thief:
                await other.publish(commands, b"while taken")
                with suppress(BusError):
                    await thief.subscribe(commands)
                await other.publish("evoclaw/agents/hall/commands", b"for hall")
                with suppress(BusError):
                    await thief.subscribe("evoclaw/agents/hall/commands")
                await other.publish("evoclaw/agents/hall/commands", b"last")
                while (heard := (await stolen.next()).data) != b"last":
                    assert heard == b"for hall"


async def test_T49_control_a_broker_without_identities_gives_a_session_to_anyone(mosquitto: AnyBroker) -> None:
    name, topic = uuid4().hex, f"t/{uuid4().hex}"
    settings = MqttBroker("127.0.0.1", name, mosquitto.mqtt_port)
    async with MqttLink(settings, Inbox(), filters=[topic], pauses=SOON) as device:
        await device.connected.wait()
    stolen = Inbox()
    async with MqttLink(settings, stolen, pauses=SOON) as thief:
        await thief.connected.wait()
        await thief.publish(topic, b"meant for the device")
        assert (await stolen.next()).data == b"meant for the device"


async def test_T50_a_command_that_is_played_again_has_no_second_effect(mosquitto: AnyBroker, tmp_path: Path) -> None:
    """Neither at once, when the journal knows it, nor late, when its deadline is over; nor to another device."""
    async with pair(tmp_path / "one", mosquitto) as (device, sender):
        command = sender.tool("press", {"button": "a"})
        recorder = Inbox()
        topic = Topics().of(device.name, AgentChannel.COMMANDS)
        settings = MqttBroker("127.0.0.1", uuid4().hex, mosquitto.mqtt_port)
        async with MqttLink(settings, recorder, filters=[topic], pauses=SOON) as listener:
            await listener.connected.wait()
            await sender.ask(command)
            recorded = (await recorder.next()).data
            await sender.send_raw(recorded)
            await sender.settled()
            other = Device(tmp_path / "two", mosquitto, [sender.key])
            async with other.running():
                await listener.publish(Topics().of(other.name, AgentChannel.COMMANDS), recorded)
            assert (device.effects, other.effects) == (["a"], [])


async def test_T50_control_a_plain_command_has_nothing_that_would_tell_it_from_a_new_one(
    mosquitto: AnyBroker, tmp_path: Path
) -> None:
    keys = '[keys]\nprivate = "device.pem"\nallow_plain = true\n'
    async with pair(tmp_path, mosquitto, keys) as (device, sender):
        for number in range(2):
            plain = (
                '{"command": "tool", "payload": {"tool": "press", "parameters": {"button": "a"}}, "request_id": "%d"}'
            )
            await sender.send_raw((plain % number).encode())
        await sender.until(lambda: len(sender.reports) == 2)
        assert device.effects == ["a", "a"]
