"""Spans and metrics of requests, and the page `/metrics`.

What a request is done for (an upstream, a turn) is below its span: the headers that say so replace the client's.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolwire.gateway.log import RequestEntry
from toolwire.protocol.tracing import read_trace
from toolwire.record.contract import Workload
from toolwire.telemetry.metrics import CONTENT_TYPE, OTHER, Metrics
from toolwire.telemetry.store_metrics import SharedState
from toolwire.telemetry.traces import TurnTracer

PATH = "/metrics"
_UNTRACED = frozenset({"/healthz", "/readyz", PATH})


class GatewayTelemetry(Struct, frozen=True):
    """What a gateway tells: spans by a tracer, metrics with what `read` finds in the store, if there is one."""

    tracer: TurnTracer | None = None
    metrics: Metrics | None = None
    read: Callable[[], Awaitable[Workload]] | None = None


class RequestObserver:
    """Sees every request from its headers to its end."""

    def __init__(self, telemetry: GatewayTelemetry, routes: Iterable[Route]) -> None:
        self._tracer = telemetry.tracer
        self._metrics = telemetry.metrics
        self._routes = tuple(routes)

    @contextmanager
    def __call__(self, entry: RequestEntry, headers: dict[str, str]) -> Iterator[None]:
        if self._tracer is None or entry.path in _UNTRACED:
            yield
            return
        with self._tracer.serve_request(entry.method, entry.path, read_trace(headers)) as span:
            headers.pop("tracestate", None)
            headers.update(span.trace.headers)
            try:
                yield
            finally:
                more: dict[str, str | int] = {"toolwire.request.id": entry.id, "toolwire.calls": entry.tally.calls}
                if entry.model:
                    more |= {"gen_ai.operation.name": "chat", "gen_ai.request.model": entry.model[:128]}
                span.end(entry.status, self.route(entry.path), entry.code, more)

    def count(self, entry: RequestEntry) -> None:
        """Count a request that is over."""
        if self._metrics is not None:
            tally = entry.tally
            self._metrics.requested(
                entry.method, self.route(entry.path), entry.status, entry.elapsed_ms, tally.calls, tally.repaired
            )

    def route(self, path: str) -> str:
        """The route that a path belongs to: there are few of them, whatever clients ask for."""
        return next((route.path for route in self._routes if route.path_regex.match(path)), OTHER)


class MetricsPage:
    """The metrics as text. What they say about all processes is read from the store, at most every few seconds."""

    def __init__(self, metrics: Metrics, read: Callable[[], Awaitable[Workload]] | None) -> None:
        self._metrics = metrics
        self._read = read
        self._shared: SharedState | None = None

    async def show(self, _: Request) -> Response:
        """The metrics of this process and of the store, as Prometheus reads them."""
        if self._shared is None and self._read is not None:
            self._shared = SharedState(self._metrics, self._read)
        if self._shared is not None:
            await self._shared.refresh()
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)
