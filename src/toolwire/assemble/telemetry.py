"""`Settings → telemetry`: whether this process makes spans and metrics, and where they go. Else nothing is loaded.

There is one for the whole process, whatever it opens and closes on the way; at the end of the process the rest is sent.
"""

import atexit
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import toolwire
from toolwire.assemble.project import ProjectFolder, process_metrics
from toolwire.errors import SettingsError
from toolwire.execute.contract import Executor
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.hub.event_hub import EventHub
from toolwire.lazy import lazy_module
from toolwire.protocol.events import TurnEnded
from toolwire.protocol.tools import Tool
from toolwire.record.contract import KeptTurn, Store
from toolwire.settings.schema import TelemetrySettings

if TYPE_CHECKING:
    from toolwire.bus.contract import Bus
    from toolwire.telemetry import exporting, metrics, metrics_server, process, store_metrics, worker_calls
    from toolwire.telemetry.metrics import Metrics
    from toolwire.telemetry.process import ProcessTelemetry
    from toolwire.telemetry.traces import TurnTracer
else:
    exporting = lazy_module("toolwire.telemetry.exporting")
    metrics = lazy_module("toolwire.telemetry.metrics")
    process = lazy_module("toolwire.telemetry.process")
    metrics_server = lazy_module("toolwire.telemetry.metrics_server")
    store_metrics = lazy_module("toolwire.telemetry.store_metrics")
    worker_calls = lazy_module("toolwire.telemetry.worker_calls")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
OFF = "off"
_NEEDS = ("opentelemetry", "google", "requests")
_log = logging.getLogger(__name__)
_opened: dict[tuple[object, ...], "TurnTracer"] = {}
_STOP_S = 2.0


def telemetry_of(project: ProjectFolder) -> "ProcessTelemetry | None":
    """What this process tells about its turns; None where that is nothing. Raises SettingsError."""
    tracer = tracer_of(project)
    return None if tracer is None and not process_metrics else process.ProcessTelemetry(tracer, opened_metrics())


def tell_end(kept: KeptTurn, events: EventHub) -> None:
    """Tell the watchers of a turn that ended while no agent ran it."""
    emit = events.emitter(kept.opening)
    if emit is not None and kept.ending is not None:
        emit(TurnEnded(kept.opening.id, kept.ending, kept.ran_s * 1000))


def opened_metrics() -> "Metrics | None":
    """The metrics of this process, if it gives any."""
    return process_metrics[0] if process_metrics else None


def open_metrics(project: ProjectFolder) -> "Metrics":
    """Count what happens in this process from now on. Raises SettingsError."""
    if not process_metrics:
        try:
            metrics.leave_out_created()
            process_metrics.append(metrics.Metrics(project.settings.telemetry.metrics_projects))
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] != "prometheus_client":
                raise
            raise SettingsError(f"metrics need an extra: pip install 'toolwire[telemetry]' ({missing})") from None
    return process_metrics[0]


def start_metrics(project: ProjectFolder) -> None:
    """Count what happens in this process from now on, if the settings name a port for metrics. Raises SettingsError."""
    if project.settings.telemetry.metrics_port is not None:
        open_metrics(project)


@contextmanager
def serving_metrics(project: ProjectFolder, store: Store | None = None, bus: "Bus | None" = None) -> Iterator[str]:
    """Within the block, metrics are given at the port of the settings; gives the address, empty without a port.

    With a store and a bus, they say what those know. Raises SettingsError.
    """
    chosen = project.settings.telemetry
    if chosen.metrics_port is None:
        yield ""
        return
    counted = open_metrics(project)
    if store is not None:
        store_metrics.SharedState(counted, lambda: store.workload(time.time()), bus)
    try:
        server, thread = metrics_server.serve_metrics(chosen.metrics_port, chosen.metrics_host, counted.registry)
    except OSError as wrong:
        reason = f"metrics cannot be given at {chosen.metrics_host}:{chosen.metrics_port}: {wrong.strerror or wrong}"
        raise SettingsError(f"{reason}; choose another --metrics-port") from None
    try:
        yield f"http://{chosen.metrics_host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(_STOP_S)


def tracer_of(project: ProjectFolder) -> "TurnTracer | None":
    """What makes spans in this process, opened once; None where nothing says where they go. Raises SettingsError."""
    chosen = project.settings.telemetry
    exporter = exporter_of(chosen, project.environ)
    if exporter == OFF:
        return None
    key = (exporter, chosen.endpoint, chosen.sampling, chosen.service_name, chosen.contents, chosen.flush_s)
    if (opened := _opened.get(key)) is not None:
        return opened
    try:
        tracer = _open(project, exporter)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _NEEDS:
            raise
        _go_without_traces(chosen, f"traces need an extra: pip install 'toolwire[telemetry]' ({missing})")
    except ValueError as wrong:
        _go_without_traces(chosen, f"an OTEL_* variable cannot be used: {wrong}")
    else:
        return _opened.setdefault(key, tracer)
    return None


def _go_without_traces(chosen: TelemetrySettings, why: str) -> None:
    """Say why there are no traces. Raises SettingsError where the settings ask for them."""
    if chosen.exporter is not None or chosen.endpoint is not None:
        raise SettingsError(why)
    _log.warning("OTEL_* variables ask for traces, and %s", why)  # they may be meant for other programs


def observed_executor(project: ProjectFolder, tools: Iterable[Tool]) -> Executor | None:
    """What runs calls for other processes, with a span and counted; None where the usual executor does."""
    tracer, counted = tracer_of(project), opened_metrics()
    if tracer is None and counted is None:
        return None
    if counted is not None:
        counted.know_tools(tools)
    return worker_calls.ObservedExecutor(InProcessExecutor(), tracer, counted)


def exporter_of(chosen: TelemetrySettings, environ: Mapping[str, str]) -> str:
    """Where spans go: what the settings say, else what the variables say; nowhere (`off`) where neither does."""
    if chosen.exporter is not None:
        return chosen.exporter
    if chosen.endpoint is not None:
        return "otlp"
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return OFF
    wanted = _said(environ, "OTEL_TRACES_EXPORTER") or ("otlp" if _said(environ, *_ENDPOINTS) else "none")
    spoken = _said(environ, *_PROTOCOLS) or "http/protobuf"
    if wanted == "console" or (wanted == "otlp" and spoken == "http/protobuf"):
        return wanted
    if wanted != "none":
        _log.warning("traces are not sent: toolwire has no exporter %s with the protocol %s", wanted[:40], spoken[:40])
    return OFF


def _said(environ: Mapping[str, str], *names: str) -> str:
    """What the first of these variables says that is set."""
    return next((value for name in names if (value := environ.get(name, "").strip())), "")


def _open(project: ProjectFolder, exporter: str) -> "TurnTracer":
    chosen = project.settings.telemetry
    secrets = project.settings.secrets(project.environ)
    options = exporting.ExportOptions(
        "console" if exporter == "console" else "otlp",
        chosen.endpoint or "",
        chosen.sampling,
        chosen.service_name or "",
        toolwire.__version__,
        chosen.flush_s,
    )
    tracer, close = exporting.open_tracer(options, project.environ, secrets.clean if chosen.contents else None)
    atexit.register(close)
    return tracer
