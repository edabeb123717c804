"""Where spans go: to a collector over OTLP, or to the terminal. A collector that is down costs spans and nothing else.

Spans wait in a bounded queue and a thread sends them; beyond the bound they are dropped. At the end of the process
what waits is sent, for a bounded time. Variables of the OpenTelemetry specification (`OTEL_*`) say what the settings do
not: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/.
"""

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TextIO
from urllib.parse import urlsplit

from msgspec import Struct
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from requests import Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectionError, RequestException  # noqa: A004 (it is the one that is meant)

from toolwire.telemetry.conventions import Clean
from toolwire.telemetry.traces import TurnTracer

PATH = "/v1/traces"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_log = logging.getLogger(__name__)


class ExportOptions(Struct, frozen=True):
    """What the settings say; what is empty or None is left to `OTEL_*` variables and their defaults."""

    exporter: Literal["otlp", "console"] = "otlp"
    endpoint: str = ""
    sampling: float | None = None
    service_name: str = ""
    version: str = ""
    flush_s: float = 2.0


def open_tracer(
    options: ExportOptions, environ: Mapping[str, str], clean: Clean | None = None
) -> tuple[TurnTracer, Callable[[], None]]:
    """A tracer that exports, and what sends the rest at the end, within `flush_s`."""
    exporter: SpanExporter = (
        _SpanLines(out=sys.stderr)
        if options.exporter == "console"
        else _OtlpExporter(_traces_url(options.endpoint), environ)
    )
    sampler = None if options.sampling is None else ParentBased(TraceIdRatioBased(options.sampling))
    tracer = TurnTracer(
        [BatchSpanProcessor(exporter)], sampler=sampler, resource=_resource(options, environ), clean=clean
    )

    def close() -> None:
        if isinstance(exporter, _OtlpExporter):
            exporter.give_up_retries()
        tracer.provider.shutdown()

    return tracer, BoundedClose(close, options.flush_s)


def _traces_url(endpoint: str) -> str:
    """The address for traces of a collector whose address is given with or without their path."""
    base = endpoint.rstrip("/")
    return base if not base or base.endswith(PATH) else base + PATH


def _resource(options: ExportOptions, environ: Mapping[str, str]) -> Resource:
    is_named = "OTEL_SERVICE_NAME" in environ or f"{SERVICE_NAME}=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    name = options.service_name or ("" if is_named else "toolwire")
    return Resource.create({SERVICE_VERSION: options.version, **({SERVICE_NAME: name} if name else {})})


class BoundedClose:
    """Closes something that may take any time, and waits for that no longer than `within_s`.

    Its thread is there from the beginning: at the end of an interpreter none can be started.
    """

    def __init__(self, close: Callable[[], None], within_s: float) -> None:
        self._close = close
        self._within_s = within_s
        self._wanted, self._done = threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="toolwire-telemetry-end", daemon=True).start()

    def __call__(self) -> None:
        self._wanted.set()
        self._done.wait(self._within_s)

    def _run(self) -> None:
        self._wanted.wait()
        try:
            self._close()
        finally:
            self._done.set()


class _OtlpExporter(SpanExporter):
    """Sends spans to a collector. Says once that it does not answer; the library's own exporter repeats that."""

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        session = Session()
        self._connection = _CollectorConnection()
        for scheme in ("http://", "https://"):
            session.mount(scheme, self._connection)
        # A proxy of the environment is meant for the world, not for a collector on this machine.
        address = url or next(filter(None, map(environ.get, _ENDPOINTS)), "")
        session.trust_env = urlsplit(address).hostname not in _LOOPBACK
        self._exporter = OTLPSpanExporter(url or None, session=session)
        self._is_failing = False
        for name in ("opentelemetry.exporter", "opentelemetry.sdk", "urllib3"):
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing and not self._is_failing:
            _log.warning("traces cannot be sent to the collector; they are dropped until it answers")
        self._is_failing = is_failing
        return result

    def give_up_retries(self) -> None:
        """Send what is left in one try, and nothing where a try has just failed: the process ends."""
        self._connection.is_last_try = True
        if self._connection.has_failed:
            self.shutdown()

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _CollectorConnection(HTTPAdapter):
    """A connection to a collector that knows how its last try went.

    The exporter tries again, after growing pauses, whatever it takes for a lost connection; so that the last try is the
    last, its failure is called something else.
    """

    is_last_try = has_failed = False

    def send(self, *args: Any, **named: Any) -> Response:
        try:
            response = super().send(*args, **named)
        except ConnectionError as lost:
            self.has_failed = True
            if self.is_last_try:
                raise RequestException(str(lost)) from lost
            raise
        self.has_failed = False
        return response


class _SpanLines(ConsoleSpanExporter):
    """Writes each span as a line of JSON."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out=out, formatter=lambda span: span.to_json(indent=None) + "\n")
