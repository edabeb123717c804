"""One provider's HTTP door: sends a body, bounds what comes back, and tries again when that may help."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx2
from msgspec import Struct

from toolwire.models.failures import (
    FOREIGN,
    LARGEST_ERROR,
    ProviderFailure,
    ProviderSite,
    of_exception,
    of_status,
    too_large,
    wait_too_long,
)
from toolwire.models.response_body import ResponseBody
from toolwire.models.waits import tell_wait, time_to_wait_s
from toolwire.tls import trust_for

T = TypeVar("T")


class RequestPolicy(Struct, frozen=True):
    """How long a provider may take, how much it may send, and how often it is asked again.

    `idle_s` bounds each silence, `closing_s` the silence after a complete reply, `whole_s` one try from end to end;
    A provider that asks for a longer wait than `longest_wait_s` is waited for only within the deadline of a turn.
    """

    connect_s: float = 10.0
    idle_s: float = 120.0
    whole_s: float = 1800.0
    closing_s: float = 5.0
    tries: int = 4
    first_wait_s: float = 0.5
    longest_wait_s: float = 60.0
    largest_answer: int = 32 * 1024 * 1024
    longest_line: int = 8 * 1024 * 1024

    def wait_s(self, attempt: int, asked_s: float | None, chance: float) -> float:
        """How long to wait after this attempt: what the provider asked for, or twice as long each time, with jitter."""
        if asked_s is not None:
            return asked_s  # never less: a provider that is asked too early may shut us out
        return min(self.first_wait_s * 2.0 ** (attempt - 1) * (0.5 + chance / 2), self.longest_wait_s)


class TimeSource(Struct, frozen=True):
    """Time and chance, given so that tests neither wait nor guess."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random


DEFAULT_REQUEST_POLICY = RequestPolicy()
SYSTEM_TIME = TimeSource()


class HttpAnswer(ResponseBody):
    """A response with status 200 whose body is being read. Reading raises Trouble, and nothing else."""

    def _too_large(self) -> ProviderFailure:
        return too_large(self._place, self._largest)

    def _lost(self, error: Exception) -> ProviderFailure:
        return of_exception(self._place, error)

    async def last_piece(self, within_s: float) -> bytes:
        """The next bytes after all that matters has come; also empty when they are late or the connection broke."""
        with contextlib.suppress(TimeoutError, ProviderFailure):
            async with asyncio.timeout(within_s):
                return await self.piece()
        return b""

    async def close(self) -> None:
        await self._pieces.aclose()


class Endpoint:
    """Asks one provider over HTTP, with one pool of connections that lives until `close`."""

    def __init__(
        self,
        place: ProviderSite,
        base_url: str,
        headers: Mapping[str, str],
        request_policy: RequestPolicy,
        time_source: TimeSource,
    ) -> None:
        self.place = place
        self._base_url = base_url.rstrip("/")
        self._headers = {"content-type": "application/json", "user-agent": "toolwire", **headers}
        self._request_policy = request_policy
        self._time_source = time_source
        self._client: httpx2.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def persist(self, once: Callable[[], Awaitable[T]], may_repeat: Callable[[], bool]) -> T:
        """Do this until it works, as long as another try may help. Raises the Trouble of the last try."""
        attempt = 1
        while True:
            try:
                return await once()
            except ProviderFailure as trouble:
                if not trouble.again or attempt >= self._request_policy.tries or not may_repeat():
                    raise
                self._require_time(trouble)
                wait_s = self._request_policy.wait_s(attempt, trouble.wait_s, self._time_source.chance())
                tell_wait(wait_s, str(trouble.error))
            await self._time_source.sleep(wait_s)
            attempt += 1

    def _require_time(self, trouble: ProviderFailure) -> None:
        """Raise the trouble at once where its provider asks for a longer wait than there is time for."""
        left_s = time_to_wait_s()
        limit_s = self._request_policy.longest_wait_s if left_s is None else left_s
        if trouble.wait_s is not None and trouble.wait_s > limit_s:
            raise wait_too_long(trouble, trouble.wait_s, left_s, self._time_source.now())

    @asynccontextmanager
    async def ask(self, method: str, path: str, body: bytes | None = None) -> AsyncIterator[HttpAnswer]:
        """Send once and give the answer, to be read inside the block. Raises Trouble."""
        async with self._in_time(), self._sent(method, path, body) as response:
            answer = HttpAnswer(
                response,
                self.place,
                self._request_policy.largest_answer if response.status_code == 200 else LARGEST_ERROR,
            )
            try:
                if response.status_code != 200:
                    raise await self._refusal(response, answer)
                yield answer
            finally:
                await answer.close()

    async def close(self) -> None:
        """Let go of the connections. Harmless when called twice."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            with contextlib.suppress(*FOREIGN):
                await client.aclose()

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        limit = asyncio.timeout(self._request_policy.whole_s)
        try:
            async with limit:
                yield
        except TimeoutError as late:
            if not limit.expired():
                raise
            raise of_exception(self.place, late) from None

    @asynccontextmanager
    async def _sent(self, method: str, path: str, body: bytes | None) -> AsyncIterator[httpx2.Response]:
        client = self._connected()
        try:
            request = client.build_request(method, self._base_url + path, content=body)
            response = await client.send(request, stream=True)
        except FOREIGN as lost:
            raise of_exception(self.place, lost) from None
        try:
            yield response
        finally:
            with contextlib.suppress(*FOREIGN):
                await response.aclose()

    async def _refusal(self, response: httpx2.Response, answer: HttpAnswer) -> ProviderFailure:
        try:
            body = await answer.whole()
        except ProviderFailure:
            body = b""  # the status says enough
        return of_status(self.place, response.status_code, response.headers, body, self._time_source.now())

    def _connected(self) -> httpx2.AsyncClient:
        """The client of the running loop: connections cannot move from one event loop to another."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            wait = httpx2.Timeout(self._request_policy.idle_s, connect=self._request_policy.connect_s)
            verify = trust_for(self._base_url)
            self._client, self._loop = httpx2.AsyncClient(headers=self._headers, timeout=wait, verify=verify), loop
        return self._client
