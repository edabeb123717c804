"""What the attacks of T38 to T47 do to a client, a reader and a proxy that are not careful, and to a bare browser."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.async_api import async_playwright

from tests.egress.network import Heard, saying, serving
from tests.egress.test_proxy import HELLO, Certificates, certificates, get, socket_path, talk, through
from tests.toolbox.test_browser import shop
from toolwire.execute.egress.places import read_authority, read_url
from toolwire.toolbox.browser.sandbox import find_chromium

__all__ = ["certificates", "socket_path"]
LISTED = "good.example"


@asynccontextmanager
async def careless_proxy(path: str) -> AsyncIterator[None]:
    """Lets everything through whose host is listed, whatever the port, the method or the name inside TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.decode().split(" ", 2)
        if method == "CONNECT":
            host, port = read_authority(target, None)
        else:
            place = read_url(target)
            host, port = place.host, place.port
        if str(host) != LISTED:
            writer.close()
            return
        inward, outward = await asyncio.open_connection("127.0.0.1", port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            outward.write(head)
        await asyncio.gather(carry(reader, outward), carry(inward, writer))

    async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(65536):
                sink.write(piece)
        finally:
            sink.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()


async def test_T42_control_a_proxy_that_reads_hosts_only_passes_other_ports_and_methods_on(socket_path: str) -> None:
    async with serving(HELLO) as listed, serving(HELLO) as other, careless_proxy(socket_path):
        deleting = await talk(socket_path, get(f"http://{LISTED}:{listed.port}/", method="DELETE"))
        elsewhere = await talk(socket_path, get(f"http://{LISTED}:{other.port}/"))

    assert deleting.endswith("hello")
    assert elsewhere.endswith("hello")
    assert [heard.line.split(" ")[0] for heard in (*listed.heard, *other.heard)] == ["DELETE", "GET"]


async def test_T43_control_a_proxy_that_does_not_read_tls_carries_it_to_another_server(
    socket_path: str, certificates: Certificates
) -> None:
    async with serving(HELLO, certificates.server) as server, careless_proxy(socket_path):
        said = await through(socket_path, f"{LISTED}:{server.port}", "evil.example", certificates.client)

    assert said.endswith(b"hello")
    assert len(server.heard) == 1


async def test_T38_control_a_client_that_judges_the_first_address_only_is_led_inside_with_its_key() -> None:
    async with serving(HELLO) as inside:
        away = saying(b"", f"location: http://localhost:{inside.port}/admin", status="302 Found")
        async with serving(away) as server, httpx2.AsyncClient(follow_redirects=True, trust_env=False) as client:
            address = f"http://127.0.0.1:{server.port}/"
            assert urlsplit(address).hostname == "127.0.0.1"  # the one that is allowed
            answer = await client.get(address, headers={"x-api-key": "secret"})

    assert answer.text == "hello"
    assert inside.heard[0].line == "GET /admin HTTP/1.1"
    assert inside.heard[0].headers["x-api-key"] == "secret"


async def test_T39_control_a_check_and_a_browser_read_two_hosts_from_one_address() -> None:
    urls = ["http://good.test\\@evil.test/", "http://evil.test\\.good.test/", "http://good\uff0etest/"]
    async with asyncio.timeout(60), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = await browser.new_page()
        gone_to = [await page.evaluate("url => new URL(url).hostname", url) for url in urls]
        await browser.close()

    assert [urlsplit(url).hostname for url in urls] == ["evil.test", "evil.test\\.good.test", "good\uff0etest"]
    assert gone_to == ["good.test", "evil.test", "good.test"]


@pytest.mark.parametrize("address", ["file:{file}", "view-source:http://127.0.0.1:{port}/", "http://127.0.0.1:{port}/"])
async def test_T47_control_a_browser_without_a_box_goes_anywhere(tmp_path: Path, address: str) -> None:
    file = tmp_path / "private.txt"
    file.write_text("<h1>Tea</h1>")
    async with asyncio.timeout(60), serving(shop) as inside, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = await browser.new_page()
        await page.goto(address.format(file=file, port=inside.port))
        seen = await page.inner_text("body")
        await browser.close()

    assert "Tea" in seen


async def test_T47_control_a_browser_without_a_box_takes_downloads(tmp_path: Path) -> None:
    async def attached(heard: Heard, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-disposition: attachment; filename=made.bin\r\n\r\nplanted")

    async with asyncio.timeout(60), serving(attached) as server, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = await browser.new_page()
        async with page.expect_download() as coming:
            await page.evaluate("url => { location = url }", f"http://127.0.0.1:{server.port}/")
        await (await coming.value).save_as(tmp_path / "made.bin")
        await browser.close()

    assert (tmp_path / "made.bin").read_text() == "planted"
