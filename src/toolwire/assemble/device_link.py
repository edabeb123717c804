"""The devices of a project, as its settings say: one connection for all agents of a process.

It is held while it is used (`async with device_link(…)`). A process that runs many turns holds it all the time.
"""

import asyncio
import fnmatch
import logging
import os
import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import replace

from toolwire.assemble.project import ProjectFolder, secret_in
from toolwire.edge.keys import PrivateKey, PublicKey, PublicKeys
from toolwire.edge.link import MqttBroker, MqttLink, client_tls
from toolwire.edge.link_contract import Link, OnConnect, Receive
from toolwire.edge.orchestrator import routing
from toolwire.edge.orchestrator.client import DeviceClient
from toolwire.edge.orchestrator.connection import DeviceConnection
from toolwire.edge.orchestrator.executor import EdgeExecutor, EdgeLimits
from toolwire.edge.orchestrator.offered import DeviceLimits
from toolwire.edge.orchestrator.placements import Placements, StoredPlacements
from toolwire.edge.orchestrator.presence import Device, DeviceRegistry, Presence
from toolwire.edge.orchestrator.unexpected import UnexpectedReports
from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.protocol.tools import Tier, Tool
from toolwire.record.contract import Store
from toolwire.toolbox.agents.workers import DeviceView
from toolwire.toolbox.user.canvas import Node
from toolwire.wire.mqtt.signing import Verifier
from toolwire.wire.mqtt.topics import Topics

if TYPE_CHECKING:
    from toolwire.bus import nats_connection
    from toolwire.edge import nats_link
else:
    # Loaded where devices are reached over NATS: with an MQTT broker its client library need not be installed.
    nats_connection = lazy_module("toolwire.bus.nats_connection")
    nats_link = lazy_module("toolwire.edge.nats_link")

_PORTS = {"mqtt": 1883, "mqtts": 8883, "nats": 4222, "tls": 4222}
_LARGEST_FILE = 64 * 1024
STAYS_S = 0.5
"""How long a process that runs turns waits for a device; then the turn does."""

_log = logging.getLogger(__name__)


class DeviceLink:
    """What an agent needs of devices: which there are, and what runs calls on them."""

    def __init__(self, connection: DeviceConnection, limits: EdgeLimits, placements: Placements | None) -> None:
        self.client = connection.client
        self._placements = placements
        self._connection = connection
        self._limits = limits

    @property
    def registry(self) -> DeviceRegistry:
        return self.client.registry

    def devices(self) -> list[Device]:
        return list(self.registry.devices())

    def views(self) -> list[DeviceView]:
        """The devices as agents see them."""
        now = self.client.now
        return [
            DeviceView(
                one.id, one.at(now), tuple(tool.name for tool in one.tools), self.registry.load(one.id), one.slots
            )
            for one in self.devices()
        ]

    async def nodes(self) -> list[Node]:
        """The same for the tool of that name."""
        now = self.client.now
        return [
            Node(
                name=one.id, state=one.at(now), tools=list(map(_name, one.tools)), platform=one.platform,
                load=f"{self.registry.load(one.id)} of {one.slots}",
                seen_s=round(now - one.seen_at, 1) if one.seen_at else None,
            )
            for one in self.devices()
        ]  # fmt: skip

    def choose(self, tool: str, key: str) -> str:
        """The device that has a tool, is there, and has room; "" without any."""
        now = self.client.now
        able = [one for one in self.registry.with_tool(tool) if not one.key_refusal(self.client.key_id)]
        there = {one.id: one for one in able if one.at(now) is Presence.ONLINE}
        return routing.choose(key, list(there), self.registry.load, lambda one: there[one].slots)

    def executor(self, *, leaves_turns: bool = False) -> EdgeExecutor:
        """A new one for each agent, which closes it. A process that `leaves_turns` does not wait long for a device."""
        limits = replace(self._limits, stays_s=STAYS_S) if leaves_turns else self._limits
        return EdgeExecutor(self.client, limits, self._placements)

    async def know_devices(self, within_s: float) -> bool:
        return await self._connection.know_devices(within_s)


def _name(tool: Tool) -> str:
    return tool.name


class _Shared:
    """A link that several agents use."""

    def __init__(self, opening: AbstractAsyncContextManager[DeviceLink]) -> None:
        self.opening = opening
        self.ready: asyncio.Future[DeviceLink] = asyncio.get_running_loop().create_future()
        self.users = 0


_shared: dict[tuple[object, ...], _Shared] = {}


@asynccontextmanager
async def device_link(project: ProjectFolder, store: Store | None = None) -> AsyncIterator[DeviceLink]:
    """The link to the devices of a project: the one that this process has, or a new one. Raises SettingsError.

    It comes once the devices are known, or after `edge.wait_s`.
    """
    key = _key(project, store)
    shared = _shared.get(key)
    if shared is None:
        shared = _shared[key] = _Shared(_open(project, store))
        shared.users = 1
        try:
            shared.ready.set_result(await shared.opening.__aenter__())
        except BaseException as wrong:
            del _shared[key]
            shared.ready.set_exception(wrong)
            shared.ready.exception()  # it is raised here; another user may not be there to hear of it
            raise
    else:
        shared.users += 1
    try:
        yield await asyncio.shield(shared.ready)
    finally:
        shared.users -= 1
        if not shared.users and _shared.get(key) is shared:
            del _shared[key]
            await shared.opening.__aexit__(None, None, None)


def _key(project: ProjectFolder, store: Store | None) -> tuple[object, ...]:
    """What two agents must have in common to use one connection: event loop, settings, and the record."""
    settings = project.settings
    devices = tuple(sorted(settings.devices.items(), key=lambda one: one[0]))
    loop = id(asyncio.get_running_loop())
    return loop, settings.edge, devices, settings.store, project.home, project.name, store is None


@asynccontextmanager
async def _open(project: ProjectFolder, store: Store | None) -> AsyncIterator[DeviceLink]:
    chosen = project.settings.edge
    signer, verifiers = signing_key(project), _keys(project)
    unexpected = None if store is None else UnexpectedReports(store, project.name)
    client = DeviceClient(
        Topics(chosen.prefix),
        signer=signer,
        verify=verifiers.get,
        limits=lambda name: _limits(project, name),
        is_allowed=lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in chosen.devices),
        unexpected=unexpected,
    )
    queue_s = chosen.queue_s if chosen.offline == "queue" else 0.0
    limits = EdgeLimits(queue_s=queue_s, margin_s=chosen.margin_s)
    async with DeviceConnection(client, _link_opener(project), unexpected) as connection:
        link = DeviceLink(connection, limits, None if store is None else StoredPlacements(store))
        if not await link.know_devices(chosen.wait_s):
            _log.warning("the broker of the devices at %s does not answer; it is tried again", chosen.url)
        yield link


def _link_opener(project: ProjectFolder) -> Callable[
    [Receive, Iterable[str], OnConnect], AbstractAsyncContextManager[Link]
]:  # fmt: skip
    """What connects to the broker of the settings. Raises SettingsError."""
    chosen = project.settings.edge
    parts = urlsplit(chosen.url or "")
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    password, tls = _password(project), _tls(project, is_secure=parts.scheme in ("mqtts", "tls"))
    if parts.scheme in ("nats", "tls"):
        try:
            servers = nats_connection.NatsServers((chosen.url or "",), chosen.user or "", password, tls=tls)
        except ImportError as missing:
            raise SettingsError(
                f"devices over NATS need extras: pip install 'toolwire[edge,nats]' ({missing})"
            ) from None
        return partial(_open_nats_link, servers)

    def open_link(receive: Receive, filters: Iterable[str], on_connect: OnConnect) -> AbstractAsyncContextManager[Link]:
        name = f"toolwire-{secrets.token_hex(6)}"
        broker = MqttBroker(host, name, port, chosen.user or "", password, tls, clean=True)
        return MqttLink(broker, receive, filters=filters, on_connect=on_connect)

    return open_link


def _open_nats_link(
    servers: "nats_connection.NatsServers", receive: Receive, filters: Iterable[str], on_connect: OnConnect
) -> AbstractAsyncContextManager[Link]:
    return nats_link.NatsLink(servers, receive, filters=filters, on_connect=on_connect, name="toolwire devices")


def _limits(project: ProjectFolder, name: str) -> DeviceLimits:
    one = project.settings.devices.get(name)
    if one is None:
        return DeviceLimits()
    return DeviceLimits(
        one.tools, Tier[one.tier.upper()], frozenset(one.permissions), confirm=one.confirm, untrusted=one.untrusted
    )


def _keys(project: ProjectFolder) -> dict[str, Verifier]:
    """Of each device whose key is known, what its messages are checked with."""
    found: dict[str, Verifier] = {}
    for name, one in project.settings.devices.items():
        if one.key is not None:
            try:
                found[name] = PublicKeys([PublicKey.parse(one.key)])
            except ValueError as wrong:
                raise SettingsError(f"devices.{name}.key: {wrong}") from None
    return found


def signing_key(project: ProjectFolder) -> PrivateKey | None:
    """What commands and skills are signed with, if the settings name it. Raises SettingsError."""
    named = project.settings.edge.signing_key
    if named is None:
        return None
    try:
        with Path(named).open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                _log.warning("others can read %s, and command the devices with it; run: chmod 600 %s", named, named)
            return PrivateKey.from_pem(file.read(_LARGEST_FILE))
    except OSError as wrong:
        raise SettingsError(f"edge.signing_key: {named} cannot be read: {wrong.strerror}") from None
    except ValueError as wrong:
        raise SettingsError(f"edge.signing_key: {named} is not a private key: {wrong}") from None


def _password(project: ProjectFolder) -> str:
    chosen = project.settings.edge
    if chosen.user and not chosen.token_env:
        raise SettingsError("edge.user needs a password: name the variable that holds it in edge.token_env")
    if chosen.token_env is None:
        return ""
    return secret_in(project.environ, chosen.token_env, "edge.token_env")


def _tls(project: ProjectFolder, *, is_secure: bool) -> ssl.SSLContext | None:
    chosen = project.settings.edge
    if not is_secure:
        if chosen.ca or chosen.cert:
            raise SettingsError("edge.ca and edge.cert need TLS: begin edge.url with mqtts:// or tls://")
        return None
    if bool(chosen.cert) != bool(chosen.key):
        raise SettingsError(f"edge.cert and edge.key belong together: set edge.{'key' if chosen.cert else 'cert'}")
    files = [None if named is None else Path(named) for named in (chosen.ca, chosen.cert, chosen.key)]
    for named, file in zip(("ca", "cert", "key"), files, strict=True):
        if file is not None and not file.is_file():
            raise SettingsError(f"edge.{named}: there is no file {file}")
    try:
        return client_tls(*files)
    except (OSError, ssl.SSLError) as wrong:
        raise SettingsError(f"edge.ca, edge.cert and edge.key do not work together ({wrong})") from None
