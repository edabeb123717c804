"""One connection to the broker of the devices, with all that a process needs to call their tools."""

import asyncio
import secrets
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Self

from toolwire.edge.link_contract import Incoming, Link, OnConnect, Receive
from toolwire.edge.orchestrator.client import DeviceClient
from toolwire.edge.orchestrator.unexpected import UnexpectedReports
from toolwire.errors import BusError
from toolwire.wire.mqtt.topics import AgentChannel

OpenLink = Callable[[Receive, Iterable[str], OnConnect], AbstractAsyncContextManager[Link]]
"""Makes the link: what it receives, what it subscribes to, and what it calls after each connection."""

SOON_S = 0.5
"""How long devices that are there take to answer, at most; one that is gone delays the start by no more."""

MARK = "orchestrator-"
"""How the names begin under which orchestrators write to themselves; no device is called so."""
_TO_ITSELF = b"{}"


class DeviceConnection:
    """Holds the link of a client: `async with DeviceConnection(client, open_link) as connection`.

    A broker that cannot be reached is tried again and again; `synced` is set once all that the broker kept of devices
    has been heard.
    """

    def __init__(self, client: DeviceClient, open_link: OpenLink, unexpected: UnexpectedReports | None = None) -> None:
        self.client = client
        self.synced = asyncio.Event()
        self._open_link = open_link
        self._unexpected = unexpected
        self._name = f"{MARK}{secrets.token_hex(6)}"
        self._link: AbstractAsyncContextManager[Link] | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        self._link = self._open_link(self._receive, self.client.filters, self._greet)
        self.client.link = await self._link.__aenter__()
        self._tasks.append(asyncio.create_task(self.client.run(), name="toolwire-edge-commands"))
        if self._unexpected is not None:
            self._tasks.append(asyncio.create_task(self._unexpected.run(), name="toolwire-edge-reports"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._link is not None:
            await self._link.__aexit__(kind, error, trace)
        self.client.link = None

    async def know_devices(self, within_s: float) -> bool:
        """Wait until the devices are known that there are; whether that was within this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.synced.wait()
                await self.client.confirm_devices(SOON_S)
        return self.synced.is_set()

    def _receive(self, message: Incoming) -> None:
        message.acknowledge()
        name = getattr(self.client.topics.parse(message.topic), "agent_id", "")
        if name == self._name:
            self.synced.set()
        elif not (name.startswith(MARK) and message.data == _TO_ITSELF):  # what another one writes to itself
            self.client.receive(message.topic, message.data, retained=message.retained)

    async def _greet(self, _session: str) -> None:
        """A message to itself comes after all that the broker had kept: then all devices are known."""
        self.client.reconnected()
        topic = self.client.topics.of(self._name, AgentChannel.PROGRESS)
        with suppress(BusError):
            assert self.client.link is not None
            await self.client.link.publish(topic, _TO_ITSELF)
