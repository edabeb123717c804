"""A watcher that never reads is dropped; the turn, and those who read, notice nothing."""

import asyncio
import select
import socket
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.gateway.stand import BOUND_S, open_stand
from toolwire.assemble.event_log import MOST_BYTES
from toolwire.assemble.project import open_project
from toolwire.assemble.turn_service import TurnService
from toolwire.gateway.app import make_app
from toolwire.gateway.server import server_of
from toolwire.gateway.settings import Access, ConnectionLimits, Upstream
from toolwire.protocol.chat import TextDelta
from toolwire.protocol.events import EventEnvelope, TurnEnded
from toolwire.protocol.turns import Ending, EndReason, Turn

TOKEN = "a-long-token"
HEAD = f"GET /v1/turns/t/events HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode()


async def test_T96_a_watcher_that_never_reads_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    service = TurnService(open_project())
    access = Access(tokens=(TOKEN,), callers=("ANN",))
    app = make_app(Upstream("http://127.0.0.1:9"), access=access, turns=service)
    async with open_stand() as stand:
        url = await stand.serve(server_of(app, ConnectionLimits(write_s=0.2)))
        client = httpx2.AsyncClient(
            base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=BOUND_S, trust_env=False
        )
        async with client, asyncio.timeout(BOUND_S):
            assert (await client.get("/v1/turns")).json()["data"] == []
            await service.store.begin(Turn("t"))
            service.log.expect("t")
            silent = await asyncio.to_thread(connected, url)
            with silent:
                count = await told_until_closed(service, silent)
            ended = TurnEnded("t", Ending(EndReason.ANSWERED, "Done."), 1.0)
            service.log.add(EventEnvelope("default", "t", 1, count, 0.0, ended))
            read = await client.get("/v1/turns/t/events")

    assert read.text.startswith(": \n\nevent: turn_state\n")
    assert '"answer":"Done."' in read.text
    assert len(read.content) < MOST_BYTES + 100_000


def connected(url: str) -> socket.socket:
    """A watcher that takes as little as possible."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((urlsplit(url).hostname, urlsplit(url).port))
    sock.sendall(HEAD)
    return sock


async def told_until_closed(service: TurnService, watcher: socket.socket) -> int:
    """Tell events until the server has closed the watcher's connection; the number of the next one."""
    seq, text = 1, "x" * 200_000
    while not await asyncio.to_thread(is_closed, watcher):
        service.log.add(EventEnvelope("default", "t", 1, seq, 0.0, TextDelta(text)))
        seq += 1
    return seq


def is_closed(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLERR | select.POLLHUP)
    return bool(poll.poll(10))
