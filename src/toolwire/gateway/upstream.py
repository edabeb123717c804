"""The client of the upstream: sends what a client sent, to one address only, and bounds what comes back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2

from toolwire.gateway.faults import Fault, Rejected, cut_off, too_large, too_late
from toolwire.gateway.settings import TransferLimits, Upstream
from toolwire.models.failures import FOREIGN, ProviderSite, of_exception
from toolwire.models.response_body import ResponseBody
from toolwire.tls import trust_for

API_VERSION = "2023-06-01"
LARGEST_ERROR = 64 * 1024
_PASSED = ("anthropic-", "openai-", "idempotency-key", "traceparent", "tracestate")
_KEYS = ("authorization", "x-api-key")
_CONNECTIONS = 512
NO_PAGE: Mapping[str, str] = {}


class UpstreamBody(ResponseBody):
    """An answer that is being read. Reading raises Rejected, and nothing else."""

    def __init__(self, response: httpx2.Response, place: ProviderSite, largest: int) -> None:
        super().__init__(response, place, largest)
        self.status = response.status_code
        self.headers = response.headers

    def _too_large(self) -> Rejected:
        return Rejected(too_large(self._place, self._largest))

    def _lost(self, error: Exception) -> Rejected:
        return Rejected(of_lost(self._place, error))

    async def beginning(self) -> bytes:
        """As much as an error needs; the rest stays unread."""
        pieces: list[bytes] = []
        size = 0
        with contextlib.suppress(Rejected):
            while size < LARGEST_ERROR and (piece := await self.piece()):
                pieces.append(piece)
                size += len(piece)
        return b"".join(pieces)[:LARGEST_ERROR]


class UpstreamClient:
    """Asks the upstream, with one pool of connections that lives until `close`."""

    def __init__(self, upstream: Upstream, bounds: TransferLimits) -> None:
        self.upstream = upstream
        self.place = ProviderSite("the upstream", upstream.url, secret=upstream.key)
        self._bounds = bounds
        self._wait = httpx2.Timeout(bounds.idle_s, connect=bounds.connect_s).as_dict()
        self._urls: dict[str, httpx2.URL] = {}
        self._client: httpx2.AsyncClient | None = None

    @asynccontextmanager
    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        page: Mapping[str, str] = NO_PAGE,
    ) -> AsyncIterator[UpstreamBody]:
        """Send once and give the answer, to be read inside the block. Raises Rejected."""
        client = self._connected()
        try:
            url = self._url(path).copy_merge_params(dict(page)) if page else self._url(path)
            # As bytes, since a client's key may be in no alphabet that the library would write.
            written = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
            request = httpx2.Request(method, url, headers=written, content=body, extensions={"timeout": self._wait})
            response = await client.send(request, stream=True)
        except FOREIGN as lost:
            raise Rejected(of_lost(self.place, lost)) from None
        try:
            yield UpstreamBody(response, self.place, self._bounds.answer_bytes)
        finally:
            with contextlib.suppress(*FOREIGN):
                await response.aclose()

    def headers(self, given: Mapping[str, str], dialect: str, *, forward_keys: bool) -> dict[str, str]:
        """What the upstream gets to see of a client's headers, and the key: the gateway's own, else the client's."""
        sent = {name: value for name, value in given.items() if name.startswith(_PASSED)}
        if self.upstream.key:
            sent |= self._own_key(dialect)
        elif forward_keys:
            sent |= self._clients_key(given, dialect)
        if dialect == "anthropic":
            sent.setdefault("anthropic-version", API_VERSION)
        return sent | {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "toolwire"}

    def _own_key(self, dialect: str) -> dict[str, str]:
        bearer = {"authorization": f"Bearer {self.upstream.key}"}
        if dialect != "anthropic":
            return bearer
        own = {"x-api-key": self.upstream.key}
        # Anthropic reads a bearer as another kind of key; servers that imitate it often read nothing else.
        return own if self.upstream.dialect == "anthropic" else own | bearer

    def _clients_key(self, given: Mapping[str, str], dialect: str) -> dict[str, str]:
        """The client's key, also where this upstream looks for it: one SDK sends a bearer, the other `x-api-key`."""
        sent = {name: given[name] for name in _KEYS if name in given}
        scheme, _, bearer = sent.get("authorization", "").partition(" ")
        if dialect == self.upstream.dialect == "anthropic":
            is_foreign = scheme.lower() == "bearer" and "anthropic-version" not in given
            return {"x-api-key": bearer.strip()} if is_foreign else sent
        return {"authorization": f"Bearer {sent['x-api-key']}"} | sent if "x-api-key" in sent else sent

    async def close(self) -> None:
        """Let go of the connections. Harmless when called twice."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*FOREIGN):
                await client.aclose()

    def _url(self, path: str) -> httpx2.URL:
        """The address of one of our few paths, parsed once."""
        if path not in self._urls:
            self._urls[path] = httpx2.URL(self.upstream.url + path)
        return self._urls[path]

    def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            limits = httpx2.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=64)
            # A proxy of the environment is meant for the world, not for a server on this machine.
            trust_env = not self.upstream.is_here
            verify = trust_for(self.upstream.url, trust_env=trust_env)
            self._client = httpx2.AsyncClient(limits=limits, trust_env=trust_env, verify=verify)
        return self._client


def of_lost(place: ProviderSite, lost: BaseException) -> Fault:
    """What the HTTP client raised, as a fault."""
    match lost:
        case httpx2.ConnectError() | httpx2.ConnectTimeout() | httpx2.PoolTimeout():
            return Fault(502, "upstream_unreachable", f"no connection to {place.url}; is the upstream running?")
        case httpx2.TimeoutException() | asyncio.TimeoutError():
            return too_late(place)
        case httpx2.RemoteProtocolError() | httpx2.ReadError() | httpx2.WriteError() | OSError():
            return cut_off(place)
        case _:
            return Fault(502, "upstream_unreadable", str(of_exception(place, lost).error))
