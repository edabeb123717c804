"""Telling another server that something happened: signed, through the guarded door, beside the work."""

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType

from msgspec import Struct

from toolwire.errors import SettingsError, ToolFailure
from toolwire.execute.egress.addresses import why_not_for_operators
from toolwire.execute.egress.caps import Caps
from toolwire.execute.egress.connector import Connector
from toolwire.execute.egress.places import BadUrl, WebAddress, read_url
from toolwire.execute.egress.rules import BadRule, Rules
from toolwire.execute.egress.web import Web
from toolwire.protocol.operations import WebOps, WebRequest
from toolwire.protocol.outcomes import Code

HOOK_CAPS = Caps(at_once=1, opened=1, down_bytes=64 * 1024, up_bytes=256 * 1024, head_s=5.0, whole_s=10.0)
WAITS_S = (0.0, 1.0, 4.0)
MOST_AT_ONCE = 32
CLOSING_S = 10.0
LONGEST_UNDER_WAY_S = 300.0
_PASSING = frozenset({408, 425, 429})
_log = logging.getLogger("toolwire.webhook")


class PostOutcome(Struct, frozen=True):
    """What came of one attempt. `trouble` is empty where it arrived; `is_refused` where it was not even tried."""

    trouble: str = ""
    status: int = 0
    is_refused: bool = False


def signature(key: bytes, timestamp: str, body: bytes) -> str:
    """What proves that a message is ours and from this time: HMAC-SHA256 of `timestamp.body`."""
    return "v1=" + hmac.new(key, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def is_signed(key: bytes, timestamp: str, body: bytes, signatures: str, now: float) -> bool:
    """Whether a message that a receiver got is from the holder of its key, unchanged, and not an old one repeated."""
    if not (timestamp.isascii() and timestamp.isdecimal() and abs(now - int(timestamp)) <= LONGEST_UNDER_WAY_S):
        return False
    expected = signature(key, timestamp, body).encode()
    return any(hmac.compare_digest(expected, one.strip().encode()) for one in signatures.split(","))


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
        self._web = web or web_for_hook(self._place, hosts, "approval.webhook_hosts")
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
        keys = (self._key,) if self._key else ()
        outcome = await post_signed(self._web, self._place, delivery, body, keys, self._clock())
        return outcome.trouble, not outcome.status or outcome.status >= 500 or outcome.status in _PASSING


async def post_signed(
    web: WebOps, place: WebAddress, delivery: str, body: bytes, keys: Sequence[bytes], now: float
) -> PostOutcome:
    """Post a JSON message once, signed with each of these keys. Redirects are not followed."""
    timestamp = str(int(now))
    headers = {"content-type": "application/json", "x-toolwire-delivery": delivery, "x-toolwire-timestamp": timestamp}
    if keys:
        headers["x-toolwire-signature"] = ",".join(signature(key, timestamp, body) for key in keys)
    request = WebRequest(place.url, "POST", headers, body, most_bytes=1024, redirects=0)
    try:
        answer = await web.ask(request, (f"POST {place.host}:{place.port}",))
    except ToolFailure as failure:
        return PostOutcome(str(failure), is_refused=failure.code is Code.PERMISSION_DENIED)
    if 200 <= answer.status < 300:
        return PostOutcome(status=answer.status)
    return PostOutcome(f"it answered with status {answer.status}", answer.status)


def _place(url: str) -> WebAddress:
    try:
        return read_url(url)
    except BadUrl as wrong:
        raise SettingsError(f"approval.webhook: {wrong}") from None


def web_for_hook(place: WebAddress, hosts: Iterable[str], setting: str, caps: Caps = HOOK_CAPS) -> Web:
    """Through the door that every tool uses; where the operator named this very host, also to their own network.

    `setting` is where they name hosts. Raises SettingsError for one that cannot be read.
    """
    try:
        named = Rules.of(hosts).judge(place.asked("POST")).allowed
    except BadRule as wrong:
        raise SettingsError(f"{setting}: {wrong}") from None
    connector = Connector(why_not=why_not_for_operators, connect_s=caps.head_s) if named else None
    return Web(connector, caps=caps)
