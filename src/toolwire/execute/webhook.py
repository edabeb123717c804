"""Telling another server that something happened: signed, through the guarded door, beside the work."""

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType

from toolwire.errors import SettingsError, ToolFailure
from toolwire.execute.egress.addresses import why_not_for_operators
from toolwire.execute.egress.caps import Caps
from toolwire.execute.egress.connector import Connector
from toolwire.execute.egress.places import BadUrl, WebAddress, read_url
from toolwire.execute.egress.rules import BadRule, Rules
from toolwire.execute.egress.web import Web
from toolwire.protocol.operations import WebOps, WebRequest

HOOK_CAPS = Caps(at_once=1, opened=1, down_bytes=64 * 1024, up_bytes=256 * 1024, head_s=5.0, whole_s=10.0)
WAITS_S = (0.0, 1.0, 4.0)
MOST_AT_ONCE = 32
CLOSING_S = 10.0
_PASSING = frozenset({408, 425, 429})
_log = logging.getLogger("toolwire.webhook")


def signature(key: bytes, timestamp: str, body: bytes) -> str:
    """What proves that a message is ours and from this time: HMAC-SHA256 of `timestamp.body`."""
    return "v1=" + hmac.new(key, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhook:
    """Posts messages to one address while its block lasts. The sender neither waits nor hears of failures.

    Only public addresses are reached, except a host that `hosts` names. Raises SettingsError for an address or host
    that cannot be read.
    """

    def __init__(
        self,
        url: str,
        key: bytes = b"",
        hosts: Iterable[str] = (),
        *,
        web: WebOps | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        closing_s: float = CLOSING_S,
    ) -> None:
        self._place = _place(url)
        self._key = key
        self._web = web or _way(self._place, hosts)
        self._clock = clock
        self._sleep = sleep
        self._closing_s = closing_s
        self._under_way: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Webhook":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give what is under way a moment to arrive, then end it."""
        if not self._under_way:
            return
        await asyncio.wait(self._under_way, timeout=self._closing_s)
        left = list(self._under_way)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def send(self, delivery: str, body: bytes) -> None:
        """Have a JSON message delivered. `delivery` stays the same however often it is tried."""
        if len(self._under_way) >= MOST_AT_ONCE:
            _log.warning("webhook: %s is not told about %s, since too much is under way", self._place.host, delivery)
            return
        task = asyncio.create_task(self._deliver(delivery, body), name=f"webhook {delivery}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _deliver(self, delivery: str, body: bytes) -> None:
        trouble = ""
        for wait_s in WAITS_S:
            if wait_s:
                await self._sleep(wait_s)
            trouble, again = await self._try(delivery, body)
            if not trouble:
                return
            if not again:
                break
        # Only the host: a path can hold a secret of its own.
        _log.warning("webhook: %s could not be told about %s: %s", self._place.host, delivery, trouble)

    async def _try(self, delivery: str, body: bytes) -> tuple[str, bool]:
        """What went wrong, empty if nothing did, and whether it may go better another time."""
        place, timestamp = self._place, str(int(self._clock()))
        headers = {
            "content-type": "application/json",
            "x-toolwire-delivery": delivery,
            "x-toolwire-timestamp": timestamp,
        }
        if self._key:
            headers["x-toolwire-signature"] = signature(self._key, timestamp, body)
        request = WebRequest(place.url, "POST", headers, body, most_bytes=1024, redirects=0)
        try:
            answer = await self._web.ask(request, (f"POST {place.host}:{place.port}",))
        except ToolFailure as failure:
            return str(failure), True
        if 200 <= answer.status < 300:
            return "", False
        return f"it answered with status {answer.status}", answer.status >= 500 or answer.status in _PASSING


def _place(url: str) -> WebAddress:
    try:
        return read_url(url)
    except BadUrl as wrong:
        raise SettingsError(f"approval.webhook: {wrong}") from None


def _way(place: WebAddress, hosts: Iterable[str]) -> Web:
    """Through the door that every tool uses; where the operator named this very host, also to their own network."""
    try:
        named = Rules.of(hosts).judge(place.asked("POST")).allowed
    except BadRule as wrong:
        raise SettingsError(f"approval.webhook_hosts: {wrong}") from None
    connector = Connector(why_not=why_not_for_operators, connect_s=HOOK_CAPS.head_s) if named else None
    return Web(connector, caps=HOOK_CAPS)
