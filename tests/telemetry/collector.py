"""An OpenTelemetry collector on loopback: takes spans over OTLP and reads them with the library's own types."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


@dataclass(frozen=True, slots=True)
class SentSpan:
    """A span as it came in."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    status: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    began: int
    ended: int


@dataclass(slots=True)
class Collector:
    """What was sent. One that `hangs` answers nothing until the test is over."""

    url: str = ""
    spans: list[SentSpan] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def of(self, operation: str) -> list[SentSpan]:
        """The spans of an operation such as `execute_tool`, the earliest first."""
        found = [span for span in self.spans if span.attributes.get("gen_ai.operation.name") == operation]
        return sorted(found, key=lambda span: span.began)


@contextmanager
def collecting(*, hangs: bool = False) -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.paths.append(self.path)
            collector.spans += _spans(ExportTraceServiceRequest.FromString(body))
            collector.arrived.set()
            if hangs:
                collector.over.wait()
            try:
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                return

        def log_message(self, *args: Any) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.over.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def _spans(request: ExportTraceServiceRequest) -> Iterator[SentSpan]:
    for group in request.resource_spans:
        resource = {one.key: _value(one.value) for one in group.resource.attributes}
        for scope in group.scope_spans:
            for span in scope.spans:
                yield SentSpan(
                    span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.kind,
                    span.status.code, {one.key: _value(one.value) for one in span.attributes}, resource,
                    span.start_time_unix_nano, span.end_time_unix_nano,
                )  # fmt: skip


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind or "")
