"""The egress proxy on its unix socket: T40 to T44, with real servers and real TLS."""

import asyncio
import contextlib
import ctypes
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from msgspec.structs import replace

from tests.egress import ssrf
from tests.egress.network import Answering, Heard, Names, Server, connector, saying, serving
from toolwire.execute.egress.caps import Caps, TrafficEvent
from toolwire.execute.egress.connector import Connector, hang_up
from toolwire.execute.egress.proxy import EgressProxy

HELLO = saying(b"hello", "content-type: text/plain")
HOSTS = {"good.example": ["127.0.0.1"], "evil.example": ["127.0.0.1"], "front.example": ["127.0.0.1"]}


@pytest.fixture
def socket_path(tmp_path: Path) -> str:
    return str(tmp_path / "door")


@asynccontextmanager
async def connected(path: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            yield reader, writer
        finally:
            await hang_up(writer)


async def talk(path: str, *pieces: bytes) -> str:
    """Say this to the proxy and give everything it answers."""
    async with connected(path) as (reader, writer):
        for piece in pieces:
            writer.write(piece)
        said = b""
        with contextlib.suppress(ConnectionResetError):  # what is left unread when the proxy hangs up
            while piece := await reader.read(65536):
                said += piece
    return said.decode("latin-1")


def get(url: str, *headers: str, method: str = "GET") -> bytes:
    host = url.partition("://")[2].partition("/")[0] or "x"
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"{method} {url} HTTP/1.1\r\nhost: {host}\r\n{lines}\r\n".encode()


@dataclass
class Door:
    path: str
    server: Server
    noted: list[TrafficEvent]
    proxy: EgressProxy

    @property
    def url(self) -> str:
        return f"http://good.example:{self.server.port}"


@asynccontextmanager
async def door(
    path: str, answering: Answering = HELLO, rules: Callable[[int], list[str]] | None = None, **caps: float
) -> AsyncIterator[Door]:
    """A proxy whose grant lists good.example on the port of a server that answers so."""
    noted: list[TrafficEvent] = []
    async with asyncio.timeout(20), serving(answering) as server:
        network = rules(server.port) if rules else [f"good.example:{server.port}"]
        limits = replace(Caps(), **caps)
        proxy = EgressProxy(path, network, connector=connector(HOSTS), caps=limits, audit=noted.append)
        async with proxy:
            yield Door(path, server, noted, proxy)


@pytest.mark.contrast("T42")
@pytest.mark.feature("F124")
async def test_a_plain_request_to_a_listed_host_is_passed_on(socket_path: str) -> None:
    async with door(socket_path) as there:
        said = await talk(there.path, get(f"{there.url}/path?q=1", "proxy-authorization: x", "x-mine: y"))

    assert said.startswith("HTTP/1.1 200 OK")
    assert said.endswith("hello")
    heard = there.server.heard[0]
    assert heard.line == "GET /path?q=1 HTTP/1.1"
    assert (heard.headers["host"], heard.headers["x-mine"]) == (f"good.example:{there.server.port}", "y")
    assert "proxy-authorization" not in heard.headers


async def test_a_host_that_is_not_listed_is_refused_with_the_reason(socket_path: str) -> None:
    async with door(socket_path) as there:
        plain = await talk(there.path, get(f"http://evil.example:{there.server.port}/"))
        tunnel = await talk(there.path, get(f"evil.example:{there.server.port}", method="CONNECT"))

    for said in (plain, tunnel):
        assert said.startswith("HTTP/1.1 403")
        assert "not among the hosts that the grant lists" in said
    assert there.server.connections == 0


@pytest.mark.feature("F125")
async def test_T42_another_port_or_method_of_a_listed_host_is_refused(socket_path: str) -> None:
    async with door(socket_path, rules=lambda port: [f"GET,HEAD good.example:{port}"]) as there:
        port = there.server.port
        other_port = await talk(there.path, get("http://good.example:1/"))
        writing = await talk(there.path, get(f"{there.url}/", "content-length: 0", method="POST"))
        tunnel = await talk(there.path, get(f"good.example:{port}", method="CONNECT"))
        assert there.server.connections == 0
        control = await talk(there.path, get(f"{there.url}/"))

    for said in (other_port, writing, tunnel):
        assert said.startswith("HTTP/1.1 403")
    assert control.startswith("HTTP/1.1 200")


async def test_T42_a_second_request_on_the_same_connection_is_not_passed_on(socket_path: str) -> None:
    """Otherwise it could name another host or method than the one that was judged."""
    async with door(socket_path) as there:
        first, second = get(f"{there.url}/"), get("http://evil.example/", method="DELETE")
        said = await talk(there.path, first + second)

    assert said.count("HTTP/1.1") == 1
    assert len(there.server.heard) == 1


async def test_the_host_header_cannot_name_another_host(socket_path: str) -> None:
    async with door(socket_path) as there:
        request = f"GET {there.url}/ HTTP/1.1\r\nhost: evil.example\r\n\r\n".encode()
        await talk(there.path, request)

    assert there.server.heard[0].headers["host"] == f"good.example:{there.server.port}"


@pytest.mark.parametrize(
    "target",
    [
        b"evil.test\x00.good.example:443",
        b"good.example:443\x00",
        b"good.example\r\n.evil.test:443",
        b"evil.test%00.good.example:443",
        b"user@good.example:443",
        b"good.example\\@evil.test:443",
        b"good.example",
        b"good.example:",
        b"good.example:443:80",
        b"good.example:0x1bb",
        "gооd.example:443".encode(),
        b"*.example:443",
        b"[::1:443",
        b"2130706433:443",
        b"good_.example:443",
        b"http://good.example:443",
        b"",
    ],
)
async def test_T40_a_tunnel_to_what_is_no_host_is_refused(socket_path: str, target: bytes) -> None:
    async with door(socket_path, rules=lambda _: ["good.example:443", "*.good.example:443"]) as there:
        said = await talk(there.path, b"CONNECT " + target + b" HTTP/1.1\r\nhost: x\r\n\r\n")

    assert said.startswith("HTTP/1.1 4")
    assert not any(one.event == "allowed" for one in there.noted)


def test_T40_the_control_c_code_would_cut_the_same_name_at_nul() -> None:
    """A check of the whole text passes, and whoever hands it to C code connects to the other host."""
    host = b"evil.test\x00.good.example"

    assert host.endswith(b".good.example")
    assert ctypes.c_char_p(host).value == b"evil.test"


async def test_T36_no_spelling_of_an_inner_address_gets_through_the_proxy(socket_path: str) -> None:
    async with asyncio.timeout(60), serving(HELLO) as server:
        network = [f"{name}:{server.port}" for name in ssrf.NAMES]
        network += [f"127.0.0.1:{server.port}", f"[::1]:{server.port}", f"0.0.0.0:{server.port}"]
        async with EgressProxy(socket_path, network, connector=Connector(Names(ssrf.NAMES))) as proxy:
            for url in ssrf.urls(server.port):
                authority = url.partition("://")[2].partition("/")[0]
                for request in (get(url), get(authority, method="CONNECT")):
                    said = await talk(socket_path, request)
                    assert said.startswith(("HTTP/1.1 4", "HTTP/1.1 502")), url
            assert proxy.meter.up == 0
        assert server.connections == 0


@dataclass
class Certificates:
    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture
def certificates() -> Certificates:
    authority = trustme.CA()
    pair = Certificates(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context())
    authority.issue_cert("good.example", "evil.example").configure_cert(pair.server)
    authority.configure_trust(pair.client)
    return pair


async def through(path: str, place: str, name: str, tls: ssl.SSLContext) -> bytes:
    """Ask for a tunnel to a place, and speak TLS to `name` in it."""
    async with connected(path) as (reader, writer):
        writer.write(get(place, method="CONNECT"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await writer.start_tls(tls, server_hostname=name)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        return await reader.read()


@pytest.mark.contrast("T43")
async def test_T43_a_tunnel_carries_tls_for_the_host_it_was_asked_for(
    socket_path: str, certificates: Certificates
) -> None:
    """The control of the next test."""
    noted: list[TrafficEvent] = []
    async with serving(HELLO, certificates.server) as server:
        place = f"good.example:{server.port}"
        async with EgressProxy(socket_path, [place], connector=connector(HOSTS), audit=noted.append):
            said = await through(socket_path, place, "good.example", certificates.client)

    assert said.endswith(b"hello")
    assert [(one.event, one.place) for one in noted] == [("allowed", place), ("closed", place)]
    assert (noted[0].address, noted[0].method) == ("127.0.0.1", "CONNECT")
    assert noted[1].up > 100
    assert noted[1].down > 100


async def test_T43_a_tunnel_whose_tls_names_another_server_is_cut(socket_path: str, certificates: Certificates) -> None:
    noted: list[TrafficEvent] = []
    async with serving(HELLO, certificates.server) as server:
        place = f"good.example:{server.port}"
        async with EgressProxy(socket_path, [place], connector=connector(HOSTS), audit=noted.append):
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await through(socket_path, place, "evil.example", certificates.client)

    assert server.heard == []
    assert any("the server name in TLS is not good.example" in one.reason for one in noted)


@pytest.mark.parametrize(
    "words", [b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05\x02aaaa", b"\x15" * 60]
)
async def test_T43_only_tls_may_follow_connect(socket_path: str, words: bytes) -> None:
    async with door(socket_path) as there:
        said = await talk(there.path, get(f"good.example:{there.server.port}", method="CONNECT"), words)

    assert said.endswith("\r\n\r\n"), "nothing came back after the tunnel was opened"
    assert there.server.heard == []
    assert any("only TLS" in one.reason for one in there.noted)


async def test_T44_what_a_call_may_send_and_receive_is_capped(socket_path: str) -> None:
    async def flooding(heard: Heard, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with door(socket_path, flooding, down_bytes=500_000) as there:
        said = await talk(there.path, get(f"{there.url}/"))
        again = await talk(there.path, get(f"{there.url}/"))
    assert len(said) < 600_000
    assert "500000 bytes" in again, "the cap is of the call, not of a connection"

    async with door(socket_path, up_bytes=1000) as there:
        body = b"y" * 100_000
        said = await talk(there.path, get(f"{there.url}/", f"content-length: {len(body)}", method="POST"), body)
    assert there.server.heard == []
    assert said == "" or said.startswith("HTTP/1.1 429")


async def test_T44_connections_at_once_are_capped(socket_path: str) -> None:
    async with door(socket_path, at_once=2) as there, connected(there.path), connected(there.path):
        said = await talk(there.path, get(f"{there.url}/"))

    assert said.startswith("HTTP/1.1 429")


@pytest.mark.parametrize("kind", ["many", "huge"])
async def test_T44_heads_without_end_are_refused(socket_path: str, kind: str) -> None:
    lines = [f"x{number}: y" for number in range(300)] if kind == "many" else ["x: " + "y" * 200_000]
    async with door(socket_path) as there:
        said = await talk(there.path, get(f"{there.url}/", *lines))

    assert said.startswith("HTTP/1.1 4")
    assert there.server.connections == 0


async def test_T44_a_client_that_drips_its_head_is_left(socket_path: str) -> None:
    async with door(socket_path, head_s=0.2) as there:
        said = await talk(there.path, b"GET http://good")

    assert said.startswith("HTTP/1.1 408")


async def test_decisions_are_audited_without_path_query_headers_or_body(socket_path: str) -> None:
    async with door(socket_path) as there:
        await talk(there.path, get(f"{there.url}/secret?secret", "x: secret"))
        await talk(there.path, get("http://evil.example/secret?secret", "x: secret"))
        await talk(there.path, b"secret\x00 \r\nsecret: \x01\r\n\r\n")
        await talk(there.path, get(f"http://secret@good.example:{there.server.port}/"))

    assert [one.event for one in there.noted] == ["allowed", "closed", "refused", "refused", "refused"]
    assert "secret" not in repr(there.noted)


async def test_a_rule_that_cannot_be_read_refuses_everything(socket_path: str) -> None:
    async with door(socket_path, rules=lambda port: [f"good.example:{port}", "*"]) as there:
        said = await talk(there.path, get(f"{there.url}/"))

    assert said.startswith("HTTP/1.1 403")
    assert "cannot be read" in said
    assert there.server.connections == 0


async def test_a_body_is_passed_on_whole_once_the_client_was_told_to_go_on(socket_path: str) -> None:
    async with door(socket_path) as there, connected(there.path) as (reader, writer):
        writer.write(get(f"{there.url}/", "content-length: 5", "expect: 100-continue", method="PUT"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"words")
        said = await reader.read()

    assert there.server.heard[0].body == b"words"
    assert said.endswith(b"hello")


@pytest.mark.parametrize("second", ["content-length: 50", "transfer-encoding: chunked", "transfer-encoding: gzip"])
async def test_two_lengths_for_one_body_are_refused(socket_path: str, second: str) -> None:
    """Otherwise the server could read a second request in what was judged as the body of the first."""
    async with door(socket_path) as there:
        request = get(f"{there.url}/", "content-length: 5", second, method="POST")
        said = await talk(there.path, request, b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n")

    assert said.startswith("HTTP/1.1 400")
    assert there.server.heard == []


async def test_leaving_ends_every_connection_and_removes_the_socket(socket_path: str) -> None:
    proxy = EgressProxy(socket_path, [])
    await proxy.__aenter__()
    async with connected(socket_path) as (reader, writer):
        writer.write(b"GET ")
        await proxy.__aexit__(None, None, None)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""

    with pytest.raises(FileNotFoundError):
        await asyncio.open_unix_connection(socket_path)
