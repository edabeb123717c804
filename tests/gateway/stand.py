"""A gateway on loopback between a scripted upstream and the real SDKs."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx2
import openai
import uvicorn

from tests.models.provider import Provider, provider_on_loopback
from tests.no_tls import NO_TLS, anthropic_client, openai_client
from toolwire.gateway.app import make_app
from toolwire.gateway.log import RequestEntry
from toolwire.gateway.server import address_of, listen, server_of
from toolwire.gateway.settings import USUAL_PLACES, Access, ConnectionLimits, TransferLimits, Upstream
from toolwire.protocol.chat import ChatModel

# An embedded model on a busy machine takes its time; nothing that works comes near this.
BOUND_S = 60
ROOM = {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]}
DESCRIPTION = "Read the temperature of a room."
NAME = "read_temperature"
QUESTION = "How warm is the kitchen?"
QUICK = TransferLimits(
    connect_s=2, idle_s=0.3, whole_s=2, closing_s=0.2, keep_alive_s=5, answer_bytes=200_000, line_bytes=50_000
)


@dataclass
class Gate:
    """A running gateway, what it logged, and clients for it."""

    url: str
    log: list[RequestEntry]

    def openai(self, key: str = "client-key") -> openai.AsyncOpenAI:
        return openai_client(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=BOUND_S)

    def anthropic(self, key: str = "client-key") -> anthropic.AsyncAnthropic:
        return anthropic_client(base_url=self.url, api_key=key, max_retries=0, timeout=BOUND_S)

    def http(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, timeout=BOUND_S, trust_env=False, verify=NO_TLS)


@dataclass
class Stand:
    """One upstream and all gateways that tests have opened before it; they stay until the session ends."""

    provider: Provider
    gates: dict[Any, Gate] = field(default_factory=dict)
    servers: list[tuple[uvicorn.Server, asyncio.Task[None], socket.socket]] = field(default_factory=list)

    async def gate(
        self,
        dialect: str = "auto",
        *,
        key: str = "",
        access: Access | None = None,
        bounds: TransferLimits | None = None,
        model: ChatModel | None = None,
        url: str = "",
        places: ConnectionLimits = USUAL_PLACES,
    ) -> Gate:
        """A gateway of this kind, the same one each time."""
        which = (dialect, key, access, bounds, id(model), url, places)
        if which not in self.gates:
            upstream = None if model else Upstream.at(url or self.provider.url, dialect, key)
            log: list[RequestEntry] = []
            app = make_app(
                upstream, model, access=access or Access(), bounds=bounds or TransferLimits(), log=log.append
            )
            self.gates[which] = Gate(await self.serve(server_of(app, places)), log)
        self.gates[which].log.clear()
        return self.gates[which]

    async def serve(self, server: uvicorn.Server) -> str:
        """The address of a server that runs until the stand is closed."""
        sock = listen("127.0.0.1", 0)
        task = asyncio.create_task(server._serve(sockets=[sock]))
        self.servers.append((server, task, sock))
        return address_of(sock)

    async def close(self) -> None:
        for server, _, _ in self.servers:
            server.should_exit = True
        await asyncio.gather(*(task for _, task, _ in self.servers))
        for _, _, sock in self.servers:
            sock.close()


@asynccontextmanager
async def open_stand() -> AsyncIterator[Stand]:
    async with provider_on_loopback() as provider:
        stand = Stand(provider)
        try:
            yield stand
        finally:
            provider.over.set()
            await stand.close()
