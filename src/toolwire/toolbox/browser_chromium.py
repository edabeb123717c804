"""A real Chromium, driven by Playwright over pipes: one process, one profile, one way out for each visitor."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from toolwire.errors import ToolFailure
from toolwire.execute.egress.caps import Caps, Noted
from toolwire.execute.egress.connector import Connector
from toolwire.execute.egress.places import BadUrl, read_url
from toolwire.execute.egress.proxy import EgressProxy
from toolwire.execute.sandbox.engines import cgroups
from toolwire.protocol.outcomes import Code
from toolwire.toolbox.browser_box import PROXY, Box
from toolwire.toolbox.browser_contract import Seen, Tab, Visitor

MOST_VISITORS = 4
TALLEST = 4000
VIEW = {"width": 1280, "height": 800}
_LAUNCH_S = 30.0
_REMEMBERED = 100
_NAMED = 10
_SCHEMES = frozenset(("http", "https"))
_EMPTY = frozenset(("about:blank", "", "chrome-error://chromewebdata/"))
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

    def __init__(self, *, program: str = "", connector: Callable[[], Connector] = Connector) -> None:
        self._program = program
        self._connector = connector
        self._opened: dict[str, _Opened] = {}
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
    async def tab(self, visitor: Visitor, timeout_s: float) -> AsyncIterator[Tab]:
        opened = await self._open(visitor)
        async with opened.lock:
            tab = ChromiumTab(opened, timeout_s)
            try:
                yield tab
            except BaseException:
                if not opened.browser.is_connected() or asyncio.current_task().cancelling():  # type: ignore[union-attr] # there is one here
                    await asyncio.shield(self._close(opened))
                raise

    async def leave(self, visitor: Visitor) -> bool:
        opened = self._opened.get(visitor.owner)
        if opened is None:
            return False
        await self._close(opened)
        return True

    async def _open(self, visitor: Visitor) -> "_Opened":
        async with self._starting:
            known = self._opened.pop(visitor.owner, None)
            if known is not None and known.visitor == visitor and known.browser.is_connected():
                self._opened[visitor.owner] = known  # last in the dict is the one used last
                return known
            if known is not None:
                await known.stack.aclose()
            while len(self._opened) >= MOST_VISITORS:
                await self._close(next(iter(self._opened.values())))
            opened = await self._started(visitor)
            self._opened[visitor.owner] = opened
            return opened

    async def _close(self, opened: "_Opened") -> None:
        if self._opened.get(opened.visitor.owner) is opened:
            del self._opened[opened.visitor.owner]
        await opened.stack.aclose()

    async def _started(self, visitor: Visitor) -> "_Opened":
        playwright = await self._driven()
        refused: dict[str, str] = {}
        async with AsyncExitStack() as stack:
            box = stack.enter_context(Box(self._program, cgroups()))
            proxy = EgressProxy(
                str(box.door), visitor.network, connector=self._connector(), caps=_CAPS,
                audit=lambda noted: _remember(refused, noted), mode=0o666,
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
            return _Opened(visitor, browser, context, refused, wanted, self._errors, stack.pop_all())
        raise AssertionError("the block above returns or raises")

    async def _launched(self, playwright: Any, box: Box) -> Any:
        try:
            return await playwright.chromium.launch(
                executable_path=str(box.launcher), chromium_sandbox=True, headless=True, args=list(_ARGUMENTS),
                proxy={"server": PROXY, "bypass": "<-loopback>"}, timeout=_LAUNCH_S * 1000,
                env={"PATH": "/usr/bin:/bin"}, handle_sigint=False, handle_sigterm=False, handle_sighup=False,
            )  # fmt: skip
        except self._errors as error:
            raise ToolFailure(f"Chromium did not start: {_first_line(error)}", code=Code.UNAVAILABLE) from None

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


@dataclass(slots=True)
class _Opened:
    visitor: Visitor
    browser: Any
    context: Any
    refused: dict[str, str]
    wanted: set[str]
    errors: type[Exception]
    stack: AsyncExitStack
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    status: int | None = None

    def refusals(self) -> dict[str, str]:
        """Why pages did not get what they wanted since the last look. Wishes of Chromium's own are left out."""
        found = {place: reason for place, reason in self.refused.items() if place in self.wanted}
        self.refused.clear()
        self.wanted.clear()
        return found


class ChromiumTab:
    """The page of a visitor. Everything it gives back comes from strangers."""

    def __init__(self, opened: _Opened, timeout_s: float) -> None:
        self._opened = opened
        self._ms = max(timeout_s, 0.1) * 1000

    async def navigate(self, url: str) -> None:
        async with self._page(url) as page:
            answer = await page.goto(url, timeout=self._ms, wait_until="domcontentloaded")
            self._opened.status = answer.status if answer is not None else None

    async def click(self, selector: str) -> None:
        async with self._page(selector) as page:
            await page.locator(selector).click(timeout=self._ms)
            await page.wait_for_load_state("domcontentloaded", timeout=self._ms)

    async def type(self, selector: str, text: str, *, submit: bool) -> None:
        async with self._page(selector) as page:
            place = page.locator(selector)
            await place.fill(text, timeout=self._ms)
            if submit:
                await place.press("Enter", timeout=self._ms)
                await page.wait_for_load_state("domcontentloaded", timeout=self._ms)

    async def html(self, selector: str, most: int) -> str:
        async with self._page(selector) as page:
            place = page.locator(selector or "html").first
            found = await place.evaluate("(one, most) => String(one.outerHTML).slice(0, most)", most, timeout=self._ms)
            return str(found)[:most]

    async def controls(self, selector: str) -> str:
        async with self._page(selector) as page:
            return str(await page.locator(selector or "body").first.aria_snapshot(timeout=self._ms))

    async def screenshot(self, selector: str, *, full_page: bool) -> bytes:
        async with self._page(selector) as page:
            if selector:
                return bytes(await page.locator(selector).first.screenshot(timeout=self._ms))
            clip = {"x": 0, "y": 0, "width": VIEW["width"], "height": TALLEST if full_page else VIEW["height"]}
            return bytes(await page.screenshot(timeout=self._ms, full_page=full_page, clip=clip))

    async def evaluate(self, script: str) -> Any:
        async with self._page(script) as page:
            return await page.evaluate(script)

    async def seen(self) -> Seen:
        async with self._page("the page") as page:
            refused = self._opened.refusals()
            if reason := refused.get(_place(page.url)):  # what is shown is the proxy's refusal, not a page
                await page.goto("about:blank")
                raise ToolFailure(f"the page led to where it may not go: {reason}", code=Code.PERMISSION_DENIED)
            return Seen(page.url, (await page.title())[:500], self._opened.status, tuple(refused.values())[:_NAMED])

    @asynccontextmanager
    async def _page(self, what: str) -> AsyncIterator[Any]:
        """The visitor's page, which before and afterwards must be one of the web."""
        await _guard(self._opened.context)
        pages = self._opened.context.pages
        page = pages[0] if pages else await self._opened.context.new_page()
        try:
            async with asyncio.timeout(self._ms / 1000 + 1):
                yield page
        except TimeoutError:
            raise ToolFailure(f"the page did not get on with {what[:100]!r} in time", code=Code.TIMEOUT) from None
        except self._opened.errors as error:
            raise _failure(error, what, self._opened.refused) from None
        await _guard(self._opened.context)


async def _close_another(context: Any, page: Any) -> None:
    """A visitor has one page: whatever else opens is closed."""
    if context.pages[0] is not page:
        await page.close()


async def _guard(context: Any) -> None:
    """Close pages that are not of the web but of this machine or of the browser itself."""
    for page in context.pages:
        if page.url not in _EMPTY and urlsplit(page.url).scheme not in _SCHEMES:
            await page.close()


def _place(url: str) -> str:
    """host:port as the proxy calls it; nothing for what is no address of the web."""
    try:
        place = read_url(url)
    except BadUrl:
        return ""
    return f"{place.host}:{place.port}"


def _want(wanted: set[str], url: str) -> None:
    if len(wanted) < _REMEMBERED:
        wanted.add(_place(url))


def _remember(refused: dict[str, str], noted: Noted) -> None:
    if noted.event == "refused" and len(refused) < _REMEMBERED:
        refused[noted.place] = noted.reason


def _failure(error: Exception, what: str, refused: Mapping[str, str]) -> ToolFailure:
    said = _first_line(error)
    if reason := refused.get(_place(what)):  # Chromium only knows that the proxy said no; the proxy knows why
        return ToolFailure(f"{what[:200]} cannot be reached: {reason}", code=Code.PERMISSION_DENIED)
    if "Download is starting" in said or "ERR_ABORTED" in said:
        return ToolFailure(f"{what[:200]} is a download, and the browser keeps none; use webfetch")
    if "Timeout" in said:
        return ToolFailure(f"the page did not get on with {what[:100]!r} in time: {said}", code=Code.TIMEOUT)
    if "closed" in said or "crashed" in said:
        return ToolFailure(f"the page is gone ({said}); navigate anew", code=Code.UNAVAILABLE)
    return ToolFailure(said, code=Code.EXECUTION_FAILED)


def _first_line(error: Exception) -> str:
    return next((line.strip()[:300] for line in str(error).splitlines() if line.strip()), type(error).__name__)
