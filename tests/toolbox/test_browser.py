"""The browser tool with a real Chromium in its box, against real servers on loopback."""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.egress.network import Heard, Server, connector, serving
from tests.toolbox.conftest import Call
from toolwire.define.conformance import report
from toolwire.errors import SandboxUnavailable, ToolFailure
from toolwire.execute.egress.proxy import BRIDGE_PORT
from toolwire.protocol.calls import Image
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Grant
from toolwire.toolbox.browser import sandbox
from toolwire.toolbox.browser.browser_tool import browser_tool, check_url
from toolwire.toolbox.browser.chromium import Chromium
from toolwire.toolbox.files.images import read_kind

HOSTS = {"good.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}

HOME = b"""<!doctype html><title>Tea shop</title><h1>Tea</h1><p id=p>loading</p>
<form action=/order><input name=kind aria-label="Kind of tea"><button>Order</button></form>
<a href=/slow>Slow</a><script>document.getElementById("p").textContent = "written by a " + "script"</script>"""
PAGES: Mapping[str, tuple[bytes, str]] = {
    "/": (HOME, "text/html"),
    "/order": (b"<title>Thanks</title><p>Ordered.", "text/html"),
    "/new": (b"<a target=_blank href=/order>Open</a> <b onclick=window.open('/order')>Jump</b>", "text/html"),
    "/long": (b"<p>" + b"word " * 2000, "text/html"),
    "/cookie": (
        b"<script>document.write(document.cookie || 'none'); document.cookie = 'seen=yes'</script>",
        "text/html",
    ),
    "/file": (b"x" * 100, "application/octet-stream\r\ncontent-disposition: attachment; filename=made.bin"),
    "/leave": (
        b"<script>location = 'file:///etc/hostname'; window.open('view-source:/')</script>still here",
        "text/html",
    ),
}


async def shop(heard: Heard, writer: asyncio.StreamWriter) -> None:
    path = heard.line.split(" ")[1].partition("?")[0]
    page, kind = PAGES.get(path, (b"not here", "text/plain"))
    status = "200 OK" if path in PAGES else "404 Not Found"
    if path == "/away":
        status, kind = "302 Found", "text/plain\r\nlocation: http://other.example/"
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(page)}\r\nconnection: close\r\n\r\n"
    writer.write(head.encode() + page)


class Visit:
    """A browser, a server, and someone who may go there."""

    def __init__(self, call: Call, chromium: Chromium, server: Server) -> None:
        self.server = server
        self.root = f"http://good.example:{server.port}"
        self._call = call
        self._tools = {True: browser_tool(chromium, evaluate=True), False: browser_tool(chromium)}

    async def __call__(
        self,
        action: str,
        *,
        who: str = "t1",
        scripts: bool = False,
        timeout_s: float = 20,
        more: tuple[str, ...] = (),
        **arguments: Any,
    ) -> Any:
        grant = Grant(network=(f"good.example:{self.server.port}", *more))
        context = Context(turn_id=who, grant=grant, timeout_s=timeout_s)
        async with asyncio.timeout(60):
            return await self._call(self._tools[scripts], context, action=action, **arguments)

    async def read(self, action: str, **arguments: Any) -> Any:
        return (await self(action, **arguments)).structured


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def chromium(anyio_backend: str) -> AsyncIterator[Chromium]:
    async with Chromium(connector=lambda: connector(HOSTS)) as opened:
        yield opened


@pytest.fixture(scope="module")
async def server(anyio_backend: str) -> AsyncIterator[Server]:
    async with serving(shop) as opened:
        yield opened


@pytest.fixture
def visit(call: Call, chromium: Chromium, server: Server) -> Visit:
    return Visit(call, chromium, server)


def test_the_browser_tool_conforms() -> None:
    assert report(browser_tool(Chromium())) == []


@pytest.mark.contrast("T47")
@pytest.mark.feature("F247")
async def test_a_page_is_visited_read_used_and_pictured(visit: Visit) -> None:
    home = await visit.read("navigate", url=f"{visit.root}/")
    page = await visit.read("extract")
    controls = await visit.read("extract", format="controls")
    picture = await visit("screenshot")
    await visit("type", selector='role=textbox[name="Kind of tea"]', text="green")
    after = await visit.read("click", selector="text=Order")

    assert (home["title"], home["status"], home["url"]) == ("Tea shop", 200, f"{visit.root}/")
    assert "# Tea" in page["text"]
    assert "written by a script" in page["text"]
    assert 'button "Order"' in controls["text"]
    [image] = [block for block in picture.content if isinstance(block, Image)]
    assert read_kind(base64.b64decode(image.data)) == ("png", 1280, 800)
    assert (after["title"], after["url"]) == ("Thanks", f"{visit.root}/order?kind=green")
    assert visit.server.heard[-1].line.startswith("GET /order?kind=green ")


async def test_typing_can_submit_and_a_long_page_is_read_in_parts(visit: Visit) -> None:
    await visit("navigate", url=f"{visit.root}/")
    ordered = await visit.read("type", selector="input[name=kind]", text="a & b", submit=True)
    await visit("navigate", url=f"{visit.root}/long")
    first = await visit.read("extract", format="text", max_chars=100)
    second = await visit.read("extract", format="text", max_chars=100, start=100)

    assert ordered["title"] == "Thanks"
    assert first["text"] + second["text"] == ("word " * 40)
    assert (first["truncated"], first["note"]) == (True, "read on with start=100")


async def test_what_wants_a_new_window_opens_in_the_one_there_is(visit: Visit) -> None:
    for selector in ("text=Open", "text=Jump"):
        await visit("navigate", url=f"{visit.root}/new")
        assert (await visit.read("click", selector=selector))["title"] == "Thanks"


async def test_a_page_that_opens_windows_without_end_is_held_back(visit: Visit) -> None:
    """Even where it has found a window.open that is not ours."""
    await visit("navigate", who="many", url=f"{visit.root}/")
    opening = "delete window.open; for (let at = 0; at < 20; at++) window.open('/order')"
    with contextlib.suppress(ToolFailure):
        await visit("evaluate", who="many", scripts=True, script=opening)
    assert (await visit.read("navigate", who="many", url=f"{visit.root}/long"))["url"] == f"{visit.root}/long"
    await visit("close", who="many")


async def test_what_is_not_on_the_page_is_a_failure_with_a_reason(visit: Visit) -> None:
    missing = await visit.read("navigate", url=f"{visit.root}/nothing")
    assert missing["status"] == 404

    with pytest.raises(ToolFailure, match="selector"):
        await visit("click")
    with pytest.raises(ToolFailure):
        await visit("click", selector="][")


async def test_a_tab_that_is_closed_forgets_everything_and_visitors_share_nothing(visit: Visit) -> None:
    """T47: a fresh profile for everyone."""

    async def cookie(who: str) -> str:
        await visit("navigate", who=who, url=f"{visit.root}/cookie")
        return str((await visit.read("extract", who=who, format="text"))["text"])

    assert [await cookie("a"), await cookie("a"), await cookie("b")] == ["none", "seen=yes", "none"]
    await visit("close", who="a")
    assert await cookie("a") == "none"
    assert (await visit.read("close", who="nobody"))["note"] == "no tab was open"


NOT_OF_THE_WEB = [
    "file:///etc/passwd", "view-source:http://good.example/", "chrome://version/", "javascript:alert(1)",
    "data:text/html,<p>x", "about:blank", "ftp://good.example/", "blob:http://good.example/x", "FILE:///etc/passwd",
    "devtools://devtools", "ws://good.example/", "", "good.example",
]  # fmt: skip


@pytest.mark.parametrize("url", NOT_OF_THE_WEB)
async def test_T47_an_address_that_is_not_of_the_web_is_refused(visit: Visit, url: str) -> None:
    with pytest.raises(ToolFailure, match=r"cannot be visited") as refused:
        await visit("navigate", url=url)
    assert refused.value.code is Code.INVALID_PARAMS


@pytest.mark.parametrize("host", ["other.example", "127.0.0.1", "localhost", "[::1]", "169.254.169.254"])
async def test_T47_a_host_that_is_not_granted_is_refused(visit: Visit, host: str) -> None:
    before = visit.server.connections
    with pytest.raises(ToolFailure, match="not among the hosts") as refused:
        await visit("navigate", url=f"http://{host}:{visit.server.port}/")
    assert refused.value.code is Code.PERMISSION_DENIED
    assert visit.server.connections == before


async def test_T47_what_a_page_wants_from_elsewhere_never_leaves_the_box(visit: Visit) -> None:
    """The control is in the same page: what it wants from the granted host arrives."""
    async with serving(shop) as inside:
        sources = [f"http://{host}:{inside.port}/x" for host in ("127.0.0.1", "localhost", "other.example", "[::1]")]
        await visit("navigate", url=f"{visit.root}/")
        asking = f"Promise.allSettled({[*sources, '/order']}.map(one => fetch(one, {{mode: 'no-cors'}})))"
        ends = await visit.read("evaluate", scripts=True, script=f"{asking}.then(all => all.map(one => one.status))")

        assert inside.connections == 0
        assert "not among the hosts" in ends["note"]
    assert visit.server.heard[-1].line.startswith("GET /order ")


async def test_T47_a_page_cannot_lead_the_tab_to_files_or_its_own_source(visit: Visit) -> None:
    await visit("navigate", url=f"{visit.root}/leave")
    page = await visit.read("extract", format="text")
    assert (page["text"], page["url"]) == ("still here", f"{visit.root}/leave")


async def test_a_page_whose_certificate_nobody_vouches_for_is_not_shown(call: Call, chromium: Chromium) -> None:
    """TLS goes through the proxy unopened; Chromium itself judges the certificate."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("good.example").configure_cert(tls)
    async with serving(shop, tls) as server:
        visit = Visit(call, chromium, server)
        with pytest.raises(ToolFailure, match="ERR_CERT_AUTHORITY_INVALID"):
            await visit("navigate", url=f"https://good.example:{server.port}/")
        assert server.heard == []


async def test_T47_a_redirect_to_a_place_that_is_not_granted_is_refused(visit: Visit) -> None:
    with pytest.raises(ToolFailure, match=r"other\.example:80 is not among the hosts") as refused:
        await visit("navigate", url=f"{visit.root}/away")
    assert refused.value.code is Code.PERMISSION_DENIED
    assert visit.server.heard[-1].line.startswith("GET /away ")


async def test_T47_a_download_is_refused(visit: Visit) -> None:
    with pytest.raises(ToolFailure, match="download"):
        await visit("navigate", url=f"{visit.root}/file")
    assert visit.server.heard[-1].line.startswith("GET /file ")


async def test_T47_scripts_of_the_model_are_off_unless_the_operator_allows_them(visit: Visit) -> None:
    await visit("navigate", url=f"{visit.root}/")
    with pytest.raises(ToolFailure, match="scripts are not run") as refused:
        await visit("evaluate", script="1 + 1")
    assert refused.value.code is Code.PERMISSION_DENIED
    assert (await visit.read("evaluate", scripts=True, script="1 + 1"))["text"] == "2"


def _browsers() -> list[Path]:
    """Processes of Chromium that are the first of their kind."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0") if process.name.isdigit() else [b""]
        except OSError:
            continue
        if words[0].endswith(b"/chromium") and not any(word.startswith(b"--type=") for word in words):
            found.append(process)
    return found


def _listening(process: Path) -> set[int]:
    """The TCP ports on which someone listens in a process's network."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in (process / "net" / name).read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


async def test_T47_no_port_is_open_for_whoever_would_drive_the_browser(visit: Visit) -> None:
    """It is driven over pipes: in its network the only listener is the bridge to the proxy. Its own sandbox is on."""
    await visit("navigate", url=f"{visit.root}/")

    looked_at = 0
    for browser in _browsers():
        try:
            words, ports = (browser / "cmdline").read_bytes(), _listening(browser)
        except OSError:  # the browser of an earlier test, which has just ended
            continue
        assert b"--remote-debugging-pipe" in words
        assert b"--no-sandbox" not in words
        assert ports == {BRIDGE_PORT}
        looked_at += 1
    assert looked_at


async def test_a_page_that_hangs_does_not_hang_the_tool(visit: Visit) -> None:
    await visit("navigate", who="busy", url=f"{visit.root}/")
    with pytest.raises(ToolFailure) as failed:
        await visit("evaluate", who="busy", scripts=True, timeout_s=2, script="while (true) {}")
    assert failed.value.code is Code.TIMEOUT
    # On a busy machine, Chromium may have died of the page before it is closed.
    assert (await visit.read("close", who="busy"))["note"] in (
        "the tab is closed and has forgotten everything", "no tab was open"
    )  # fmt: skip
    assert (await visit.read("navigate", who="busy", url=f"{visit.root}/"))["url"] == f"{visit.root}/"


def test_a_rule_that_cannot_be_read_allows_nothing() -> None:
    with pytest.raises(ToolFailure, match="cannot be read"):
        check_url("http://good.example/", ("*",))


def test_without_chromium_or_a_box_the_tool_says_what_is_missing() -> None:
    with pytest.raises(ToolFailure, match="apt install chromium"):
        sandbox.find_chromium("no-such-program")
    with pytest.raises(SandboxUnavailable, match="in a box or not at all"):
        sandbox._needed("no-such-program", "x")


async def test_T81_a_browser_that_was_given_a_secret_stays_with_its_host(visit: Visit) -> None:
    """Pages keep what is typed into them, so later calls are held too, until the browser is closed."""
    other = f"other.example:{visit.server.port}"
    limit = f"&good.example:{visit.server.port}"
    await visit("navigate", who="s1", url=f"{visit.root}/", more=(other,))
    typed = await visit("type", who="s1", selector="input[name=kind]", text="hunter2", submit=True, more=(other, limit))
    assert typed.structured["title"] == "Thanks"
    with pytest.raises(ToolFailure, match="may go to"):
        await visit("navigate", who="s1", url=f"http://{other}/", more=(other,))
    await visit("close", who="s1", more=(other,))
    assert (await visit("navigate", who="s1", url=f"http://{other}/", more=(other,))).structured["title"] == "Tea shop"


async def test_T81_a_browser_that_has_been_elsewhere_is_given_no_secret(visit: Visit) -> None:
    other = f"other.example:{visit.server.port}"
    limit = f"&good.example:{visit.server.port}"
    await visit("navigate", who="s2", url=f"http://{other}/", more=(other,))
    await visit("navigate", who="s2", url=f"{visit.root}/", more=(other,))
    with pytest.raises(ToolFailure, match="close it and begin again"):
        await visit("type", who="s2", selector="input[name=kind]", text="hunter2", more=(other, limit))
    await visit("close", who="s2", more=(other,))
    await visit("navigate", who="s2", url=f"{visit.root}/", more=(other,))
    await visit("type", who="s2", selector="input[name=kind]", text="hunter2", more=(other, limit))
