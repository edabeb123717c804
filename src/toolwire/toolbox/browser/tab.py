"""A visitor's page in Chromium: what is done on it, and what its failures mean in words."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from toolwire.decide.address_rules import AddressRules
from toolwire.errors import ToolFailure
from toolwire.execute.egress.places import BadUrl, read_url
from toolwire.execute.egress.proxy import EgressProxy
from toolwire.execute.egress.traffic import TrafficLog
from toolwire.protocol.outcomes import Code
from toolwire.protocol.policy import Rule
from toolwire.toolbox.browser.contract import TabOwner, TabState

TALLEST = 4000
VIEW = {"width": 1280, "height": 800}
_NAMED = 10
_SCHEMES = frozenset(("http", "https"))
_EMPTY = frozenset(("about:blank", "", "chrome-error://chromewebdata/"))


class AddressPolicy(Struct):
    """The rules about addresses as a tab meets them. `answered` are those that people were asked about for this tab.

    The proxy holds plain http to them. Of TLS it sees the host alone, so Chromium asks before it sends such a request,
    each redirect too; one that is refused is noticed here, and nothing of the page is shown.
    """

    rules: AddressRules
    answered: set[Rule] = field(default_factory=set)
    broken: str = ""

    def refusal(self, url: str) -> str:
        return self.rules.refusal(url, self.answered) if self.rules.rules else ""

    def notice(self, url: str) -> bool:
        """Whether a request that the proxy could not see into is refused."""
        reason = "" if url.startswith("http:") else self.refusal(url)
        self.broken = reason or self.broken
        return bool(reason)


class OpenBrowser(Struct):
    """A Chromium at a visitor's service, with what its pages wanted, where they went and what the proxy refused."""

    visitor: TabOwner
    browser: Any
    context: Any
    refused: dict[str, str]
    wanted: set[str]
    errors: type[Exception]
    stack: AsyncExitStack
    log: TrafficLog
    ruled: AddressPolicy
    proxy: EgressProxy
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    status: int | None = None

    def refusals(self) -> dict[str, str]:
        """Why pages did not get what they wanted since the last look. Wishes of Chromium's own are left out."""
        found = {place: reason for place, reason in self.refused.items() if place in self.wanted}
        self.refused.clear()
        self.wanted.clear()
        return found


class ChromiumTab:
    """The page of a visitor. Everything it gives back is untrusted."""

    def __init__(self, opened: OpenBrowser, timeout_s: float) -> None:
        self._opened = opened
        self._ms = max(timeout_s, 0.1) * 1000

    @property
    def log(self) -> TrafficLog:
        return self._opened.log

    async def navigate(self, url: str) -> None:
        self._opened.ruled.answered |= self._opened.ruled.rules.asked_about(url)
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

    async def seen(self) -> TabState:
        async with self._page("the page") as page:
            refused = self._opened.refusals()
            if reason := refused.get(place_of(page.url)):  # what is shown is the proxy's refusal, not a page
                await page.goto("about:blank")
                raise ToolFailure(f"the page led to where it may not go: {reason}", code=Code.PERMISSION_DENIED)
            return TabState(page.url, (await page.title())[:500], self._opened.status, tuple(refused.values())[:_NAMED])

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
            await self._leave_if_ruled_out(page)
            raise _failure(error, what, self._opened.refused) from None
        await _guard(self._opened.context)
        await self._leave_if_ruled_out(page)

    async def _leave_if_ruled_out(self, page: Any) -> None:
        ruled = self._opened.ruled
        urls = [frame.url for frame in page.frames] if ruled.rules.rules else []
        reason = ruled.broken or next(filter(None, map(ruled.refusal, urls)), "")
        if reason:
            ruled.broken = ""
            await self._leave(page)
            raise ToolFailure(f"the page led to where it may not go: {reason}", code=Code.PERMISSION_DENIED)

    async def _leave(self, page: Any) -> None:
        """Show nothing. The page of an error that comes meanwhile may get in between, once."""
        try:
            await page.goto("about:blank")
        except self._opened.errors:
            with suppress(self._opened.errors):
                await page.goto("about:blank")


async def _guard(context: Any) -> None:
    """Close pages that are not of the web but of this machine or of the browser itself."""
    for page in context.pages:
        if page.url not in _EMPTY and urlsplit(page.url).scheme not in _SCHEMES:
            await page.close()


def place_of(url: str) -> str:
    """host:port as the proxy calls it; nothing for what is no address of the web."""
    try:
        place = read_url(url)
    except BadUrl:
        return ""
    return f"{place.host}:{place.port}"


def _failure(error: Exception, what: str, refused: Mapping[str, str]) -> ToolFailure:
    said = first_line(error)
    if reason := refused.get(place_of(what)):  # Chromium only knows that the proxy said no; the proxy knows why
        return ToolFailure(f"{what[:200]} cannot be reached: {reason}", code=Code.PERMISSION_DENIED)
    if "Download is starting" in said or "ERR_ABORTED" in said:
        return ToolFailure(f"{what[:200]} is a download, and the browser keeps none; use webfetch")
    if "Timeout" in said:
        return ToolFailure(f"the page did not get on with {what[:100]!r} in time: {said}", code=Code.TIMEOUT)
    if "closed" in said or "crashed" in said:
        return ToolFailure(f"the page is gone ({said}); navigate anew", code=Code.UNAVAILABLE)
    return ToolFailure(said, code=Code.EXECUTION_FAILED)


def first_line(error: Exception) -> str:
    return next((line.strip()[:300] for line in str(error).splitlines() if line.strip()), type(error).__name__)
