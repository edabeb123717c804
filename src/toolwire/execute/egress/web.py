"""WebOps of this machine: HTTP requests through the door, one judged hop after another."""

import asyncio
import ssl
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import httpcore2
import httpx2
from msgspec import Struct

from toolwire.errors import ToolFailure
from toolwire.execute.egress.caps import MIB, Audit, Caps, Meter, OverCap, TrafficEvent, no_audit
from toolwire.execute.egress.connector import ConnectionRefused, Connector, Unreachable
from toolwire.execute.egress.pinned import Body, Pool
from toolwire.execute.egress.places import BadUrl, WebAddress, read_url
from toolwire.execute.egress.rules import BadRule, Rules
from toolwire.execute.egress.traffic import TrafficLog
from toolwire.protocol.operations import WebAnswer, WebRequest
from toolwire.protocol.outcomes import Code

WEB_CAPS = Caps(at_once=4, opened=16, down_bytes=32 * MIB, up_bytes=4 * MIB, head_s=20.0, whole_s=60.0)
FOREIGN = (
    httpcore2.ProtocolError,
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
    httpcore2.ConnectionNotAvailable,
)
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_KEEPS_METHOD = frozenset((307, 308))
_CREDENTIALS = frozenset(("authorization", "cookie", "proxy-authorization"))
_OURS = frozenset(("host", "connection", "content-length", "transfer-encoding", "accept-encoding", "upgrade", "te"))
_ENCODINGS = frozenset(("", "identity", "gzip", "deflate"))


class Web:
    """Asks web servers directly. `tls` replaces the usual certificates; `audit` hears of every hop."""

    def __init__(
        self,
        connector: Connector | None = None,
        *,
        caps: Caps = WEB_CAPS,
        tls: ssl.SSLContext | None = None,
        audit: Audit = no_audit,
    ) -> None:
        self._connector = connector or Connector(connect_s=caps.connect_s)
        self._caps = caps
        self._tls = tls
        self._audit = audit

    async def ask(self, request: WebRequest, network: tuple[str, ...]) -> WebAnswer:
        """See `WebOps`. Raises ToolFailure."""
        meter, log = Meter(self._caps), TrafficLog()
        try:
            async with asyncio.timeout(self._caps.whole_s):
                return await self._follow(request, Rules.of(network), meter, log)
        except BadUrl as wrong:
            raise ToolFailure(f"this URL cannot be used: {wrong}", code=Code.INVALID_PARAMS) from None
        except BadRule as wrong:
            raise ToolFailure(f"no host is allowed: {wrong}", code=Code.PERMISSION_DENIED) from None
        except ConnectionRefused as refused:
            raise ToolFailure(str(refused), code=Code.PERMISSION_DENIED) from None
        except Unreachable as lost:
            raise ToolFailure(str(lost), code=Code.UNAVAILABLE) from None
        except (TimeoutError, httpcore2.TimeoutException):
            raise ToolFailure("the server took too long", code=Code.TIMEOUT) from None
        except OverCap as over:
            raise ToolFailure(f"the server's answer is too large: {over}") from None
        except httpx2.DecodingError:
            raise ToolFailure("the answer says that it is compressed, but cannot be unpacked") from None
        except (*FOREIGN, OSError) as lost:
            raise ToolFailure(f"the connection failed ({_short(lost)})", code=Code.UNAVAILABLE) from None
        finally:
            request.traffic(log.take())

    async def _follow(self, request: WebRequest, rules: Rules, meter: Meter, log: TrafficLog) -> WebAnswer:
        """Every redirect is a new request: read, judged, resolved and connected like the first."""
        hop = _Hop(read_url(request.url), request)
        for _ in range(min(request.redirects, self._caps.redirects) + 1):
            answer = await self._once(hop, rules, meter, log)
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or location is None or not request.redirects:
                return answer
            hop = hop.redirected(answer.status, location)
        raise ToolFailure(f"the server redirects more than {min(request.redirects, self._caps.redirects)} times")

    async def _once(self, hop: "_Hop", rules: Rules, meter: Meter, log: TrafficLog) -> WebAnswer:
        place, method = hop.place, hop.request.method
        shown = f"{place.host}:{place.port}"
        verdict, part = rules.judge(place.asked(method)), Meter(meter.caps, meter)
        try:
            if not verdict.allowed:
                raise ConnectionRefused(verdict.reason)
            if reason := hop.request.refusal(place.url):
                raise ConnectionRefused(reason)
            with meter.connection():
                async with self._asked(hop, part) as answer:
                    self._note(log, TrafficEvent("allowed", shown, method, verdict.rule))
                    return await self._read(answer, hop)
        except ConnectionRefused as refused:
            self._note(log, TrafficEvent("refused", shown, method, verdict.rule, str(refused)))
            raise
        finally:
            self._note(log, TrafficEvent("closed", shown, method, up=part.up, down=part.down))

    def _note(self, log: TrafficLog, noted: TrafficEvent) -> None:
        log(noted)
        self._audit(noted)

    def _asked(self, hop: "_Hop", meter: Meter) -> AbstractAsyncContextManager[httpcore2.Response]:
        if hop.place.scheme == "https" and self._tls is None:
            self._tls = httpcore2.default_ssl_context()  # takes a while, so it is made once and when needed
        pool = Pool(self._connector, meter, self._tls)
        return pool.asked(hop.place, hop.request.method, hop.headers(), hop.request.body)

    async def _read(self, answer: httpcore2.Response, hop: "_Hop") -> WebAnswer:
        if len(answer.headers) > self._caps.headers:
            raise OverCap(f"there are more than {self._caps.headers} headers")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
        if headers.get("content-encoding", "").strip().lower() not in _ENCODINGS:
            raise ToolFailure("the answer is compressed in a way that was not asked for")
        most = min(hop.request.most_bytes, self._caps.decoded_bytes)
        body, truncated = await _first(
            httpx2.Response(answer.status, headers=answer.headers, stream=Body(answer)), most
        )
        return WebAnswer(hop.place.url, answer.status, headers, body, truncated)


class _Hop(Struct, frozen=True):
    """One request on the way: where it goes, and what it may still carry there."""

    place: WebAddress
    request: WebRequest

    def headers(self) -> list[tuple[bytes, bytes]]:
        given = {**self.request.headers, **self.request.secrets}
        lines = {name.lower(): value for name, value in given.items() if name.lower() not in _OURS}
        lines |= {"host": self.place.authority, "connection": "close", "accept-encoding": "gzip, deflate"}
        if self.request.body or self.request.method not in ("GET", "HEAD"):
            lines["content-length"] = str(len(self.request.body))
        if not all(text.isascii() and text.isprintable() for line in lines.items() for text in line):
            raise ToolFailure("a header can only hold ASCII characters in one line", code=Code.INVALID_PARAMS)
        return [(name.encode(), value.encode()) for name, value in lines.items()]

    def redirected(self, status: int, location: str) -> "_Hop":
        try:
            place = read_url(location.encode("latin-1").decode("utf-8", "replace"), self.place)
        except BadUrl as wrong:
            raise ConnectionRefused(f"{self.place.host} redirects to an address that cannot be used: {wrong}") from None
        request = self.request
        if status not in _KEEPS_METHOD and request.method != "HEAD":
            request = replace(request, method="GET", body=b"")
        if place.origin != self.place.origin:
            kept = {name: value for name, value in request.headers.items() if name.lower() not in _CREDENTIALS}
            request = replace(request, headers=kept, secrets={})
        return _Hop(place, request)


async def _first(response: httpx2.Response, most: int) -> tuple[bytes, bool]:
    """The decoded body up to `most` bytes, and whether there was more. A bomb is not unpacked beyond that."""
    pieces: list[bytes] = []
    left = most
    pieces_of_body = response.aiter_bytes()
    try:
        async for piece in pieces_of_body:
            pieces.append(piece[:left])
            left -= len(piece)
            if left < 0:
                return b"".join(pieces), True
    finally:
        await pieces_of_body.aclose()
    return b"".join(pieces), False


def _short(lost: BaseException) -> str:
    cause = lost.__cause__ or lost
    return f"{type(lost).__name__}: {str(cause)[:200]}" if str(cause) else type(lost).__name__
