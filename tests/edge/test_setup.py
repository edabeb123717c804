"""`toolwire edge init`: what it writes works with real brokers, and gives each device its own topics and no other."""

import asyncio
import shutil
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from tests.bus.servers import SERVER
from tests.edge.brokers import KINDS, await_listener, running
from tests.edge.test_link import SOON, WAIT_S, Inbox, linked
from toolwire.bus.nats_connection import NatsServers
from toolwire.edge.keys import PrivateKey
from toolwire.edge.link import MqttBroker, MqttLink, client_tls
from toolwire.edge.link_contract import Link
from toolwire.edge.nats_link import NatsLink
from toolwire.edge.setup.files import write_edge_files
from toolwire.edge.setup.plan import EdgeFolder, EdgePlan, check_name, check_prefix, read_broker
from toolwire.edge.setup.texts import nats_config
from toolwire.errors import BusError, SettingsError


def two_ports() -> int:
    """A free port with a free one above it."""
    while True:
        with socket.socket() as lower, socket.socket() as upper, suppress(OSError):
            lower.bind(("127.0.0.1", 0))
            port: int = lower.getsockname()[1]
            upper.bind(("127.0.0.1", port + 1))
            return port


def plan(name: str, port: int = 8883, **more: object) -> EdgePlan:
    program = str(Path(sys.executable).parent / "toolwire")
    return EdgePlan(name, read_broker(f"mqtts://127.0.0.1:{port}"), program, **more)  # type: ignore[arg-type]


@contextmanager
def broker_of(folder: EdgeFolder, kind: str, port: int) -> Iterator[None]:
    """The command that `edge init` prints, running."""
    mosquitto = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    words = [mosquitto, "-c", folder.broker / "mosquitto.conf"]
    if kind == "nats":
        words = [str(SERVER), "-c", folder.broker / "nats.conf"]
    log = folder.path / "log"
    with log.open("wb") as opened:
        process = subprocess.Popen([str(word) for word in words], stdout=opened, stderr=opened)
    try:
        await_listener(process, port, log)
        yield
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def joined(files: Path, client_id: str, port: int, inbox: Inbox, *filters: str) -> AsyncIterator[MqttLink]:
    """A client with the certificate in a folder."""
    ca = files / "ca.pem" if (files / "edge.toml").exists() else files.parent / "ca.pem"
    tls = client_tls(ca, files / "client.pem", files / "client.key")
    settings = MqttBroker("127.0.0.1", client_id, port=port, tls=tls)
    async with MqttLink(settings, inbox, filters=filters, pauses=SOON) as link:
        async with asyncio.timeout(WAIT_S):
            await link.connected.wait()
        yield link


@pytest.mark.parametrize("kind", KINDS)
async def test_T210_control_each_device_has_its_own_topics_and_no_other(tmp_path: Path, kind: str) -> None:
    port = two_ports()
    pi = write_edge_files(tmp_path / "edge", plan("pi", port))
    write_edge_files(tmp_path / "edge", plan("hall", port))
    heard, told = Inbox(), Inbox()
    with broker_of(pi.folder, kind, port):
        async with (
            orchestrator(pi.folder, kind, port, heard) as other,
            joined(pi.device, "pi", port, told, "evoclaw/agents/pi/commands") as device,
        ):
            await device.publish("evoclaw/agents/pi/reports", b"mine")
            assert (await heard.next()).data == b"mine"
            await other.publish("evoclaw/agents/pi/commands", b"do")
            assert (await told.next()).data == b"do"
            # nats-server refuses this; Mosquitto takes it, and delivers nothing.
            with suppress(BusError):
                await device.subscribe("evoclaw/agents/hall/commands")
            await other.publish("evoclaw/agents/hall/commands", b"for hall")
            await other.publish("evoclaw/agents/pi/commands", b"for pi")
            assert (await told.next()).data == b"for pi"


def orchestrator(folder: EdgeFolder, kind: str, port: int, inbox: Inbox) -> AbstractAsyncContextManager[Link]:
    """A process of an orchestrator: it speaks MQTT with Mosquitto and NATS with nats-server."""
    reports = "evoclaw/agents/+/reports"
    if kind == "mosquitto":
        return joined(folder.orchestrator, "any", port + 1, inbox, reports)
    return joined_by_nats(folder, port, inbox, reports)


@asynccontextmanager
async def joined_by_nats(folder: EdgeFolder, port: int, inbox: Inbox, *filters: str) -> AsyncIterator[Link]:
    own = folder.orchestrator
    tls = client_tls(folder.path / "ca.pem", own / "client.pem", own / "client.key")
    async with NatsLink(NatsServers((f"tls://127.0.0.1:{port + 1}",), tls=tls), inbox, filters=filters) as link:
        async with asyncio.timeout(WAIT_S):
            await link.connected.wait()
        yield link


async def test_T210_a_device_can_neither_speak_for_another_nor_log_in_as_an_orchestrator(tmp_path: Path) -> None:
    port = two_ports()
    pi = write_edge_files(tmp_path / "edge", plan("pi", port))
    hall = write_edge_files(tmp_path / "edge", plan("hall", port))
    heard, told, stolen = Inbox(), Inbox(), Inbox()
    with broker_of(pi.folder, "mosquitto", port):
        async with (
            joined(pi.folder.orchestrator, "o1", port + 1, heard, "evoclaw/agents/+/reports") as first,
            joined(pi.folder.orchestrator, "o2", port + 1, Inbox()),
            joined(pi.device, "pi", port, told, "evoclaw/agents/pi/commands") as device,
            joined(hall.device, "pi", port, stolen, "evoclaw/agents/hall/commands") as thief,
        ):
            await thief.publish("evoclaw/agents/pi/reports", b"forged")
            await device.publish("evoclaw/agents/pi/reports", b"true")
            assert (await heard.next()).data == b"true"
            await first.publish("evoclaw/agents/pi/commands", b"do")
            assert (await told.next()).data == b"do"
            assert device.connected.is_set()
            assert stolen.queue.empty()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(pi.device, port + 1)


def handshake(files: Path, port: int) -> None:
    """Show a certificate, and wait for what the broker says. Under TLS 1.3 it refuses one after the handshake."""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as plug, _tls(files).wrap_socket(
        plug, server_hostname="127.0.0.1"
    ) as secure:  # fmt: skip
        secure.recv(1)


def _tls(files: Path) -> ssl.SSLContext:
    return client_tls(files / "ca.pem", files / "client.pem", files / "client.key")


def test_keys_are_private_kept_and_never_overwritten(tmp_path: Path) -> None:
    first = write_edge_files(tmp_path / "edge", plan("pi"))
    signing = (first.folder.orchestrator / "signing.pem").read_bytes()
    for file in (path for path in (tmp_path / "edge").rglob("*") if path.is_file()):
        public = file.name in {"ca.pem", "server.pem"} or file == first.folder.orchestrator / "client.pem"
        assert stat.S_IMODE(file.stat().st_mode) == (0o644 if public and file.parent != first.device else 0o600), file
    second = write_edge_files(tmp_path / "edge", plan("hall"))
    assert (first.folder.orchestrator / "signing.pem").read_bytes() == signing
    assert (first.is_first, second.is_first) == (True, False)
    assert "[edge]" in first.settings
    assert "[edge]" not in second.settings
    assert first.key == str(PrivateKey.from_pem((first.device / "device.pem").read_bytes()).public) != second.key
    with pytest.raises(SettingsError, match="is not overwritten"):
        write_edge_files(tmp_path / "edge", plan("pi"))
    other = EdgePlan("attic", read_broker("mqtts://broker.lan"), "/usr/bin/toolwire")
    with pytest.raises(SettingsError, match=r"is at localhost, 127\.0\.0\.1, not at broker\.lan"):
        write_edge_files(tmp_path / "edge", other)
    assert not (tmp_path / "edge" / "devices" / "attic").exists()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mqtt://broker.lan", "only for a broker on this machine"),
        ("http://x", "must be mqtts://HOST:PORT"),
        ("mqtts://", "must be mqtts://HOST:PORT"),
        ("mqtts://h:70000", "must be mqtts://HOST:PORT"),
        ("mqtts://user@h", "must be mqtts://HOST:PORT"),
        ("mqtts://h:65535", "a port from 1 to"),
    ],
)
def test_a_broker_that_cannot_be_is_refused_with_what_to_write(url: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        read_broker(url)


@pytest.mark.parametrize("name", ["", "a/b", "a+", "orchestrator", "orchestrator-1", "a.b", "x" * 65, "ä"])
def test_a_name_that_would_break_a_topic_is_refused(name: str) -> None:
    with pytest.raises(SettingsError):
        check_name(name)
    with pytest.raises(SettingsError):
        check_prefix("a/#")


def test_the_unit_keeps_the_agent_running_with_little_to_reach(tmp_path: Path) -> None:
    written = write_edge_files(tmp_path / "edge", plan("pi"))
    unit = written.device / "toolwire-edge.service"
    lines = unit.read_text().splitlines()
    assert {"Restart=always", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet="} <= set(lines)
    subprocess.run(["sh", "-n", written.device / "install.sh"], check=True)


def test_systemd_understands_every_line_of_the_unit(tmp_path: Path) -> None:
    written = write_edge_files(tmp_path / "edge", plan("pi"))
    unit = written.device / "toolwire-edge.service"
    good = complaints_about(unit)
    unit.write_text(unit.read_text().replace("ProtectSystem=strict", "ProtectSystem=sometimes"))

    assert good == ""
    assert "Failed to parse protect system value" in complaints_about(unit)


def complaints_about(unit: Path) -> str:
    """What systemd says about a unit; units of this machine that it names are not asked about."""
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    return "\n".join(line for line in (ran.stdout + ran.stderr).splitlines() if unit.name in line)


async def test_a_nats_server_takes_more_than_a_thousand_devices(tmp_path: Path) -> None:
    """Each subscription is a consumer of one stream there, of which it allows 1,000 unless it is told otherwise."""
    port = two_ports()
    (tmp_path / "nats.conf").write_text(nats_config(EdgeFolder(tmp_path), read_broker(f"mqtt://127.0.0.1:{port}")))
    with running("nats", tmp_path, config=tmp_path / "nats.conf", mqtt_port=port) as broker:
        async with AsyncExitStack() as open_links:
            for client in range(21):
                filters = [f"evoclaw/agents/d{client}-{number}/commands" for number in range(50)]
                await open_links.enter_async_context(linked(broker, Inbox(), *filters))
