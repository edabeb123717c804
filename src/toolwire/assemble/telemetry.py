"""`Settings → telemetry`: whether this process makes spans, and where they go. Nothing is loaded where it does not.

There is one for the whole process, whatever it opens and closes on the way; at the end of the process the rest is sent.
"""

import atexit
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import toolwire
from toolwire.assemble.project import ProjectFolder
from toolwire.errors import SettingsError
from toolwire.execute.contract import Executor
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.lazy import lazy_module
from toolwire.settings.schema import TelemetrySettings

if TYPE_CHECKING:
    from toolwire.telemetry import exporting
    from toolwire.telemetry import traced_executor as traced
    from toolwire.telemetry.traces import TurnTracer
else:
    exporting = lazy_module("toolwire.telemetry.exporting")
    traced = lazy_module("toolwire.telemetry.traced_executor")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
OFF = "off"
_NEEDS = ("opentelemetry", "google", "requests")
_log = logging.getLogger(__name__)
_opened: dict[tuple[object, ...], "TurnTracer"] = {}


def telemetry_of(project: ProjectFolder) -> "TurnTracer | None":
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
        advice = f"traces need an extra: pip install 'toolwire[telemetry]' ({missing})"
        if chosen.exporter is not None or chosen.endpoint is not None:
            raise SettingsError(advice) from None
        _log.warning("OTEL_* variables ask for traces, and %s", advice)  # they may be meant for other programs
        return None
    return _opened.setdefault(key, tracer)


def traced_executor(project: ProjectFolder) -> Executor | None:
    """What runs calls for other processes with a span for each; None where the usual one does."""
    tracer = telemetry_of(project)
    return None if tracer is None else traced.TracedExecutor(InProcessExecutor(), tracer)


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
