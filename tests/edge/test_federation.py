"""Two orchestrators at two NATS servers, joined by a leaf node: both call the devices of the one."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.bus.servers import NatsServer, free_port
from tests.edge.brokers import NatsMqtt
from tests.edge.devices import Device
from tests.edge.test_executor import BOUND_S, Hub, eventually
from toolwire import MemoryStore
from toolwire.bus.nats_connection import NatsServers
from toolwire.edge.keys import PrivateKey
from toolwire.edge.nats_link import NatsLink
from toolwire.edge.orchestrator.client import DeviceClient
from toolwire.edge.orchestrator.connection import DeviceConnection
from toolwire.edge.orchestrator.executor import EdgeLimits
from toolwire.wire.mqtt.topics import Topics


def joined(url: str, key: PrivateKey, device: str) -> DeviceConnection:
    client = DeviceClient(Topics(), signer=key, is_allowed=lambda name: name == device)

    def open_link(receive: Any, filters: Any, on_connect: Any) -> Any:
        return NatsLink(NatsServers((url,)), receive, filters=filters, on_connect=on_connect)

    return DeviceConnection(client, open_link)


@pytest.mark.feature("F178")
async def test_orchestrators_at_two_servers_call_the_same_device(tmp_path: Path) -> None:
    for name in ("hub", "site"):
        (tmp_path / name).mkdir()
    port = free_port()
    hub = NatsServer(tmp_path / "hub", f"leafnodes {{ host: 127.0.0.1, port: {port} }}\n", jetstream=False)
    remote = f'leafnodes {{ remotes: [ {{ url: "nats-leaf://127.0.0.1:{port}" }} ] }}\n'
    site = NatsMqtt(tmp_path / "site", remote)
    keys = [PrivateKey.generate(), PrivateKey.generate()]
    hub.start()
    site.start()
    try:
        device = Device(tmp_path / "device", site, keys, "")
        text = device.config.read_text().replace("[broker]", "heartbeat_s = 1\n[broker]")
        device.config.write_text(text)
        async with (
            device.running(),
            joined(site.url, keys[0], device.name) as near,
            joined(hub.url, keys[1], device.name) as far,
        ):
            texts = []
            for connection, button in ((near, "red"), (far, "green")):
                await eventually(partial(has_tools, connection, device.name))
                one = Hub(connection, MemoryStore(), EdgeLimits(margin_s=BOUND_S))
                texts.append((await one.call("press", button=button)).text)
    finally:
        site.kill()
        hub.kill()

    assert texts == ["pressed red", "pressed green"]
    assert device.effects == ["red", "green"]


async def has_tools(connection: DeviceConnection, name: str) -> bool:
    found = connection.client.registry.device(name)
    return found is not None and found.has("press") and found.at(connection.client.now) == "online"
