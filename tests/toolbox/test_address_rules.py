"""A rule about an address means the page, by whatever way a tool comes there."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.egress.network import Heard, Server, connector, serving
from toolwire import Agent, Grant, Tier, ToolResult
from toolwire.decide.address_rules import AddressRules
from toolwire.define.arguments import Checker
from toolwire.errors import ToolFailure
from toolwire.execute.egress.proxy import EgressProxy
from toolwire.execute.egress.web import Web
from toolwire.protocol.approvals import Approval
from toolwire.protocol.calls import NeedsApproval
from toolwire.protocol.context import Context
from toolwire.protocol.policy import Autonomy, Rule
from toolwire.testing import ScriptedModel
from toolwire.toolbox.browser.browser_tool import browser_tool
from toolwire.toolbox.browser.chromium import Chromium
from toolwire.toolbox.web.fetching import webfetch_tool

HOSTS = {"good.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}
MARK = "ADMINS-ONLY-MARK"
REDIRECTS = {
    "/go": "/admin",
    "/twice": "/go",
    "/doubled": "//good.test:{port}//admin",
    "/coded": "/%61dmin",
    "/dotted": "http://good.test.:{port}/docs/../admin",
    "/docs": "/page",
}


async def site(heard: Heard, writer: asyncio.StreamWriter) -> None:
    path = heard.line.split(" ")[1]
    port = heard.headers["host"].rpartition(":")[2]
    place = REDIRECTS.get(path, "").format(port=port)
    body = MARK if "dmin" in path else f"<title>a page</title><p>ordinary words <a href=/admin>in</a> at {path}"
    if path == "/frame":
        body = "<p>framed<iframe src=/admin></iframe>"
    if path == "/script":
        body = "<p id=p>x<script>fetch('/go').then(a => a.text()).then(t => p.textContent = t)</script>"
    head = f"HTTP/1.1 302 Found\r\nlocation: {place}\r\n" if place else "HTTP/1.1 200 OK\r\n"
    kind = "content-type: text/html\r\n"
    writer.write(f"{head}{kind}content-length: {len(body)}\r\nconnection: close\r\n\r\n{body}".encode())


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(anyio_backend: str) -> AsyncIterator[Server]:
    async with serving(site) as opened:
        yield opened


@pytest.fixture(scope="module")
async def chromium(anyio_backend: str) -> AsyncIterator[Chromium]:
    async with Chromium(connector=lambda: connector(HOSTS)) as opened:
        yield opened


def rule(server: Server, verdict: str = "deny", tool: str = "webfetch") -> str:
    return f"{verdict} {tool} where url is http://good.test:{server.port}/admin*"


def granted(server: Server, *rules: str) -> Grant:
    hosts = (f"good.test:{server.port}",)
    spoken = tuple(map(Rule.parse, rules))
    return Grant(Tier.RUN, frozenset({"network"}), network=hosts, autonomy=Autonomy.FULL, rules=spoken, wary=False)


async def fetch(server: Server, path: str, *rules: str, **more: Any) -> ToolResult:
    tool = webfetch_tool(Web(connector(HOSTS)))
    async with asyncio.timeout(30), Agent(ScriptedModel(), [tool], grant=granted(server, *rules), **more) as agent:
        return await agent.call("webfetch", {"url": f"http://good.test:{server.port}{path}"})


@pytest.mark.parametrize("path", ["/admin", *(path for path in REDIRECTS if path != "/docs")])
async def test_T92_a_redirect_to_a_denied_address_is_not_followed(server: Server, path: str) -> None:
    assert MARK in (await fetch(server, path)).text, "the control: without the rule it is shown"
    before = len(server.heard)
    for tool in ("webfetch", "browser"):
        result = await fetch(server, path, rule(server, tool=tool))
        assert MARK not in result.text
        assert "admin" in result.text
    assert not any("dmin" in heard.line for heard in server.heard[before:]), "it was not even asked for"


async def test_a_redirect_to_another_page_of_the_same_host_is_followed(server: Server) -> None:
    assert "ordinary words" in (await fetch(server, "/docs", rule(server))).text


async def test_T92_a_redirect_to_an_address_that_a_rule_asks_about_is_refused_until_a_call_names_it(
    server: Server,
) -> None:
    asked: list[str] = []

    async def approve(request: NeedsApproval) -> Approval:
        asked.append(str(request.allowed.arguments["url"]))
        return Approval(granted=True)

    ask = rule(server, "ask")
    refused = await fetch(server, "/go", ask, approve=approve)
    assert (asked, MARK in refused.text) == ([], False)
    assert "call the tool with that address" in refused.text
    assert MARK in (await fetch(server, "/admin", ask, approve=approve)).text
    assert len(asked) == 1


async def visit(chromium: Chromium, server: Server, path: str, *rules: str, grant: Grant | None = None) -> str:
    """What a tab of its own shows at a path, and why it shows nothing."""
    tool = browser_tool(chromium)
    chosen = grant or granted(server, *rules)
    context = Context(turn_id=f"{path} {chosen.network} {chosen.rules}", grant=chosen, timeout_s=20)
    shown = ""
    try:
        async with asyncio.timeout(60):
            for arguments in (
                {"action": "navigate", "url": f"http://good.test:{server.port}{path}"},
                {"action": "extract", "format": "html"},
            ):
                checked = Checker(tool).check(arguments)
                assert not checked.faults
                shown += str(await tool.in_process.invoke(checked.arguments, context))
    except ToolFailure as failure:
        shown += str(failure)
    return shown


@pytest.mark.parametrize("path", ["/go", "/doubled", "/coded"])
async def test_T92_a_browser_does_not_show_what_a_redirect_leads_to(
    chromium: Chromium, server: Server, path: str
) -> None:
    assert MARK in await visit(chromium, server, path), "the control: without the rule it is shown"
    before = len(server.heard)
    shown = await visit(chromium, server, path, rule(server))
    assert MARK not in shown
    assert "a rule denies" in shown
    assert not any("dmin" in heard.line for heard in server.heard[before:])


@pytest.mark.parametrize("path", ["/frame", "/script"])
async def test_T92_a_page_does_not_fetch_a_denied_address_for_the_browser(
    chromium: Chromium, server: Server, path: str
) -> None:
    before = len(server.heard)
    assert MARK not in await visit(chromium, server, path, rule(server))
    assert not any("dmin" in heard.line for heard in server.heard[before:])


PAGES = {
    "a redirect": "HTTP/1.1 302 Found\r\nlocation: {there}\r\n",
    "a redirect of a frame of another host": "HTTP/1.1 200 OK\r\n<iframe src=http://other.test:{port}/></iframe>",
}


async def visit_over_tls(chromium: Chromium, way: str, verdict: str = "") -> tuple[str, int]:
    """What is shown of a page that leads to an address over TLS, and how often the server there was called.

    By redirects alone: for other links Chromium opens connections before it knows whether it may use them.
    """

    async def leads_there(heard: Heard, writer: asyncio.StreamWriter) -> None:
        host, _, port = heard.headers["host"].rpartition(":")
        chosen = "a redirect" if host.startswith("other") else way
        head, _, body = PAGES[chosen].format(there=f"https://good.test:{far.port}/admin", port=port).partition("<")
        body = f"<{body}" if body else "-"
        more = f"content-type: text/html\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(f"{head}{more}{body}".encode())

    async with serving(site) as far, serving(leads_there) as near:
        rules = (f"{verdict} webfetch where url is https://good.test:{far.port}/admin*",) if verdict else ()
        hosts = (f"good.test:{near.port}", f"other.test:{near.port}", f"good.test:{far.port}")
        grant = replace(granted(near, *rules), network=hosts)
        return await visit(chromium, near, "/", grant=grant), far.connections


@pytest.mark.parametrize("way", PAGES)
@pytest.mark.parametrize("verdict", ["deny", "ask"])
async def test_T148_a_browser_does_not_call_at_an_address_over_tls_that_a_rule_denies_or_asks_about(
    chromium: Chromium, way: str, verdict: str
) -> None:
    shown, called = await visit_over_tls(chromium, way, verdict)

    assert called == 0
    assert f"a rule {'denies' if verdict == 'deny' else 'asks about'} https://good.test" in shown


@pytest.mark.parametrize("way", PAGES)
async def test_T148_control_without_a_rule_it_does(chromium: Chromium, way: str) -> None:
    _, called = await visit_over_tls(chromium, way)

    assert called > 0


async def test_a_browser_visits_other_pages_of_a_host_with_a_denied_address(chromium: Chromium, server: Server) -> None:
    assert "ordinary words" in await visit(chromium, server, "/docs", rule(server))


async def test_T92_the_proxy_of_a_command_refuses_a_denied_address_and_a_host_that_is_denied_as_a_whole(
    server: Server, tmp_path: Path
) -> None:
    rules = AddressRules.of(granted(server, rule(server), "deny webfetch where url is https://good.test*"))
    path = str(tmp_path / "door")
    async with EgressProxy(path, ("good.test",), connector=connector(HOSTS), refusal=rules.refusal):

        async def said(head: str) -> str:
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(f"{head} HTTP/1.1\r\nhost: good.test\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
            return answer

        assert "a rule denies" in await said(f"GET http://good.test:{server.port}/x/../admin")
        assert "a rule denies" in await said("CONNECT good.test:443")
        assert "a rule denies" not in await said(f"GET http://good.test:{server.port}/docs")
