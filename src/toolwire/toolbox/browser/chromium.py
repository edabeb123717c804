"""A real Chromium, driven by Playwright over pipes: one process, one profile, one way out for each visitor."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from toolwire.errors import ToolFailure
from toolwire.execute.egress.caps import Caps, TrafficEvent
from toolwire.execute.egress.connector import Connector
from toolwire.execute.egress.proxy import EgressProxy
from toolwire.execute.egress.rules import beyond_limits
from toolwire.execute.egress.traffic import TrafficLog
from toolwire.execute.sandbox.engines import cgroups
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import limits_of
from toolwire.protocol.traffic import Traffic
from toolwire.toolbox.browser.contract import Tab, TabOwner
from toolwire.toolbox.browser.sandbox import PROXY, BrowserBox
from toolwire.toolbox.browser.tab import VIEW, AddressPolicy, ChromiumTab, OpenBrowser, first_line, place_of

MOST_VISITORS = 4
_LAUNCH_S = 30.0
_REMEMBERED = 100
_CAPS = Caps(opened=20_000, down_bytes=1024 * 1024 * 1024, up_bytes=64 * 1024 * 1024, whole_s=3600)
_ONE_PAGE = """
window.open = url => { if (url) location.href = url; return null };
for (const kind of ["click", "submit"]) addEventListener(kind, event => {
  const place = event.target.closest?.("a[target], area[target], form[target]");
  if (place) place.target = "_self";
}, true);
"""
"""What would open in a new window opens in the one there is, as far as pages play along."""

_ARGUMENTS = (
    "--disable-quic", "--disable-background-networking", "--disable-component-update", "--no-pings",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
)  # fmt: skip


class Chromium:
    """Lends a tab to each visitor while its block is open; a visitor too many takes the place of the one idle longest.

    `program` is the Chromium to start; without it, the one of this machine. Starts nothing before a tab is wanted.
    """

    box = ("bubblewrap", "chromium")

    def __init__(self, *, program: str = "", connector: Callable[[], Connector] = Connector) -> None:
        self._program = program
        self._connector = connector
        self._opened: dict[str, OpenBrowser] = {}
        self._starting = asyncio.Lock()
        self._driver = AsyncExitStack()
        self._playwright: Any = None
        self._errors: type[Exception] = Exception

    async def __aenter__(self) -> "Chromium":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in tuple(self._opened.values()):
            await self._close(one)
        await self._driver.aclose()

    @asynccontextmanager
    async def tab(self, visitor: TabOwner, timeout_s: float) -> AsyncIterator[Tab]:
        opened = await self._open(visitor)
        async with opened.lock:
            tab = ChromiumTab(opened, timeout_s)
            try:
                yield tab
            except BaseException:
                if not opened.browser.is_connected() or asyncio.current_task().cancelling():  # type: ignore[union-attr] # there is one here
                    await asyncio.shield(self._close(opened))
                raise

    async def leave(self, visitor: TabOwner) -> Traffic | None:
        opened = self._opened.get(visitor.owner)
        if opened is None:
            return None
        await self._close(opened)
        return opened.log.take()

    async def _open(self, visitor: TabOwner) -> OpenBrowser:
        async with self._starting:
            known = self._opened.pop(visitor.owner, None)
            same = known is not None and known.visitor.without_limits() == visitor.without_limits()
            if known is not None and same and known.browser.is_connected():
                self._opened[visitor.owner] = known  # last in the dict is the one used last
                _hold(known, visitor)
                return known
            if known is not None:
                await known.stack.aclose()
            while len(self._opened) >= MOST_VISITORS:
                await self._close(next(iter(self._opened.values())))
            opened = await self._started(visitor)
            self._opened[visitor.owner] = opened
            return opened

    async def _close(self, opened: OpenBrowser) -> None:
        if self._opened.get(opened.visitor.owner) is opened:
            del self._opened[opened.visitor.owner]
        await opened.stack.aclose()

    async def _started(self, visitor: TabOwner) -> OpenBrowser:
        playwright = await self._driven()
        refused: dict[str, str] = {}
        log = TrafficLog()
        ruled = AddressPolicy(visitor.rules)
        async with AsyncExitStack() as stack:
            box = stack.enter_context(BrowserBox(self._program, cgroups()))
            proxy = EgressProxy(
                str(box.door), visitor.network, connector=self._connector(), caps=_CAPS,
                audit=lambda noted: _remember(refused, log, noted), mode=0o666, refusal=ruled.refusal,
            )  # fmt: skip
            await stack.enter_async_context(proxy)
            browser = await self._launched(playwright, box)
            stack.push_async_callback(browser.close)
            context = await browser.new_context(
                accept_downloads=False, service_workers="block", viewport=VIEW, java_script_enabled=True, permissions=[]
            )
            context.on("page", lambda page: _close_another(context, page))
            await context.add_init_script(_ONE_PAGE)
            await context.new_page()
            wanted: set[str] = set()
            context.on("request", lambda request: _want(wanted, request.url))
            context.on("request", lambda request: ruled.notice(request.url))
            if ruled.rules.rules:
                await _hold_requests(browser, ruled, self._errors)
            return OpenBrowser(
                visitor, browser, context, refused, wanted, self._errors, stack.pop_all(), log, ruled, proxy
            )
        raise AssertionError("the block above returns or raises")

    async def _launched(self, playwright: Any, box: BrowserBox) -> Any:
        try:
            return await playwright.chromium.launch(
                executable_path=str(box.launcher), chromium_sandbox=True, headless=True, args=list(_ARGUMENTS),
                proxy={"server": PROXY, "bypass": "<-loopback>"}, timeout=_LAUNCH_S * 1000,
                env={"PATH": "/usr/bin:/bin"}, handle_sigint=False, handle_sigterm=False, handle_sighup=False,
            )  # fmt: skip
        except self._errors as error:
            raise ToolFailure(f"Chromium did not start: {first_line(error)}", code=Code.UNAVAILABLE) from None

    async def _driven(self) -> Any:
        if self._playwright is None:
            try:
                api = importlib.import_module("playwright.async_api")
            except ImportError:
                raise ToolFailure(
                    "the browser needs Playwright (pip install 'toolwire[browser]')", code=Code.UNAVAILABLE
                ) from None
            self._errors = api.Error
            self._playwright = await self._driver.enter_async_context(api.async_playwright())
        return self._playwright


def _hold(opened: OpenBrowser, visitor: TabOwner) -> None:
    """Hold a browser to the hosts of a secret that it is given, from now on: its pages keep what was typed."""
    limits = [limit for limit in limits_of(visitor.network) if limit not in opened.visitor.network]
    if elsewhere := beyond_limits(limits, opened.log.places):
        reason = f"a secret of this call may not come near {elsewhere}, which this browser has reached"
        raise ToolFailure(f"{reason}; close it and begin again", code=Code.PERMISSION_DENIED)
    opened.proxy.tighten(limits)
    opened.visitor = replace(opened.visitor, network=(*opened.visitor.network, *limits))


async def _hold_requests(browser: Any, ruled: AddressPolicy, errors: type[Exception]) -> None:
    """Have Chromium ask before it sends a request, of every frame and after every redirect; else it waits."""
    session = await browser.new_browser_cdp_session()

    async def answer(event: dict[str, Any]) -> None:
        which = {"requestId": event["requestId"]}
        with suppress(errors):  # the page has left meanwhile
            if ruled.notice(event["request"]["url"]):
                await session.send("Fetch.failRequest", {**which, "errorReason": "BlockedByClient"})
            else:
                await session.send("Fetch.continueRequest", which)

    session.on("Fetch.requestPaused", answer)
    await session.send("Fetch.enable", {"patterns": [{"urlPattern": "*", "requestStage": "Request"}]})


async def _close_another(context: Any, page: Any) -> None:
    """A visitor has one page: whatever else opens is closed."""
    if context.pages[0] is not page:
        await page.close()


def _want(wanted: set[str], url: str) -> None:
    if len(wanted) < _REMEMBERED:
        wanted.add(place_of(url))


def _remember(refused: dict[str, str], log: TrafficLog, noted: TrafficEvent) -> None:
    log(noted)
    if noted.event == "refused" and len(refused) < _REMEMBERED:
        refused[noted.place] = noted.reason
