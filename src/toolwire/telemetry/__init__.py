"""Spans and metrics of turns and calls, for OpenTelemetry and Prometheus; needs the extra `toolwire[telemetry]`.

    identifiers   trace and span ids that every process computes alike
    traces        events of turns as spans: `TurnTracer`
    exporting     where spans go, by settings and `OTEL_*` variables

Nothing is imported here, so that a program without the extra can name the package. What happens in a turn is told by
the events that it has anyway (`hub.event_hub`); no code of a turn calls into this package.
"""
