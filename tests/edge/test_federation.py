"""Two orchestrators at two NATS servers, joined by a leaf node, or in two accounts of one server.

Both call the devices of the one; between accounts only those that it exports.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.bus.servers import NatsServer, free_port
from tests.edge.brokers import NatsMqtt
from tests.edge.devices import Device
from tests.edge.test_executor import BOUND_S, Hub, eventually
from tests.edge.test_link import Inbox, linked
from toolwire import MemoryStore
from toolwire.bus.nats_connection import NatsServers
from toolwire.edge.keys import PrivateKey
from toolwire.edge.nats_link import NatsLink
from toolwire.edge.orchestrator.client import DeviceClient
from toolwire.edge.orchestrator.connection import DeviceConnection
from toolwire.edge.orchestrator.executor import EdgeLimits
from toolwire.wire.mqtt.topics import Topics


def joined(url: str, key: PrivateKey, device: str = "", user: str = "") -> DeviceConnection:
    client = DeviceClient(Topics(), signer=key, is_allowed=lambda name: name == device or not device)

    def open_link(receive: Any, filters: Any, on_connect: Any) -> Any:
        return NatsLink(NatsServers((url,), user, user), receive, filters=filters, on_connect=on_connect)

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


ACCOUNTS = """
accounts {{
  SITE {{
    jetstream: enabled
    users: [ {{ user: site, password: site }} ]
    exports: [
      {{ service: "evoclaw.agents.{shared}.commands", accounts: [TEAM] }}
      {{ stream: "evoclaw.agents.{shared}.reports", accounts: [TEAM] }}
      {{ stream: "evoclaw.agents.{shared}.progress", accounts: [TEAM] }}
      {{ stream: "evoclaw.agents.{shared}.status", accounts: [TEAM] }}
      {{ stream: "evoclaw.agents.{shared}.capabilities", accounts: [TEAM] }}
    ]
  }}
  TEAM {{
    jetstream: enabled
    users: [ {{ user: team, password: team }} ]
    imports: [
      {{ service: {{ account: SITE, subject: "evoclaw.agents.{shared}.commands" }} }}
      {{ stream: {{ account: SITE, subject: "evoclaw.agents.{shared}.reports" }} }}
      {{ stream: {{ account: SITE, subject: "evoclaw.agents.{shared}.progress" }} }}
      {{ stream: {{ account: SITE, subject: "evoclaw.agents.{shared}.status" }} }}
      {{ stream: {{ account: SITE, subject: "evoclaw.agents.{shared}.capabilities" }} }}
    ]
  }}
}}
"""
"""What docs/edge.md shows, for one device."""


def in_account(device: Device, user: str) -> Device:
    """The device, as it logs in to an account; its heartbeat tells of it there."""
    password = device.folder / "password"
    password.touch(0o600)
    password.write_text(user)
    more = f'heartbeat_s = 1\n[broker]\nuser = "{user}"\npassword_file = "password"'
    device.config.write_text(device.config.read_text().replace("[broker]", more))
    return device


@pytest.mark.feature("F178")
async def test_an_orchestrator_in_another_account_calls_the_devices_that_are_exported_to_it_and_no_other(
    tmp_path: Path,
) -> None:
    keys = [PrivateKey.generate(), PrivateKey.generate()]
    names = ("shared", "private", "outsider")
    (tmp_path / "server").mkdir()
    server = NatsMqtt(tmp_path / "server")
    shared, private, outsider = (Device(tmp_path / name, server, keys) for name in names)
    server.start(ACCOUNTS.format(shared=shared.name))
    outsider.config.write_text(outsider.config.read_text().replace(outsider.name, private.name))
    heard = Inbox()
    try:
        async with (
            in_account(shared, "site").running(),
            in_account(private, "site").running(),
            in_account(outsider, "team").running(),
            linked(server, heard, "evoclaw/agents/+/commands", user="team", password="team"),
            joined(server.url, keys[0], user="site") as near,
            joined(server.url, keys[1], user="team") as far,
        ):
            texts = []
            for connection, button in ((near, "red"), (far, "green")):
                await eventually(partial(has_tools, connection, shared.name))
                one = Hub(connection, MemoryStore(), EdgeLimits(margin_s=BOUND_S))
                texts.append((await one.call("press", button=button, agent=shared.name)).text)
            await eventually(partial(has_tools, near, private.name))
            near_one, far_one = (Hub(one, MemoryStore(), EdgeLimits(margin_s=BOUND_S)) for one in (near, far))
            texts.append((await near_one.call("press", button="blue", agent=private.name)).text)
            texts.append((await far_one.call("press", button="grey", agent=private.name)).text)
            sent = [json.loads(heard.queue.get_nowait().data) for _ in range(heard.queue.qsize())]
    finally:
        server.kill()

    assert texts == ["pressed red", "pressed green", "pressed blue", "pressed grey"]
    assert (shared.effects, private.effects) == (["red", "green"], ["blue"])
    assert outsider.effects == ["grey"], "a device of the same name in its own account is another one"
    told = {one["signature"]["key"] for one in sent}
    assert told == {keys[1].key_id}, "commands of the other account are not heard"
