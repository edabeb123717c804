"""Where a request really goes: T36 to T39 and T44, on real sockets."""

import asyncio
import contextlib
import gzip
import ipaddress
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpcore2
import pytest
import trustme
from msgspec.structs import replace

from tests.egress import ssrf
from tests.egress.network import (
    LOOPBACK,
    Answering,
    Heard,
    Names,
    Server,
    connector,
    only_this_machine,
    saying,
    serving,
)
from toolwire.errors import ToolFailure
from toolwire.execute.egress.caps import TrafficEvent
from toolwire.execute.egress.connector import Connector
from toolwire.execute.egress.hosts import BadHost, read_host
from toolwire.execute.egress.places import BadUrl, read_url
from toolwire.execute.egress.web import FOREIGN, WEB_CAPS, Web
from toolwire.protocol.operations import WebRequest
from toolwire.protocol.outcomes import Code

HELLO = saying(b"hello", "content-type: text/plain")


def rule_for(url: str) -> tuple[str, ...]:
    """A grant that lists exactly this place, so that nothing but the address can be the reason of a refusal."""
    try:
        place = read_url(url)
    except BadUrl:
        return ("good.example", "*.example.com")
    return (f"{place.host}:{place.port}",)


@contextlib.asynccontextmanager
async def counting() -> AsyncIterator[Server]:
    async with asyncio.timeout(60), serving(HELLO) as server:
        yield server


async def refusal(web: Web, request: WebRequest, *network: str) -> ToolFailure:
    with pytest.raises(ToolFailure) as failed:
        async with asyncio.timeout(5):
            await web.ask(request, network)
    return failed.value


def test_the_corpus_has_at_least_150_forms() -> None:
    assert len(set(ssrf.urls(80))) >= 150


async def test_T36_no_spelling_of_an_inner_address_leads_to_a_connection() -> None:
    """The protocol demands it: 0 connections, even where the grant lists the place."""
    async with counting() as server:
        web = Web(Connector(Names(ssrf.NAMES), connect_s=1))
        for url in ssrf.urls(server.port):
            failed = await refusal(web, WebRequest(url), *rule_for(url))
            assert failed.code in {Code.PERMISSION_DENIED, Code.INVALID_PARAMS, Code.UNAVAILABLE}, url
        assert server.connections == 0


async def test_T36_the_control_a_check_with_is_private_lets_several_spellings_through() -> None:
    async with counting() as server:
        for url in ssrf.urls(server.port):
            await asyncio.to_thread(_naive_fetch, url)
        assert server.connections >= 10


def _naive_fetch(url: str) -> None:
    """What is often written: refuse what parses as a private address, and let the system resolve the rest."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(host).is_private:
                return
        known = ssrf.NAMES.get(host, [host])[:1]
        if not parts.scheme.startswith("http") or not known or not known[0].isascii() or "%" in known[0]:
            return
        address = socket.getaddrinfo(known[0], port, type=socket.SOCK_STREAM)[0][4][0]
        if ipaddress.ip_address(str(address)) in {LOOPBACK, ipaddress.ip_address("0.0.0.0")}:
            socket.create_connection((str(address), port), 1).close()
    except (OSError, ValueError):
        return


OWN_ADDRESS = """
import asyncio, ipaddress, socket
from toolwire.execute.egress.addresses import why_not_public
from toolwire.execute.egress.connector import Connector, ConnectionRefused
from toolwire.execute.egress.hosts import read_host

async def main():
    listener = socket.create_server(("93.184.216.34", 0))
    port = listener.getsockname()[1]
    try:
        await Connector().open(read_host("93.184.216.34"), port)
    except ConnectionRefused as refused:
        print(refused)
    control = await Connector(why_not=why_not_public).open(read_host("93.184.216.34"), port)
    print("the control connects to", control.address)
    control.writer.close()

asyncio.run(main())
"""


async def test_T36_a_public_address_of_this_very_machine_is_not_reached() -> None:
    """In a network namespace of its own, so that the machine has such an address."""
    setup = "ip link set lo up && ip addr add 93.184.216.34/32 dev lo && exec "
    command = f"{setup} {sys.executable} -c '{OWN_ADDRESS}'"
    async with asyncio.timeout(20):
        process = await asyncio.create_subprocess_exec(
            "unshare", "--map-root-user", "--net", "sh", "-c", command, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()

    assert said.decode().splitlines() == [
        "93.184.216.34 leads to an address that is not on the public internet (this machine)",
        "the control connects to 93.184.216.34",
    ]


async def test_proxies_named_in_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with counting() as server, counting() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        web = Web(connector({"good.example": ["127.0.0.1"]}))
        await web.ask(WebRequest(f"http://good.example:{server.port}/"), (f"good.example:{server.port}",))

    assert (server.connections, proxy.connections) == (1, 0)


@pytest.mark.feature("F125")
async def test_a_listed_literal_must_still_be_public() -> None:
    async with counting() as server:
        failed = await refusal(Web(), WebRequest(f"http://127.0.0.1:{server.port}/"), f"127.0.0.1:{server.port}")

    assert failed.code is Code.PERMISSION_DENIED
    assert str(failed) == "127.0.0.1 leads to an address that is not on the public internet (loopback)"


async def test_T37_a_name_is_resolved_once_and_the_judged_address_is_the_one_connected_to() -> None:
    """A name that turns inward on the second question is never asked a second time."""
    async with counting() as server:
        names = Names({"flip.example": [["127.0.0.1"], ["10.0.0.1"]]})
        web = Web(Connector(names, only_this_machine))

        answer = await web.ask(WebRequest(f"http://flip.example:{server.port}/"), (f"flip.example:{server.port}",))

    assert answer.body == b"hello"
    assert names.asked == ["flip.example"]


async def test_T37_a_name_with_one_inner_address_among_public_ones_is_refused() -> None:
    async with counting() as server:
        web = Web(Connector(Names({"mixed.example": ["93.184.216.34", "127.0.0.1"]})))
        failed = await refusal(web, WebRequest(f"http://mixed.example:{server.port}/"), f"mixed.example:{server.port}")
        assert server.connections == 0

    assert failed.code is Code.PERMISSION_DENIED


async def test_T37_the_control_asking_twice_lets_the_second_answer_in() -> None:
    async with counting() as server:
        names = Names({"flip.example": [["93.184.216.34"], ["127.0.0.1"]]})
        checked = [ipaddress.ip_address(text) for text in await names("flip.example")]
        assert not any(address.is_private for address in checked)
        (address,) = await names("flip.example")
        _, writer = await asyncio.open_connection(address, server.port)
        writer.close()
        await server.reached.wait()


def redirecting(location: str, status: str = "302 Found") -> Answering:
    return saying(b"", f"location: {location}", status=status)


@pytest.mark.parametrize(
    "location",
    "http://10.0.0.1/ http://127.0.0.1:1/ http://169.254.169.254/latest/meta-data/ http://[::1]/ file:///etc/passwd "
    "gopher://good.example/ javascript:alert(1) //evil.example/ http://user@good.example/ \\\\evil.example/ ftp://x/".split(),
)
async def test_T38_a_redirect_is_judged_like_a_first_request(location: str) -> None:
    async with asyncio.timeout(5), serving(redirecting(location)) as server:
        web = Web(connector({"good.example": ["127.0.0.1"]}))
        network = (f"good.example:{server.port}", "10.0.0.1", "[::1]")
        failed = await refusal(web, WebRequest(f"http://good.example:{server.port}/"), *network)

    assert failed.code is Code.PERMISSION_DENIED
    assert server.connections == 1


async def test_T38_the_control_a_redirect_to_a_listed_public_place_is_followed() -> None:
    async with counting() as end, serving(redirecting(f"http://end.example:{end.port}/x?y#z")) as start:
        web = Web(connector({"start.example": ["127.0.0.1"], "end.example": ["127.0.0.1"]}))
        network = (f"start.example:{start.port}", f"end.example:{end.port}")
        answer = await web.ask(WebRequest(f"http://start.example:{start.port}/"), network)

    assert (answer.body, answer.url) == (b"hello", f"http://end.example:{end.port}/x?y")
    assert end.heard[0].line == "GET /x?y HTTP/1.1"


async def test_T38_an_endless_chain_of_redirects_ends_after_five() -> None:
    async with asyncio.timeout(5), serving(redirecting("/again")) as server:
        web = Web(connector({"good.example": ["127.0.0.1"]}))
        request = WebRequest(f"http://good.example:{server.port}/", redirects=100)
        failed = await refusal(web, request, f"good.example:{server.port}")

    assert "more than 5 times" in str(failed)
    assert server.connections == 6


@pytest.mark.parametrize("same", [True, False])
async def test_T38_credentials_stay_with_the_origin_they_were_given_for(same: bool) -> None:
    """The control is the redirect within the same origin, which keeps them."""

    async def start(heard: Heard, writer: asyncio.StreamWriter) -> None:
        again = f"http://start.example:{writer.get_extra_info('sockname')[1]}/end"
        location = again if same else f"http://end.example:{end.port}/end"
        await (HELLO if "/end" in heard.line else redirecting(location))(heard, writer)

    async with counting() as end, serving(start) as server:
        web = Web(connector({"start.example": ["127.0.0.1"], "end.example": ["127.0.0.1"]}))
        request = WebRequest(
            f"http://start.example:{server.port}/",
            headers={"Authorization": "Bearer one", "Cookie": "two=2", "X-Plain": "kept"},
            secrets={"X-Api-Key": "three"},
        )
        await web.ask(request, (f"start.example:{server.port}", f"end.example:{end.port}"))

    last = (server if same else end).heard[-1].headers
    assert last["x-plain"] == "kept"
    assert ({"authorization", "cookie", "x-api-key"} <= last.keys()) is same


async def test_a_post_becomes_a_get_when_it_is_redirected_elsewhere() -> None:
    async with counting() as end, serving(redirecting(f"http://end.example:{end.port}/", "303 See Other")) as start:
        web = Web(connector({"start.example": ["127.0.0.1"], "end.example": ["127.0.0.1"]}))
        request = WebRequest(f"http://start.example:{start.port}/", "POST", body=b"words")
        await web.ask(request, (f"start.example:{start.port}", f"end.example:{end.port}"))

    assert start.heard[0].body == b"words"
    assert (end.heard[0].line, end.heard[0].body) == ("GET / HTTP/1.1", b"")


async def test_T40_a_line_break_cannot_be_smuggled_into_a_header() -> None:
    async with counting() as server:
        web = Web(connector({"good.example": ["127.0.0.1"]}))
        request = WebRequest(f"http://good.example:{server.port}/", headers={"x": "a\r\nhost: evil.example"})
        failed = await refusal(web, request, f"good.example:{server.port}")

    assert failed.code is Code.INVALID_PARAMS
    assert server.connections == 0


async def test_the_host_header_and_the_server_name_are_those_of_the_url() -> None:
    authority = trustme.CA()
    ours, theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("good.example").configure_cert(ours)
    authority.configure_trust(theirs)
    seen: list[str] = []
    ours.sni_callback = lambda _, name, __: seen.append(str(name))
    async with asyncio.timeout(5), serving(HELLO, ours) as server:
        web = Web(connector({"good.example": ["127.0.0.1"], "evil.example": ["127.0.0.1"]}), tls=theirs)
        answer = await web.ask(WebRequest(f"https://GOOD.example.:{server.port}/"), (f"good.example:{server.port}",))
        failed = await refusal(web, WebRequest(f"https://evil.example:{server.port}/"), f"evil.example:{server.port}")

    assert answer.body == b"hello"
    assert server.heard[0].headers["host"] == f"good.example:{server.port}"
    assert seen == ["good.example", "evil.example"]
    assert failed.code is Code.UNAVAILABLE, "the certificate is for another name"


async def flooding(heard: Heard, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


def bomb(mib: int) -> bytes:
    return gzip.compress(bytes(mib * 1024 * 1024))


@pytest.mark.parametrize(
    "answering",
    [
        flooding,
        saying(bomb(64), "content-encoding: gzip"),
    ],
    ids=["endless", "bomb"],
)
async def test_T44_a_body_is_read_up_to_its_cap_and_no_further(answering: Answering) -> None:
    async with asyncio.timeout(20), serving(answering) as server:
        web = Web(connector({"good.example": ["127.0.0.1"]}))
        request = WebRequest(f"http://good.example:{server.port}/", most_bytes=100_000)
        answer = await web.ask(request, (f"good.example:{server.port}",))

    assert (len(answer.body), answer.truncated) == (100_000, True)


async def test_T44_a_bomb_inside_a_bomb_is_not_opened() -> None:
    nested = saying(gzip.compress(bomb(64)), "content-encoding: gzip, gzip")
    async with asyncio.timeout(20), serving(nested) as server:
        web = Web(connector({"good.example": ["127.0.0.1"]}))
        failed = await refusal(web, WebRequest(f"http://good.example:{server.port}/"), f"good.example:{server.port}")

    assert str(failed) == "the answer is compressed in a way that was not asked for"


async def test_T44_the_control_without_a_cap_the_bomb_unfolds() -> None:
    async with asyncio.timeout(20), serving(saying(bomb(8), "content-encoding: gzip")) as server:
        web = Web(connector({"good.example": ["127.0.0.1"]}), caps=replace(WEB_CAPS, decoded_bytes=2**40))
        request = WebRequest(f"http://good.example:{server.port}/", most_bytes=2**40)
        answer = await web.ask(request, (f"good.example:{server.port}",))

    assert len(answer.body) == 8 * 1024 * 1024


async def test_T44_what_comes_over_the_wire_has_a_cap_of_its_own() -> None:
    async with asyncio.timeout(20), serving(flooding) as server:
        web = Web(connector({"good.example": ["127.0.0.1"]}), caps=replace(WEB_CAPS, down_bytes=300_000))
        failed = await refusal(web, WebRequest(f"http://good.example:{server.port}/"), f"good.example:{server.port}")

    assert "300000 bytes" in str(failed)


@pytest.mark.parametrize("kind", ["many", "huge", "endless"])
async def test_T44_headers_without_end_are_cut_off(kind: str) -> None:
    async def answering(heard: Heard, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        match kind:
            case "many":
                writer.write(b"".join(b"x%d: y\r\n" % number for number in range(500)) + b"\r\n")
            case "huge":
                writer.write(b"set-cookie: " + b"c" * 2_000_000 + b"\r\n\r\n")
            case _:
                while True:
                    writer.write(b"a: b\r\n" * 1000)
                    await writer.drain()

    async with asyncio.timeout(20), serving(answering) as server:
        web = Web(connector({"good.example": ["127.0.0.1"]}))
        failed = await refusal(web, WebRequest(f"http://good.example:{server.port}/"), f"good.example:{server.port}")

    assert failed.code in {Code.EXECUTION_FAILED, Code.UNAVAILABLE}


async def test_T44_a_server_that_drips_is_left_when_its_time_is_over() -> None:
    over = asyncio.Event()

    async def dripping(heard: Heard, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nx")
        await writer.drain()
        await over.wait()

    async with asyncio.timeout(20), serving(dripping) as server:
        web = Web(connector({"good.example": ["127.0.0.1"]}), caps=replace(WEB_CAPS, whole_s=0.2))
        failed = await refusal(web, WebRequest(f"http://good.example:{server.port}/"), f"good.example:{server.port}")
        over.set()

    assert failed.code is Code.TIMEOUT


async def test_every_hop_is_audited_without_path_or_query() -> None:
    noted: list[TrafficEvent] = []
    async with counting() as server:
        web = Web(connector({"good.example": ["127.0.0.1"]}), audit=noted.append)
        url = f"http://good.example:{server.port}/secret/path?token=1"
        await web.ask(WebRequest(url), (f"good.example:{server.port}",))
        await refusal(web, WebRequest(url), "other.example")

    assert [(one.event, one.place) for one in noted] == [
        (event, f"good.example:{server.port}") for event in ("allowed", "closed", "refused", "closed")
    ]
    assert "secret" not in repr(noted)
    assert "token" not in repr(noted)
    assert noted[1].down > 0


async def test_nobody_listening_is_said_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    web = Web(connector({"good.example": ["127.0.0.1"]}))

    failed = await refusal(web, WebRequest(f"http://good.example:{port}/"), f"good.example:{port}")
    unknown = await refusal(web, WebRequest("http://unknown.example/"), "unknown.example")

    assert (failed.code, unknown.code) == (Code.UNAVAILABLE, Code.UNAVAILABLE)
    assert str(unknown) == "the name unknown.example cannot be resolved"


async def test_a_rule_that_cannot_be_read_closes_the_door() -> None:
    failed = await refusal(Web(), WebRequest("http://good.example/"), "good.example", "*")

    assert failed.code is Code.PERMISSION_DENIED


def test_every_exception_of_the_http_client_is_translated() -> None:
    raised = [value for value in vars(httpcore2).values() if isinstance(value, type) and issubclass(value, Exception)]

    assert raised
    assert [kind for kind in raised if not issubclass(kind, FOREIGN)] == []


def test_a_host_in_the_corpus_is_never_read_as_something_public() -> None:
    for name in ("127.1", "2130706433", "0x7f.1", "①②⑦.⓪.⓪.①"):
        with pytest.raises(BadHost):
            read_host(name)
