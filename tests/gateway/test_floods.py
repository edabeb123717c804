"""Half requests, slow clients and one caller's flood: the others are answered."""

import asyncio
import resource
import select
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress

import httpx2
import pytest
import uvicorn

from tests.gateway.clients import CHAT
from tests.gateway.stand import BOUND_S, Gate, Stand
from tests.models.provider import Provider, Scripted, answer
from tests.no_tls import NO_TLS
from toolwire.gateway.app import make_app
from toolwire.gateway.settings import Access, ConnectionLimits, TransferLimits, Upstream

MANY = 1_200
TOKEN = "first-token-123"
TOKENS = Access(tokens=(TOKEN, "second-token-456"), callers=("ANN", "BOB"))
OPEN = Access()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
HALVES = {
    "nothing": b"",
    "half a line": b"POST /v1/cha",
    "half a header": HEAD + b"x-slow: y",
    "half a body": HEAD + b"content-length: 100\r\n\r\n{",
    "half a chunk": HEAD + b"transfer-encoding: chunked\r\n\r\nff\r\n{",
    "a wrong token": HEAD + b"authorization: Bearer wrong\r\ncontent-length: 100\r\n\r\n{",
    "half of a second request": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /heal",
}


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """Both ends of a flood are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, hard) if hard != resource.RLIM_INFINITY else 8192, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
async def held() -> AsyncIterator[ExitStack]:
    """The sockets of a test, closed at its end."""
    with ExitStack() as stack:
        yield stack


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def connect(held: ExitStack, url: str, *, source: str = "127.0.0.1") -> socket.socket:
    sock = held.enter_context(socket.socket())
    sock.setblocking(False)
    sock.bind((source, 0))
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port_of(url)))
    return sock


async def flood(held: ExitStack, url: str, half: bytes, many: int = MANY) -> list[socket.socket]:
    socks = [await connect(held, url) for _ in range(many)]
    for sock in socks:
        with suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(sock, half)
    return socks


async def ask(url: str, token: str = TOKEN) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=url, timeout=BOUND_S, trust_env=False, verify=NO_TLS) as client:
        return await client.post(
            "/v1/chat/completions", json={"model": "m"}, headers={"authorization": f"Bearer {token}"}
        )


async def is_ended(sock: socket.socket) -> bool:
    """Whether the other side ends a connection, however long it takes up to the bound of a test."""
    async with asyncio.timeout(BOUND_S):
        with suppress(ConnectionError):
            while await asyncio.get_running_loop().sock_recv(sock, 65_536):
                pass
    return True


@asynccontextmanager
async def dripping(sock: socket.socket) -> AsyncIterator[None]:
    """A byte now and then, for as long as this lasts."""

    async def drip() -> None:
        with suppress(ConnectionError):
            while True:
                await asyncio.get_running_loop().sock_sendall(sock, b"y")
                await asyncio.sleep(0.01)

    task = asyncio.create_task(drip())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("access", [TOKENS, OPEN], ids=["tokens", "open"])
async def test_T96_half_requests_do_not_stop_a_client(
    stand: Stand, upstream: Provider, held: ExitStack, access: Access, half: str
) -> None:
    upstream.will(CHAT.says("Hello."))
    patient = ConnectionLimits(header_s=BOUND_S, write_s=BOUND_S)
    gate = await stand.gate(access=access, places=patient, bounds=TransferLimits(body_grace_s=BOUND_S))
    await flood(held, gate.url, HALVES[half])

    got = await ask(gate.url)

    assert got.status_code == 200


async def test_T96_control_without_places_for_those_who_ask_half_requests_lock_a_gateway(
    stand: Stand, held: ExitStack
) -> None:
    app = make_app(Upstream.at(stand.provider.url), access=TOKENS)
    url = await stand.serve(uvicorn.Server(uvicorn.Config(app, http="h11", log_config=None, limit_concurrency=1024)))
    await flood(held, url, HALVES["half a header"])

    got = await ask(url)

    assert got.status_code == 503


@pytest.mark.parametrize("begin", [b"", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"], ids=["first", "next"])
async def test_T96_headers_that_drip_are_not_waited_for(stand: Stand, held: ExitStack, begin: bytes) -> None:
    gate = await stand.gate(places=ConnectionLimits(header_s=0.2))
    sock = await connect(held, gate.url)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, begin + b"POST /v1/messages HTTP/1.1\r\nx: ")

    async with dripping(sock):
        assert await is_ended(sock)


async def test_T96_a_body_that_drips_is_not_waited_for(stand: Stand, held: ExitStack) -> None:
    gate = await stand.gate(bounds=TransferLimits(body_grace_s=0.2))
    sock = await connect(held, gate.url)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, HEAD + b"content-length: 1000000\r\n\r\n")

    async with asyncio.timeout(BOUND_S), dripping(sock):
        told = await loop.sock_recv(sock, 65_536)

    assert b" 408 " in told.partition(b"\r\n")[0]


async def test_T96_an_answer_that_is_not_read_is_not_kept(stand: Stand, upstream: Provider, held: ExitStack) -> None:
    upstream.will(answer(b'{"choices": [], "x": "' + b"y" * 20_000_000 + b'"}'))
    gate = await stand.gate(places=ConnectionLimits(write_s=0.2))
    sock = await connect(held, gate.url)
    body = b'{"model": "m"}'
    await asyncio.get_running_loop().sock_sendall(sock, HEAD + b"content-length: %d\r\n\r\n%s" % (len(body), body))
    poll = select.poll()
    poll.register(sock, select.POLLERR | select.POLLHUP)

    assert await asyncio.to_thread(poll.poll, BOUND_S * 1000)


async def test_a_slow_reader_gets_all_of_its_answer(stand: Stand, upstream: Provider, held: ExitStack) -> None:
    """More is read in each of these moments than one that hangs would read."""
    whole = b'{"choices": [], "x": "' + b"y" * 20_000_000 + b'"}'
    upstream.will(answer(whole))
    gate = await stand.gate(places=ConnectionLimits(write_s=0.5))
    sock = await connect(held, gate.url)
    body = b'{"model": "m"}'
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    got = 0
    async with asyncio.timeout(BOUND_S):
        while piece := await loop.sock_recv(sock, 500_000):
            got += len(piece)
            await asyncio.sleep(0.02)

    assert got > len(whole)


async def test_T96_a_callers_flood_leaves_places_for_others(stand: Stand, upstream: Provider) -> None:
    gate = await stand.gate(access=TOKENS, places=ConnectionLimits(at_once=4))
    upstream.will(Scripted(b"", "hang"))
    hanging = [asyncio.create_task(ask(gate.url)) for _ in range(4)]
    async with asyncio.timeout(BOUND_S):
        await upstream.wait_for(4)

    one_more = await ask(gate.url)
    upstream.will(CHAT.says("Hello."))
    other = await ask(gate.url, TOKENS.tokens[1])

    assert (one_more.status_code, other.status_code) == (503, 200)
    assert one_more.json()["error"]["code"] == "busy"
    for task in hanging:
        task.cancel()
    await asyncio.wait(hanging)


async def test_T96_of_too_many_half_requests_the_oldest_of_the_greatest_peer_are_ended(
    stand: Stand, upstream: Provider, held: ExitStack
) -> None:
    upstream.will(CHAT.says("Hello."))
    gate = await stand.gate(places=ConnectionLimits(waiting=8))
    body = b'{"model": "m"}'
    first = HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    other = await connect(held, gate.url, source="127.0.0.2")
    await asyncio.get_running_loop().sock_sendall(other, first)
    socks = await flood(held, gate.url, first, 20)

    for sock in socks[:13]:
        assert await is_ended(sock)
    for sock in (other, *socks[13:]):
        async with asyncio.timeout(BOUND_S):
            await asyncio.get_running_loop().sock_sendall(sock, body)
            told = await asyncio.get_running_loop().sock_recv(sock, 65_536)
        assert b" 200 " in told.partition(b"\r\n")[0]


@pytest.mark.parametrize("access", [TOKENS, OPEN], ids=["tokens", "open"])
async def test_many_good_requests_at_once_are_all_answered(stand: Stand, upstream: Provider, access: Access) -> None:
    upstream.will(CHAT.says("Hello."))
    gate: Gate = await stand.gate(access=access)

    got = await asyncio.gather(*(ask(gate.url) for _ in range(100)))

    assert {one.status_code for one in got} == {200}
